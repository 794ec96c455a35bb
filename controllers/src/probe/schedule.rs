//! Who waits for what, what is probed next, and what is known: bookkeeping without clock, sockets or randomness.
//!
//! # Invariants
//! 1. Every entry is in exactly one place: waiting for its turn, or in flight.
//! 2. An entry exists exactly as long as somebody waits for it; a probe in flight may outlive it, cancelled, and keeps
//!    its slot until the driver says that the socket is gone.
//! 3. What is known of a target outlives a change of who waits for it, and how.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use mainstay::key::Request;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::judge::{Row, judge};
use super::turns::{Lane, Turn, Turns};
use super::{ProbeResult, Target, Verdict, VerdictState, Want};

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
    /// Canonical for what a request waits for, in its order; never an empty list.
    waits: HashMap<Request, Vec<Wait>>,
    turns: Turns,
    next_id: u64,
}

#[derive(Debug)]
struct Wait {
    entry: u64,
    want: Want,
    /// Probes that begin earlier do not count for it; `None`: every one counts.
    from: Option<Instant>,
    state: VerdictState,
}

#[derive(Debug)]
struct Entry {
    target: Target,
    /// Whose waits are for it, one of them or several.
    waiting: HashSet<Request>,
    periods: Asked,
    timeouts: Asked,
    lane: Lane,
    /// When its turn comes; `None` while in flight.
    due: Option<Instant>,
    /// When the last probe began.
    started: Option<Instant>,
    result: Option<ProbeResult>,
    row: Row,
    cancel: CancellationToken,
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
            turns: Turns::new(limit, per_second),
            next_id: 0,
        }
    }

    /// Notes that `request` waits for these and for nothing else, or for nothing if there are none. Returns whether
    /// something has changed, and may be due earlier now.
    pub(super) fn watch(&mut self, request: &Request, wants: Vec<Want>, now: Instant) -> bool {
        let mut before = self.waits.remove(request).unwrap_or_default();
        if before.iter().map(|wait| &wait.want).eq(&wants) {
            if !before.is_empty() {
                self.waits.insert(request.clone(), before);
            }
            return false;
        }
        // Joining before leaving keeps what is known of a target while only the order or the times change.
        let mut joined = Vec::with_capacity(wants.len());
        for want in wants {
            let earlier = before.iter().position(|wait| wait.want.target == want.target);
            let earlier = earlier.map(|at| before.remove(at));
            joined.push(self.join(request, want, earlier.as_ref(), now));
            if let Some(earlier) = earlier {
                self.unask(&earlier);
            }
        }
        let kept: HashSet<u64> = joined.iter().map(|wait| wait.entry).collect();
        for wait in before {
            self.unask(&wait);
            if !kept.contains(&wait.entry) {
                self.leave(request, wait.entry);
            }
        }
        if !joined.is_empty() {
            self.waits.insert(request.clone(), joined);
        }
        true
    }

    /// Returns what is known of each target that `request` waits for, in the order in which it named them.
    pub(super) fn verdicts(&self, request: &Request) -> Vec<Verdict> {
        let waits = self.waits.get(request).into_iter().flatten();
        waits.map(|wait| self.verdict(wait)).collect()
    }

    /// Changes the rate, and makes due what the old policy denied.
    pub(super) fn reconfigure(&mut self, per_second: u32, now: Instant) {
        self.turns.reconfigure(per_second);
        let denied = |entry: &Entry| entry.row == Row::Denials && entry.due.is_some();
        let denied = self.entries.iter().filter(|(_, entry)| denied(entry));
        let denied: Vec<u64> = denied.map(|(id, _)| *id).collect();
        for id in denied {
            self.set_due(id, now);
        }
    }

    /// Says what to do now. A probe that is returned counts as started.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let id = match self.turns.next(now) {
            Turn::Now(id) => id,
            Turn::At(at) => return Next::Wait(at),
        };
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
        self.turns.land(id);
        let (Some(entry), Some(result)) = (self.entries.get_mut(&id), result) else { return Vec::new() };
        let started = entry.started.unwrap_or(now);
        entry.lane = Lane::after(&result, now.duration_since(started));
        entry.row = entry.row.and(&result);
        let is_new = entry.result.as_ref() != Some(&result);
        entry.result = Some(result);
        let period = entry.periods.shortest();
        let row = entry.row;
        let mut told = Vec::new();
        for request in &entry.waiting {
            let waits = self.waits.get_mut(request).into_iter().flatten();
            // Every one of them is judged, whatever the first comes to.
            let changed = waits.filter(|wait| wait.entry == id).map(|wait| wait.count(row, started, is_new));
            if changed.fold(false, |any, one| any | one) {
                told.push(request.clone());
            }
        }
        let early = period.mul_f64(JITTER * random.clamp(0.0, 1.0));
        self.set_due(id, (started + period - early).max(now));
        told
    }

    /// Forgets all probes in flight, because nobody drives them any more, and makes their targets due now.
    pub(super) fn land_all(&mut self, now: Instant) {
        for id in self.turns.land_all() {
            self.set_due(id, now);
        }
    }

    /// Returns how many targets are waited for.
    pub(super) fn targets(&self) -> usize {
        self.entries.len()
    }

    /// Returns how many probes are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.turns.in_flight()
    }

    fn verdict(&self, wait: &Wait) -> Verdict {
        if wait.from.is_some() {
            return Verdict::PENDING;
        }
        let result = self.entries.get(&wait.entry).and_then(|entry| entry.result.clone());
        Verdict { state: wait.state, result }
    }

    /// Has `request` wait for one target, with what was judged of it before.
    fn join(&mut self, request: &Request, want: Want, earlier: Option<&Wait>, now: Instant) -> Wait {
        let delayed = || (!want.initial_delay.is_zero()).then(|| now + want.initial_delay);
        let from = earlier.map_or_else(delayed, |wait| wait.from);
        let id = self.entry_for(&want.target, from.unwrap_or(now));
        let mut state = earlier.map_or(VerdictState::Pending, |wait| wait.state);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.waiting.insert(request.clone());
            entry.periods.add(want.period);
            entry.timeouts.add(want.timeout);
            // What is known is known at once, unless it is not to be looked at yet.
            if from.is_none() {
                state = judge(state, entry.row, &want);
            }
        }
        self.pull_forward(id, from.unwrap_or(now), now);
        Wait { entry: id, want, from, state }
    }

    /// Ends what a wait asked of its entry. The request itself stays in `waiting`.
    fn unask(&mut self, wait: &Wait) {
        if let Some(entry) = self.entries.get_mut(&wait.entry) {
            entry.periods.remove(wait.want.period);
            entry.timeouts.remove(wait.want.timeout);
        }
    }

    fn leave(&mut self, request: &Request, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.waiting.remove(request);
        if !entry.waiting.is_empty() {
            return;
        }
        if let Some(entry) = self.entries.remove(&id) {
            self.by_target.remove(&entry.target);
            if let Some(due) = entry.due {
                self.turns.remove(id, entry.lane, due);
            }
            entry.cancel.cancel();
        }
    }

    fn entry_for(&mut self, target: &Target, due: Instant) -> u64 {
        if let Some(id) = self.by_target.get(target) {
            return *id;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.by_target.insert(target.clone(), id);
        let entry = Entry {
            target: target.clone(),
            waiting: HashSet::new(),
            periods: Asked::default(),
            timeouts: Asked::default(),
            lane: Lane::New,
            due: Some(due),
            started: None,
            result: None,
            row: Row::Empty,
            cancel: CancellationToken::new(),
        };
        self.turns.insert(id, entry.lane, due);
        self.entries.insert(id, entry);
        id
    }

    /// Who asks for less than those before must not wait for the end of their longer period, or of their delay.
    fn pull_forward(&mut self, id: u64, from: Instant, now: Instant) {
        let Some(entry) = self.entries.get(&id) else { return };
        let Some(due) = entry.due else { return };
        let next = entry.started.map_or(from, |started| started + entry.periods.shortest());
        let at = next.max(from).max(now);
        if at < due {
            self.set_due(id, at);
        }
    }

    /// The only place that changes when an entry is due.
    fn set_due(&mut self, id: u64, at: Instant) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Some(due) = entry.due.replace(at) {
            self.turns.remove(id, entry.lane, due);
        }
        self.turns.insert(id, entry.lane, at);
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        for (id, entry) in &self.entries {
            self.turns.check_place(*id, entry.lane, entry.due);
            assert!(!entry.waiting.is_empty(), "entry {id} is waited for by nobody");
            assert_eq!(self.by_target.get(&entry.target), Some(id));
            let waits =
                self.waits.iter().flat_map(|(request, waits)| waits.iter().map(move |w| (request, w)));
            let mine: Vec<_> = waits.filter(|(_, wait)| wait.entry == *id).collect();
            assert_eq!(entry.periods.0.values().sum::<usize>(), mine.len());
            assert_eq!(entry.timeouts.0.values().sum::<usize>(), mine.len());
            let requests: HashSet<_> = mine.iter().map(|(request, _)| (*request).clone()).collect();
            assert_eq!(entry.waiting, requests, "who waits for entry {id}");
            for (request, wait) in mine {
                assert_eq!(wait.want.target, entry.target, "what {request} waits for");
                assert!(wait.from.is_some() || judge(wait.state, entry.row, &wait.want) == wait.state);
            }
        }
        assert_eq!(self.by_target.len(), self.entries.len());
        assert!(self.waits.values().all(|waits| !waits.is_empty()));
        self.turns.check(self.entries.values().filter(|entry| entry.due.is_some()).count());
    }
}

// === impl Wait ===

impl Wait {
    /// Takes a result into account whose probe began then. Returns whether its verdict has changed.
    fn count(&mut self, row: Row, started: Instant, is_new: bool) -> bool {
        let first = self.from.is_some();
        if self.from.is_some_and(|from| started < from) {
            return false;
        }
        self.from = None;
        let before = self.state;
        self.state = judge(before, row, &self.want);
        first || is_new || before != self.state
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
