//! Whose turn it is: which of the entries that are due is probed now, within the limits, fair between namespaces.
//!
//! What is scarce, probes per second and slots for probes in flight, goes to namespaces in turn (start-time fair queuing,
//! <https://doi.org/10.1109/90.649569>, each probe of the same weight): one with a thousand targets and one with a
//! single target get as much while both want it.
//!
//! # Invariants
//! 1. Of the slots, targets that timed out last time hold at most half and those never tried at most three quarters:
//!    black holes cannot starve a target that answers, be they old or new.
//! 2. No namespace takes more of a lane's slots than it leaves free, so that each newcomer finds one (the dynamic
//!    threshold of <https://doi.org/10.1109/90.664262>).
//! 3. Within a lane of a namespace the longest due goes first.
//! 4. A namespace with entries in a lane stands in exactly one place of it: `later`, `ready` or `blocked`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::bucket::Bucket;
use super::limits::{Held, Limits};

/// A probe that lasted longer than this held its slot for nothing, whatever its result says.
const SLOW: Duration = Duration::from_secs(1);
/// How many namespaces are kept before those that have nothing to remember are looked for.
const FIRST_SWEEP: usize = 64;

/// What an entry's next probe is expected to cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Ended quickly last time, either way.
    Quick,
    /// Never tried, or not since something has changed at the other side.
    New,
    /// Held its slot to the end last time.
    Slow,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// This one's, from now on in flight.
    Now {
        /// The entry.
        id: u64,
        /// When it had been due.
        due: Instant,
        /// What it had to wait for since then, if for anything.
        held: Option<Held>,
    },
    /// Nobody's before this time; `None`: before something changes.
    At(Option<Instant>),
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Turns {
    namespaces: HashMap<Arc<str>, Namespace>,
    lanes: [Queue; Lane::COUNT],
    /// Probes in flight: lane they were started from, and whose they are.
    flying: HashMap<u64, (Lane, Arc<str>)>,
    limits: Limits,
    bucket: Bucket,
    /// Start tag of the probe begun last.
    virtual_time: u64,
    /// Number of namespaces at which the idle ones are dropped.
    sweep_at: usize,
}

/// The namespaces with entries in one lane. A namespace has a place here only while it has such entries.
#[derive(Debug, Default)]
struct Queue {
    /// Nothing of theirs can start before then.
    later: BTreeSet<(Instant, Arc<str>)>,
    /// By start tag, then by how long they have been due.
    ready: BTreeSet<(u64, Instant, Arc<str>)>,
    /// They have their share of the slots.
    blocked: BTreeSet<Arc<str>>,
    in_flight: usize,
    limit: usize,
    /// When it was last seen that something was ready and no slot free.
    full_at: Option<Instant>,
}

#[derive(Debug)]
struct Namespace {
    /// By lane: when which entry is to be probed.
    due: [BTreeSet<(Instant, u64)>; Lane::COUNT],
    in_flight: [usize; Lane::COUNT],
    /// Where it stands in each lane.
    places: [Option<Place>; Lane::COUNT],
    /// When it was last held, and why.
    held: Option<(Instant, Held)>,
    bucket: Bucket,
    /// Start tag of its next probe, unless the virtual time is ahead.
    finish: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Later(Instant),
    Ready(u64, Instant),
    Blocked,
}

// === impl Lane ===

impl Lane {
    const COUNT: usize = 3;
    const ALL: [Self; Self::COUNT] = [Self::Quick, Self::New, Self::Slow];

    /// Returns where an entry belongs whose last probe took so much of its time.
    pub(super) fn after(took: Duration, timeout: Duration) -> Self {
        if took >= timeout.min(SLOW) { Self::Slow } else { Self::Quick }
    }
}

// === impl Turns ===

impl Turns {
    /// Makes an empty one.
    pub(super) fn new(limits: Limits) -> Self {
        let slots = limits.in_flight;
        let lane = |limit: usize| Queue { limit: limit.max(1), ..Queue::default() };
        Self {
            namespaces: HashMap::new(),
            lanes: [lane(slots), lane(slots * 3 / 4), lane(slots / 2)],
            flying: HashMap::new(),
            limits,
            bucket: Bucket::new(limits.per_second),
            virtual_time: 0,
            sweep_at: FIRST_SWEEP,
        }
    }

    /// Puts other rates in force. The number of slots stays.
    pub(super) fn reconfigure(&mut self, limits: Limits, now: Instant) {
        self.limits = Limits { in_flight: self.limits.in_flight, ..limits };
        self.bucket.set_rate(limits.per_second);
        for namespace in self.namespaces.values_mut() {
            namespace.bucket.set_rate(limits.per_second_per_namespace);
        }
        let names: Vec<Arc<str>> = self.namespaces.keys().cloned().collect();
        for name in names {
            self.place_all(&name, now);
        }
    }

    /// Has an entry wait for its turn.
    pub(super) fn insert(&mut self, name: &Arc<str>, id: u64, lane: Lane, due: Instant, now: Instant) {
        if !self.namespaces.contains_key(name) {
            self.sweep(now);
            let namespace = Namespace::new(self.limits.per_second_per_namespace);
            self.namespaces.insert(Arc::clone(name), namespace);
        }
        if let Some(namespace) = self.namespaces.get_mut(name) {
            namespace.due[lane as usize].insert((due, id));
        }
        self.place(name, lane, now);
    }

    /// Ends the wait of an entry that was inserted so.
    pub(super) fn remove(&mut self, name: &Arc<str>, id: u64, lane: Lane, due: Instant, now: Instant) {
        if let Some(namespace) = self.namespaces.get_mut(name) {
            namespace.due[lane as usize].remove(&(due, id));
        }
        self.place(name, lane, now);
    }

    /// Says whose turn it is. That entry waits no more, and holds a slot until it [lands](Self::land). One for which
    /// `postpones` returns a time, given the one at which it was due, waits until then instead.
    pub(super) fn next(
        &mut self,
        now: Instant,
        mut postpones: impl FnMut(u64, Instant) -> Option<Instant>,
    ) -> Turn {
        for lane in Lane::ALL {
            self.wake(lane, now);
        }
        if self.flying.len() >= self.limits.in_flight {
            self.note_full(&Lane::ALL, now);
            return Turn::At(None);
        }
        while let Some((lane, name)) = self.first_ready(now) {
            let Some(namespace) = self.namespaces.get_mut(&name) else { break };
            let free = self.limits.in_flight - self.flying.len();
            let free = free.min(self.lanes[lane as usize].limit - self.lanes[lane as usize].in_flight);
            if namespace.in_flight[lane as usize] >= free {
                namespace.held = Some((now, Held::InFlight));
                self.put(&name, lane, Some(Place::Blocked));
                continue;
            }
            let ready_at = namespace.bucket.ready_at(now);
            if ready_at > now {
                namespace.held = Some((now, Held::NamespaceRate));
                self.put(&name, lane, Some(Place::Later(ready_at)));
                continue;
            }
            let queue = &mut namespace.due[lane as usize];
            if let Some((due, id)) = queue.first().copied()
                && self.bucket.ready_at(now) <= now
                && let Some(at) = postpones(id, due)
            {
                queue.remove(&(due, id));
                queue.insert((at, id));
                self.place(&name, lane, now);
                // The next of the namespace may be due as well.
                self.wake(lane, now);
                continue;
            }
            if let Err(at) = self.bucket.take(now) {
                namespace.held = Some((now, Held::Rate));
                return Turn::At(Some(at));
            }
            return self.start(lane, &name, now);
        }
        let room = self.lanes.iter().filter(|queue| queue.in_flight < queue.limit);
        Turn::At(room.filter_map(|queue| queue.later.first().map(|(at, _)| *at)).min())
    }

    /// Frees the slot of an entry.
    pub(super) fn land(&mut self, id: u64, now: Instant) {
        let Some((lane, name)) = self.flying.remove(&id) else { return };
        self.lanes[lane as usize].in_flight -= 1;
        if let Some(namespace) = self.namespaces.get_mut(&name) {
            namespace.in_flight[lane as usize] -= 1;
        }
        // A slot more is free, for every lane unless others of the same lane are the bottleneck.
        for lane in Lane::ALL {
            let blocked: Vec<Arc<str>> = self.lanes[lane as usize].blocked.iter().cloned().collect();
            for name in blocked {
                self.place(&name, lane, now);
            }
        }
    }

    /// Returns how many slots are held.
    pub(super) fn in_flight(&self) -> usize {
        self.flying.len()
    }

    /// Returns the limits in force.
    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns what keeps an entry that is due from being probed now.
    pub(super) fn held(&self, name: &str, lane: Lane, now: Instant) -> Option<Held> {
        let queue = &self.lanes[lane as usize];
        let namespace = self.namespaces.get(name)?;
        if queue.in_flight >= queue.limit
            || self.flying.len() >= self.limits.in_flight
            || namespace.places[lane as usize] == Some(Place::Blocked)
        {
            Some(Held::InFlight)
        } else if namespace.bucket.ready_at(now) > now {
            Some(Held::NamespaceRate)
        } else {
            (self.bucket.ready_at(now) > now).then_some(Held::Rate)
        }
    }

    fn start(&mut self, lane: Lane, name: &Arc<str>, now: Instant) -> Turn {
        let Some(namespace) = self.namespaces.get_mut(name) else { return Turn::At(Some(now)) };
        let Some((due, id)) = namespace.due[lane as usize].pop_first() else { return Turn::At(Some(now)) };
        namespace.bucket.spend(now);
        let tag = self.virtual_time.max(namespace.finish);
        self.virtual_time = tag;
        namespace.finish = tag + 1;
        namespace.in_flight[lane as usize] += 1;
        let queue = &mut self.lanes[lane as usize];
        queue.in_flight += 1;
        let full = queue.full_at.filter(|at| *at >= due).map(|_| Held::InFlight);
        let held = namespace.held.filter(|(at, _)| *at >= due).map(|(_, held)| held).or(full);
        self.flying.insert(id, (lane, Arc::clone(name)));
        // Its tag is another one now, in every lane.
        self.place_all(name, now);
        Turn::Now { id, due, held }
    }

    /// Moves those whose time has come.
    fn wake(&mut self, lane: Lane, now: Instant) {
        while let Some((at, name)) = self.lanes[lane as usize].later.first()
            && *at <= now
        {
            let name = Arc::clone(name);
            let Some(namespace) = self.namespaces.get(&name) else { return };
            let due = namespace.due[lane as usize].first().map_or(now, |(due, _)| *due);
            let tag = self.virtual_time.max(namespace.finish);
            self.put(&name, lane, Some(Place::Ready(tag, due)));
        }
    }

    /// Returns who goes first of all lanes that have room.
    fn first_ready(&mut self, now: Instant) -> Option<(Lane, Arc<str>)> {
        let is_full = |lane: &Lane| self.lanes[*lane as usize].in_flight >= self.lanes[*lane as usize].limit;
        let full: Vec<Lane> = Lane::ALL.into_iter().filter(is_full).collect();
        self.note_full(&full, now);
        let firsts = Lane::ALL.into_iter().filter(|lane| !full.contains(lane)).filter_map(|lane| {
            let (tag, due, name) = self.lanes[lane as usize].ready.first()?;
            Some((tag, due, name, lane))
        });
        firsts
            .min_by_key(|(tag, due, name, _)| (*tag, *due, *name))
            .map(|(.., name, lane)| (lane, Arc::clone(name)))
    }

    fn note_full(&mut self, lanes: &[Lane], now: Instant) {
        for lane in lanes {
            let queue = &mut self.lanes[*lane as usize];
            if !queue.ready.is_empty() {
                queue.full_at = Some(now);
            }
        }
    }

    fn place_all(&mut self, name: &Arc<str>, now: Instant) {
        for lane in Lane::ALL {
            self.place(name, lane, now);
        }
    }

    /// Finds the place of a namespace in a lane anew, after what decides on it has changed.
    fn place(&mut self, name: &Arc<str>, lane: Lane, now: Instant) {
        let Some(namespace) = self.namespaces.get(name) else { return };
        let first = namespace.due[lane as usize].first();
        let place = first.map(|(due, _)| Place::Later((*due).max(namespace.bucket.ready_at(now))));
        self.put(name, lane, place);
    }

    /// The only place that changes one.
    fn put(&mut self, name: &Arc<str>, lane: Lane, place: Option<Place>) {
        let Some(namespace) = self.namespaces.get_mut(name) else { return };
        let queue = &mut self.lanes[lane as usize];
        match std::mem::replace(&mut namespace.places[lane as usize], place) {
            Some(Place::Later(at)) => queue.later.remove(&(at, Arc::clone(name))),
            Some(Place::Ready(tag, due)) => queue.ready.remove(&(tag, due, Arc::clone(name))),
            Some(Place::Blocked) => queue.blocked.remove(name),
            None => false,
        };
        match place {
            Some(Place::Later(at)) => queue.later.insert((at, Arc::clone(name))),
            Some(Place::Ready(tag, due)) => queue.ready.insert((tag, due, Arc::clone(name))),
            Some(Place::Blocked) => queue.blocked.insert(Arc::clone(name)),
            None => false,
        };
    }

    /// Drops namespaces that have nothing to remember. What is left of a bucket is: else leaving and coming back would
    /// fill it.
    fn sweep(&mut self, now: Instant) {
        if self.namespaces.len() >= self.sweep_at {
            self.namespaces.retain(|_, namespace| !namespace.is_idle(now));
            self.sweep_at = (self.namespaces.len() * 2).max(FIRST_SWEEP);
        }
    }

    /// Returns whether an entry waits for its turn.
    #[cfg(test)]
    pub(super) fn check_place(&self, name: &str, id: u64, lane: Lane, due: Option<Instant>) -> bool {
        let namespace = self.namespaces.get(name).expect("the namespace of an entry");
        let waits = due.is_some_and(|due| namespace.due[lane as usize].contains(&(due, id)));
        assert!(!waits || !self.flying.contains_key(&id), "entry {id} waits while it is in flight");
        waits
    }

    #[cfg(test)]
    pub(super) fn check(&self, waiting: usize) {
        let due = self.namespaces.values().flat_map(|namespace| &namespace.due);
        assert_eq!(due.map(BTreeSet::len).sum::<usize>(), waiting);
        assert!(self.flying.len() <= self.limits.in_flight);
        for lane in Lane::ALL {
            let queue = &self.lanes[lane as usize];
            let places = queue.later.len() + queue.ready.len() + queue.blocked.len();
            let with_due = |namespace: &&Namespace| !namespace.due[lane as usize].is_empty();
            assert_eq!(places, self.namespaces.values().filter(with_due).count(), "{lane:?}");
            let in_flight = self.flying.values().filter(|(flying, _)| *flying == lane).count();
            assert_eq!(queue.in_flight, in_flight, "{lane:?}");
            assert!(in_flight <= queue.limit, "{lane:?}");
        }
    }
}

// === impl Namespace ===

impl Namespace {
    fn new(per_second: u32) -> Self {
        Self {
            due: Default::default(),
            in_flight: [0; Lane::COUNT],
            places: [None; Lane::COUNT],
            held: None,
            bucket: Bucket::new(per_second),
            finish: 0,
        }
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.due.iter().all(BTreeSet::is_empty)
            && self.in_flight.iter().all(|count| *count == 0)
            && self.bucket.is_full(now)
    }
}
