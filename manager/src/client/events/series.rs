//! The table of Event series: their counts, and the writes that are due.
//!
//! Recorders add occurrences under a lock that is held for a few look-ups. The writer takes writes that are
//! due and enters their results; it scans the table at most some hundred times a second. No function here
//! waits or logs, and times are passed in.
//!
//! # Invariants
//! 1. At most one write per series is in flight; occurrences meanwhile are counted and written next.
//! 2. Namespaces take turns: among those with a due write, the one without a write for the longest time is
//!    next. One namespace has at most [`MAX_IN_FLIGHT_EACH`] writes in flight.
//! 3. At most [`MAX_SERIES`] series are stored. In a full table a namespace with its fair share or more gets
//!    no new series; a new series of another namespace evicts one of the namespace with the most series.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

use crate::util::{Limit, TokenBucket};

use super::counts::cause;

/// Maximum number of Event series in the table, as in client-go. With notes of full length they take about 8
/// MB.
const MAX_SERIES: usize = 4096;
/// From this number of Event series in the table on, a namespace with its fair share keeps no fully written
/// series.
const CROWDED: usize = MAX_SERIES * 3 / 4;
/// Maximum number of Event writes in flight per namespace: half of the writer's, so that a slow namespace
/// cannot use all of them.
const MAX_IN_FLIGHT_EACH: usize = super::writer::MAX_IN_FLIGHT / 2;
/// An Event series without occurrences for this long ends, and the next occurrence is a new Event; as in
/// client-go.
const SERIES_IDLE: Duration = Duration::from_mins(6);
/// Delay of the first update of an Event's growing count. Each later delay is twice as long, up to
/// [`MAX_UPDATE`].
const FIRST_UPDATE: Duration = Duration::from_secs(1);
/// Longest delay of an update of an Event's count. [`WRITES`] allows it for up to 500 series that grow all
/// the time.
const MAX_UPDATE: Duration = Duration::from_secs(10);
/// Rate limit for the Event writes of all namespaces together, retries included.
const WRITES: Limit = Limit { interval: Duration::from_millis(20), burst: 100 };
/// Wait after the first failed write of an Event; doubled at each further one.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// Longest wait between attempts to write an Event, unless the server demands a longer one.
const MAX_RETRY: Duration = Duration::from_secs(30);
/// Longest wait before another attempt to write an Event that the API server can demand: one attempt per ten
/// minutes is a negligible load.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);
/// Maximum number of attempts per Event write, as in client-go; without `Retry-After` they take about three
/// and a half minutes.
const MAX_ATTEMPTS: u32 = 12;

/// All Event series that may still change.
pub(super) struct SeriesTable {
    /// Event series by namespace, for namespaces with at least one series.
    namespaces: HashMap<Arc<str>, Namespace>,
    /// Number of Event series in all namespaces together.
    stored: usize,
    pace: TokenBucket,
    /// Number of Event writes started so far.
    writes: u64,
    /// Whether the table is closed: occurrences of Events are refused, and writes wait neither for more
    /// occurrences nor for `pace`.
    closed: bool,
}

#[derive(Default)]
struct Namespace {
    series: HashMap<Arc<str>, Series>,
    in_flight: usize,
    /// The number, from [`SeriesTable::writes`], of the namespace's last write. Of the namespaces with a due
    /// write, the lowest number is next.
    last_write: u64,
}

/// One Event, its count of occurrences, and the state of its writes.
pub(super) struct Series {
    /// The Event as first recorded, without a count. Boxed, so that a scan of the table reads less memory.
    event: Box<Event>,
    state: WriteState,
    /// Whether the API server has the Event.
    created: bool,
    count: i32,
    /// The count of occurrences of the Event that the API server has.
    sent: i32,
    /// Wall clock time of the last occurrence of the Event.
    last_at: Option<MicroTime>,
    last_seen: Instant,
    /// Number of failed attempts to write the Event since the last successful one.
    failures: u32,
    /// Delay of the next update of the Event's growing count.
    update_after: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteState {
    /// The next write of the Event may start at this time.
    Due(Instant),
    InFlight,
    /// The Event is fully written: the API server has it with its present count.
    Written,
}

/// The effect of a recorded occurrence on the table of Event series.
#[derive(Debug, PartialEq)]
pub(super) enum Observed {
    /// The occurrence started an Event series; contains the series that was evicted for it, if any.
    New(Option<Box<LostSeries>>),
    /// The occurrence made a fully written Event series due again; the Event writer must be woken.
    WriteDue,
    /// The occurrence raised the count of an Event, for which a write is already due or in flight.
    Repeated,
}

/// A write of one Event to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EventWrite {
    namespace: Arc<str>,
    key: Arc<str>,
    /// Whether the write creates the Event; otherwise it patches the Event's series.
    pub(super) create: bool,
    /// The Event to write, with a series if it occurred more than once.
    pub(super) event: Event,
    pub(super) count: i32,
}

/// The result of one attempt to write an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WriteResult {
    /// The write succeeded: the API server has the Event with this count.
    Written(i32),
    /// The write failed because the API server has no Event of this name, or no namespace for it.
    NotFound,
    /// A temporary failure of the write, with the wait that the server demands and the error text.
    Retry(Option<Duration>, String),
    /// A permanent failure of the write, with the error text.
    Refused(String),
}

/// An Event series that was dropped before it was fully written.
#[derive(Debug, PartialEq)]
pub(super) struct LostSeries {
    pub(super) cause: &'static str,
    /// Number of occurrences of the Event that were not written.
    pub(super) count: u64,
    pub(super) event: Event,
    pub(super) why: String,
}

// === impl SeriesTable ===

impl SeriesTable {
    pub(super) fn new() -> Self {
        let (namespaces, pace) = (HashMap::new(), TokenBucket::new(WRITES));
        Self { namespaces, stored: 0, pace, writes: 0, closed: false }
    }

    /// Adds an occurrence of an Event to the table. Fails with the [`cause`] if the occurrence is lost.
    pub(super) fn observe(&mut self, event: Event, now: Instant) -> Result<Observed, &'static str> {
        if self.closed {
            return Err(cause::STOPPED);
        }
        let (namespace, key) = (event.metadata.namespace.as_deref().unwrap_or_default(), key(&event));
        let known = self.namespaces.get_mut(namespace).and_then(|one| one.series.get_mut(&*key));
        if let Some(series) = known {
            return Ok(series.repeat(event.event_time, now));
        }
        let evicted = self.make_room(namespace)?;
        self.stored += 1;
        // Behind the namespaces that wait already, because it may have been in the table before; ahead of the
        // one that wrote last.
        let new = || Namespace { last_write: self.writes.saturating_sub(1), ..Namespace::default() };
        let namespace = self.namespaces.entry(namespace.into()).or_insert_with(new);
        namespace.series.insert(key.into(), Series::new(event, now));
        Ok(Observed::New(evicted.map(Box::new)))
    }

    /// Returns the time from which the next Event write may start; `None` if none is pending.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let at = self.namespaces.values().filter_map(Namespace::next_due).min()?;
        Some(if self.closed { at } else { at.max(self.pace.ready_at(now)) })
    }

    /// Takes an Event write that may start now, if there is one; [`finish_write`](Self::finish_write) must
    /// follow.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<EventWrite> {
        let due = self.namespaces.iter_mut().filter(|(_, one)| one.next_due().is_some_and(|at| at <= now));
        let (name, namespace) = due.min_by_key(|(_, one)| one.last_write)?;
        let first = namespace.series.iter_mut().filter_map(|(key, one)| Some((one.due()?, key, one)));
        let (_, key, series) = first.min_by_key(|(at, ..)| *at)?;
        if !self.closed && self.pace.take(now).is_err() {
            return None;
        }
        self.writes += 1;
        (namespace.last_write, series.state) = (self.writes, WriteState::InFlight);
        namespace.in_flight += 1;
        Some(series.write(Arc::clone(name), Arc::clone(key)))
    }

    /// Enters the result of an Event write into the table. Returns the series if it is dropped before it is
    /// fully written.
    pub(super) fn finish_write(
        &mut self,
        write: &EventWrite,
        result: WriteResult,
        now: Instant,
    ) -> Option<LostSeries> {
        let crowded = self.stored >= CROWDED && self.has_fair_share(&write.namespace);
        let namespace = self.namespaces.get_mut(&write.namespace)?;
        namespace.in_flight -= 1;
        let series = namespace.series.get_mut(&write.key)?;
        match series.state_after(result, self.closed, now) {
            Ok(WriteState::Written) if crowded => _ = self.remove(&write.namespace, &write.key),
            Ok(state) => series.state = state,
            Err((cause, why)) => {
                return self.remove(&write.namespace, &write.key).map(|series| series.lost(cause, why));
            }
        }
        None
    }

    /// Removes the Event series that have ended and returns them, so that the caller drops them outside the
    /// lock.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<Series> {
        let ended = |series: &Series| now.saturating_duration_since(series.last_seen) >= SERIES_IDLE;
        let mut swept = Vec::new();
        for namespace in self.namespaces.values_mut() {
            let idle =
                namespace.series.extract_if(|_, series| series.state == WriteState::Written && ended(series));
            swept.extend(idle.map(|(_, series)| series));
        }
        self.namespaces.retain(|_, namespace| !namespace.series.is_empty());
        self.stored -= swept.len();
        swept
    }

    /// Closes the table: refuses all further occurrences of Events.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Closes the table: refuses all further occurrences of Events and makes all pending writes due now.
    pub(super) fn start_flush(&mut self, now: Instant) {
        self.close();
        for series in self.namespaces.values_mut().flat_map(|namespace| namespace.series.values_mut()) {
            if let WriteState::Due(at) = &mut series.state {
                *at = now;
            }
        }
    }

    /// Returns the number of occurrences of all Events that are not written yet.
    pub(super) fn unconfirmed(&self) -> u64 {
        let series = self.namespaces.values().flat_map(|namespace| namespace.series.values());
        series.map(Series::unconfirmed).sum()
    }

    /// Makes room for a new Event series of a namespace. If the table is full, evicts a series of the
    /// namespace with the most and returns it; fails if the own namespace has its fair share already.
    fn make_room(&mut self, own: &str) -> Result<Option<LostSeries>, &'static str> {
        if self.stored < MAX_SERIES {
            return Ok(None);
        }
        if self.has_fair_share(own) {
            return Err(cause::FULL);
        }
        let most = self.namespaces.iter().max_by_key(|(_, namespace)| namespace.series.len());
        let (name, namespace) = most.ok_or(cause::FULL)?;
        let evictable = namespace.series.iter().filter(|(_, series)| series.state != WriteState::InFlight);
        // Prefers a fully written series: it has no unconfirmed occurrences.
        let (key, _) = evictable.min_by_key(|(_, series)| series.unconfirmed()).ok_or(cause::FULL)?;
        let (name, key) = (Arc::clone(name), Arc::clone(key));
        let why = "its namespace has most of a full table".to_owned();
        Ok(self.remove(&name, &key).map(|series| series.lost(cause::FULL, why)))
    }

    /// Returns whether a namespace has at least as many Event series as if all stored ones were divided
    /// equally among the namespaces.
    fn has_fair_share(&self, namespace: &str) -> bool {
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
    /// Returns the time from which the namespace's next Event write may start; `None` if none is due or its
    /// maximum of writes is in flight.
    fn next_due(&self) -> Option<Instant> {
        let due = self.series.values().filter_map(Series::due).min();
        due.filter(|_| self.in_flight < MAX_IN_FLIGHT_EACH)
    }
}

// === impl Series ===

impl Series {
    fn new(event: Event, now: Instant) -> Self {
        Self {
            state: WriteState::Due(now),
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

    fn repeat(&mut self, at: Option<MicroTime>, now: Instant) -> Observed {
        self.count = self.count.saturating_add(1);
        self.last_at = at.max(self.last_at.take());
        self.last_seen = now;
        if self.state != WriteState::Written {
            return Observed::Repeated;
        }
        self.state = WriteState::Due(now + self.update_after);
        Observed::WriteDue
    }

    fn due(&self) -> Option<Instant> {
        if let WriteState::Due(at) = self.state { Some(at) } else { None }
    }

    fn write(&self, namespace: Arc<str>, key: Arc<str>) -> EventWrite {
        let mut event = (*self.event).clone();
        // The API rejects a series of one.
        event.series = self
            .last_at
            .clone()
            .filter(|_| self.count > 1)
            .map(|last_observed_time| EventSeries { count: self.count, last_observed_time });
        EventWrite { namespace, key, create: !self.created, event, count: self.count }
    }

    /// Enters the result of a write of the Event and returns the next state, or the cause and error text if
    /// the series is dropped.
    fn state_after(
        &mut self,
        result: WriteResult,
        closed: bool,
        now: Instant,
    ) -> Result<WriteState, (&'static str, String)> {
        let (wait, why) = match result {
            WriteResult::Written(count) => {
                if self.created {
                    self.update_after = (self.update_after * 2).min(MAX_UPDATE);
                }
                (self.created, self.failures, self.sent) = (true, 0, count);
                let wait = if closed { Duration::ZERO } else { self.update_after };
                return Ok(if self.count > count {
                    WriteState::Due(now + wait)
                } else {
                    WriteState::Written
                });
            }
            WriteResult::NotFound if !self.created => {
                return Err((cause::REFUSED, "its namespace was deleted".to_owned()));
            }
            WriteResult::NotFound => {
                (self.created, self.sent) = (false, 0);
                (Duration::ZERO, "it is deleted as often as it is written".to_owned())
            }
            WriteResult::Retry(demanded, why) => {
                let own = FIRST_RETRY.saturating_mul(1 << self.failures.min(10)).min(MAX_RETRY);
                (own.max(demanded.unwrap_or_default().min(MAX_RETRY_AFTER)), why)
            }
            WriteResult::Refused(why) => return Err((cause::REFUSED, why)),
        };
        self.failures += 1;
        if self.failures < MAX_ATTEMPTS {
            Ok(WriteState::Due(now + wait))
        } else {
            Err((cause::GAVE_UP, why))
        }
    }

    fn lost(self, cause: &'static str, why: String) -> LostSeries {
        LostSeries { cause, count: self.unconfirmed(), event: *self.event, why }
    }

    fn unconfirmed(&self) -> u64 {
        u64::try_from(self.count.saturating_sub(self.sent)).unwrap_or_default()
    }
}

/// Returns the key of an Event's series: occurrences of equal key become one Event with a count. The note is
/// not part of the key; the API keeps the first note.
fn key(event: &Event) -> String {
    let Event { type_, reason, action, reporting_controller, regarding, related, .. } = event;
    // Strings always serialize.
    serde_json::to_string(&(type_, reason, action, reporting_controller, regarding, related))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
