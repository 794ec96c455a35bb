//! Returns recorded Events instead of writing them: for the tests of reconcilers.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::counts::EventCounts;
use super::series::Observed;
use super::{EventType, Recorder, Shared};
use crate::metrics::Registry;

/// An Event as one call of [`Recorder::event`] recorded it, for tests.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordedEvent {
    /// The object that the Event is about.
    pub regarding: ObjectReference,
    /// The second object that the Event concerns; `None` if there is none.
    pub related: Option<ObjectReference>,
    /// Whether the Event is normal or a warning.
    pub event_type: EventType,
    /// The reason of the recorded action, in one word.
    pub reason: String,
    /// The action of the controller that the Event reports, in one word.
    pub action: String,
    /// The free text of the Event for users.
    pub note: String,
}

/// The Events that a test's recorder keeps in memory: one for each call, without a limit.
#[derive(Clone, Default)]
pub(crate) struct RecordedEvents(Arc<Mutex<Vec<RecordedEvent>>>);

impl Recorder {
    /// Makes a recorder that appends to the returned list instead of writing to the API server.
    pub(crate) fn in_memory(controller: &str) -> (Self, RecordedEvents) {
        let recorded = RecordedEvents::default();
        let shared = Shared::new(controller, EventCounts::register(&Registry::new()));
        let shared = Shared { recorded: Some(recorded.clone()), ..shared };
        (Self::with_shared(Arc::new(shared), controller, CancellationToken::new()), recorded)
    }
}

impl RecordedEvents {
    /// Removes and returns the Events recorded since the last call.
    pub(crate) fn take(&self) -> Vec<RecordedEvent> {
        std::mem::take(&mut *self.0.lock())
    }

    pub(super) fn push(&self, event: Event) -> Observed {
        self.0.lock().push(event.into());
        Observed::Repeated
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
