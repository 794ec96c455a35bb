//! Which events exist, how often each happened, and what the server does not know yet.
//!
//! Recorders put occurrences in, under a lock that is held for a few look-ups; the writer asks what is due and tells what
//! came of it. Nothing here waits, logs or scans the table. Times are `tokio::time::Instant`s passed in.
//!
//! # Invariants
//! 1. At most one operation per event is in flight; what happens meanwhile is counted and sent next.
//! 2. An event the server does not know in full leaves only by an answer, or by the end of the writer.
//! 3. One topic holds at most [`TOPIC_SERIES`] of the [`MAX_SERIES`] places, so a noisy object costs the others none that
//!    they would miss. When all places wait to be written, what is new is dropped, not what was promised.
//! 4. Each event is in `due`, in `settled` or in flight, as its `place` says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

use crate::client::recent::Recent;

use super::Occurrence;
use super::budget::{Budget, Limit};
use super::drops::Cause;
use super::identity::{SeriesKey, Topic};
use super::wire::{ServerAction, event_name, new_event};

/// Series that are remembered; client-go's number. With notes of full length about 8 MB.
const MAX_SERIES: usize = 4096;
/// Of these, what one topic may hold: twice what it may cause at once.
const TOPIC_SERIES: usize = 50;
/// A series without news for this long ends, and the next occurrence is a new event; client-go's number.
const SERIES_IDLE: Duration = Duration::from_mins(6);
/// How soon a growing count is written the first time. Each later write waits twice as long, up to the maximum.
const FIRST_UPDATE: Duration = Duration::from_secs(1);
/// The most a count lags behind, as long as [`WRITES`] allows: up to 500 series that grow all the time.
const MAX_UPDATE: Duration = Duration::from_secs(10);
/// Writes of all events together, retries included: enough for any orderly cluster, and a storm of events costs the API
/// server no more. What is due first goes first, so no series starves.
const WRITES: Limit = Limit { burst: 100, every: Duration::from_millis(20) };
/// Wait after the first failure; doubled at each further one.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// Longest wait between attempts of our own choice.
const MAX_RETRY: Duration = Duration::from_secs(30);
/// Longest wait the server may ask for: nobody reads the event after that, and one attempt per ten minutes is no load.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);
/// Attempts per operation; client-go's number. About three and a half minutes unless the server asks for more.
const MAX_ATTEMPTS: u32 = 12;
/// New events one topic may cause: the burst is client-go's. That gives one more per 300 s for core events, which
/// silences an object for hours.
const TOPIC_LIMIT: Limit = Limit { burst: 25, every: Duration::from_mins(1) };

/// All events that may still change.
pub(super) struct Ledger {
    /// Goes into each event.
    instance: String,
    by_key: HashMap<SeriesKey, u64>,
    entries: HashMap<u64, Entry>,
    /// The entries of each topic, at most [`TOPIC_SERIES`] and never none.
    by_topic: HashMap<Arc<Topic>, Vec<u64>>,
    /// What the server does not know in full, by when an operation may start.
    due: BTreeSet<(Instant, u64)>,
    /// What the server knows in full, by `last_seen`: the first to go when there is no room.
    settled: BTreeSet<(Instant, u64)>,
    /// A topic that floods is used all the time, so no number of others makes it be forgotten.
    budgets: Recent<Arc<Topic>, Budget>,
    pace: Budget,
    next_id: u64,
    /// Nothing new is taken, and nothing waits for company or for its turn any more.
    ending: bool,
}

struct Entry {
    key: SeriesKey,
    event: Event,
    stage: Stage,
    count: i32,
    /// The count the server has.
    sent: i32,
    last_at: Timestamp,
    /// Changes only while the entry is not in `settled`.
    last_seen: Instant,
    place: Place,
    /// Attempts since the last that succeeded.
    failures: u32,
    update_after: Duration,
}

/// What is known of an event at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Absent,
    /// One of its name is there; whose is not known.
    Doubtful,
    Present,
}

/// Where an entry waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In `due`.
    Due(Instant),
    InFlight,
    /// In `settled`.
    Settled,
}

/// What became of an occurrence that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The first of its kind: it will be created.
    New,
    /// It raised a count, and the writer does not know yet that there is something to write.
    Raised,
    /// It raised a count that will be written anyway.
    Repeated,
}

/// An action for the writer to perform.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Operation {
    id: u64,
    pub(super) action: ServerAction,
}

/// What came of an [`Operation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    /// Nothing of that name is there.
    Gone,
    /// To a create: something of that name is there.
    Exists,
    /// To an adoption: it is another's.
    Foreign,
    /// No answer, or one that asks to come again after a while, and the text of it.
    Again(Option<Duration>, String),
    /// A no that stays one, and the text of it.
    Refused(String),
}

/// An event that is given up.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) cause: Cause,
    /// Occurrences that the server never heard of.
    pub(super) count: u64,
    pub(super) event: Event,
    pub(super) why: String,
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn new(instance: String, now: Instant) -> Self {
        Self {
            instance,
            by_key: HashMap::new(),
            entries: HashMap::new(),
            by_topic: HashMap::new(),
            due: BTreeSet::new(),
            settled: BTreeSet::new(),
            budgets: Recent::new(MAX_SERIES),
            pace: Budget::full(now),
            next_id: 0,
            ending: false,
        }
    }

    /// Takes an occurrence in; `key` is its own.
    pub(super) fn observe(
        &mut self,
        key: SeriesKey,
        occurrence: &Occurrence,
        now: Instant,
    ) -> Result<Taken, Cause> {
        if self.ending {
            return Err(Cause::Stopped);
        }
        if let Some(id) = self.by_key.get(&key).copied() {
            return Ok(self.repeat(id, occurrence, now));
        }
        // The budget comes first: what it refuses must not make others leave.
        if !self.budgets.get_or_insert_with(&key.topic, || Budget::full(now)).take(TOPIC_LIMIT, now) {
            return Err(Cause::Limited);
        }
        self.make_room(&key.topic)?;
        let id = self.next_id;
        self.next_id += 1;
        let entry = Entry {
            event: new_event(occurrence, &self.instance),
            key: key.clone(),
            stage: Stage::Absent,
            count: 1,
            sent: 0,
            last_at: occurrence.at,
            last_seen: now,
            place: Place::InFlight,
            failures: 0,
            update_after: FIRST_UPDATE,
        };
        self.by_topic.entry(Arc::clone(&key.topic)).or_default().push(id);
        self.by_key.insert(key, id);
        self.entries.insert(id, entry);
        self.put(id, Place::Due(now));
        Ok(Taken::New)
    }

    /// Returns when the next operation may start.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let (at, _) = *self.due.first()?;
        Some(if self.ending { at } else { at.max(self.pace.ready_at(WRITES, now)) })
    }

    /// Takes out an operation that may start now; [`answered`](Self::answered) must follow.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Operation> {
        let (at, id) = *self.due.first()?;
        if at > now || !(self.ending || self.pace.take(WRITES, now)) {
            return None;
        }
        self.put(id, Place::InFlight);
        let action = self.entries.get(&id)?.next_action();
        Some(Operation { id, action })
    }

    /// Takes the answer to `operation` in. Returns the event if it was given up.
    pub(super) fn answered(&mut self, operation: &Operation, answer: Answer, now: Instant) -> Option<Lost> {
        let ending = self.ending;
        let entry = self.entries.get_mut(&operation.id)?;
        let place = match entry.after(&operation.action, answer) {
            Ok(Next::Update(_)) if ending => Place::Due(now),
            Ok(Next::Wait(wait) | Next::Update(wait)) => Place::Due(now + wait),
            Ok(Next::Nothing) => Place::Settled,
            Err((cause, why)) => {
                let entry = self.remove(operation.id)?;
                return Some(Lost { cause, count: entry.unknown(), event: entry.event, why });
            }
        };
        self.put(operation.id, place);
        None
    }

    /// Ends one series that had no news for a while; returns whether there was one.
    pub(super) fn end_idle(&mut self, now: Instant) -> bool {
        let Some((seen, id)) = self.settled.first().copied() else { return false };
        let ended = now.saturating_duration_since(seen) >= SERIES_IDLE;
        if ended {
            self.remove(id);
        }
        ended
    }

    /// Takes nothing any more.
    pub(super) fn close(&mut self) {
        self.ending = true;
    }

    /// Takes nothing any more, and makes everything the server does not know yet due now.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.close();
        let waiting: Vec<u64> = self.due.iter().map(|(_, id)| *id).collect();
        for id in waiting {
            self.put(id, Place::Due(now));
        }
    }

    /// Returns how many occurrences the server has not confirmed.
    pub(super) fn unconfirmed(&self) -> u64 {
        self.entries.values().map(Entry::unknown).sum()
    }

    fn repeat(&mut self, id: u64, occurrence: &Occurrence, now: Instant) -> Taken {
        let Some(entry) = self.entries.get(&id) else { return Taken::Repeated };
        let raised = entry.place == Place::Settled;
        if raised {
            let at = now + entry.update_after;
            self.put(id, Place::Due(at));
        }
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.count = entry.count.saturating_add(1);
            entry.last_at = entry.last_at.max(occurrence.at);
            entry.last_seen = now;
        }
        if raised { Taken::Raised } else { Taken::Repeated }
    }

    /// Moves an entry, in whose place nothing is left.
    fn put(&mut self, id: u64, place: Place) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        match std::mem::replace(&mut entry.place, place) {
            Place::Due(at) => self.due.remove(&(at, id)),
            Place::Settled => self.settled.remove(&(entry.last_seen, id)),
            Place::InFlight => false,
        };
        match place {
            Place::Due(at) => self.due.insert((at, id)),
            Place::Settled => self.settled.insert((entry.last_seen, id)),
            Place::InFlight => false,
        };
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        self.put(id, Place::InFlight);
        let entry = self.entries.remove(&id)?;
        self.by_key.remove(&entry.key);
        if let Some(ids) = self.by_topic.get_mut(&entry.key.topic) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_topic.remove(&entry.key.topic);
            }
        }
        Some(entry)
    }

    /// Forgets a series that the server knows in full, if there is no room for another: of the topic itself if that has
    /// its share, else the one that is longest without news.
    fn make_room(&mut self, topic: &Arc<Topic>) -> Result<(), Cause> {
        let own = self.by_topic.get(topic).filter(|ids| ids.len() >= TOPIC_SERIES);
        if let Some(own) = own {
            let known = own.iter().filter_map(|id| Some((self.entries.get(id)?, *id)));
            let settled = known.filter(|(entry, _)| entry.place == Place::Settled);
            let oldest = settled.min_by_key(|(entry, _)| entry.last_seen).map(|(_, id)| id);
            self.remove(oldest.ok_or(Cause::Limited)?);
        } else if self.entries.len() >= MAX_SERIES {
            let (_, oldest) = *self.settled.first().ok_or(Cause::Full)?;
            self.remove(oldest);
        }
        Ok(())
    }
}

/// What follows an answer.
enum Next {
    /// The same or another operation after a wait that cannot be cut short.
    Wait(Duration),
    /// A count to write after a wait for company.
    Update(Duration),
    Nothing,
}

// === impl Entry ===

impl Entry {
    fn next_action(&self) -> ServerAction {
        let series = EventSeries { count: self.count, last_observed_time: MicroTime(self.last_at) };
        if self.stage == Stage::Present {
            let meta = &self.event.metadata;
            let (namespace, name) = (meta.namespace.clone(), meta.name.clone());
            return ServerAction::Count {
                namespace: namespace.unwrap_or_default(),
                name: name.unwrap_or_default(),
                series,
            };
        }
        let mut event = Box::new(self.event.clone());
        // The API refuses a series of one.
        event.series = (self.count > 1).then_some(series);
        if self.stage == Stage::Absent { ServerAction::Create(event) } else { ServerAction::Adopt(event) }
    }

    /// Takes the answer in and returns what follows, or why the event is given up.
    fn after(&mut self, action: &ServerAction, answer: Answer) -> Result<Next, (Cause, String)> {
        match answer {
            Answer::Done => {
                if matches!(action, ServerAction::Count { .. }) {
                    self.update_after = (self.update_after * 2).min(MAX_UPDATE);
                }
                self.stage = Stage::Present;
                self.failures = 0;
                self.sent = action.count();
                let more = self.count > self.sent;
                Ok(if more { Next::Update(self.update_after) } else { Next::Nothing })
            }
            Answer::Gone if self.stage == Stage::Absent => {
                Err((Cause::Refused, "its namespace is gone".to_owned()))
            }
            Answer::Gone => {
                self.stage = Stage::Absent;
                self.sent = 0;
                self.again(Duration::ZERO, "it is deleted as often as it is written".to_owned())
            }
            Answer::Exists => {
                self.stage = Stage::Doubtful;
                self.again(Duration::ZERO, "its name is taken".to_owned())
            }
            Answer::Foreign => {
                self.stage = Stage::Absent;
                let regarding = self.event.regarding.clone().unwrap_or_default();
                self.event.metadata.name = Some(event_name(&regarding, self.last_at));
                self.again(Duration::ZERO, "its names are taken".to_owned())
            }
            Answer::Again(after, why) => {
                let own = FIRST_RETRY.saturating_mul(1 << self.failures.min(10)).min(MAX_RETRY);
                self.again(own.max(after.unwrap_or_default().min(MAX_RETRY_AFTER)), why)
            }
            Answer::Refused(why) => Err((Cause::Refused, why)),
        }
    }

    fn again(&mut self, wait: Duration, why: String) -> Result<Next, (Cause, String)> {
        self.failures += 1;
        if self.failures < MAX_ATTEMPTS { Ok(Next::Wait(wait)) } else { Err((Cause::GaveUp, why)) }
    }

    /// How many occurrences the server has not confirmed.
    fn unknown(&self) -> u64 {
        u64::try_from(self.count.saturating_sub(self.sent)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
