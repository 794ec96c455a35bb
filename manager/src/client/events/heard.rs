//! Returns recorded Events instead of writing them: for the tests of reconcilers.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::counts::EventCounts;
use super::series::Taken;
use super::{EventType, Recorder, Shared};
use crate::metrics::Registry;

/// One call of [`Recorder::event`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordedEvent {
    /// The object it is about.
    pub regarding: ObjectReference,
    /// The second object it concerns, if any.
    pub related: Option<ObjectReference>,
    /// News or a warning.
    pub event_type: EventType,
    /// Why, in one word.
    pub reason: String,
    /// What was done, in one word.
    pub action: String,
    /// The text for people.
    pub note: String,
}

/// The Events of a recorder that writes nothing, unbounded and one for each call.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<RecordedEvent>>>);

impl Recorder {
    /// Makes a recorder whose occurrences go to the returned list.
    pub(crate) fn heard(controller: &str) -> (Self, Heard) {
        let heard = Heard::default();
        let shared = Shared::new(controller, EventCounts::register(&Registry::new()));
        let shared = Shared { heard: Some(heard.clone()), ..shared };
        (Self::over(Arc::new(shared), controller, CancellationToken::new()), heard)
    }
}

impl Heard {
    /// Takes the Events recorded since the last call.
    pub(crate) fn take(&self) -> Vec<RecordedEvent> {
        std::mem::take(&mut *self.0.lock())
    }

    pub(super) fn hear(&self, event: Event) -> Taken {
        self.0.lock().push(event.into());
        Taken::Repeated
    }
}

impl From<Event> for RecordedEvent {
    fn from(event: Event) -> Self {
        let is_warning = event.type_.as_deref() == Some(EventType::Warning.as_str());
        Self {
            regarding: event.regarding.unwrap_or_default(),
            related: event.related,
            event_type: if is_warning { EventType::Warning } else { EventType::Normal },
            reason: event.reason.unwrap_or_default(),
            action: event.action.unwrap_or_default(),
            note: event.note.unwrap_or_default(),
        }
    }
}

/// Displays as `Warning NoSuchTarget: namespace attic does not exist`.
impl fmt::Display for RecordedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.event_type.as_str(), self.reason, self.note)
    }
}
