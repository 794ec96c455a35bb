//! Records what happened to an object, as Events of `events.k8s.io/v1`.
//!
//! A [`Recorder`] adds occurrences to a bounded table of series and never waits; one [`EventWriter`] per
//! manager writes the series that have changed. Namespaces share the table and the writes fairly. An Event
//! for which the table has no room, or whose writes fail too often, is dropped and counted, and logged at
//! most once a minute.
//!
//! Differs from client-go's recorder: `regarding.resourceVersion` does not distinguish Events, a growing
//! count is written within seconds instead of minutes, 429 and 5xx are retried, all memory is bounded, and a
//! flood in one namespace does not delay or displace the Events of another.

mod counts;
#[cfg(feature = "testing")]
mod recorded;
mod series;
mod writer;

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
use series::{LostSeries, Observed, SeriesTable};

#[cfg(feature = "testing")]
pub use recorded::RecordedEvent;
#[cfg(feature = "testing")]
pub(crate) use recorded::RecordedEvents;
pub use writer::EventWriter;

/// Limit of the Events API for `reason`, `action` and `reportingInstance`, in bytes.
const MAX_WORD: usize = 128;
/// Limit of the Events API for `note`, in bytes.
const MAX_NOTE: usize = 1024;

/// The type of an Event, normal or warning; the API has no third one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The Event reports an expected change.
    Normal,
    /// The Event reports a problem that may need attention.
    Warning,
}

/// Records Events of one controller. Cheap to clone; never waits.
#[derive(Clone, derive_more::Debug)]
#[debug("Recorder {{ controller: {:?}, .. }}", self.controller)]
pub struct Recorder {
    shared: Arc<Shared>,
    controller: Arc<str>,
    /// Cancels the token that stops the Event writer when the last recorder is dropped.
    _alive: Arc<DropGuard>,
}

struct Shared {
    /// The Events that may still change. Locked for a few look-ups at a time; no log line is written and no
    /// future awaited under the lock.
    table: Mutex<SeriesTable>,
    /// Wakes the Event writer when a write becomes due. Stores one permit while the writer is busy.
    wake: Notify,
    /// The value of `reportingInstance` in each Event; it distinguishes replicas.
    instance: Box<str>,
    counts: EventCounts,
    /// Receives all Events in a reconciler's unit test, in place of the table that is written to the API
    /// server.
    #[cfg(feature = "testing")]
    recorded: Option<RecordedEvents>,
}

// === impl EventType ===

impl EventType {
    /// Returns the value of an Event's field `type`: `Normal` or `Warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

// === impl Recorder ===

impl Recorder {
    /// Makes a recorder of Events and its writer, which writes no Event until it runs. Registers
    /// `mainstay_events_total`.
    ///
    /// `controller` is the reporting controller, such as `mainstay.dev/orders`; `instance` distinguishes
    /// replicas. The client must not be fenced, because Events are flushed after the Lease is released.
    pub fn new(
        controller: &str,
        instance: &str,
        client: kube::Client,
        registry: &Registry,
    ) -> (Self, EventWriter) {
        let instance = if instance.is_empty() { controller } else { instance };
        Self::with_writer(Shared::new(instance, EventCounts::register(registry)), controller, client)
    }

    /// Makes a recorder of Events and its writer for another API server. They share only the reporting
    /// controller, the instance and the metric with this recorder.
    pub fn beside(&self, client: kube::Client) -> (Self, EventWriter) {
        let shared = Shared::new(&self.shared.instance, self.shared.counts.clone());
        Self::with_writer(shared, &self.controller, client)
    }

    fn with_writer(shared: Shared, controller: &str, client: kube::Client) -> (Self, EventWriter) {
        let shared = Arc::new(shared);
        let all_dropped = CancellationToken::new();
        let writer = EventWriter::new(Arc::clone(&shared), client, all_dropped.clone());
        (Self::with_shared(shared, controller, all_dropped), writer)
    }

    fn with_shared(shared: Arc<Shared>, controller: &str, all_dropped: CancellationToken) -> Self {
        Self { shared, controller: controller.into(), _alive: Arc::new(all_dropped.drop_guard()) }
    }

    /// Returns the name of the controller that the recorded Events name as their reporter.
    pub(crate) fn controller(&self) -> &str {
        &self.controller
    }

    /// Returns a recorder of Events with the same writer and another reporting controller.
    #[must_use]
    pub fn for_controller(&self, controller: &str) -> Self {
        Self { controller: controller.into(), ..self.clone() }
    }

    /// Records that `action` was taken on `regarding` because of `reason`; `note` is a free text for users.
    /// `reason` and `action` are words in `CamelCase`; the API requires both, so an empty one is replaced by
    /// the other. Repetitions of the same reason and action become one Event with a count and keep the first
    /// note. Texts are cut at the limits of the API: words at 128 bytes, the note at 1,024.
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

    /// Records an Event as [`Recorder::event`] does, for an action that concerns a second object too, such as
    /// the Pod that was created for `regarding`.
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
            return counts.count_lost(cause::INVALID, 1, &describe(reason, regarding));
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
        let observed = self.shared.observe(Event {
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
        match observed {
            Ok(Observed::Repeated) => counts.count("repeated"),
            Ok(Observed::WriteDue) => {
                self.shared.wake.notify_one();
                counts.count("repeated");
            }
            Ok(Observed::New(evicted)) => {
                self.shared.wake.notify_one();
                counts.count("new");
                if let Some(evicted) = evicted {
                    self.shared.count_lost(*evicted);
                }
            }
            Err(cause) => counts.count_lost(cause, 1, &described),
        }
    }
}

// === impl Shared ===

impl Shared {
    fn new(instance: &str, counts: EventCounts) -> Self {
        Self {
            table: Mutex::new(SeriesTable::new()),
            wake: Notify::new(),
            instance: cut(instance, MAX_WORD).into(),
            counts,
            #[cfg(feature = "testing")]
            recorded: None,
        }
    }

    fn observe(&self, event: Event) -> Result<Observed, &'static str> {
        #[cfg(feature = "testing")]
        if let Some(recorded) = &self.recorded {
            return Ok(recorded.push(event));
        }
        self.table.lock().observe(event, Instant::now())
    }

    /// Counts and logs the lost occurrences of an Event series that was dropped.
    fn count_lost(&self, lost: LostSeries) {
        let LostSeries { cause, count, event, why } = lost;
        let event = describe(&event.reason.unwrap_or_default(), &event.regarding.unwrap_or_default());
        self.counts.count_lost(cause, count, &format_args!("{event}: {why}"));
    }
}

/// Returns the name of a new Event: `OBJECT.HEXTIME` as in client-go, with `event` in place of an object name
/// that is invalid there. The last digits are random, because one object can have two Events at the same
/// clock reading.
fn event_name(regarding: &ObjectReference, at: Timestamp) -> String {
    let name = regarding.name.as_deref().unwrap_or_default();
    let stem = if name.len() <= 220 && is_dns_subdomain(name) { name } else { "event" };
    format!("{stem}.{:x}{:04x}", at.as_nanosecond(), fastrand::u16(..))
}

/// Describes an Event in a log line: `REASON on KIND NAMESPACE/NAME`.
fn describe(reason: &str, regarding: &ObjectReference) -> String {
    let ObjectReference { kind, namespace, name, .. } = regarding;
    let [kind, namespace, name] = [kind, namespace, name].map(|text| text.as_deref().unwrap_or_default());
    format!("{reason} on {kind} {namespace}/{name}")
}

/// Returns an Event's object reference without its resourceVersion, which differs at each occurrence and
/// would make each one a separate Event.
fn without_version(reference: &ObjectReference) -> ObjectReference {
    ObjectReference { resource_version: None, ..reference.clone() }
}

/// Cuts a text to at most `limit` bytes, at a character boundary.
fn cut(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

#[cfg(test)]
mod tests;
