//! Who waits for what, what is probed next, and what is known: bookkeeping without clock, sockets or randomness.
//!
//! # Invariants
//! 1. Every entry is in exactly one place: in `due` of its lane, or in `flying`.
//! 2. An entry exists exactly as long as somebody waits for it; a probe in flight may outlive it, cancelled, and keeps
//!    its slot until the driver says that the socket is gone.
//! 3. Of the slots, targets that timed out last time hold at most half and those never tried at most three quarters:
//!    black holes cannot starve a target that answers, be they old or new.
//! 4. Within a lane the longest due goes first.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use mainstay::key::Request;
use mainstay_api::ProbeTiming;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bucket::Bucket;
use super::{ProbeResult, Target};
use crate::reasons::probe;

/// A probe that lasted longer than this held its slot for nothing, whatever its result says.
const SLOW: Duration = Duration::from_secs(1);
/// The largest part of a period by which a probe may come early, so that targets first asked for together drift apart.
const JITTER: f64 = 0.1;

/// What the driver is to do.
#[derive(Debug)]
pub(super) enum Next {
    /// Start this probe and ask again.
    Start(Start),
    /// Nothing before this time; `None`: nothing until something changes.
    Wait(Option<Instant>),
}

/// A probe to start.
#[derive(Debug)]
pub(super) struct Start {
    /// To be given back to [`Schedule::finish`].
    pub(super) id: u64,
    pub(super) target: Target,
    pub(super) timeout: Duration,
    /// Cancelled once nobody waits any more.
    pub(super) cancel: CancellationToken,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Schedule {
    entries: HashMap<u64, Entry>,
    /// Canonical for which entry belongs to a target.
    by_target: HashMap<Target, u64>,
    /// Canonical for what a request waits for.
    waits: HashMap<Request, Wait>,
    /// By lane: when which entry is to be probed.
    due: [BTreeSet<(Instant, u64)>; Lane::COUNT],
    /// Probes in flight, by the lane they were started from.
    flying: HashMap<u64, Lane>,
    /// Most probes in flight, by lane and over all.
    limits: [usize; Lane::COUNT],
    limit: usize,
    bucket: Bucket,
    next_id: u64,
}

#[derive(Debug)]
struct Wait {
    entry: u64,
    timing: ProbeTiming,
}

#[derive(Debug)]
struct Entry {
    target: Target,
    waiting: HashSet<Request>,
    periods: Asked,
    timeouts: Asked,
    lane: Lane,
    /// When it is due; `None` while in flight.
    due: Option<Instant>,
    /// When the last probe began.
    started: Option<Instant>,
    result: Option<ProbeResult>,
    cancel: CancellationToken,
}

/// What an entry's next probe is expected to cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// Ended quickly last time, either way.
    Quick,
    /// Never tried.
    New,
    /// Held its slot to the end last time.
    Slow,
}

/// What the waiting ask for: each value, and how many asked for it.
#[derive(Debug, Default)]
struct Asked(BTreeMap<Duration, usize>);

// === impl Schedule ===

impl Schedule {
    /// Makes an empty schedule.
    pub(super) fn new(limit: usize, per_second: u32) -> Self {
        Self {
            entries: HashMap::new(),
            by_target: HashMap::new(),
            waits: HashMap::new(),
            due: [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()],
            flying: HashMap::new(),
            limits: [limit, (limit * 3 / 4).max(1), (limit / 2).max(1)],
            limit,
            bucket: Bucket::new(per_second),
            next_id: 0,
        }
    }

    /// Notes that `request` waits for `target`. Returns whether something may be due earlier now.
    pub(super) fn watch(
        &mut self,
        request: &Request,
        target: Target,
        timing: ProbeTiming,
        now: Instant,
    ) -> bool {
        if let Some(wait) = self.waits.get(request) {
            let same = self.entries.get(&wait.entry).is_some_and(|entry| entry.target == target);
            if same && wait.timing == timing {
                return false;
            }
            // Joining before leaving keeps what is known of the target while only the timing changes.
            if same {
                let (id, earlier) = (wait.entry, wait.timing);
                self.ask(id, timing);
                self.unask(id, earlier);
                self.waits.insert(request.clone(), Wait { entry: id, timing });
                self.pull_forward(id, now);
                return true;
            }
            self.forget(request);
        }
        let id = self.entry_for(target, now);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.waiting.insert(request.clone());
        }
        self.waits.insert(request.clone(), Wait { entry: id, timing });
        self.ask(id, timing);
        self.pull_forward(id, now);
        true
    }

    /// Notes that `request` waits no more. Returns whether it did.
    pub(super) fn forget(&mut self, request: &Request) -> bool {
        let Some(Wait { entry: id, timing }) = self.waits.remove(request) else { return false };
        self.unask(id, timing);
        let Some(entry) = self.entries.get_mut(&id) else { return true };
        entry.waiting.remove(request);
        if !entry.waiting.is_empty() {
            return true;
        }
        if let Some(entry) = self.entries.remove(&id) {
            self.by_target.remove(&entry.target);
            if let Some(due) = entry.due {
                self.due[entry.lane as usize].remove(&(due, id));
            }
            entry.cancel.cancel();
        }
        true
    }

    /// Returns what is known of the target that `request` waits for.
    pub(super) fn result(&self, request: &Request) -> Option<ProbeResult> {
        self.entries.get(&self.waits.get(request)?.entry)?.result.clone()
    }

    /// Changes the rate, and makes due what the old policy denied.
    pub(super) fn reconfigure(&mut self, per_second: u32, now: Instant) {
        self.bucket = Bucket::new(per_second);
        let denied = |entry: &Entry| matches!(entry.result, Some(ProbeResult::Denied { .. }));
        let ids: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| denied(entry) && entry.due.is_some())
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.set_due(id, now);
        }
    }

    /// Says what to do now. A probe that is returned counts as started.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let Some((lane, due, id)) = self.first_startable() else { return Next::Wait(None) };
        if due > now {
            return Next::Wait(Some(due));
        }
        if let Err(at) = self.bucket.take(now) {
            return Next::Wait(Some(at));
        }
        self.due[lane as usize].remove(&(due, id));
        self.flying.insert(id, lane);
        let Some(entry) = self.entries.get_mut(&id) else { return Next::Wait(Some(now)) };
        entry.due = None;
        entry.started = Some(now);
        Next::Start(Start {
            id,
            target: entry.target.clone(),
            timeout: entry.timeouts.longest(),
            cancel: entry.cancel.clone(),
        })
    }

    /// Notes how a probe ended, `None` for a cancelled one, with a random number in [0, 1). Returns who must be told.
    pub(super) fn finish(
        &mut self,
        id: u64,
        result: Option<ProbeResult>,
        now: Instant,
        random: f64,
    ) -> Vec<Request> {
        self.flying.remove(&id);
        let (Some(entry), Some(result)) = (self.entries.get_mut(&id), result) else { return Vec::new() };
        let started = entry.started.unwrap_or(now);
        entry.lane = Lane::after(&result, now.duration_since(started));
        let period = entry.periods.shortest();
        let changed = entry.result.as_ref() != Some(&result);
        entry.result = Some(result);
        let told = if changed { entry.waiting.iter().cloned().collect() } else { Vec::new() };
        let early = period.mul_f64(JITTER * random.clamp(0.0, 1.0));
        self.set_due(id, (started + period - early).max(now));
        told
    }

    /// Forgets all probes in flight, because nobody drives them any more, and makes their targets due now.
    pub(super) fn land_all(&mut self, now: Instant) {
        let ids: Vec<u64> = self.flying.drain().map(|(id, _)| id).collect();
        for id in ids {
            self.set_due(id, now);
        }
    }

    /// Returns how many targets are waited for.
    pub(super) fn targets(&self) -> usize {
        self.entries.len()
    }

    /// Returns how many probes are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.flying.len()
    }

    fn entry_for(&mut self, target: Target, now: Instant) -> u64 {
        if let Some(id) = self.by_target.get(&target) {
            return *id;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.by_target.insert(target.clone(), id);
        let entry = Entry {
            target,
            waiting: HashSet::new(),
            periods: Asked::default(),
            timeouts: Asked::default(),
            lane: Lane::New,
            due: Some(now),
            started: None,
            result: None,
            cancel: CancellationToken::new(),
        };
        self.due[entry.lane as usize].insert((now, id));
        self.entries.insert(id, entry);
        id
    }

    fn ask(&mut self, id: u64, timing: ProbeTiming) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.periods.add(timing.period);
            entry.timeouts.add(timing.timeout);
        }
    }

    fn unask(&mut self, id: u64, timing: ProbeTiming) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.periods.remove(timing.period);
            entry.timeouts.remove(timing.timeout);
        }
    }

    /// A shorter period than before must not wait for the end of the longer one.
    fn pull_forward(&mut self, id: u64, now: Instant) {
        let Some(entry) = self.entries.get(&id) else { return };
        let (Some(due), Some(started)) = (entry.due, entry.started) else { return };
        let at = (started + entry.periods.shortest()).max(now);
        if at < due {
            self.set_due(id, at);
        }
    }

    /// The only place that moves an entry within or into `due`.
    fn set_due(&mut self, id: u64, at: Instant) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Some(due) = entry.due.replace(at) {
            // Its lane may have changed since it was put there.
            for lane in &mut self.due {
                lane.remove(&(due, id));
            }
        }
        self.due[entry.lane as usize].insert((at, id));
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
    pub(super) fn check(&self) {
        for (id, entry) in &self.entries {
            let places = self
                .due
                .iter()
                .filter(|lane| entry.due.is_some_and(|due| lane.contains(&(due, *id))))
                .count();
            let flies = usize::from(self.flying.contains_key(id));
            assert_eq!(places + flies, 1, "entry {id} is in {places} lanes and {flies} times in flight");
            assert!(!entry.waiting.is_empty(), "entry {id} is waited for by nobody");
            assert_eq!(self.by_target.get(&entry.target), Some(id));
            assert_eq!(entry.periods.0.values().sum::<usize>(), entry.waiting.len());
        }
        assert_eq!(
            self.due.iter().map(BTreeSet::len).sum::<usize>(),
            self.entries.values().filter(|e| e.due.is_some()).count()
        );
        assert_eq!(self.by_target.len(), self.entries.len());
        assert_eq!(self.waits.len(), self.entries.values().map(|entry| entry.waiting.len()).sum::<usize>());
        assert!(self.flying.len() <= self.limit);
    }
}

// === impl Lane ===

impl Lane {
    const COUNT: usize = 3;
    const ALL: [Self; Self::COUNT] = [Self::Quick, Self::New, Self::Slow];

    fn after(result: &ProbeResult, took: Duration) -> Self {
        let timed_out = matches!(result, ProbeResult::NotReady { reason: probe::TIMEOUT, .. });
        if timed_out || took >= SLOW { Self::Slow } else { Self::Quick }
    }
}

// === impl Asked ===

impl Asked {
    fn add(&mut self, value: Duration) {
        *self.0.entry(value).or_default() += 1;
    }

    fn remove(&mut self, value: Duration) {
        if let Some(count) = self.0.get_mut(&value) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&value);
            }
        }
    }

    fn shortest(&self) -> Duration {
        self.0.keys().next().copied().unwrap_or_default()
    }

    fn longest(&self) -> Duration {
        self.0.keys().next_back().copied().unwrap_or_default()
    }
}
