//! What a recorder was told, given back instead of written: for the tests of reconcilers.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::drops::EventCounts;
use super::series::Taken;
use super::{EventType, Occurrence, Recorder, Shared};
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

/// The other end of a recorder that writes nothing. As many as one test records, each by itself.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<Occurrence>>>);

impl Recorder {
    /// Makes a recorder whose occurrences wait to be taken.
    pub(crate) fn heard(controller: &str) -> (Self, Heard) {
        let heard = Heard::default();
        let shared =
            Shared::new(controller, EventCounts::register(&Registry::new()), Arc::new(Timestamp::now));
        let shared = Shared { heard: Some(heard.clone()), ..shared };
        (Self::over(Arc::new(shared), controller, CancellationToken::new()), heard)
    }
}

impl Heard {
    /// Takes what was recorded since the last call.
    pub(crate) fn take(&self) -> Vec<RecordedEvent> {
        std::mem::take(&mut *self.0.lock()).into_iter().map(RecordedEvent::from).collect()
    }

    /// Nobody has to be woken for it.
    pub(super) fn hear(&self, occurrence: &Occurrence) -> Taken {
        self.0.lock().push(occurrence.clone());
        Taken::Repeated
    }
}

impl From<Occurrence> for RecordedEvent {
    fn from(occurrence: Occurrence) -> Self {
        let Occurrence { regarding, related, kind, reason, action, note, .. } = occurrence;
        Self { regarding, related, event_type: kind, reason, action, note }
    }
}

/// Displays as `Warning NoSuchTarget: namespace attic does not exist`.
impl fmt::Display for RecordedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.event_type.as_str(), self.reason, self.note)
    }
}
