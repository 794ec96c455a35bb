//! The Events of a gate: one per transition, found by comparing the status before and after a run.
//!
//! Notes repeat messages of conditions, so like those they contain no bytes that a probed target sent.

use std::time::Duration;

use jiff::Timestamp;
use mainstay::client::EventType;
use mainstay_api::{Condition, WaitDeployment, WaitDeploymentStatus};

use super::Decision;
use super::needs::status_entry;
use crate::conditions::{has_reason, is_true};
use crate::reasons::{self, condition, event};

/// The effect of one run of the reconciler on the Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// The Deployment was not changed.
    None,
    /// The Deployment was created.
    Created,
    /// The Deployment was updated.
    Updated,
    /// The Deployment had no controller and was adopted.
    Adopted,
}

/// The change of a WaitDeployment's status by one run of the reconciler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusChange<'a> {
    /// The WaitDeployment with its status before the run.
    pub(crate) object: &'a WaitDeployment,
    pub(crate) decision: &'a Decision,
    pub(crate) write: Write,
    /// The status of the WaitDeployment after the run.
    pub(crate) after: &'a WaitDeploymentStatus,
    pub(crate) now: Timestamp,
}

/// The content of one Event about a WaitDeployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) kind: EventType,
    pub(crate) reason: String,
    /// The message of the Event.
    pub(crate) note: String,
}

/// The opening of the gate of a WaitDeployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) by: OpenedBy,
    /// How long the gate was closed before it opened.
    pub(crate) waited: Duration,
}

/// The cause of the opening of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenedBy {
    /// The gate opened because the dependencies are ready.
    Dependencies,
    /// The gate opened because its deadline has passed, and `onDeadline` is Proceed.
    Deadline,
    /// The gate opened by an edit of the spec: the part that was held back was reverted, or `gates` does not
    /// name it any more.
    Spec,
}

// === impl StatusChange ===

impl StatusChange<'_> {
    /// Returns the contents of the Events for the transitions between the two statuses, in the order in which
    /// they happened, except for the [write](write_transition) of the Deployment.
    pub(crate) fn transitions(&self) -> Vec<Transition> {
        let Self { object, after, .. } = *self;
        let mut all = dependency_transitions(object, after);
        all.extend(self.opening_transition());
        for (type_, kind, reason) in [
            (condition::UPDATE_HELD, EventType::Normal, event::UPDATE_HELD),
            (condition::DEPENDENCY_CYCLE, EventType::Warning, event::DEPENDENCY_CYCLE),
        ] {
            if let (Some(now), None) = (after.condition(type_), object.condition(type_)) {
                all.push(transition(kind, reason, message(now)));
            }
        }
        all.extend(template_transition(object, after));
        all.extend(ready_transition(object, after));
        all
    }

    /// Returns the opening of the gate, if it was closed before the run and is open after it; otherwise
    /// `None`.
    pub(crate) fn opening(&self) -> Option<Opening> {
        let Self { object, decision, write, after, now } = *self;
        let since = object.status.as_ref().and_then(|status| status.gate_closed_time.as_ref());
        let is_open = after.gate_closed_time.is_none() && decision.write().is_some();
        let waited = match since {
            Some(since) if is_open => Duration::try_from(now.duration_since(since.0)).unwrap_or_default(),
            // All dependencies were ready in the first run.
            None if is_open && write == Write::Created && !decision.needs.dependencies.is_empty() => {
                Duration::ZERO
            }
            _ => return None,
        };
        let by = match decision.write()? {
            planned if planned.proceeds => OpenedBy::Deadline,
            _ if decision.needs.are_ready() => OpenedBy::Dependencies,
            _ => OpenedBy::Spec,
        };
        Some(Opening { by, waited })
    }

    fn opening_transition(&self) -> Option<Transition> {
        let Opening { by, waited } = self.opening()?;
        let waited = waited.as_secs();
        let opened = |note| transition(EventType::Normal, event::GATE_OPENED, note);
        Some(match by {
            OpenedBy::Dependencies => opened(format!("the dependencies are ready after {waited} s")),
            OpenedBy::Spec => opened(format!("the spec holds nothing back any more, after {waited} s")),
            OpenedBy::Deadline => {
                let rest = self.decision.needs.in_short().unwrap_or_default();
                let note = format!("proceeded after {waited} s without {rest}");
                transition(EventType::Warning, event::PROCEEDED_AFTER_DEADLINE, note)
            }
        })
    }
}

/// Returns the content of the Event for a write of the Deployment. The Event is sent even if the status
/// cannot be written.
pub(crate) fn write_transition(
    object: &WaitDeployment,
    decision: &Decision,
    write: Write,
) -> Option<Transition> {
    let (reason, note) = match write {
        Write::None => return None,
        Write::Created => (event::DEPLOYMENT_CREATED, "created the Deployment".to_owned()),
        Write::Adopted => {
            (event::DEPLOYMENT_ADOPTED, "adopted the Deployment, which had no controller".to_owned())
        }
        Write::Updated if decision.scales_to_zero() => {
            (event::DEPLOYMENT_UPDATED, "scaled the Deployment to 0".to_owned())
        }
        Write::Updated => {
            let generation = object.generation();
            (event::DEPLOYMENT_UPDATED, format!("wrote the Deployment for generation {generation}"))
        }
    };
    Some(transition(EventType::Normal, reason, note))
}

// === private ===

fn transition(kind: EventType, reason: &str, note: impl Into<String>) -> Transition {
    Transition { kind, reason: reason.to_owned(), note: note.into() }
}

fn dependency_transitions(object: &WaitDeployment, after: &WaitDeploymentStatus) -> Vec<Transition> {
    let is_lost = |condition| has_reason(condition, reasons::LOST);
    let after_condition = after.condition(condition::DEPENDENCIES_READY);
    let ready = |note: String| transition(EventType::Normal, event::DEPENDENCY_READY, note);
    match (is_lost(object.condition(condition::DEPENDENCIES_READY)), after_condition) {
        (false, Some(lost)) if is_lost(after_condition) => {
            vec![transition(EventType::Warning, event::DEPENDENCY_LOST, message(lost))]
        }
        (true, Some(found)) if found.status == "True" => {
            vec![ready("the dependencies are ready again".to_owned())]
        }
        // The Event of the opening stands for the dependency that became ready last.
        _ if after.gate_closed_time.is_some() => {
            let was_not_ready = |name: &str| status_entry(object, name).is_some_and(|before| !before.ready);
            let became_ready =
                after.dependencies.iter().filter(|entry| entry.ready && was_not_ready(&entry.name));
            became_ready.map(|entry| ready(format!("{} is ready", entry.name))).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the content of the Event for a dry run that was refused by RBAC or a quota. Ready does not show
/// such a refusal while the gate is closed; it shows every other one, and has an Event of its own.
fn template_transition(object: &WaitDeployment, after: &WaitDeploymentStatus) -> Option<Transition> {
    let now = after.condition(condition::TEMPLATE_ACCEPTED)?;
    let reason = now.reason.as_deref()?;
    let is_new = !has_reason(object.condition(condition::TEMPLATE_ACCEPTED), reason);
    let is_refused = matches!(reason, reasons::FORBIDDEN | reasons::QUOTA_EXCEEDED);
    let is_in_ready = has_reason(after.condition(condition::READY), reasons::APPLY_FORBIDDEN);
    (is_new && is_refused && !is_in_ready)
        .then(|| transition(EventType::Warning, reasons::APPLY_FORBIDDEN, message(now)))
}

fn ready_transition(object: &WaitDeployment, after: &WaitDeploymentStatus) -> Option<Transition> {
    // Unknown lasts until the first result, which is the next transition.
    let known = |condition: &&Condition| condition.status != "Unknown";
    let ready = after.condition(condition::READY).filter(known)?;
    let before = object.condition(condition::READY).filter(known).and_then(|before| before.reason.as_deref());
    let reason = event::of(ready.reason.as_deref()?)?;
    if before.and_then(event::of) == Some(reason) {
        return None;
    }
    let is_stalled = is_true(after.condition(condition::STALLED));
    let is_late = reason == reasons::DEADLINE_EXCEEDED;
    let kind = if is_stalled || is_late { EventType::Warning } else { EventType::Normal };
    Some(transition(kind, reason, message(ready)))
}

fn message(condition: &Condition) -> &str {
    condition.message.as_deref().unwrap_or_default()
}
