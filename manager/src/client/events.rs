//! Records what happened to an object, as Events of `events.k8s.io/v1`.
//!
//! A [`Recorder`] enters an occurrence in a bounded table of series and never waits; one [`EventWriter`] per manager
//! writes the series that have changed. Namespaces share the table and the writes fairly. An Event that finds no room, or
//! that the server rejects for too long, is dropped, counted and logged at most once a minute.
//!
//! Differs from client-go's recorder: `regarding.resourceVersion` does not distinguish Events, a growing count is
//! written within seconds instead of minutes, 429 and 5xx are retried, all memory is bounded, and a flood in one
//! namespace does not delay or displace the Events of another.

mod counts;
#[cfg(feature = "testing")]
mod heard;
mod series;
mod writer;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::key::is_dns_subdomain;
use crate::metrics::Registry;

use counts::{EventCounts, cause};
use series::{Ledger, Lost, Taken};

#[cfg(feature = "testing")]
pub(crate) use heard::Heard;
#[cfg(feature = "testing")]
pub use heard::RecordedEvent;
pub use writer::EventWriter;

/// Limit of the API for `reason`, `action` and `reportingInstance`, in bytes.
const MAX_WORD: usize = 128;
/// Limit of the API for `note`, in bytes.
const MAX_NOTE: usize = 1024;

/// Whether an Event is news or a warning; the API has no third type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Expected.
    Normal,
    /// Needs attention.
    Warning,
}

/// Records Events of one controller. Cheap to clone; never waits.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
    controller: Arc<str>,
    /// Cancels the writer's token when the last recorder is dropped.
    _alive: Arc<DropGuard>,
}

struct Shared {
    /// Held for a few look-ups at a time. Nothing is logged or awaited under it.
    ledger: Mutex<Ledger>,
    /// Notified when a write becomes due. One permit is kept while the writer is busy.
    wake: Notify,
    /// The reporting instance of each Event.
    instance: Box<str>,
    counts: EventCounts,
    /// Receives the occurrences in a test; nothing reaches the ledger then.
    #[cfg(feature = "testing")]
    heard: Option<Heard>,
}

// === impl EventType ===

impl EventType {
    /// Returns the value in the API.
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
    /// `controller` is the reporting controller, such as `mainstay.dev/orders`; `instance` distinguishes
    /// replicas. The client must not be fenced: events are flushed after the Lease is given back.
    pub fn new(
        controller: &str,
        instance: &str,
        client: kube::Client,
        registry: &Registry,
    ) -> (Self, EventWriter) {
        let instance = if instance.is_empty() { controller } else { instance };
        Self::with_shared(Shared::new(instance, EventCounts::register(registry)), controller, client)
    }

    /// Makes a recorder for another API server and the writer it feeds, in the name of the same controller and instance
    /// and counted in the same metric. Nothing else is shared.
    pub fn beside(&self, client: kube::Client) -> (Self, EventWriter) {
        let shared = Shared::new(&self.shared.instance, self.shared.counts.clone());
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
        let counts = &self.shared.counts;
        if reason.is_empty() {
            return counts.lost(cause::INVALID, 1, &describe(reason, regarding));
        }
        let at = Timestamp::now();
        let regarding = without_version(regarding);
        // The API requires this namespace for cluster-scoped objects.
        let namespace = regarding.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        let metadata = ObjectMeta {
            name: Some(event_name(&regarding, at)),
            namespace: Some(namespace.unwrap_or("default").to_owned()),
            ..ObjectMeta::default()
        };
        let described = describe(reason, &regarding);
        let taken = self.shared.observe(Event {
            metadata,
            event_time: Some(MicroTime(at)),
            type_: Some(kind.as_str().to_owned()),
            reason: Some(cut(reason, MAX_WORD)),
            action: Some(cut(action, MAX_WORD)),
            note: Some(cut(note, MAX_NOTE)).filter(|note| !note.is_empty()),
            regarding: Some(regarding),
            related: related.map(without_version),
            reporting_controller: Some(self.controller.to_string()),
            reporting_instance: Some(self.shared.instance.to_string()),
            ..Event::default()
        });
        match taken {
            Ok(Taken::Repeated) => counts.taken("repeated"),
            Ok(Taken::Raised) => {
                self.shared.wake.notify_one();
                counts.taken("repeated");
            }
            Ok(Taken::New(evicted)) => {
                self.shared.wake.notify_one();
                counts.taken("new");
                if let Some(evicted) = evicted {
                    self.shared.lost(*evicted);
                }
            }
            Err(cause) => counts.lost(cause, 1, &described),
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
    fn new(instance: &str, counts: EventCounts) -> Self {
        Self {
            ledger: Mutex::new(Ledger::new()),
            wake: Notify::new(),
            instance: cut(instance, MAX_WORD).into(),
            counts,
            #[cfg(feature = "testing")]
            heard: None,
        }
    }

    fn observe(&self, event: Event) -> Result<Taken, &'static str> {
        #[cfg(feature = "testing")]
        if let Some(heard) = &self.heard {
            return Ok(heard.hear(event));
        }
        self.ledger.lock().observe(event, Instant::now())
    }

    /// Counts and logs a series that was given up.
    fn lost(&self, lost: Lost) {
        let Lost { cause, count, event, why } = lost;
        let event = describe(&event.reason.unwrap_or_default(), &event.regarding.unwrap_or_default());
        self.counts.lost(cause, count, &format_args!("{event}: {why}"));
    }
}

/// `name.hextime` as client-go makes it, with `event` in place of a name that is not valid there. The last digits are
/// random: one object can have two Events at one clock reading.
fn event_name(regarding: &ObjectReference, at: Timestamp) -> String {
    let name = regarding.name.as_deref().unwrap_or_default();
    let stem = if name.len() <= 220 && is_dns_subdomain(name) { name } else { "event" };
    format!("{stem}.{:x}{:04x}", at.as_nanosecond(), fastrand::u16(..))
}

/// Returns an Event as one line of the log.
fn describe(reason: &str, regarding: &ObjectReference) -> String {
    let ObjectReference { kind, namespace, name, .. } = regarding;
    let [kind, namespace, name] = [kind, namespace, name].map(|text| text.as_deref().unwrap_or_default());
    format!("{reason} on {kind} {namespace}/{name}")
}

/// The version differs at each occurrence, and would make each an Event of its own.
fn without_version(reference: &ObjectReference) -> ObjectReference {
    ObjectReference { resource_version: None, ..reference.clone() }
}

/// Shortens to at most `limit` bytes, at a character's edge.
fn cut(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

#[cfg(test)]
mod tests;
