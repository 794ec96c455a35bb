//! Whose turn it is: which of the entries that are due is probed now, within the limits.
//!
//! # Invariants
//! 1. Of the slots, targets that timed out last time hold at most half and those never tried at most three quarters:
//!    black holes cannot starve a target that answers, be they old or new.
//! 2. Within a lane the longest due goes first.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::ProbeResult;
use super::bucket::Bucket;
use crate::reasons::probe;

/// A probe that lasted longer than this held its slot for nothing, whatever its result says.
const SLOW: Duration = Duration::from_secs(1);

/// What an entry's next probe is expected to cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Ended quickly last time, either way.
    Quick,
    /// Never tried.
    New,
    /// Held its slot to the end last time.
    Slow,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// This one's, from now on in flight.
    Now(u64),
    /// Nobody's before this time; `None`: before something changes.
    At(Option<Instant>),
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Turns {
    /// By lane: when which entry is to be probed.
    due: [BTreeSet<(Instant, u64)>; Lane::COUNT],
    /// Probes in flight, by the lane they were started from.
    flying: HashMap<u64, Lane>,
    /// Most probes in flight, by lane and over all.
    limits: [usize; Lane::COUNT],
    limit: usize,
    bucket: Bucket,
}

// === impl Lane ===

impl Lane {
    const COUNT: usize = 3;
    const ALL: [Self; Self::COUNT] = [Self::Quick, Self::New, Self::Slow];

    /// Returns where an entry belongs whose last probe ended so after this time.
    pub(super) fn after(result: &ProbeResult, took: Duration) -> Self {
        let timed_out = matches!(result, ProbeResult::NotReady { reason: probe::TIMEOUT, .. });
        if timed_out || took >= SLOW { Self::Slow } else { Self::Quick }
    }
}

// === impl Turns ===

impl Turns {
    /// Makes an empty one, with so many slots.
    pub(super) fn new(limit: usize, per_second: u32) -> Self {
        Self {
            due: [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()],
            flying: HashMap::new(),
            limits: [limit, (limit * 3 / 4).max(1), (limit / 2).max(1)],
            limit,
            bucket: Bucket::new(per_second),
        }
    }

    /// Changes the rate.
    pub(super) fn reconfigure(&mut self, per_second: u32) {
        self.bucket = Bucket::new(per_second);
    }

    /// Has an entry wait for its turn.
    pub(super) fn insert(&mut self, id: u64, lane: Lane, due: Instant) {
        self.due[lane as usize].insert((due, id));
    }

    /// Ends the wait of an entry that was inserted so.
    pub(super) fn remove(&mut self, id: u64, lane: Lane, due: Instant) {
        self.due[lane as usize].remove(&(due, id));
    }

    /// Says whose turn it is. That entry waits no more, and holds a slot until it [lands](Self::land).
    pub(super) fn next(&mut self, now: Instant) -> Turn {
        let Some((lane, due, id)) = self.first_startable() else { return Turn::At(None) };
        if due > now {
            return Turn::At(Some(due));
        }
        if let Err(at) = self.bucket.take(now) {
            return Turn::At(Some(at));
        }
        self.due[lane as usize].remove(&(due, id));
        self.flying.insert(id, lane);
        Turn::Now(id)
    }

    /// Frees the slot of an entry.
    pub(super) fn land(&mut self, id: u64) {
        self.flying.remove(&id);
    }

    /// Frees all slots, and returns who held them.
    pub(super) fn land_all(&mut self) -> Vec<u64> {
        self.flying.drain().map(|(id, _)| id).collect()
    }

    /// Returns how many slots are held.
    pub(super) fn in_flight(&self) -> usize {
        self.flying.len()
    }

    fn first_startable(&self) -> Option<(Lane, Instant, u64)> {
        if self.flying.len() >= self.limit {
            return None;
        }
        let has_room = |lane: &Lane| {
            self.flying.values().filter(|flying| *flying == lane).count() < self.limits[*lane as usize]
        };
        let firsts = Lane::ALL
            .into_iter()
            .filter(has_room)
            .filter_map(|lane| self.due[lane as usize].first().map(|(due, id)| (lane, *due, *id)));
        firsts.min_by_key(|(_, due, id)| (*due, *id))
    }

    #[cfg(test)]
    pub(super) fn check_place(&self, id: u64, lane: Lane, due: Option<Instant>) {
        let waits = due.is_some_and(|due| self.due[lane as usize].contains(&(due, id)));
        let flies = self.flying.contains_key(&id);
        assert!(waits != flies, "entry {id} waits: {waits}, and is in flight: {flies}");
    }

    #[cfg(test)]
    pub(super) fn check(&self, waiting: usize) {
        assert_eq!(self.due.iter().map(BTreeSet::len).sum::<usize>(), waiting);
        assert!(self.flying.len() <= self.limit);
    }
}
