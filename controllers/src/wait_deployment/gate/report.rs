//! The status that the gate writes for each decision.
//!
//! Every write carries the whole fragment: server-side apply removes the fields that a manager leaves out, so
//! `waitingFor` and the conditions that exist only while true disappear by themselves.
//!
//! # Invariants
//! 1. Five conditions of the gate are always present, with the generation they describe; two more only while
//!    true.
//! 2. `lastTransitionTime` changes only with `status` (for a dependency: with `ready`), never with a message.
//! 3. Reporting the same decision on the status it produced gives the same fragment, so no write follows a
//!    write.
//! 4. Ready, Reconciling and Stalled share one reason, and at most one of the three is True.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay_api::{Condition, DependencyStatus, WaitDeployment};
use serde::Serialize;

use super::needs::status_entry;
use super::summary::{Progress, cycle_message, invalid_reason, loss_message, summarise, waiting_message};
use super::{Closed, Course, Decision, DependencyState, Loss, Replicas};
use crate::conditions::{ConditionFields, condition_of, shorten};
use crate::dependency::observation::State;
use crate::deployment::LiveDeployment;
use crate::reasons::{self, condition};

/// The result of writing the Deployment.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// The Deployment was not written: the gate is closed, or the decision leaves it alone.
    NotTried,
    /// The Deployment is up to date, except for the parts that are held back; with its present state.
    Current(Box<LiveDeployment>),
    /// The API server refused the write.
    Refused(Refusal),
    /// The Deployment was not adopted: its template differs, and adoption is `IfIdentical`.
    Differs,
}

/// The result of a dry run of the Deployment without anything held back, while a part of it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// There was no dry run, or it had no result.
    Unknown,
    /// The API server would accept the Deployment.
    Accepted,
    /// The API server would refuse the Deployment.
    Refused(Refusal),
}

/// A refusal of the Deployment by the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The cause.
    pub kind: RefusalKind,
    /// The message of the API server.
    pub message: String,
}

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The Deployment is invalid.
    Invalid,
    /// An admission policy or webhook denies the Deployment.
    Denied,
    /// RBAC, a quota or the like forbids the write.
    Forbidden,
}

/// The part of a status that the gate owns.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GateStatus {
    /// The generation that the gate acted on.
    pub observed_generation: i64,
    /// The dependencies that block the gate, in a few words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// When the gate last opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate_opened_time: Option<Time>,
    /// When the gate closed; `None` while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate_closed_time: Option<Time>,
    /// When `onDeadline` applies; `None` while the gate is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_time: Option<Time>,
    /// One entry per dependency.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependencyStatus>,
    /// All conditions of the gate.
    pub conditions: Vec<Condition>,
}

/// The status of an object that is too large to be decoded. Its other status fields are unknown and stay as
/// they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TooLargeStatus {
    observed_generation: i64,
    conditions: Vec<Condition>,
}

/// Returns the status fragment for a decision and its result. `object` carries the status before.
pub fn report(
    object: &WaitDeployment,
    decision: &Decision,
    applied: &Applied,
    dry_run: &DryRun,
    now: &Time,
) -> GateStatus {
    let summary = summarise(object, decision, applied, dry_run);
    let condition = |type_: &str, fields: ConditionFields| condition_of(object, type_, &fields, now);
    let shared = |type_: &str, status| condition(type_, (status, summary.reason, summary.message.clone()));
    let is = |progress| if summary.progress == progress { "True" } else { "False" };
    let mut conditions = vec![
        shared(condition::READY, summary.ready),
        condition(condition::DEPENDENCIES_READY, dependencies_ready(object, decision)),
        condition(condition::TEMPLATE_ACCEPTED, template_accepted(decision, applied, dry_run)),
        shared(condition::RECONCILING, is(Progress::Reconciling)),
        shared(condition::STALLED, is(Progress::Stalled)),
    ];
    conditions.extend(update_held(decision).map(|fields| condition(condition::UPDATE_HELD, fields)));
    if let Some(path) = &decision.cycle {
        let fields = ("True", reasons::DEPENDENCY_CYCLE, cycle_message(path));
        conditions.push(condition(condition::DEPENDENCY_CYCLE, fields));
    }
    let is_blocked = decision.closed.is_some() || decision.scales_to_zero();
    let [gate_opened_time, gate_closed_time, deadline_time] = times(object, decision, applied, now);
    GateStatus {
        observed_generation: object.generation(),
        waiting_for: decision.needs.in_short().filter(|_| is_blocked),
        gate_opened_time,
        gate_closed_time,
        deadline_time,
        dependencies: entries(object, decision, now),
        conditions,
    }
}

// === impl Refusal ===

impl Refusal {
    /// Returns whether the refusal may pass without an edit of the object.
    pub(crate) fn may_pass(&self) -> bool {
        self.kind != RefusalKind::Invalid
    }
}

// === impl GateStatus ===

impl GateStatus {
    /// Returns the condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Returns whether the object's status already equals this one in all fields of the gate, so that no
    /// write is needed.
    pub fn is_shown_by(&self, object: &WaitDeployment) -> bool {
        let Some(status) = &object.status else { return false };
        status.observed_generation == Some(self.observed_generation)
            && status.waiting_for == self.waiting_for
            && status.gate_opened_time == self.gate_opened_time
            && status.gate_closed_time == self.gate_closed_time
            && status.deadline_time == self.deadline_time
            && status.dependencies == self.dependencies
            && condition::OF_GATE.iter().all(|type_| object.condition(type_) == self.condition(type_))
    }
}

// === impl TooLargeStatus ===

impl TooLargeStatus {
    /// Makes the status of an object of this generation; `message` has the size and the limit.
    pub(crate) fn new(generation: i64, message: &str, now: &Time) -> Self {
        let condition = |type_: &str, status: &str| Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            observed_generation: Some(generation),
            last_update_time: None,
            last_transition_time: Some(now.clone()),
            reason: Some(reasons::TOO_LARGE.to_owned()),
            message: Some(message.to_owned()),
        };
        let conditions = vec![
            condition(condition::READY, "False"),
            condition(condition::RECONCILING, "False"),
            condition(condition::STALLED, "True"),
        ];
        Self { observed_generation: generation, conditions }
    }
}

// === private: conditions ===

fn dependencies_ready(object: &WaitDeployment, decision: &Decision) -> ConditionFields {
    let needs = &decision.needs;
    let unknown = |message: String| ("Unknown", reasons::UNKNOWN, message);
    match (&decision.course, needs.verdict) {
        (Course::Leave | Course::Terminating | Course::Conflict(_), _) => {
            unknown("not checked while another Deployment of this name exists".to_owned())
        }
        (Course::Invalid(invalid), _) => ("False", invalid_reason(invalid), invalid.to_string()),
        (_, State::Ready) if needs.dependencies.is_empty() => {
            ("True", reasons::NO_DEPENDENCIES, "there are no dependencies".to_owned())
        }
        _ if let Some(Loss { tolerated, .. }) = decision.loss => {
            let lost = loss_message(needs);
            if tolerated {
                ("True", reasons::ALL_READY, format!("{lost}; tolerated for lossGraceSeconds"))
            } else {
                ("False", reasons::LOST, lost)
            }
        }
        (_, State::Invalid) => match object.plan() {
            // The Deployment runs on, but a new start of it would be blocked.
            Err(invalid) => ("Unknown", invalid_reason(&invalid), invalid.to_string()),
            Ok(_) => ("False", reasons::INVALID_SPEC, waiting_message(needs)),
        },
        (_, State::Ready) => ("True", reasons::ALL_READY, ready_message(decision)),
        (_, State::Unknown) => {
            let first = needs.blocking().next();
            unknown(first.map_or_else(|| "not checked yet".to_owned(), |first| first.message.clone()))
        }
        (_, State::Blind) => unknown(waiting_message(needs)),
        (_, State::NotReady) => ("False", reasons::WAITING, waiting_message(needs)),
        (_, State::Denied) => ("False", reasons::POLICY_DENIED, waiting_message(needs)),
    }
}

/// Returns the message about dependencies that are ready now, or were at the last check.
fn ready_message(decision: &Decision) -> String {
    let needs = &decision.needs;
    if !needs.are_checked {
        return "ready when the gate opened; not checked since".to_owned();
    }
    let mut ready = needs.dependencies.iter().filter(|one| !one.optional && one.is_ready());
    match ready.find_map(|one| Some((&one.display_name, one.check_failure.as_ref()?))) {
        Some((name, failure)) if !needs.are_ready() => {
            format!("ready at the last check; {name} cannot be checked: {}", failure.message)
        }
        _ => "the dependencies are ready".to_owned(),
    }
}

fn template_accepted(decision: &Decision, applied: &Applied, dry_run: &DryRun) -> ConditionFields {
    let accepted = || ("True", reasons::ACCEPTED, "the API server accepts the Deployment".to_owned());
    match (applied, dry_run) {
        (Applied::Refused(refusal), _) | (_, DryRun::Refused(refusal)) => {
            let reason = match refusal.kind {
                RefusalKind::Invalid => reasons::INVALID,
                RefusalKind::Denied => reasons::ADMISSION_DENIED,
                // The API has no reason of its own for a quota.
                RefusalKind::Forbidden if refusal.message.contains("exceeded quota") => {
                    reasons::QUOTA_EXCEEDED
                }
                RefusalKind::Forbidden => reasons::FORBIDDEN,
            };
            ("False", reason, refusal.message.clone())
        }
        (Applied::Current(_), _) if decision.closed.is_none() => accepted(),
        (_, DryRun::Accepted) => accepted(),
        (_, DryRun::Unknown) => ("Unknown", reasons::UNKNOWN, "there is no result of a dry run".to_owned()),
    }
}

fn update_held(decision: &Decision) -> Option<ConditionFields> {
    let planned = decision.write().filter(|_| decision.closed.is_some())?;
    let (reason, parts) = match (planned.holds_template, planned.replicas == Replicas::Held) {
        (true, true) => (reasons::TEMPLATE_HELD, "the new template and the first replicas are"),
        (true, false) => (reasons::TEMPLATE_HELD, "the new template is"),
        (false, true) => (reasons::REPLICAS_HELD, "the first replicas are"),
        (false, false) => return None,
    };
    Some(("True", reason, format!("{parts} held back until the dependencies are ready")))
}

// === private: other fields ===

fn entries(object: &WaitDeployment, decision: &Decision, now: &Time) -> Vec<DependencyStatus> {
    let entry = |dependency: &DependencyState| {
        let before =
            status_entry(object, &dependency.name).filter(|entry| entry.ready == dependency.is_ready());
        let since = before.and_then(|entry| entry.last_transition_time.clone());
        DependencyStatus {
            name: dependency.name.clone(),
            ready: dependency.is_ready(),
            reason: Some(dependency.reason.to_string()),
            message: Some(shorten(&dependency.message).to_owned()),
            last_transition_time: Some(since.unwrap_or_else(|| now.clone())),
        }
    };
    decision.needs.dependencies.iter().map(entry).collect()
}

/// Returns when the gate opened, when it closed, and its deadline.
fn times(object: &WaitDeployment, decision: &Decision, applied: &Applied, now: &Time) -> [Option<Time>; 3] {
    let status = object.status.as_ref();
    let opened = status.and_then(|status| status.gate_opened_time.clone());
    let was_closed = status.and_then(|status| status.gate_closed_time.clone());
    match (decision.closed, &decision.course, applied) {
        (Some(Closed { since, deadline, .. }), ..) => [opened, Some(Time(since)), deadline.map(Time)],
        (None, Course::Write(_), Applied::Current(_)) if !decision.unexplained => {
            let opened = opened.filter(|_| was_closed.is_none());
            [opened.or_else(|| Some(now.clone())), None, None]
        }
        // The gate did not change: the server refused the write, the dependencies have not been checked since
        // the opening, or the Deployment has another owner.
        (None, ..) => [opened, was_closed, status.and_then(|status| status.deadline_time.clone())],
    }
}
