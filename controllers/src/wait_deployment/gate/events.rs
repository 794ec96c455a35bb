//! What is worth an Event: transitions, found by comparing what was told before with what is told now.
//!
//! The notes hold what the conditions hold, and so nothing that came from the other side of a probe.

use std::time::Duration;

use jiff::Timestamp;
use mainstay::client::EventType;
use mainstay_api::{Condition, WaitDeployment};

use super::needs::told;
use super::{Decision, GateStatus};
use crate::reasons::{self, condition, event};

/// What a reconcile did to the Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Nothing: it is as it should be, or is not to be written.
    Nothing,
    /// It was not there before.
    Created,
    /// It was changed, or could have been.
    Updated,
    /// It was taken over.
    Adopted,
}

/// What a reconcile has led to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    /// With the status that was told before.
    pub(crate) object: &'a WaitDeployment,
    pub(crate) decision: &'a Decision,
    pub(crate) deed: Deed,
    /// What is told from now on.
    pub(crate) after: &'a GateStatus,
    pub(crate) now: Timestamp,
}

/// One Event to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Happening {
    pub(crate) kind: EventType,
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) note: String,
    /// It concerns the Deployment too.
    pub(crate) is_about_deployment: bool,
}

/// A gate that has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) by: OpenedBy,
    /// How long it was closed.
    pub(crate) waited: Duration,
}

/// What opened a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenedBy {
    /// They hold.
    Dependencies,
    /// The deadline, after which the object asks to go on without them.
    Deadline,
    /// An edit: what was held back is not asked for any more, or not to be held.
    Spec,
}

// === impl Change ===

impl Change<'_> {
    /// Returns what has happened between what the object tells and `after`, in the order in which it did, but for the
    /// [deed](of_deed).
    pub(crate) fn happenings(&self) -> Vec<Happening> {
        let Self { object, after, .. } = *self;
        let mut all = Vec::new();
        of_dependencies(object, after, &mut all);
        all.extend(self.of_opening());
        for (type_, kind, reason) in [
            (condition::UPDATE_HELD, EventType::Normal, event::UPDATE_HELD),
            (condition::DEPENDENCY_CYCLE, EventType::Warning, event::DEPENDENCY_CYCLE),
        ] {
            if let (Some(now), None) = (after.condition(type_), object.condition(type_)) {
                all.push(happening(kind, reason, message(now)));
            }
        }
        all.extend(of_template(object, after));
        all.extend(of_ready(object, after));
        all
    }

    /// Returns the opening of a gate that was closed and is open from now on, if that is what has happened.
    pub(crate) fn opening(&self) -> Option<Opening> {
        let Self { object, decision, deed, after, now } = *self;
        let since = object.status.as_ref().and_then(|status| status.gate_closed_time.as_ref());
        let is_open = after.gate_closed_time.is_none() && decision.write().is_some();
        let waited = match since {
            Some(since) if is_open => Duration::try_from(now.duration_since(since.0)).unwrap_or_default(),
            // Everything was there already.
            None if is_open && deed == Deed::Created && !decision.needs.known.is_empty() => Duration::ZERO,
            _ => return None,
        };
        let by = match decision.write()? {
            write if write.proceeds => OpenedBy::Deadline,
            _ if decision.needs.hold() => OpenedBy::Dependencies,
            _ => OpenedBy::Spec,
        };
        Some(Opening { by, waited })
    }

    fn of_opening(&self) -> Option<Happening> {
        let Opening { by, waited } = self.opening()?;
        let waited = waited.as_secs();
        let opened = |note| happening(EventType::Normal, event::GATE_OPENED, note);
        Some(match by {
            OpenedBy::Dependencies => opened(format!("the dependencies hold after {waited} s")),
            OpenedBy::Spec => opened(format!("nothing is held back any more after {waited} s")),
            OpenedBy::Deadline => {
                let rest = self.decision.needs.in_short().unwrap_or_default();
                let note = format!("went on after {waited} s without {rest}");
                happening(EventType::Warning, event::PROCEEDED_AFTER_DEADLINE, note)
            }
        })
    }
}

// === private ===

fn happening(kind: EventType, reason: &'static str, note: impl Into<String>) -> Happening {
    Happening { kind, reason, note: note.into(), is_about_deployment: false }
}

fn of_dependencies(object: &WaitDeployment, after: &GateStatus, all: &mut Vec<Happening>) {
    let is_lost = |condition: Option<&Condition>| {
        condition.is_some_and(|condition| condition.reason.as_deref() == Some(reasons::LOST))
    };
    let after_condition = after.condition(condition::DEPENDENCIES_READY);
    match (is_lost(object.condition(condition::DEPENDENCIES_READY)), after_condition) {
        (false, lost) if is_lost(lost) => {
            let note = lost.map(message).unwrap_or_default();
            all.push(happening(EventType::Warning, event::DEPENDENCY_LOST, note));
        }
        (true, Some(found)) if found.status == "True" => {
            let note = "the dependencies hold again";
            all.push(happening(EventType::Normal, event::DEPENDENCY_READY, note));
        }
        // The last one to come is told by the opening of the gate.
        _ if after.gate_closed_time.is_some() => {
            let came = after
                .dependencies
                .iter()
                .filter(|entry| entry.ready && told(object, &entry.name).is_some_and(|before| !before.ready));
            let note = |name: &str| format!("{name} holds");
            all.extend(
                came.map(|entry| happening(EventType::Normal, event::DEPENDENCY_READY, note(&entry.name))),
            );
        }
        _ => {}
    }
}

/// Returns what is told of a deed. It is done even if the status cannot be written.
pub(crate) fn of_deed(object: &WaitDeployment, decision: &Decision, deed: Deed) -> Option<Happening> {
    let scales = decision.loss.as_ref().is_some_and(|loss| loss.scales);
    let generation = object.generation();
    let (reason, note) = match deed {
        Deed::Nothing => return None,
        Deed::Created => (event::DEPLOYMENT_CREATED, "created the Deployment".to_owned()),
        Deed::Adopted => {
            (event::DEPLOYMENT_ADOPTED, "took over the Deployment, which nobody controlled".to_owned())
        }
        Deed::Updated if scales => (event::DEPLOYMENT_UPDATED, "scaled the Deployment to 0".to_owned()),
        Deed::Updated => {
            (event::DEPLOYMENT_UPDATED, format!("wrote the Deployment for generation {generation}"))
        }
    };
    Some(Happening { is_about_deployment: true, ..happening(EventType::Normal, reason, note) })
}

/// A template that would be refused is told by Ready; a refusal that may pass is not, while the gate is closed.
fn of_template(object: &WaitDeployment, after: &GateStatus) -> Option<Happening> {
    let now = after.condition(condition::TEMPLATE_ACCEPTED)?;
    let reason = now.reason.as_deref();
    let is_new =
        object.condition(condition::TEMPLATE_ACCEPTED).and_then(|told| told.reason.as_deref()) != reason;
    let is_refused = matches!(reason, Some(reasons::FORBIDDEN | reasons::QUOTA_EXCEEDED));
    let is_told = after
        .condition(condition::READY)
        .is_some_and(|ready| ready.reason.as_deref() == Some(reasons::APPLY_FORBIDDEN));
    (is_new && is_refused && !is_told)
        .then(|| happening(EventType::Warning, reasons::APPLY_FORBIDDEN, message(now)))
}

fn of_ready(object: &WaitDeployment, after: &GateStatus) -> Option<Happening> {
    // Unknown is the moment before the first result; the result itself is the news.
    let known = |condition: &&Condition| condition.status != "Unknown";
    let ready = after.condition(condition::READY).filter(known)?;
    let before = object.condition(condition::READY).filter(known).and_then(|before| before.reason.as_deref());
    let reason = event::of(ready.reason.as_deref()?)?;
    if before.and_then(event::of) == Some(reason) {
        return None;
    }
    let is_stalled = after.condition(condition::STALLED).is_some_and(|stalled| stalled.status == "True");
    let is_late = reason == reasons::DEADLINE_EXCEEDED;
    let kind = if is_stalled || is_late { EventType::Warning } else { EventType::Normal };
    Some(happening(kind, reason, message(ready)))
}

fn message(condition: &Condition) -> &str {
    condition.message.as_deref().unwrap_or_default()
}
