//! Which events exist, how often each happened, and what the server does not know yet.
//!
//! Pure: the writer asks what is due and tells what came of it. Times are `tokio::time::Instant`s passed in.
//!
//! # Invariants
//! 1. At most one operation per event is in flight; what happens meanwhile is counted and sent next.
//! 2. An entry leaves only when the server knows its count, when it was given up, or to make room.

use std::collections::BTreeSet;
use std::time::Duration;

use hashbrown::HashMap;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

use super::{EventType, Occurrence};

/// Series that are remembered; client-go's number.
const MAX_SERIES: usize = 4096;
/// A series without news for this long ends, and the next occurrence is a new event; client-go's number.
const SERIES_IDLE: Duration = Duration::from_mins(6);
/// How soon a growing count is written the first time. Each later write waits twice as long, up to the maximum, so a
/// series costs the server a dozen writes in its first ten minutes and one a minute then.
const FIRST_UPDATE: Duration = Duration::from_secs(2);
/// See [`FIRST_UPDATE`].
const MAX_UPDATE: Duration = Duration::from_mins(1);
/// Wait after the first failure; doubled at each further one.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// Longest wait between attempts, a longer `Retry-After` included.
const MAX_RETRY: Duration = Duration::from_secs(30);
/// Attempts per operation; client-go's number. About three and a half minutes.
const MAX_ATTEMPTS: u32 = 12;
/// New events one object may cause at once; client-go's number.
const OBJECT_BURST: f64 = 25.0;
/// One more per this many seconds. client-go says 300 for core events, which silences an object for hours.
const OBJECT_REFILL_SECS: f64 = 60.0;

/// What makes two occurrences the same event. The note is left out, as the API keeps the first one's anyway.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SeriesKey {
    object: ObjectId,
    field_path: Option<String>,
    kind: EventType,
    reason: String,
    action: String,
    controller: std::sync::Arc<str>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct ObjectId {
    api_version: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

struct Entry {
    key: SeriesKey,
    event: Event,
    count: i32,
    /// The count the server has; 0 = it does not know the event.
    sent: i32,
    last_at: Timestamp,
    last_seen: Instant,
    /// When the next operation may start; `None` if the server knows all, or one is in flight.
    due: Option<Instant>,
    in_flight: bool,
    failures: u32,
    update_after: Duration,
}

struct Bucket {
    tokens: f64,
    at: Instant,
}

/// All events that may still change.
#[derive(Default)]
pub(super) struct Ledger {
    by_key: HashMap<SeriesKey, u64>,
    entries: HashMap<u64, Entry>,
    /// Each entry's `due`, in order.
    due: BTreeSet<(Instant, u64)>,
    budgets: HashMap<ObjectId, Bucket>,
    next_id: u64,
    /// Set when flushing: nothing waits for company any more.
    hurried: bool,
}

/// What became of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observed {
    /// The first of its kind: it will be created.
    New,
    /// It raised a count.
    Repeated,
    /// Its object caused too many events lately; it is dropped.
    Limited,
}

/// Something to do at the server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Operation {
    pub(super) id: u64,
    pub(super) action: ServerAction,
}

/// See [`Operation`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ServerAction {
    Create(Box<Event>),
    Count { namespace: String, name: String, series: EventSeries },
}

/// What came of an [`Operation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    /// The event to count is not there any more.
    Gone,
    /// No answer, or one that asks to come again.
    Again(Option<Duration>),
    /// A no that stays one.
    Refused,
}

// === impl Ledger ===

impl Ledger {
    /// Takes an occurrence in. `instance` goes into the event if it is new.
    pub(super) fn observe(&mut self, occurrence: &Occurrence, instance: &str, now: Instant) -> Observed {
        let key = SeriesKey::of(occurrence);
        if let Some(id) = self.by_key.get(&key).copied()
            && let Some(entry) = self.entries.get_mut(&id)
        {
            entry.count = entry.count.saturating_add(1);
            entry.last_at = occurrence.at;
            entry.last_seen = now;
            if entry.due.is_none() && !entry.in_flight {
                let at = now + entry.update_after;
                self.schedule(id, at);
            }
            return Observed::Repeated;
        }
        if !self.spend(&key.object, now) {
            return Observed::Limited;
        }
        self.make_room();
        let id = self.next_id;
        self.next_id += 1;
        let entry = Entry {
            event: new_event(occurrence, instance),
            key: key.clone(),
            count: 1,
            sent: 0,
            last_at: occurrence.at,
            last_seen: now,
            due: None,
            in_flight: false,
            failures: 0,
            update_after: FIRST_UPDATE,
        };
        self.by_key.insert(key, id);
        self.entries.insert(id, entry);
        self.schedule(id, now);
        Observed::New
    }

    /// Returns when the next operation may start.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes out an operation that may start now; [`answered`](Self::answered) must follow.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Operation> {
        let (at, id) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.due.pop_first();
        let entry = self.entries.get_mut(&id)?;
        entry.due = None;
        entry.in_flight = true;
        let series = EventSeries { count: entry.count, last_observed_time: MicroTime(entry.last_at) };
        let action = if entry.sent == 0 {
            let mut event = entry.event.clone();
            // The API refuses a series of one.
            event.series = (entry.count > 1).then_some(series);
            ServerAction::Create(Box::new(event))
        } else {
            let ObjectMeta { namespace, name, .. } = entry.event.metadata.clone();
            let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
            ServerAction::Count { namespace, name, series }
        };
        Some(Operation { id, action })
    }

    /// Takes the answer to `operation` in. Returns whether the event was given up.
    pub(super) fn answered(&mut self, operation: &Operation, answer: Answer, now: Instant) -> bool {
        let hurried = self.hurried;
        let Some(entry) = self.entries.get_mut(&operation.id) else { return false };
        entry.in_flight = false;
        let again = match answer {
            Answer::Done => {
                entry.failures = 0;
                entry.sent = match &operation.action {
                    ServerAction::Create(event) => event.series.as_ref().map_or(1, |series| series.count),
                    ServerAction::Count { series, .. } => {
                        entry.update_after = (entry.update_after * 2).min(MAX_UPDATE);
                        series.count
                    }
                };
                let wait = if hurried { Duration::ZERO } else { entry.update_after };
                (entry.count > entry.sent).then(|| now + wait)
            }
            Answer::Gone if matches!(operation.action, ServerAction::Count { .. }) => {
                entry.sent = 0;
                Some(now)
            }
            Answer::Again(after) if entry.failures + 1 < MAX_ATTEMPTS => {
                entry.failures += 1;
                let own = FIRST_RETRY.saturating_mul(1 << entry.failures.min(10).saturating_sub(1));
                Some(now + own.max(after.unwrap_or_default()).min(MAX_RETRY))
            }
            Answer::Gone | Answer::Again(_) | Answer::Refused => {
                self.remove(operation.id);
                return true;
            }
        };
        if let Some(at) = again {
            self.schedule(operation.id, at);
        }
        false
    }

    /// Ends series that had no news for a while.
    pub(super) fn sweep(&mut self, now: Instant) {
        let idle =
            |entry: &Entry| entry.due.is_none() && !entry.in_flight && now - entry.last_seen >= SERIES_IDLE;
        let ended: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| idle(entry)).map(|(id, _)| *id).collect();
        for id in ended {
            self.remove(id);
        }
        self.budgets.retain(|_, bucket| {
            bucket.refill(now);
            bucket.tokens < OBJECT_BURST
        });
    }

    /// Makes everything the server does not know yet due now, for good.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.hurried = true;
        let waiting: Vec<u64> = self.due.iter().map(|(_, id)| *id).collect();
        for id in waiting {
            self.schedule(id, now);
        }
    }

    /// Returns how many events the server does not know in full.
    pub(super) fn pending(&self) -> usize {
        self.entries.values().filter(|entry| entry.in_flight || entry.due.is_some()).count()
    }

    fn schedule(&mut self, id: u64, at: Instant) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Some(before) = entry.due.replace(at) {
            self.due.remove(&(before, id));
        }
        self.due.insert((at, id));
    }

    fn remove(&mut self, id: u64) {
        if let Some(entry) = self.entries.remove(&id) {
            self.by_key.remove(&entry.key);
            if let Some(at) = entry.due {
                self.due.remove(&(at, id));
            }
        }
    }

    /// Forgets the series that is longest without news, one the server knows if there is one.
    fn make_room(&mut self) {
        if self.entries.len() < MAX_SERIES {
            return;
        }
        let settled = |entry: &Entry| entry.due.is_none() && !entry.in_flight;
        let oldest = self.entries.iter().min_by_key(|(_, entry)| (!settled(entry), entry.last_seen));
        if let Some(id) = oldest.map(|(id, _)| *id) {
            self.remove(id);
        }
    }

    fn spend(&mut self, object: &ObjectId, now: Instant) -> bool {
        if self.budgets.len() >= MAX_SERIES && !self.budgets.contains_key(object) {
            // Who is remembered only limits who may flood; forgetting all of them is the cheap and harmless way out.
            self.budgets.clear();
        }
        let bucket = self.budgets.entry(object.clone()).or_insert(Bucket { tokens: OBJECT_BURST, at: now });
        bucket.refill(now);
        let enough = bucket.tokens >= 1.0;
        if enough {
            bucket.tokens -= 1.0;
        }
        enough
    }
}

impl Bucket {
    fn refill(&mut self, now: Instant) {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() / OBJECT_REFILL_SECS;
        self.tokens = (self.tokens + earned).min(OBJECT_BURST);
        self.at = now;
    }
}

impl SeriesKey {
    fn of(occurrence: &Occurrence) -> Self {
        let regarding = &occurrence.regarding;
        Self {
            object: ObjectId {
                api_version: regarding.api_version.clone(),
                kind: regarding.kind.clone(),
                namespace: regarding.namespace.clone(),
                name: regarding.name.clone(),
                uid: regarding.uid.clone(),
            },
            field_path: regarding.field_path.clone(),
            kind: occurrence.kind,
            reason: occurrence.reason.clone(),
            action: occurrence.action.clone(),
            controller: std::sync::Arc::clone(&occurrence.controller),
        }
    }
}

fn new_event(occurrence: &Occurrence, instance: &str) -> Event {
    let ObjectReference { namespace, name, .. } = &occurrence.regarding;
    // Events about cluster-scoped objects live in `default`: the API allows no other place.
    let namespace =
        namespace.clone().filter(|namespace| !namespace.is_empty()).unwrap_or_else(|| "default".to_owned());
    Event {
        metadata: ObjectMeta {
            name: Some(event_name(name.as_deref().unwrap_or_default(), occurrence.at)),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(occurrence.at)),
        type_: Some(occurrence.kind.as_str().to_owned()),
        reason: Some(occurrence.reason.clone()),
        action: Some(occurrence.action.clone()),
        note: Some(occurrence.note.clone()).filter(|note| !note.is_empty()),
        regarding: Some(occurrence.regarding.clone()),
        reporting_controller: Some(occurrence.controller.to_string()),
        reporting_instance: Some(instance.to_owned()),
        ..Event::default()
    }
}

/// `name.hextime` as client-go makes it, with `event` in place of a name that could not stand in front. The last
/// digits are random: one object can have two events at one clock reading.
fn event_name(name: &str, at: Timestamp) -> String {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let usable = !name.is_empty()
        && name.len() <= 220
        && name.chars().all(allowed)
        && !name.contains("..")
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    let stem = if usable { name } else { "event" };
    format!("{stem}.{:x}{:04x}", at.as_nanosecond(), fastrand::u16(..))
}

#[cfg(test)]
mod tests;
