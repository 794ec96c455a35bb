//! What the gate writes into status for each decision.
//!
//! The whole fragment every time: server-side apply removes what a manager leaves out, so `waitingFor` disappears by
//! itself once nothing is waited for.
//!
//! # Invariants
//! 1. The four conditions of the gate are always all there, each with the generation they speak of.
//! 2. `lastTransitionTime` changes only with the status (of a dependency: with `ready`), never with a message.
//! 3. Reporting the same decision on the status it produced gives the same fragment: no write follows a write.
//! 4. Ready, Reconciling and Stalled share one reason, and at most one of the three is True.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay_api::wait_probe::DEFAULT_DEPENDENCY;
use mainstay_api::{Address, Condition, DependencyStatus, WaitDeployment};
use serde::Serialize;
use serde_json::Value;

use super::{Decision, Opened};
use crate::deployment::{LiveDeployment, text};
use crate::probe::ProbeResult;
use crate::reasons::{self, condition};
use crate::status::status_of;

/// Longest message in bytes; a refusal of the API server may quote the whole template.
const MAX_MESSAGE: usize = 1024;

/// How writing the Deployment went.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// The gate is closed, or the decision is to leave things alone.
    NotTried,
    /// The Deployment is written for the current generation; as it is now.
    Current(Box<LiveDeployment>),
    /// Refused as invalid; with the server's words.
    Rejected(String),
    /// Refused by RBAC, quota or admission; with the server's words.
    Forbidden(String),
}

/// The part of a status that the gate owns.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GateStatus {
    /// The generation the gate acted on.
    pub observed_generation: i64,
    /// What is waited for, in a few words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// The prerequisites.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependencyStatus>,
    /// All four conditions of the gate.
    pub conditions: Vec<Condition>,
}

/// Where things stand, before it is spread over the conditions.
struct Summary {
    ready: &'static str,
    progress: Progress,
    reason: &'static str,
    message: String,
}

/// kstatus's view: <https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus>.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Settled,
    Reconciling,
    Stalled,
}

/// Returns the status fragment for a decision and what became of it. `object` carries the previous conditions.
pub fn report(object: &WaitDeployment, decision: &Decision, applied: &Applied, now: &Time) -> GateStatus {
    let summary = summarise(object, decision, applied);
    let dependency = judge_dependency(object, decision);
    let flag = |progress| if summary.progress == progress { "True" } else { "False" };
    let say = |type_: &str, status: &str, reason: &str, message: &str| Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        observed_generation: Some(object.generation()),
        last_update_time: None,
        last_transition_time: Some(since(object.condition(type_), status, now)),
        reason: Some(reason.to_owned()),
        message: Some(shorten(message).to_owned()),
    };
    GateStatus {
        observed_generation: object.generation(),
        waiting_for: waiting_for(decision),
        conditions: vec![
            say(condition::READY, summary.ready, summary.reason, &summary.message),
            say(condition::DEPENDENCIES_READY, dependency.status, dependency.reason, &dependency.message),
            say(condition::RECONCILING, flag(Progress::Reconciling), summary.reason, &summary.message),
            say(condition::STALLED, flag(Progress::Stalled), summary.reason, &summary.message),
        ],
        dependencies: dependency_status(object, &dependency, now),
    }
}

/// Returns whether the object already tells of this very wait, from before this replica led: then what was found out
/// about the prerequisite stands until it has been tried again, or every restart would make every waiting object forget
/// and find out anew.
pub fn is_still_told(object: &WaitDeployment, decision: &Decision) -> bool {
    let (Decision::Wait { address, result: None }, Some(status)) = (decision, &object.status) else {
        return false;
    };
    let told = status.waiting_for.as_deref().and_then(|told| told.strip_prefix(&address.to_string()));
    status.observed_generation == Some(object.generation())
        && told.is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("))
}

// === impl GateStatus ===

impl GateStatus {
    /// Returns the body of the apply.
    pub fn to_apply(&self, object: &WaitDeployment) -> Value {
        status_of(object, self)
    }

    /// Returns whether the object already shows all of this, so that nothing needs to be written.
    pub fn is_shown_by(&self, object: &WaitDeployment) -> bool {
        let Some(status) = &object.status else { return false };
        status.observed_generation == Some(self.observed_generation)
            && status.waiting_for == self.waiting_for
            && status.dependencies == self.dependencies
            && self.conditions.iter().all(|ours| object.condition(&ours.type_) == Some(ours))
    }
}

// === private: the summary ===

fn summarise(object: &WaitDeployment, decision: &Decision, applied: &Applied) -> Summary {
    let stalled = |reason, message| Summary { ready: "False", progress: Progress::Stalled, reason, message };
    let reconciling =
        |reason, message| Summary { ready: "False", progress: Progress::Reconciling, reason, message };
    match (decision, applied) {
        (Decision::Conflict { owner }, _) => stalled(
            reasons::DEPLOYMENT_CONFLICT,
            format!(
                "Deployment {} exists and is controlled by {owner}; rename one of the two, or delete the Deployment",
                name(object)
            ),
        ),
        (Decision::Leave | Decision::Terminating, _) => reconciling(
            reasons::DEPLOYMENT_TERMINATING,
            "the Deployment is being deleted; the gate decides anew once it is gone".to_owned(),
        ),
        (Decision::Invalid(invalid), _) => stalled(reasons::INVALID_PROBE, invalid.to_string()),
        (Decision::Wait { address, result: None }, _) => Summary {
            ready: "Unknown",
            progress: Progress::Reconciling,
            reason: reasons::WAITING_FOR_DEPENDENCIES,
            message: format!("{address} has not been tried yet"),
        },
        (Decision::Wait { address, result: Some(ProbeResult::Denied { message }) }, _) => {
            stalled(reasons::POLICY_DENIED, format!("{address} is not probed: {message}"))
        }
        (Decision::Wait { address, result: Some(result) }, _) => reconciling(
            reasons::WAITING_FOR_DEPENDENCIES,
            format!("waiting for {address}: {}", result.message()),
        ),
        (Decision::Open(_), Applied::Rejected(message)) => {
            stalled(reasons::TEMPLATE_REJECTED, message.clone())
        }
        (Decision::Open(_), Applied::Forbidden(message)) => {
            stalled(reasons::APPLY_FORBIDDEN, message.clone())
        }
        (Decision::Open(_), Applied::NotTried) => {
            reconciling(reasons::ROLLOUT_IN_PROGRESS, "the Deployment is being written".to_owned())
        }
        (Decision::Open(_), Applied::Current(live)) => judge_rollout(object, live),
    }
}

/// The order of `kubectl rollout status`; without numbers, since each would be one more write during a rollout.
fn judge_rollout(object: &WaitDeployment, live: &LiveDeployment) -> Summary {
    let with = |ready, progress, reason, message: &str| Summary {
        ready,
        progress,
        reason,
        message: message.to_owned(),
    };
    let going = |message| with("False", Progress::Reconciling, reasons::ROLLOUT_IN_PROGRESS, message);
    let desired = live.spec.replicas.unwrap_or(1);
    let progressing = live.condition(condition::PROGRESSING);
    let because = |reason| progressing.is_some_and(|condition| text(condition, "reason") == reason);
    let available =
        live.condition(condition::AVAILABLE).is_some_and(|condition| text(condition, "status") == "True");
    let complete =
        live.count("updatedReplicas") >= desired && live.count("replicas") <= live.count("updatedReplicas");

    if live.written_for() != Some(object.generation()) || !live.is_observed() {
        going("the Deployment controller has not seen the current spec yet")
    } else if live.spec.paused && !complete {
        with("False", Progress::Reconciling, reasons::PAUSED, "the Deployment's rollout is paused")
    } else if because(reasons::PROGRESS_DEADLINE_EXCEEDED) {
        let reason = reasons::PROGRESS_DEADLINE_EXCEEDED;
        with(
            "False",
            Progress::Stalled,
            reason,
            "the Deployment made no progress within progressDeadlineSeconds",
        )
    } else if !complete {
        going("the Deployment's rollout is not complete")
    } else if available {
        with("True", Progress::Settled, reasons::AVAILABLE, "the Deployment is available")
    } else if because("NewReplicaSetAvailable") {
        with(
            "False",
            Progress::Reconciling,
            reasons::UNAVAILABLE,
            "too few Pods of the Deployment are available",
        )
    } else {
        going("too few Pods of the Deployment are available yet")
    }
}

// === private: the prerequisite ===

struct Judged {
    status: &'static str,
    reason: &'static str,
    message: String,
    /// Reason of the entry in `dependencies`.
    entry_reason: &'static str,
}

fn judge_dependency(object: &WaitDeployment, decision: &Decision) -> Judged {
    let judged = |status, reason, entry_reason, message: &str| Judged {
        status,
        reason,
        message: message.to_owned(),
        entry_reason,
    };
    match (decision, &object.wait_probe) {
        (_, None) => {
            judged("True", reasons::NO_DEPENDENCIES, reasons::NO_DEPENDENCIES, "there is nothing to wait for")
        }
        (Decision::Invalid(invalid), _) => {
            judged("False", reasons::INVALID_PROBE, reasons::INVALID_PROBE, &invalid.to_string())
        }
        (Decision::Wait { result: None, .. }, _) => {
            judged("Unknown", reasons::UNKNOWN, reasons::UNKNOWN, "not tried yet")
        }
        (Decision::Wait { result: Some(ProbeResult::Denied { message }), .. }, _) => {
            judged("False", reasons::POLICY_DENIED, reasons::POLICY_DENIED, message)
        }
        (Decision::Wait { result: Some(result), .. }, _) => {
            judged("False", reasons::WAITING, result.reason(), result.message())
        }
        (Decision::Open(opened), Some(wait_probe)) => match (opened, wait_probe.resolve()) {
            // Not an error while the Deployment runs, but its next start would meet it.
            (Opened::Exists, Err(invalid)) => {
                judged("Unknown", reasons::INVALID_PROBE, reasons::INVALID_PROBE, &invalid.to_string())
            }
            _ => judged(
                "True",
                reasons::ALL_READY,
                reasons::probe::CONNECTED,
                "answered when the gate opened; not watched since",
            ),
        },
        (Decision::Leave | Decision::Terminating | Decision::Conflict { .. }, _) => judged(
            "Unknown",
            reasons::UNKNOWN,
            reasons::UNKNOWN,
            "not looked at while another Deployment of this name exists",
        ),
    }
}

fn dependency_status(object: &WaitDeployment, judged: &Judged, now: &Time) -> Vec<DependencyStatus> {
    if object.wait_probe.is_none() {
        return Vec::new();
    }
    let ready = judged.status == "True";
    let earlier = object.status.as_ref().and_then(|status| {
        status.dependencies.iter().find(|entry| entry.name == DEFAULT_DEPENDENCY && entry.ready == ready)
    });
    let since = earlier.and_then(|entry| entry.last_transition_time.clone()).unwrap_or_else(|| now.clone());
    vec![DependencyStatus {
        name: DEFAULT_DEPENDENCY.to_owned(),
        ready,
        reason: Some(judged.entry_reason.to_owned()),
        message: Some(shorten(&judged.message).to_owned()),
        last_transition_time: Some(since),
    }]
}

fn waiting_for(decision: &Decision) -> Option<String> {
    let named = |address: &Address, reason: &str| format!("{address} ({reason})");
    match decision {
        Decision::Wait { address, result: None } => Some(address.to_string()),
        Decision::Wait { address, result: Some(result) } => Some(named(address, result.reason())),
        _ => None,
    }
}

// === private: small things ===

fn name(object: &WaitDeployment) -> String {
    let meta = &object.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// Returns when the condition took this status: before, if it had it already.
pub(crate) fn since(previous: Option<&Condition>, status: &str, now: &Time) -> Time {
    let kept = previous.filter(|previous| previous.status == status);
    kept.and_then(|previous| previous.last_transition_time.clone()).unwrap_or_else(|| now.clone())
}

/// Cuts at a character boundary.
fn shorten(message: &str) -> &str {
    &message[..message.floor_char_boundary(MAX_MESSAGE)]
}
