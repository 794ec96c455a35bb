//! Tells people what happened to an object, as Events of `events.k8s.io/v1`.
//!
//! A [`Recorder`] enters an occurrence in a bounded table of series and never waits; one [`EventWriter`] per manager
//! writes what the server does not know yet. Events are a courtesy: when there is no room, or the server says no for too
//! long, they are dropped, counted, logged at most once a minute, and nothing else suffers.
//!
//! Differs from client-go's recorder: `regarding.resourceVersion` is not part of what makes two occurrences the same,
//! a growing count is visible within seconds instead of minutes, 429 and 5xx are retried, all memory is bounded, and one
//! noisy object takes nothing from the others.

mod budget;
mod drops;
#[cfg(feature = "testing")]
mod heard;
mod identity;
mod series;
mod wire;
mod writer;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::metrics::Registry;

use drops::{Cause, EventCounts};
use identity::SeriesKey;
use series::{Ledger, Taken};

#[cfg(feature = "testing")]
pub(crate) use heard::Heard;
#[cfg(feature = "testing")]
pub use heard::RecordedEvent;
pub use writer::EventWriter;

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
    /// The last one to go tells the writer.
    _alive: Arc<DropGuard>,
}

struct Shared {
    /// Held for a few look-ups at a time, so that a reconcile hardly notices. Nothing is logged or awaited under it.
    ledger: Mutex<Ledger>,
    /// There is something new to write. One permit is kept while the writer looks elsewhere.
    wake: Notify,
    /// As the ledger has it, for the recorder of another API server.
    instance: Box<str>,
    counts: EventCounts,
    clock: Clock,
    /// Where a test hears what is recorded; nothing reaches the ledger then.
    #[cfg(feature = "testing")]
    heard: Option<Heard>,
}

/// The wall clock, as a value that tests replace.
type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// One call of [`Recorder::event`].
#[derive(Clone, Debug)]
struct Occurrence {
    regarding: ObjectReference,
    related: Option<ObjectReference>,
    kind: EventType,
    reason: String,
    action: String,
    note: String,
    controller: Arc<str>,
    at: Timestamp,
}

/// An event as one line for people.
struct Described<'a> {
    reason: &'a str,
    regarding: &'a ObjectReference,
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
        let instance = if instance.is_empty() { controller } else { instance };
        Self::with_shared(Shared::new(instance, EventCounts::register(registry), clock), controller, client)
    }

    /// Makes a recorder for another API server and the writer it feeds, in the name of the same controller and instance
    /// and counted in the same metric. Nothing else is shared.
    pub fn beside(&self, client: kube::Client) -> (Self, EventWriter) {
        let Shared { instance, counts, clock, .. } = &*self.shared;
        let shared = Shared::new(instance, counts.clone(), Arc::clone(clock));
        Self::with_shared(shared, &self.controller, client)
    }

    fn with_shared(shared: Shared, controller: &str, client: kube::Client) -> (Self, EventWriter) {
        let shared = Arc::new(shared);
        let deserted = CancellationToken::new();
        let writer = EventWriter::new(Arc::clone(&shared), client, deserted.clone());
        (Self::over(shared, controller, deserted), writer)
    }

    fn over(shared: Arc<Shared>, controller: &str, deserted: CancellationToken) -> Self {
        Self { shared, controller: controller.into(), _alive: Arc::new(deserted.drop_guard()) }
    }

    /// Returns the reporting controller.
    pub(crate) fn controller(&self) -> &str {
        &self.controller
    }

    /// Returns a recorder of the same writer that reports as another controller.
    #[must_use]
    pub fn for_controller(&self, controller: &str) -> Self {
        Self { controller: controller.into(), ..self.clone() }
    }

    /// Records that `action` was taken on `regarding` because of `reason`; `note` is for people. `reason` and
    /// `action` are words in `CamelCase`; the API wants both, so an empty one is replaced by the other. Repetitions of
    /// the same reason and action become one event with a count and keep the first note. Texts that the API would not
    /// take are cut: words at 128 bytes, the note at 1,024.
    pub fn event(
        &self,
        regarding: &ObjectReference,
        kind: EventType,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        self.record(regarding, None, kind, [reason, action], note);
    }

    /// As [`Recorder::event`], for an action that concerns a second object too, such as the Pod that was made for
    /// `regarding`.
    pub fn event_with_related(
        &self,
        regarding: &ObjectReference,
        related: &ObjectReference,
        kind: EventType,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        self.record(regarding, Some(related), kind, [reason, action], note);
    }

    fn record(
        &self,
        regarding: &ObjectReference,
        related: Option<&ObjectReference>,
        kind: EventType,
        words: [&str; 2],
        note: &str,
    ) {
        let (reason, action) = match words {
            ["", action] => (action, action),
            [reason, ""] => (reason, reason),
            [reason, action] => (reason, action),
        };
        let outcome = if reason.is_empty() {
            Err(Cause::Invalid)
        } else {
            let occurrence = Occurrence {
                regarding: without_version(regarding),
                related: related.map(without_version),
                kind,
                reason: cut(reason, MAX_WORD),
                action: cut(action, MAX_WORD),
                note: cut(note, MAX_NOTE),
                controller: Arc::clone(&self.controller),
                at: (self.shared.clock)(),
            };
            self.shared.observe(&occurrence)
        };
        match outcome {
            Ok(taken) => {
                if taken != Taken::Repeated {
                    self.shared.wake.notify_one();
                }
                self.shared.counts.taken(if taken == Taken::New { "new" } else { "repeated" });
            }
            Err(cause) => self.shared.counts.lost(cause, 1, &Described { reason, regarding }),
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("controller", &self.controller).finish_non_exhaustive()
    }
}

// === impl Shared ===

impl Shared {
    fn new(instance: &str, counts: EventCounts, clock: Clock) -> Self {
        Self {
            ledger: Mutex::new(Ledger::new(cut(instance, MAX_WORD), Instant::now())),
            wake: Notify::new(),
            instance: instance.into(),
            counts,
            clock,
            #[cfg(feature = "testing")]
            heard: None,
        }
    }

    fn observe(&self, occurrence: &Occurrence) -> Result<Taken, Cause> {
        #[cfg(feature = "testing")]
        if let Some(heard) = &self.heard {
            return Ok(heard.hear(occurrence));
        }
        let key = SeriesKey::of(occurrence);
        self.ledger.lock().observe(key, occurrence, Instant::now())
    }
}

// === impl Described ===

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |text: &Option<String>| text.clone().unwrap_or_default();
        let ObjectReference { kind, namespace, name, .. } = self.regarding;
        write!(f, "{} on {} {}/{}", self.reason, of(kind), of(namespace), of(name))
    }
}

/// The version differs at each occurrence, and says nothing that the time does not.
fn without_version(reference: &ObjectReference) -> ObjectReference {
    ObjectReference { resource_version: None, ..reference.clone() }
}

/// Shortens to at most `limit` bytes, at a character's edge.
fn cut(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

#[cfg(test)]
mod tests;
