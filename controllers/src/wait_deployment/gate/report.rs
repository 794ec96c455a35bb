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

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use mainstay_api::{DependencyStatus, WaitDeployment, WaitDeploymentStatus};

use super::needs::status_entry;
use super::summary::{Progress, cycle_message, invalid_reason, loss_message, summarise, waiting_message};
use super::{Applied, Closed, Course, Decision, DependencyState, DryRun, Loss, RefusalKind, Replicas};
use crate::conditions::{ConditionFields, condition_of, shorten};
use crate::dependency::observation::State;
use crate::reasons::{self, condition};

/// Returns the part of a WaitDeployment's status that the gate writes, for a decision and the result of its
/// write; the fields copied from the Deployment are empty. `object` has the status before.
pub fn report(
    object: &WaitDeployment,
    decision: &Decision,
    applied: &Applied,
    dry_run: &DryRun,
    now: &Time,
) -> WaitDeploymentStatus {
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
    WaitDeploymentStatus {
        observed_generation: Some(object.generation()),
        waiting_for: decision.needs.in_short().filter(|_| is_blocked),
        gate_opened_time,
        gate_closed_time,
        deadline_time,
        dependencies: entries(object, decision, now),
        conditions,
        ..WaitDeploymentStatus::default()
    }
}

/// Returns the status of a WaitDeployment of this generation that is too large to be decoded; `message` has
/// the size and the limit. Its other status fields are unknown, and are left out so that they stay.
pub(crate) fn report_too_large(generation: i64, message: &str, now: &Time) -> WaitDeploymentStatus {
    let metadata = ObjectMeta { generation: Some(generation), ..ObjectMeta::default() };
    let object = WaitDeployment { metadata, ..WaitDeployment::default() };
    let condition = |type_: &str, status: &'static str| {
        condition_of(&object, type_, &(status, reasons::TOO_LARGE, message.to_owned()), now)
    };
    let conditions = vec![
        condition(condition::READY, "False"),
        condition(condition::RECONCILING, "False"),
        condition(condition::STALLED, "True"),
    ];
    let observed_generation = Some(generation);
    WaitDeploymentStatus { observed_generation, conditions, ..WaitDeploymentStatus::default() }
}

/// Returns whether the object's status already equals `status` in all fields of the gate, so that no write is
/// needed.
pub fn is_shown(status: &WaitDeploymentStatus, object: &WaitDeployment) -> bool {
    let Some(shown) = &object.status else { return false };
    shown.observed_generation == status.observed_generation
        && shown.waiting_for == status.waiting_for
        && shown.gate_opened_time == status.gate_opened_time
        && shown.gate_closed_time == status.gate_closed_time
        && shown.deadline_time == status.deadline_time
        && shown.dependencies == status.dependencies
        && condition::OF_GATE.iter().all(|type_| shown.condition(type_) == status.condition(type_))
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

/// Returns the message of the condition `DependenciesReady` for dependencies that are ready now, or were at
/// the last check.
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

/// Returns the times for the status at which the gate opened and closed, and its deadline.
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
