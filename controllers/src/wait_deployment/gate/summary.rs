//! The reason and message that the conditions Ready, Reconciling and Stalled share.

use mainstay_api::wait_for::OnDeadline;
use mainstay_api::{InvalidSpec, WaitDeployment};

use super::{
    Applied, Closed, Conflict, Course, Decision, DependencyState, DryRun, Needs, Refusal, RefusalKind,
};
use crate::dependency::observation::State;
use crate::deployment::{LiveDeployment, text};
use crate::reasons::{self, condition};

/// The state of a WaitDeployment, from which the conditions Ready, Reconciling and Stalled are made.
pub(super) struct Summary {
    /// The status of the condition Ready.
    pub(super) ready: &'static str,
    pub(super) progress: Progress,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The progress of a WaitDeployment as kstatus defines it:
/// <https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus>.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Settled,
    Reconciling,
    Stalled,
}

/// Returns the summary of a WaitDeployment for a decision and the result of its write.
pub(super) fn summarise(
    object: &WaitDeployment,
    decision: &Decision,
    applied: &Applied,
    dry_run: &DryRun,
) -> Summary {
    match (&decision.course, applied) {
        (Course::Conflict(conflict), _) => conflicting(object, conflict),
        (Course::Write(_), Applied::Differs) => conflicting(object, &Conflict::OtherTemplate),
        (Course::Leave | Course::Terminating, _) => reconciling(
            reasons::DEPLOYMENT_TERMINATING,
            "the Deployment is being deleted; the gate decides again once it is gone",
        ),
        (Course::Invalid(invalid), _) => stalled(invalid_reason(invalid), invalid.to_string()),
        (_, Applied::Refused(refusal)) => refused(refusal),
        (Course::Wait, _) => match &decision.closed {
            Some(closed) => waiting(decision, closed, dry_run),
            None => waiting_for_all(&decision.needs),
        },
        (Course::Write(_), Applied::NotTried) => {
            reconciling(reasons::ROLLOUT_IN_PROGRESS, "the Deployment is being written")
        }
        (Course::Write(_), Applied::Current(live)) => match (&decision.closed, &decision.loss) {
            (Some(closed), _) => {
                let summary = waiting(decision, closed, dry_run);
                let message = format!("an update is held back: {}", summary.message);
                Summary { ready: "False", message, ..summary }
            }
            (None, Some(_)) if let Err(invalid) = object.plan() => {
                let message = format!("{}; {invalid}", loss_message(&decision.needs));
                stalled(invalid_reason(&invalid), message)
            }
            (None, Some(loss)) if loss.stalled => {
                let message =
                    format!("{}; recoveryDeadlineSeconds have passed", loss_message(&decision.needs));
                stalled(reasons::RECOVERY_DEADLINE_EXCEEDED, message)
            }
            (None, Some(loss)) if loss.scales => {
                let lost_ones = loss_message(&decision.needs);
                let message = format!("{lost_ones}; the Deployment has no replicas until it is ready again");
                reconciling(reasons::SCALED_TO_ZERO, message)
            }
            (None, _) => judge_rollout(object, live),
        },
    }
}

/// Returns the reason of a condition for an invalid spec. A `waitProbe` has a reason of its own, which is
/// older than `spec.waitFor`.
pub(super) fn invalid_reason(invalid: &InvalidSpec) -> &'static str {
    if invalid.path.starts_with("waitProbe") { reasons::INVALID_PROBE } else { reasons::INVALID_SPEC }
}

/// Returns the message of a condition about the dependencies that keep a gate closed.
pub(super) fn waiting_message(needs: &Needs) -> String {
    let mut blocking = needs.blocking();
    let Some(first) = blocking.next() else { return String::new() };
    let text = match first.state {
        State::Unknown => format!("{} has not been checked yet", first.display_name),
        _ => format!("waiting for {}: {}", first.display_name, first.why().1),
    };
    and_more(text, blocking)
}

/// Returns the message of a condition about lost dependencies.
pub(super) fn loss_message(needs: &Needs) -> String {
    let mut blocking = needs.blocking();
    let Some(first) = blocking.next() else { return "a dependency was lost".to_owned() };
    let problem = if first.is_ready() { "cannot be checked since a loss" } else { "is lost" };
    and_more(format!("{} {problem}: {}", first.display_name, first.why().1), blocking)
}

/// Returns the message of a condition about a cycle of closed gates.
pub(super) fn cycle_message(path: &str) -> String {
    format!("a cycle of closed gates, in which each waits for the next: {path}")
}

// === private ===

fn stalled(reason: &'static str, message: impl Into<String>) -> Summary {
    Summary { ready: "False", progress: Progress::Stalled, reason, message: message.into() }
}

fn reconciling(reason: &'static str, message: impl Into<String>) -> Summary {
    Summary { ready: "False", progress: Progress::Reconciling, reason, message: message.into() }
}

fn conflicting(object: &WaitDeployment, conflict: &Conflict) -> Summary {
    let meta = &object.metadata;
    let [namespace, name] = [&meta.namespace, &meta.name].map(|part| part.as_deref().unwrap_or_default());
    let message = format!("Deployment {namespace}/{name} exists and {conflict}");
    stalled(reasons::DEPLOYMENT_CONFLICT, message)
}

fn refused(refusal: &Refusal) -> Summary {
    let reason = match refusal.kind {
        RefusalKind::Invalid => reasons::TEMPLATE_REJECTED,
        RefusalKind::Denied => reasons::ADMISSION_DENIED,
        RefusalKind::Forbidden => reasons::APPLY_FORBIDDEN,
    };
    stalled(reason, &refusal.message)
}

/// Returns the summary of a WaitDeployment with a closed gate. A problem that only a user can solve comes
/// before one that may pass.
fn waiting(decision: &Decision, closed: &Closed, dry_run: &DryRun) -> Summary {
    let needs = &decision.needs;
    let about = |state, problem: &str| {
        let first = needs.blocking().find(|dependency| dependency.state == state);
        first.map_or_else(String::new, |first| format!("{} {problem}: {}", first.display_name, first.message))
    };
    match (dry_run, &decision.cycle, needs.verdict) {
        (DryRun::Refused(refusal), ..) if refusal.kind == RefusalKind::Invalid => refused(refusal),
        (_, Some(path), _) => stalled(reasons::DEPENDENCY_CYCLE, cycle_message(path)),
        (.., State::Denied) => stalled(reasons::POLICY_DENIED, about(State::Denied, "is not probed")),
        (.., State::Invalid) => stalled(reasons::INVALID_SPEC, about(State::Invalid, "cannot be checked")),
        _ => {
            let summary = waiting_for_all(needs);
            let Some(expired) = closed.expired else { return summary };
            let message = format!("{}; deadlineSeconds have passed", summary.message);
            let progress =
                if expired == OnDeadline::Fail { Progress::Stalled } else { Progress::Reconciling };
            Summary { ready: "False", progress, reason: reasons::DEADLINE_EXCEEDED, message }
        }
    }
}

fn waiting_for_all(needs: &Needs) -> Summary {
    let summary = reconciling(reasons::WAITING_FOR_DEPENDENCIES, waiting_message(needs));
    if needs.verdict == State::Unknown { Summary { ready: "Unknown", ..summary } } else { summary }
}

/// Appends the other blocking dependencies to the text of a message; a plan has at most 16.
fn and_more<'a>(text: String, rest: impl Iterator<Item = &'a DependencyState>) -> String {
    let rest: Vec<_> = rest.map(|one| format!("{} ({})", one.display_name, one.why().0)).collect();
    if rest.is_empty() { text } else { format!("{text}; and {}", rest.join(", ")) }
}

/// Returns the summary of a WaitDeployment by the rollout of its Deployment, in the order of checks of
/// `kubectl rollout status`. Messages have no counts: each change of a count would be one more write.
fn judge_rollout(object: &WaitDeployment, live: &LiveDeployment) -> Summary {
    let going = |message: &str| reconciling(reasons::ROLLOUT_IN_PROGRESS, message);
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
        reconciling(reasons::PAUSED, "the Deployment's rollout is paused")
    } else if because(reasons::PROGRESS_DEADLINE_EXCEEDED) {
        let message = "the Deployment made no progress within progressDeadlineSeconds";
        stalled(reasons::PROGRESS_DEADLINE_EXCEEDED, message)
    } else if !complete {
        going("the Deployment's rollout is not complete")
    } else if available {
        let message = "the Deployment is available".to_owned();
        Summary { ready: "True", progress: Progress::Settled, reason: reasons::AVAILABLE, message }
    } else if because("NewReplicaSetAvailable") {
        reconciling(reasons::UNAVAILABLE, "too few Pods of the Deployment are available")
    } else {
        going("too few Pods of the Deployment are available yet")
    }
}
