//! What the gate writes into status for each decision.
//!
//! The whole fragment every time: server-side apply removes what a manager leaves out, so `waitingFor` and the
//! conditions that stand only while they are true disappear by themselves.
//!
//! # Invariants
//! 1. Five conditions of the gate are always all there, each with the generation they speak of; two more only while they
//!    are true.
//! 2. `lastTransitionTime` changes only with the status (of a dependency: with `ready`), never with a message.
//! 3. Reporting the same decision on the status it produced gives the same fragment: no write follows a write.
//! 4. Ready, Reconciling and Stalled share one reason, and at most one of the three is True.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay_api::wait_for::OnDeadline;
use mainstay_api::{Condition, DependencyStatus, InvalidSpec, WaitDeployment};
use serde::Serialize;

use super::needs::told;
use super::summary::{Progress, Summary, reconciling, stalled};
use super::{Closed, Conflict, Course, Decision, Known, Loss, Needs, Replicas, rollout};
use crate::conditions::{Saying, condition_of, shorten};
use crate::dependency::observation::State;
use crate::deployment::LiveDeployment;
use crate::reasons::{self, condition};

/// How writing the Deployment went.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// The gate is closed, or the decision is to leave things alone.
    NotTried,
    /// The Deployment is written for the current generation, but for what is held back; as it is now.
    Current(Box<LiveDeployment>),
    /// Refused as invalid; with the server's words.
    Rejected(String),
    /// Denied by an admission policy or webhook; with the server's message.
    Denied(String),
    /// Refused by RBAC, quota or the like; with the server's words.
    Forbidden(String),
    /// Left alone: it was to be adopted only if its template were the same.
    Differs,
}

/// What the server says to the Deployment as it is to be, while that is held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// It was not asked, or did not answer.
    Unknown,
    /// It would be accepted.
    Accepted,
    /// It would be refused as invalid; with the server's words.
    Rejected(String),
    /// An admission policy or webhook would deny it; with the server's message.
    Denied(String),
    /// It would be refused by RBAC, quota or the like; with the server's words.
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
    /// When the gate last opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate_opened_time: Option<Time>,
    /// When it closed, while it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate_closed_time: Option<Time>,
    /// When `onDeadline` applies, while it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_time: Option<Time>,
    /// The prerequisites.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependencyStatus>,
    /// All conditions of the gate.
    pub conditions: Vec<Condition>,
}

/// The part of the status of an object that is too large to be decoded. What else stands there is not known, and stays.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TooLargeStatus {
    observed_generation: i64,
    conditions: Vec<Condition>,
}

/// Returns the status fragment for a decision and what became of it. `object` carries what was told before.
pub fn report(
    object: &WaitDeployment,
    decision: &Decision,
    applied: &Applied,
    trial: &Trial,
    now: &Time,
) -> GateStatus {
    let summary = summarise(object, decision, applied, trial);
    let dependencies = judge_dependencies(object, decision);
    let flag = |progress| if summary.progress == progress { "True" } else { "False" };
    let say = |type_: &str, saying: Saying| condition_of(object, type_, &saying, now);
    let overall = |status| (status, summary.reason, summary.message.clone());
    let mut conditions = vec![
        say(condition::READY, overall(summary.ready)),
        say(condition::DEPENDENCIES_READY, dependencies),
        say(condition::TEMPLATE_ACCEPTED, judge_template(decision, applied, trial)),
        say(condition::RECONCILING, overall(flag(Progress::Reconciling))),
        say(condition::STALLED, overall(flag(Progress::Stalled))),
    ];
    conditions.extend(held(decision).map(|saying| say(condition::UPDATE_HELD, saying)));
    if let Some(path) = &decision.cycle {
        let saying = ("True", reasons::DEPENDENCY_CYCLE, in_a_cycle(path));
        conditions.push(say(condition::DEPENDENCY_CYCLE, saying));
    }
    let times = times(object, decision, applied, now);
    GateStatus {
        observed_generation: object.generation(),
        waiting_for: waiting_for(decision),
        gate_opened_time: times.opened,
        gate_closed_time: times.closed,
        deadline_time: times.deadline,
        dependencies: entries(object, decision, now),
        conditions,
    }
}

// === impl Trial ===

impl Trial {
    /// Returns whether the server refused for a reason that may pass without an edit of the object.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Denied(_) | Self::Forbidden(_))
    }
}

// === impl GateStatus ===

impl GateStatus {
    /// Returns the condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Returns whether the object already shows all of this and no more, so that nothing needs to be written.
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
    pub(crate) fn new(generation: i64, message: &str, now: &Time) -> Self {
        let say = |type_: &str, status: &str| Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            observed_generation: Some(generation),
            last_update_time: None,
            last_transition_time: Some(now.clone()),
            reason: Some(reasons::TOO_LARGE.to_owned()),
            message: Some(message.to_owned()),
        };
        let conditions = vec![
            say(condition::READY, "False"),
            say(condition::RECONCILING, "False"),
            say(condition::STALLED, "True"),
        ];
        Self { observed_generation: generation, conditions }
    }
}

// === private: the summary ===

fn summarise(object: &WaitDeployment, decision: &Decision, applied: &Applied, trial: &Trial) -> Summary {
    match (&decision.course, applied) {
        (Course::Conflict(conflict), _) => in_conflict(object, conflict),
        (Course::Write(_), Applied::Differs) => in_conflict(object, &Conflict::OtherTemplate),
        (Course::Leave | Course::Terminating, _) => reconciling(
            reasons::DEPLOYMENT_TERMINATING,
            "the Deployment is being deleted; the gate decides anew once it is gone".to_owned(),
        ),
        (Course::Invalid(invalid), _) => stalled(reason_of(invalid), invalid.to_string()),
        (_, Applied::Rejected(message)) => stalled(reasons::TEMPLATE_REJECTED, message.clone()),
        (_, Applied::Denied(message)) => stalled(reasons::ADMISSION_DENIED, message.clone()),
        (_, Applied::Forbidden(message)) => stalled(reasons::APPLY_FORBIDDEN, message.clone()),
        (Course::Wait, _) => match &decision.closed {
            Some(closed) => waiting(decision, closed, trial),
            None => waiting_for_all(&decision.needs),
        },
        (Course::Write(_), Applied::NotTried) => {
            reconciling(reasons::ROLLOUT_IN_PROGRESS, "the Deployment is being written".to_owned())
        }
        (Course::Write(_), Applied::Current(live)) => match (&decision.closed, &decision.loss) {
            (Some(closed), _) => {
                let summary = waiting(decision, closed, trial);
                Summary {
                    ready: "False",
                    message: format!("an update is held back: {}", summary.message),
                    ..summary
                }
            }
            (None, Some(_)) if let Err(invalid) = object.plan() => {
                let message = format!("{}; {invalid}", lost(&decision.needs));
                stalled(reason_of(&invalid), message)
            }
            (None, Some(loss)) if loss.stalled => {
                let message = format!("{}; recoveryDeadlineSeconds are over", lost(&decision.needs));
                stalled(reasons::RECOVERY_DEADLINE_EXCEEDED, message)
            }
            (None, Some(loss)) if loss.scales => {
                let message =
                    format!("{}; there are no replicas until it holds again", lost(&decision.needs));
                reconciling(reasons::SCALED_TO_ZERO, message)
            }
            (None, _) => rollout::judge(object, live),
        },
    }
}

fn in_conflict(object: &WaitDeployment, conflict: &Conflict) -> Summary {
    let message = format!("Deployment {} exists and {conflict}", name(object));
    stalled(reasons::DEPLOYMENT_CONFLICT, message)
}

/// A closed gate. What a person has to see to goes before what may come by itself.
fn waiting(decision: &Decision, closed: &Closed, trial: &Trial) -> Summary {
    let needs = &decision.needs;
    let first = |state| needs.blocking().find(|known| known.state == state);
    let about = |known: Option<&Known>, what: &str| {
        known.map_or_else(String::new, |known| format!("{} {what}: {}", known.shown, known.message))
    };
    match (trial, &decision.cycle, needs.verdict) {
        (Trial::Rejected(message), ..) => stalled(reasons::TEMPLATE_REJECTED, message.clone()),
        (_, Some(path), _) => stalled(reasons::DEPENDENCY_CYCLE, in_a_cycle(path)),
        (.., State::Denied) => stalled(reasons::POLICY_DENIED, about(first(State::Denied), "is not probed")),
        (.., State::Invalid) => {
            stalled(reasons::INVALID_SPEC, about(first(State::Invalid), "cannot be looked at"))
        }
        _ => {
            let summary = waiting_for_all(needs);
            let Some(expired) = closed.expired else { return summary };
            let message = format!("{}; deadlineSeconds are over", summary.message);
            let progress =
                if expired == OnDeadline::Fail { Progress::Stalled } else { Progress::Reconciling };
            Summary { ready: "False", progress, reason: reasons::DEADLINE_EXCEEDED, message }
        }
    }
}

fn waiting_for_all(needs: &Needs) -> Summary {
    let summary = reconciling(reasons::WAITING_FOR_DEPENDENCIES, waits_for(needs));
    if needs.verdict == State::Unknown { Summary { ready: "Unknown", ..summary } } else { summary }
}

fn waits_for(needs: &Needs) -> String {
    let mut blocking = needs.blocking();
    let Some(first) = blocking.next() else { return String::new() };
    let text = match first.state {
        State::Unknown => format!("{} has not been tried yet", first.shown),
        _ => format!("waiting for {}: {}", first.shown, first.why().1),
    };
    and_more(text, blocking)
}

fn lost(needs: &Needs) -> String {
    let mut blocking = needs.blocking();
    let Some(first) = blocking.next() else { return "a dependency was lost".to_owned() };
    let what = if first.is_ready() { "cannot be looked at since a loss" } else { "is lost" };
    and_more(format!("{} {what}: {}", first.shown, first.why().1), blocking)
}

/// Names the rest: there are no more than 16.
fn and_more<'a>(text: String, rest: impl Iterator<Item = &'a Known>) -> String {
    let rest: Vec<_> = rest.map(|known| format!("{} ({})", known.shown, known.why().0)).collect();
    if rest.is_empty() { text } else { format!("{text}; and {}", rest.join(", ")) }
}

fn in_a_cycle(path: &str) -> String {
    format!("each waits for the next, and none can begin: {path}")
}

// === private: the other conditions ===

fn judge_dependencies(object: &WaitDeployment, decision: &Decision) -> Saying {
    let needs = &decision.needs;
    let unknown = |message: &str| ("Unknown", reasons::UNKNOWN, message.to_owned());
    match (&decision.course, needs.verdict) {
        (Course::Leave | Course::Terminating | Course::Conflict(_), _) => {
            unknown("not looked at while another Deployment of this name exists")
        }
        (Course::Invalid(invalid), _) => ("False", reason_of(invalid), invalid.to_string()),
        (_, State::Ready) if needs.known.is_empty() => {
            ("True", reasons::NO_DEPENDENCIES, "there is nothing to wait for".to_owned())
        }
        _ if let Some(Loss { tolerated, .. }) = decision.loss => {
            let lost = lost(needs);
            if tolerated {
                ("True", reasons::ALL_READY, format!("{lost}; tolerated for lossGraceSeconds"))
            } else {
                ("False", reasons::LOST, lost)
            }
        }
        (_, State::Invalid) => match object.plan() {
            // Not an error while the Deployment runs, but its next start would meet it.
            Err(invalid) => ("Unknown", reason_of(&invalid), invalid.to_string()),
            Ok(_) => ("False", reasons::INVALID_SPEC, waits_for(needs)),
        },
        (_, State::Ready) if needs.looks => {
            let mut held = needs.known.iter().filter(|known| !known.optional && known.is_ready());
            let message = match held.find_map(|known| Some((known, known.unseen.as_ref()?))) {
                Some((Known { shown, .. }, unseen)) if !needs.hold() => {
                    format!("held when last looked at; {shown} cannot be looked at: {}", unseen.message)
                }
                _ => "the dependencies hold".to_owned(),
            };
            ("True", reasons::ALL_READY, message)
        }
        (_, State::Ready) => {
            ("True", reasons::ALL_READY, "held when the gate opened; not watched since".to_owned())
        }
        (_, State::Unknown) => {
            let first = needs.blocking().next();
            unknown(first.map_or("not tried yet", |known| &known.message))
        }
        (_, State::Blind) => unknown(&waits_for(needs)),
        (_, State::NotReady) => ("False", reasons::WAITING, waits_for(needs)),
        (_, State::Denied) => ("False", reasons::POLICY_DENIED, waits_for(needs)),
    }
}

fn judge_template(decision: &Decision, applied: &Applied, trial: &Trial) -> Saying {
    let forbidden = |message: &str| {
        // No reason of the API tells a quota from another refusal.
        let quota = message.contains("exceeded quota");
        let reason = if quota { reasons::QUOTA_EXCEEDED } else { reasons::FORBIDDEN };
        ("False", reason, message.to_owned())
    };
    let accepted = || ("True", reasons::ACCEPTED, "the API server accepts the Deployment".to_owned());
    match (applied, trial) {
        (Applied::Rejected(message), _) | (_, Trial::Rejected(message)) => {
            ("False", reasons::INVALID, message.clone())
        }
        (Applied::Denied(message), _) | (_, Trial::Denied(message)) => {
            ("False", reasons::ADMISSION_DENIED, message.clone())
        }
        (Applied::Forbidden(message), _) | (_, Trial::Forbidden(message)) => forbidden(message),
        (Applied::Current(_), _) if decision.closed.is_none() => accepted(),
        (_, Trial::Accepted) => accepted(),
        (_, Trial::Unknown) => ("Unknown", reasons::UNKNOWN, "the API server has not been asked".to_owned()),
    }
}

fn held(decision: &Decision) -> Option<Saying> {
    let write = decision.write().filter(|_| decision.closed.is_some())?;
    let (reason, what) = match (write.holds_template, write.replicas == Replicas::Held) {
        (true, true) => (reasons::TEMPLATE_HELD, "the new template and the first replicas are"),
        (true, false) => (reasons::TEMPLATE_HELD, "the new template is"),
        (false, true) => (reasons::REPLICAS_HELD, "the first replicas are"),
        (false, false) => return None,
    };
    Some(("True", reason, format!("{what} held back until the dependencies hold")))
}

// === private: everything else ===

fn waiting_for(decision: &Decision) -> Option<String> {
    let scaled = decision.loss.as_ref().is_some_and(|loss| loss.scales);
    if decision.closed.is_none() && !scaled {
        return None;
    }
    decision.needs.in_short()
}

fn entries(object: &WaitDeployment, decision: &Decision, now: &Time) -> Vec<DependencyStatus> {
    let entry = |known: &Known| {
        let told = told(object, &known.name).filter(|told| told.ready == known.is_ready());
        let since = told.and_then(|told| told.last_transition_time.clone());
        DependencyStatus {
            name: known.name.clone(),
            ready: known.is_ready(),
            reason: Some(known.reason.to_string()),
            message: Some(shorten(&known.message).to_owned()),
            last_transition_time: Some(since.unwrap_or_else(|| now.clone())),
        }
    };
    decision.needs.known.iter().map(entry).collect()
}

struct Times {
    opened: Option<Time>,
    closed: Option<Time>,
    deadline: Option<Time>,
}

fn times(object: &WaitDeployment, decision: &Decision, applied: &Applied, now: &Time) -> Times {
    let told = object.status.as_ref();
    let opened = told.and_then(|status| status.gate_opened_time.clone());
    let was_closed = told.and_then(|status| status.gate_closed_time.clone());
    match (decision.closed, &decision.course, applied) {
        (Some(Closed { since, deadline, .. }), ..) => {
            Times { opened, closed: Some(Time(since)), deadline: deadline.map(Time) }
        }
        (None, Course::Write(_), Applied::Current(_)) if !decision.unexplained => {
            let opened = opened.filter(|_| was_closed.is_none());
            Times { opened: opened.or_else(|| Some(now.clone())), closed: None, deadline: None }
        }
        // Neither opened nor closed: the server has refused what was let through, nobody knows yet why it was, or the
        // Deployment is not ours.
        (None, ..) => {
            let deadline = told.and_then(|status| status.deadline_time.clone());
            Times { opened, closed: was_closed, deadline }
        }
    }
}

/// A `waitProbe` has a reason of its own, from before there was anything else to wait for.
pub(super) fn reason_of(invalid: &InvalidSpec) -> &'static str {
    if invalid.path.starts_with("waitProbe") { reasons::INVALID_PROBE } else { reasons::INVALID_SPEC }
}

fn name(object: &WaitDeployment) -> String {
    let meta = &object.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}
