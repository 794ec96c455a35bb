//! What a recorder was told, given back instead of written: for the tests of reconcilers.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{CHANNEL, EventCounts, EventType, Occurrence, Recorder, Shared};
use crate::metrics::Registry;

/// One call of [`Recorder::event`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordedEvent {
    /// The object it is about.
    pub regarding: ObjectReference,
    /// News or a warning.
    pub event_type: EventType,
    /// Why, in one word.
    pub reason: String,
    /// What was done, in one word.
    pub action: String,
    /// The text for people.
    pub note: String,
}

/// The other end of a recorder that writes nothing.
pub(crate) struct Heard(Mutex<mpsc::Receiver<Occurrence>>);

impl Recorder {
    /// Makes a recorder whose occurrences wait to be taken.
    pub(crate) fn heard(controller: &str) -> (Self, Heard) {
        let (sender, receiver) = mpsc::channel(CHANNEL);
        let counts = EventCounts::register(&Registry::new());
        let shared = Shared { sender, counts, clock: Arc::new(Timestamp::now) };
        let recorder = Self { shared: Arc::new(shared), controller: controller.into() };
        (recorder, Heard(Mutex::new(receiver)))
    }
}

impl Heard {
    /// Takes what was recorded since the last call.
    pub(crate) fn take(&self) -> Vec<RecordedEvent> {
        let mut inbox = self.0.lock();
        std::iter::from_fn(|| inbox.try_recv().ok()).map(RecordedEvent::from).collect()
    }
}

impl From<Occurrence> for RecordedEvent {
    fn from(occurrence: Occurrence) -> Self {
        let Occurrence { regarding, kind, reason, action, note, .. } = occurrence;
        Self { regarding, event_type: kind, reason, action, note }
    }
}

/// Displays as `Warning NoSuchTarget: namespace attic does not exist`.
impl fmt::Display for RecordedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.event_type.as_str(), self.reason, self.note)
    }
}
