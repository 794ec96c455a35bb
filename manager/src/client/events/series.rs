//! The table of Event series: their counts, and the writes that are due.
//!
//! Recorders add occurrences under a lock that is held for a few look-ups. The writer takes writes that are due and
//! enters their results; it scans the table, at most some hundred times a second. Nothing here waits or logs, and times
//! are passed in.
//!
//! # Invariants
//! 1. At most one write per series is in flight; occurrences meanwhile are counted and written next.
//! 2. Namespaces take turns: of those with a write that is due the one that is longest without a write is next. One
//!    namespace has at most [`MAX_IN_FLIGHT_EACH`] writes in flight.
//! 3. At most [`MAX_SERIES`] series are stored. In a full table a namespace that has its share or more gets no new series,
//!    and one with less takes the place of a series of the namespace that has most.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

use crate::util::{Limit, TokenBucket};

use super::counts::cause;

/// client-go's number. With notes of full length about 8 MB.
const MAX_SERIES: usize = 4096;
/// From here on a namespace that has its share or more keeps no series that the server knows in full.
const CROWDED: usize = MAX_SERIES * 3 / 4;
/// Half of the writer's, so that one slow namespace does not hold all of them.
const MAX_IN_FLIGHT_EACH: usize = super::writer::MAX_IN_FLIGHT / 2;
/// A series without occurrences for this long ends, and the next occurrence is a new Event; client-go's number.
const SERIES_IDLE: Duration = Duration::from_mins(6);
/// How soon a growing count is written the first time. Each later write waits twice as long, up to the maximum.
const FIRST_UPDATE: Duration = Duration::from_secs(1);
/// The most a count lags behind, as far as [`WRITES`] allows: up to 500 series that grow all the time.
const MAX_UPDATE: Duration = Duration::from_secs(10);
/// Writes of all namespaces together, retries included.
const WRITES: Limit = Limit { interval: Duration::from_millis(20), burst: 100 };
/// Wait after the first failed write; doubled at each further one.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// Longest wait between attempts unless the server asks for more.
const MAX_RETRY: Duration = Duration::from_secs(30);
/// Longest wait that the server may ask for: one attempt per ten minutes is no load.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);
/// Attempts per write; client-go's number. About three and a half minutes unless the server asks for more.
const MAX_ATTEMPTS: u32 = 12;

/// All series that may still change.
pub(super) struct Ledger {
    /// Those with a series.
    namespaces: HashMap<Arc<str>, Namespace>,
    /// Series of all namespaces.
    stored: usize,
    pace: TokenBucket,
    /// Writes started so far.
    writes: u64,
    /// Nothing new is added, and writes wait neither for more occurrences nor for the pace.
    ending: bool,
}

#[derive(Default)]
struct Namespace {
    series: HashMap<Arc<str>, Series>,
    in_flight: usize,
    /// The number of its last write.
    served: u64,
}

/// One Event and its count.
pub(super) struct Series {
    /// As first recorded, without a count. Boxed, so that a scan of the table reads a fraction of its memory.
    event: Box<Event>,
    place: Place,
    /// Whether the server has the Event.
    created: bool,
    count: i32,
    /// The count that the server has.
    sent: i32,
    last_at: Option<MicroTime>,
    last_seen: Instant,
    /// Failed attempts since the last success.
    failures: u32,
    update_after: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A write may start then.
    Due(Instant),
    InFlight,
    /// The server knows it in full.
    Settled,
}

/// The effect of an occurrence.
#[derive(Debug, PartialEq)]
pub(super) enum Taken {
    /// It starts a series, in the place of this one.
    New(Option<Box<Lost>>),
    /// It raised the count of a settled series; the writer has to be woken.
    Raised,
    /// It raised a count that will be written anyway.
    Repeated,
}

/// A write to perform.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    namespace: Arc<str>,
    key: Arc<str>,
    /// Whether the Event has to be created; else its series is patched.
    pub(super) create: bool,
    /// With a series if it occurred more than once.
    pub(super) event: Event,
    pub(super) count: i32,
}

/// The result of a [`Write`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The server has the Event with this count.
    Done(i32),
    /// The server has no Event of this name, or no namespace for it.
    Gone,
    /// A failure that may pass, with the wait that the server asked for.
    Again(Option<Duration>, String),
    /// A failure that will not pass.
    Refused(String),
}

/// A series that is given up.
#[derive(Debug, PartialEq)]
pub(super) struct Lost {
    pub(super) cause: &'static str,
    /// Occurrences that the server does not know.
    pub(super) count: u64,
    pub(super) event: Event,
    pub(super) why: String,
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn new() -> Self {
        let (namespaces, pace) = (HashMap::new(), TokenBucket::new(WRITES));
        Self { namespaces, stored: 0, pace, writes: 0, ending: false }
    }

    /// Adds an occurrence. Fails with the cause of its loss.
    pub(super) fn observe(&mut self, event: Event, now: Instant) -> Result<Taken, &'static str> {
        if self.ending {
            return Err(cause::STOPPED);
        }
        let (namespace, key) = (event.metadata.namespace.as_deref().unwrap_or_default(), key(&event));
        let known = self.namespaces.get_mut(namespace).and_then(|one| one.series.get_mut(&*key));
        if let Some(series) = known {
            return Ok(series.repeat(event.event_time, now));
        }
        let evicted = self.make_room(namespace)?;
        self.stored += 1;
        // Behind those that wait already, as it may have been here before; ahead of the one that wrote last.
        let new = || Namespace { served: self.writes.saturating_sub(1), ..Namespace::default() };
        let namespace = self.namespaces.entry(namespace.into()).or_insert_with(new);
        namespace.series.insert(key.into(), Series::new(event, now));
        Ok(Taken::New(evicted.map(Box::new)))
    }

    /// Returns when the next write may start.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let at = self.namespaces.values().filter_map(Namespace::next_due).min()?;
        Some(if self.ending { at } else { at.max(self.pace.ready_at(now)) })
    }

    /// Takes a write that may start now; [`answered`](Self::answered) must follow.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Write> {
        let due = self.namespaces.iter_mut().filter(|(_, one)| one.next_due().is_some_and(|at| at <= now));
        let (name, namespace) = due.min_by_key(|(_, one)| one.served)?;
        let first = namespace.series.iter_mut().filter_map(|(key, one)| Some((one.due()?, key, one)));
        let (_, key, series) = first.min_by_key(|(at, ..)| *at)?;
        if !self.ending && self.pace.take(now).is_err() {
            return None;
        }
        self.writes += 1;
        (namespace.served, series.place) = (self.writes, Place::InFlight);
        namespace.in_flight += 1;
        Some(series.write(Arc::clone(name), Arc::clone(key)))
    }

    /// Enters the result of a write. Returns the series if it is given up.
    pub(super) fn answered(&mut self, write: &Write, answer: Answer, now: Instant) -> Option<Lost> {
        let crowded = self.stored >= CROWDED && self.has_its_share(&write.namespace);
        let namespace = self.namespaces.get_mut(&write.namespace)?;
        namespace.in_flight -= 1;
        let series = namespace.series.get_mut(&write.key)?;
        match series.after(answer, self.ending, now) {
            Ok(Place::Settled) if crowded => _ = self.remove(&write.namespace, &write.key),
            Ok(place) => series.place = place,
            Err((cause, why)) => {
                return self.remove(&write.namespace, &write.key).map(|series| series.lost(cause, why));
            }
        }
        None
    }

    /// Takes out the series that have ended, for the caller to drop them outside of the lock.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<Series> {
        let ended = |series: &Series| now.saturating_duration_since(series.last_seen) >= SERIES_IDLE;
        let mut swept = Vec::new();
        for namespace in self.namespaces.values_mut() {
            let idle =
                namespace.series.extract_if(|_, series| series.place == Place::Settled && ended(series));
            swept.extend(idle.map(|(_, series)| series));
        }
        self.namespaces.retain(|_, namespace| !namespace.series.is_empty());
        self.stored -= swept.len();
        swept
    }

    /// Adds nothing any more.
    pub(super) fn close(&mut self) {
        self.ending = true;
    }

    /// Adds nothing any more, and makes all writes due now.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.close();
        for series in self.namespaces.values_mut().flat_map(|namespace| namespace.series.values_mut()) {
            if let Place::Due(at) = &mut series.place {
                *at = now;
            }
        }
    }

    /// Returns how many occurrences the server has not confirmed.
    pub(super) fn unconfirmed(&self) -> u64 {
        let series = self.namespaces.values().flat_map(|namespace| namespace.series.values());
        series.map(Series::unconfirmed).sum()
    }

    /// Makes room for a series of a namespace. Returns the series that lost its place.
    fn make_room(&mut self, own: &str) -> Result<Option<Lost>, &'static str> {
        if self.stored < MAX_SERIES {
            return Ok(None);
        }
        if self.has_its_share(own) {
            return Err(cause::FULL);
        }
        let most = self.namespaces.iter().max_by_key(|(_, namespace)| namespace.series.len());
        let (name, namespace) = most.ok_or(cause::FULL)?;
        let movable = namespace.series.iter().filter(|(_, series)| series.place != Place::InFlight);
        // A settled series has none that are unconfirmed.
        let (key, _) = movable.min_by_key(|(_, series)| series.unconfirmed()).ok_or(cause::FULL)?;
        let (name, key) = (Arc::clone(name), Arc::clone(key));
        let why = "its namespace has most of a full table".to_owned();
        Ok(self.remove(&name, &key).map(|series| series.lost(cause::FULL, why)))
    }

    /// Returns whether a namespace has as much of the table as if it were divided equally.
    fn has_its_share(&self, namespace: &str) -> bool {
        let own = self.namespaces.get(namespace).map_or(0, |namespace| namespace.series.len());
        own * self.namespaces.len() >= self.stored
    }

    fn remove(&mut self, name: &str, key: &str) -> Option<Series> {
        let namespace = self.namespaces.get_mut(name)?;
        let series = namespace.series.remove(key)?;
        self.stored -= 1;
        if namespace.series.is_empty() {
            self.namespaces.remove(name);
        }
        Some(series)
    }
}

// === impl Namespace ===

impl Namespace {
    /// Returns when its next write may start; `None` also with as many in flight as it may have.
    fn next_due(&self) -> Option<Instant> {
        let due = self.series.values().filter_map(Series::due).min();
        due.filter(|_| self.in_flight < MAX_IN_FLIGHT_EACH)
    }
}

// === impl Series ===

impl Series {
    fn new(event: Event, now: Instant) -> Self {
        Self {
            place: Place::Due(now),
            created: false,
            count: 1,
            sent: 0,
            last_at: event.event_time.clone(),
            last_seen: now,
            failures: 0,
            update_after: FIRST_UPDATE,
            event: Box::new(event),
        }
    }

    fn repeat(&mut self, at: Option<MicroTime>, now: Instant) -> Taken {
        self.count = self.count.saturating_add(1);
        self.last_at = at.max(self.last_at.take());
        self.last_seen = now;
        if self.place != Place::Settled {
            return Taken::Repeated;
        }
        self.place = Place::Due(now + self.update_after);
        Taken::Raised
    }

    fn due(&self) -> Option<Instant> {
        if let Place::Due(at) = self.place { Some(at) } else { None }
    }

    fn write(&self, namespace: Arc<str>, key: Arc<str>) -> Write {
        let mut event = (*self.event).clone();
        // The API rejects a series of one.
        event.series = self
            .last_at
            .clone()
            .filter(|_| self.count > 1)
            .map(|last_observed_time| EventSeries { count: self.count, last_observed_time });
        Write { namespace, key, create: !self.created, event, count: self.count }
    }

    /// Enters a result and returns the next place, or why the series is given up.
    fn after(&mut self, answer: Answer, ending: bool, now: Instant) -> Result<Place, (&'static str, String)> {
        let (wait, why) = match answer {
            Answer::Done(count) => {
                if self.created {
                    self.update_after = (self.update_after * 2).min(MAX_UPDATE);
                }
                (self.created, self.failures, self.sent) = (true, 0, count);
                let wait = if ending { Duration::ZERO } else { self.update_after };
                return Ok(if self.count > count { Place::Due(now + wait) } else { Place::Settled });
            }
            Answer::Gone if !self.created => {
                return Err((cause::REFUSED, "its namespace is gone".to_owned()));
            }
            Answer::Gone => {
                (self.created, self.sent) = (false, 0);
                (Duration::ZERO, "it is deleted as often as it is written".to_owned())
            }
            Answer::Again(asked, why) => {
                let own = FIRST_RETRY.saturating_mul(1 << self.failures.min(10)).min(MAX_RETRY);
                (own.max(asked.unwrap_or_default().min(MAX_RETRY_AFTER)), why)
            }
            Answer::Refused(why) => return Err((cause::REFUSED, why)),
        };
        self.failures += 1;
        if self.failures < MAX_ATTEMPTS { Ok(Place::Due(now + wait)) } else { Err((cause::GAVE_UP, why)) }
    }

    fn lost(self, cause: &'static str, why: String) -> Lost {
        Lost { cause, count: self.unconfirmed(), event: *self.event, why }
    }

    fn unconfirmed(&self) -> u64 {
        u64::try_from(self.count.saturating_sub(self.sent)).unwrap_or_default()
    }
}

/// Occurrences with the same key become one Event with a count. The note is not part of it: the API keeps the first one.
fn key(event: &Event) -> String {
    let Event { type_, reason, action, reporting_controller, regarding, related, .. } = event;
    // Strings always serialize.
    serde_json::to_string(&(type_, reason, action, reporting_controller, regarding, related))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
