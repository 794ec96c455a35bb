//! The model with which the state machine is compared.
//!
//! It has no lists, no tree, no counters and no signals: every query reads all keys.

mod finish;

use std::collections::BTreeMap;

use super::*;

/// The lanes of fresh work, in the order in which they are served.
const FRESH: [Lane; 3] = [Lane::Live, Lane::New, Lane::Background];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Delayed { until: u64, backoff: bool, lane: Lane },
    Ready { lane: Lane, since: u64 },
    Running { lane: Lane, as_retry: bool },
    Parked,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    at: At,
    failures: u32,
    /// When it entered its lane, and when it became ready, as numbers of events.
    lane_order: u64,
    age_order: u64,
    /// Order of its deadline among equal ones.
    delay_order: u64,
    /// Its error, not the policy, decided its delay.
    named: bool,
    /// It was out of attempts when it was last parked.
    spent: bool,
    /// Adds since its run began: immediate, and delayed.
    dirt: Option<(Strength, Band, bool)>,
    again: Option<(u64, Strength, Band, bool)>,
}

pub(super) struct Model {
    pub(super) keys: BTreeMap<u32, Entry>,
    pub(super) settings: QueueSettings,
    pub(super) workers: usize,
    /// Milliseconds.
    pub(super) now: u64,
    pub(super) epoch: u64,
    pub(super) leading: bool,
    pub(super) phase: Phase,
    turn: u32,
    /// Tokens of the retry rate in thousandths; unused without a rate.
    tokens: u64,
    events: u64,
}

impl Model {
    pub(super) fn new(settings: QueueSettings, workers: usize) -> Self {
        Self {
            keys: BTreeMap::new(),
            tokens: settings.retry.rate.map_or(0, |rate| u64::from(rate.burst) * 1000),
            settings,
            workers,
            now: 0,
            epoch: 0,
            leading: true,
            phase: Phase::Open,
            turn: 0,
            events: 0,
        }
    }

    fn next_event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    pub(super) fn advance(&mut self, now: u64) {
        if let Some(rate) = self.settings.retry.rate {
            // One token per millisecond and per thousand of `per_second`: exact for the rates used here.
            let gain = (now - self.now) * token_gain(&rate);
            self.tokens = (self.tokens + gain).min(u64::from(rate.burst) * 1000);
        }
        self.now = now;
        if self.phase != Phase::Open {
            return;
        }
        loop {
            let due = self.keys.iter().filter_map(|(id, entry)| match entry.at {
                At::Delayed { until, lane, .. } if until <= now => {
                    Some((until, entry.delay_order, *id, lane))
                }
                _ => None,
            });
            let Some((until, _, id, lane)) = due.min_by_key(|(until, order, ..)| (*until, *order)) else {
                return;
            };
            self.make_ready(id, lane, until);
        }
    }

    fn make_ready(&mut self, id: u32, lane: Lane, since: u64) {
        let order = self.next_event();
        if let Some(entry) = self.keys.get_mut(&id) {
            entry.at = At::Ready { lane, since };
            (entry.lane_order, entry.age_order) = (order, order);
        }
    }

    fn delay(&mut self, id: u32, until: u64, backoff: bool, lane: Lane) {
        let order = self.next_event();
        if let Some(entry) = self.keys.get_mut(&id) {
            entry.at = At::Delayed { until, backoff, lane };
            entry.delay_order = order;
        }
    }

    fn ready(&self) -> usize {
        self.keys.values().filter(|entry| matches!(entry.at, At::Ready { .. })).count()
    }

    pub(super) fn add(
        &mut self,
        id: u32,
        strength: Strength,
        band: Band,
        until: Option<u64>,
        new: bool,
    ) -> Added {
        if self.phase != Phase::Open {
            return Added::ShuttingDown;
        }
        self.apply(id, strength, band, until, new)
    }

    fn apply(&mut self, id: u32, strength: Strength, band: Band, until: Option<u64>, new: bool) -> Added {
        let lane = match band {
            Band::Live => Lane::Live,
            Band::New => Lane::New,
            Band::Background => Lane::Background,
        };
        let strong = strength == Strength::Strong || new;
        let full = self.settings.max_depth > 0 && self.ready() >= self.settings.max_depth;
        let order = self.next_event();
        let Some(entry) = self.keys.get_mut(&id) else {
            if full && band == Band::Background {
                return Added::Refused;
            }
            let (dirt, again) = (None, None);
            let orders = (0, 0, 0);
            let (lane_order, age_order, delay_order) = orders;
            let entry = Entry {
                at: At::Parked,
                failures: 0,
                lane_order,
                age_order,
                delay_order,
                named: false,
                spent: false,
                dirt,
                again,
            };
            self.keys.insert(id, entry);
            return self.start(id, lane, until);
        };
        if new && !matches!(entry.at, At::Running { .. }) {
            entry.failures = 0;
        }
        match entry.at {
            At::Running { .. } => {
                if let Some(until) = until {
                    let (earlier, s, b, n) = entry.again.unwrap_or((until, strength, band, new));
                    entry.again = Some((earlier.min(until), s.max(strength), b.max(band), n || new));
                    return Added::Delayed;
                }
                let first = entry.dirt.is_none();
                let (s, b, n) = entry.dirt.unwrap_or((strength, band, new));
                entry.dirt = Some((s.max(strength), b.max(band), n || new));
                if first { Added::Dirtied } else { Added::Merged }
            }
            At::Ready { lane: old, since } => {
                let rank = |lane| FRESH.into_iter().position(|fresh| fresh == lane);
                let fresher = rank(old).map_or(strong, |old| rank(lane) < Some(old));
                if until.is_none() && fresher {
                    entry.at = At::Ready { lane, since };
                    entry.lane_order = order;
                }
                Added::Merged
            }
            At::Delayed { backoff: true, .. } | At::Parked if !strong => Added::Kept,
            At::Delayed { until: old, .. } if until.is_some_and(|until| until >= old) => Added::Merged,
            At::Delayed { until: old, backoff: true, lane } if until.is_some() && entry.failures > 0 => {
                entry.at = At::Delayed { until: until.unwrap_or(old), backoff: true, lane };
                Added::Delayed
            }
            At::Delayed { .. } | At::Parked => self.start(id, lane, until),
        }
    }

    fn start(&mut self, id: u32, lane: Lane, until: Option<u64>) -> Added {
        if let Some(until) = until {
            self.delay(id, until, false, lane);
            Added::Delayed
        } else {
            self.make_ready(id, lane, self.now);
            Added::Queued
        }
    }

    fn best(&self, lane: Lane) -> Option<u32> {
        let waiting =
            self.keys.iter().filter(|(_, entry)| matches!(entry.at, At::Ready { lane: l, .. } if l == lane));
        waiting.min_by_key(|(_, entry)| entry.lane_order).map(|(id, _)| *id)
    }

    /// Returns the next key, whether it runs as a retry, and whether both a fresh key and a retry were
    /// available.
    fn choose(&self) -> Option<(u32, bool, bool)> {
        if !self.leading || self.phase == Phase::Stopped {
            return None;
        }
        let aged = self.keys.iter().filter(|(_, entry)| match entry.at {
            At::Ready { since, .. } => ms(self.now - since.max(self.epoch)) >= self.settings.max_wait,
            _ => false,
        });
        if let Some((id, _)) = aged.min_by_key(|(_, entry)| entry.age_order) {
            return Some((*id, false, false));
        }
        let fresh = FRESH.into_iter().find_map(|lane| self.best(lane));
        let token = self.settings.retry.rate.is_none() || self.tokens >= 1000;
        let held = self.running_retries();
        let share = usize::from(self.settings.retry_share);
        let retry = self.best(Lane::Retry).filter(|_| token && self.leaves_one_free());
        match (fresh, retry) {
            (Some(fresh), Some(retry)) if held * 100 < self.workers * share || held == 0 => {
                let turn = self.turn + self.gain() >= 100;
                Some((if turn { retry } else { fresh }, turn, true))
            }
            (Some(fresh), _) => Some((fresh, false, false)),
            (None, retry) => retry.map(|retry| (retry, true, false)),
        }
    }

    fn running_retries(&self) -> usize {
        self.keys.values().filter(|entry| matches!(entry.at, At::Running { as_retry: true, .. })).count()
    }

    fn leaves_one_free(&self) -> bool {
        self.workers < 2 || self.settings.retry_share == 100 || self.running_retries() < self.workers - 1
    }

    fn gain(&self) -> u32 {
        u32::from(self.settings.retry_share.min(50))
    }

    pub(super) fn may_take(&self) -> bool {
        self.choose().is_some()
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        let (id, as_retry, contested) = self.choose()?;
        if contested {
            self.turn = (self.turn + self.gain()) % 100;
        }
        Some(self.run(id, as_retry))
    }

    /// Returns the first moment after now at which time alone makes a difference.
    pub(super) fn next_chance(&self) -> Option<u64> {
        if !self.leading || self.phase == Phase::Stopped {
            return None;
        }
        let token = self.settings.retry.rate.map(|rate| {
            let missing = 1000_u64.saturating_sub(self.tokens);
            self.now + missing.div_ceil(token_gain(&rate))
        });
        let chances = self.keys.values().flat_map(|entry| match entry.at {
            At::Delayed { until, .. } if self.phase == Phase::Open => [Some(until), None],
            At::Ready { lane, since } => {
                let aged = since.max(self.epoch) + millis(self.settings.max_wait);
                [Some(aged), token.filter(|_| lane == Lane::Retry && self.leaves_one_free())]
            }
            _ => [None, None],
        });
        chances.flatten().filter(|chance| *chance > self.now).min()
    }

    /// Returns whether a refused source may add again.
    pub(super) fn has_room(&self) -> bool {
        let most = self.settings.max_depth;
        self.phase != Phase::Open || most == 0 || self.ready() * 2 <= most
    }

    /// Returns whether `get` returns `None`.
    pub(super) fn is_exhausted(&self) -> bool {
        let dirty = self.keys.values().any(|entry| entry.dirt.is_some());
        match self.phase {
            Phase::Open => false,
            Phase::Draining => !self.leading || (self.ready() == 0 && !dirty),
            Phase::Stopped => true,
        }
    }

    /// Returns whether a drain is over.
    pub(super) fn has_ended(&self) -> bool {
        let running = self.keys.values().any(|entry| matches!(entry.at, At::Running { .. }));
        self.phase == Phase::Stopped || (self.is_exhausted() && !running)
    }

    fn run(&mut self, id: u32, as_retry: bool) -> u32 {
        if let Some(entry) = self.keys.get_mut(&id)
            && let At::Ready { lane, .. } = entry.at
        {
            entry.at = At::Running { lane, as_retry };
        }
        if as_retry && self.settings.retry.rate.is_some() {
            self.tokens -= 1000;
        }
        id
    }

    /// `order` is the order of the machine's slots, in which keys with new attempts are delayed.
    pub(super) fn reconfigure(&mut self, settings: QueueSettings, workers: usize, order: &[u32]) {
        if let Some(rate) = settings.retry.rate {
            let full = u64::from(rate.burst) * 1000;
            self.tokens = if self.settings.retry.rate.is_none() { full } else { self.tokens.min(full) };
        }
        let (new, old) = (&settings.retry, &self.settings.retry);
        let changed = new.delay != old.delay || new.max_attempts != old.max_attempts;
        let shorter = changed.then(|| new.clone());
        self.settings = settings;
        self.workers = workers;
        for entry in self.keys.values_mut().filter(|entry| !entry.named) {
            if let (At::Delayed { until, backoff: true, .. }, Some(policy)) = (&mut entry.at, &shorter) {
                *until = (*until).min(self.now + millis(policy.delay(entry.failures.saturating_sub(1), 0.0)));
            }
        }
        for id in order.iter().filter(|_| changed) {
            let (entry, retry) = (&self.keys[id], &self.settings.retry);
            let spent = retry.max_attempts > 0 && entry.failures >= retry.max_attempts;
            if entry.at == At::Parked && entry.spent && !spent {
                let wait = retry.delay(entry.failures.saturating_sub(1), 0.0);
                self.delay(*id, self.now + millis(wait), true, Lane::Retry);
                self.keys.entry(*id).and_modify(|entry| entry.named = false);
            }
        }
        self.advance(self.now);
    }

    pub(super) fn set_leading(&mut self, leading: bool) {
        if leading && !self.leading {
            self.epoch = self.now;
        }
        self.leading = leading;
    }

    pub(super) fn describe(&self, id: u32) -> Option<(State, Option<Lane>, u32, Option<Duration>)> {
        let entry = self.keys.get(&id)?;
        let (state, lane, next_run) = match entry.at {
            At::Delayed { until, backoff, .. } => {
                let state = if backoff { State::Backoff } else { State::Requeued };
                (state, None, Some(ms(until.saturating_sub(self.now))))
            }
            At::Ready { lane, .. } => (State::Ready, Some(lane), None),
            At::Running { lane, .. } if entry.dirt.is_some() => (State::Dirty, Some(lane), None),
            At::Running { lane, .. } => (State::Running, Some(lane), None),
            At::Parked => (State::Parked, None, None),
        };
        Some((state, lane, entry.failures, next_run))
    }
}

/// Thousandths of a token per millisecond.
fn token_gain(rate: &Rate) -> u64 {
    Duration::from_secs_f64(rate.per_second).as_secs()
}
