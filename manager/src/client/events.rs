//! Tells people what happened to an object, as Events of `events.k8s.io/v1`.
//!
//! A [`Recorder`] puts an occurrence into a bounded channel and never waits; one [`EventWriter`] per manager folds
//! repetitions into series and writes them. Events are a courtesy: when the channel is full or the server says no for too long they
//! are dropped, counted, and nothing else suffers.
//!
//! Differs from client-go's recorder: `regarding.resourceVersion` is not part of what makes two occurrences the same,
//! a growing count is visible within seconds instead of minutes, 429 and 5xx are retried, and all memory is bounded.

#[cfg(feature = "testing")]
mod heard;
mod series;
mod writer;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::mpsc;

use crate::metrics::Registry;

#[cfg(feature = "testing")]
pub(crate) use heard::Heard;
#[cfg(feature = "testing")]
pub use heard::RecordedEvent;
pub use writer::EventWriter;

/// Occurrences that wait for the writer; client-go's number. A full channel drops the newest.
const CHANNEL: usize = 1000;
/// Limit of the API for `reason`, `action` and `reportingInstance`, in bytes.
const MAX_WORD: usize = 128;
/// Limit of the API for `note`, in bytes.
const MAX_NOTE: usize = 1024;

/// Whether an event is news or a warning. The API knows no third.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Something happened as it should.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Records events in the name of one controller. Cheap to clone; never waits.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
    controller: Arc<str>,
}

struct Shared {
    /// Full: the newest occurrence is dropped.
    sender: mpsc::Sender<Occurrence>,
    counts: EventCounts,
    clock: Clock,
}

/// The wall clock, as a value that tests replace.
type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// One call of [`Recorder::event`].
#[derive(Clone, Debug)]
struct Occurrence {
    regarding: ObjectReference,
    kind: EventType,
    reason: String,
    action: String,
    note: String,
    controller: Arc<str>,
    at: Timestamp,
}

/// `mainstay_events_total`: what became of recorded events.
#[derive(Clone, Debug)]
struct EventCounts {
    family: Family<Labels, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

// === impl EventType ===

impl EventType {
    /// Returns the word the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

// === impl Recorder ===

impl Recorder {
    /// Makes a recorder and the writer it feeds; nothing is written until the writer runs. Registers
    /// `mainstay_events_total`.
    ///
    /// `controller` is the reporting controller, such as `mainstay.dev/wait-deployment`; `instance` tells replicas
    /// apart. The client must not be fenced: events are flushed after the Lease is given back.
    pub fn new(
        controller: &str,
        instance: &str,
        client: kube::Client,
        registry: &Registry,
    ) -> (Self, EventWriter) {
        Self::with_clock(controller, instance, client, registry, Arc::new(Timestamp::now))
    }

    fn with_clock(
        controller: &str,
        instance: &str,
        client: kube::Client,
        registry: &Registry,
        clock: Clock,
    ) -> (Self, EventWriter) {
        let (sender, inbox) = mpsc::channel(CHANNEL);
        let counts = EventCounts::register(registry);
        let writer = EventWriter::new(inbox, client, cut(instance, MAX_WORD), counts.clone());
        let shared = Arc::new(Shared { sender, counts, clock });
        (Self { shared, controller: controller.into() }, writer)
    }

    /// Returns a recorder of the same writer that reports as another controller.
    #[must_use]
    pub fn for_controller(&self, controller: &str) -> Self {
        Self { shared: Arc::clone(&self.shared), controller: controller.into() }
    }

    /// Records that `action` was taken on `regarding` because of `reason`; `note` is for people. `reason` and
    /// `action` are words in `CamelCase`. Repetitions of the same reason and action become one event with a count
    /// and keep the first note.
    pub fn event(
        &self,
        regarding: &ObjectReference,
        kind: EventType,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let occurrence = Occurrence {
            // The version differs at each occurrence and would make each an event of its own.
            regarding: ObjectReference { resource_version: None, ..regarding.clone() },
            kind,
            reason: cut(reason, MAX_WORD),
            action: cut(action, MAX_WORD),
            note: cut(note, MAX_NOTE),
            controller: Arc::clone(&self.controller),
            at: (self.shared.clock)(),
        };
        if let Err(refused) = self.shared.sender.try_send(occurrence) {
            let why = if matches!(refused, mpsc::error::TrySendError::Full(_)) { "full" } else { "stopped" };
            self.shared.counts.count("dropped");
            tracing::debug!(reason, note, why, "event dropped");
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("controller", &self.controller).finish_non_exhaustive()
    }
}

// === impl EventCounts ===

impl EventCounts {
    fn register(registry: &Registry) -> Self {
        let family = Family::default();
        let help = "Occurrences recorded as Events, by outcome: new, repeated, limited, dropped, failed";
        registry.register("mainstay_events", help, family.clone());
        Self { family }
    }

    fn count(&self, outcome: &'static str) {
        self.family.get_or_create(&Labels { outcome }).inc();
    }
}

/// Shortens to at most `limit` bytes, at a character's edge.
fn cut(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

#[cfg(test)]
mod tests;
