//! The machine beside a map.
//!
//! Random events happen to both; after each, every key must be in the same state in both, the machine's own lists
//! must fit together, and whatever is handed out must be what the map says is next. The map knows no lists, no heap
//! and no counters: it looks at all keys each time.
//!
//! `MAINSTAY_QUEUE_SEED=n` runs that one seed.

use std::collections::BTreeMap;

use super::*;
use crate::queue::machine::{Job, Next, Outcome};

const KEYS: u32 = 16;
const RUNS: u64 = 100;
const STEPS: u32 = 1500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Delayed { until: u64, backoff: bool, lane: Lane },
    Ready { lane: Lane, since: u64 },
    Running { lane: Lane, as_retry: bool },
    Parked,
}

#[derive(Clone, Debug)]
struct Entry {
    at: At,
    failures: u32,
    /// When it joined its lane, and when it became ready, as numbers of events.
    lane_order: u64,
    age_order: u64,
    /// Order of its deadline among equal ones.
    delay_order: u64,
    /// Adds since it began to run: at once, and for a moment.
    dirt: Option<(Strength, Band, bool)>,
    again: Option<(u64, Strength, Band, bool)>,
}

struct Model {
    keys: BTreeMap<u32, Entry>,
    settings: QueueSettings,
    workers: usize,
    /// Milliseconds.
    now: u64,
    epoch: u64,
    leading: bool,
    draining: bool,
    turn: u32,
    /// Tokens of the retry rate in thousandths; unused without a rate.
    tokens: u64,
    events: u64,
}

impl Model {
    fn next_event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    fn advance(&mut self, now: u64) {
        if let Some(rate) = self.settings.retry.rates.first() {
            // One token per millisecond and per thousand of `per_second`: exact for the rates used here.
            let gain = (now - self.now) * token_gain(rate);
            self.tokens = (self.tokens + gain).min(u64::from(rate.burst) * 1000);
        }
        self.now = now;
        if self.draining {
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

    fn add(&mut self, id: u32, strength: Strength, band: Band, until: Option<u64>, new: bool) -> Added {
        let lane = if band == Band::Live { Lane::Live } else { Lane::Background };
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
            let entry =
                Entry { at: At::Parked, failures: 0, lane_order, age_order, delay_order, dirt, again };
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
                let fresher =
                    (old == Lane::Retry && strong) || (old == Lane::Background && lane == Lane::Live);
                if until.is_none() && fresher {
                    entry.at = At::Ready { lane, since };
                    entry.lane_order = order;
                }
                Added::Merged
            }
            At::Delayed { backoff: true, .. } | At::Parked if !strong => Added::Kept,
            At::Delayed { until: old, .. } if until.is_some_and(|until| until >= old) => Added::Merged,
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

    fn take(&mut self) -> Option<u32> {
        if !self.leading {
            return None;
        }
        let aged = self.keys.iter().filter(|(_, entry)| match entry.at {
            At::Ready { since, .. } => ms(self.now - since.max(self.epoch)) >= self.settings.max_wait,
            _ => false,
        });
        if let Some((id, _)) = aged.min_by_key(|(_, entry)| entry.age_order) {
            return Some(self.run(*id, false));
        }
        let fresh = self.best(Lane::Live).or_else(|| self.best(Lane::Background));
        let token = self.settings.retry.rates.is_empty() || self.tokens >= 1000;
        let held =
            self.keys.values().filter(|entry| matches!(entry.at, At::Running { as_retry: true, .. })).count();
        let share = usize::from(self.settings.retry_share);
        let leaves_one_free = self.workers < 2 || share == 100 || held < self.workers - 1;
        let retry = self.best(Lane::Retry).filter(|_| token && leaves_one_free);
        let as_retry = match (fresh, retry) {
            (Some(_), Some(_)) if held * 100 < self.workers * share || held == 0 => {
                self.turn += u32::from(self.settings.retry_share.min(50));
                let retry = self.turn >= 100;
                self.turn -= if retry { 100 } else { 0 };
                retry
            }
            (fresh, _) => fresh.is_none(),
        };
        let id = if as_retry { retry? } else { fresh? };
        Some(self.run(id, as_retry))
    }

    fn run(&mut self, id: u32, as_retry: bool) -> u32 {
        if let Some(entry) = self.keys.get_mut(&id)
            && let At::Ready { lane, .. } = entry.at
        {
            entry.at = At::Running { lane, as_retry };
        }
        if as_retry && !self.settings.retry.rates.is_empty() {
            self.tokens -= 1000;
        }
        id
    }

    fn finish(&mut self, id: u32, outcome: Outcome<'_>) {
        let entry = self.keys.get_mut(&id).expect("a running key");
        let At::Running { lane, .. } = entry.at else { panic!("{id} does not run") };
        let (dirt, again) = (entry.dirt.take(), entry.again.take());
        match outcome {
            Outcome::Done => {
                self.keys.remove(&id);
            }
            Outcome::RequeueAfter(wait) => {
                entry.failures = 0;
                self.delay(id, self.now + millis(wait), false, Lane::Live);
            }
            Outcome::Failed(_, next) => {
                let policy = &self.settings.retry;
                let wait = policy.delay(entry.failures, 0.0);
                entry.failures += 1;
                let spent = policy.max_attempts > 0 && entry.failures >= policy.max_attempts;
                match next {
                    _ if spent => entry.at = At::Parked,
                    Next::Never => entry.at = At::Parked,
                    Next::Backoff => self.delay(id, self.now + millis(wait), true, Lane::Retry),
                    Next::After(wait) => self.delay(id, self.now + millis(wait), true, Lane::Retry),
                }
            }
            Outcome::PutBack if self.draining => self.delay(id, self.now, lane == Lane::Retry, lane),
            Outcome::PutBack => self.make_ready(id, lane, self.now),
            Outcome::Park(_) => entry.at = At::Parked,
        }
        // The rule: an add during the run is the same add right after it. No limit refuses it a second time.
        let depth = std::mem::take(&mut self.settings.max_depth);
        if let Some((until, strength, band, new)) = again {
            self.add(id, strength, band, Some(until.max(self.now)), new);
        }
        if let Some((strength, band, new)) = dirt {
            self.add(id, strength, band, None, new);
        }
        self.settings.max_depth = depth;
        self.advance(self.now);
    }

    fn reconfigure(&mut self, settings: QueueSettings, workers: usize) {
        if let Some(rate) = settings.retry.rates.first() {
            let full = u64::from(rate.burst) * 1000;
            self.tokens = if self.settings.retry.rates.is_empty() { full } else { self.tokens.min(full) };
        }
        let shorter = (settings.retry.delays != self.settings.retry.delays).then(|| settings.retry.clone());
        self.settings = settings;
        self.workers = workers;
        for entry in self.keys.values_mut() {
            if let (At::Delayed { until, backoff: true, .. }, Some(policy)) = (&mut entry.at, &shorter) {
                *until = (*until).min(self.now + millis(policy.delay(entry.failures.saturating_sub(1), 0.0)));
            }
        }
        self.advance(self.now);
    }

    fn describe(&self, id: u32) -> Option<(State, Option<Lane>, u32, Option<Duration>)> {
        let entry = self.keys.get(&id)?;
        let (state, lane, next_run) = match entry.at {
            At::Delayed { until, backoff, .. } => {
                let state = if backoff { State::Backoff } else { State::Delayed };
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("short waits")
}

fn at(millis: u64) -> Moment {
    Moment::new(ms(millis))
}

fn any_settings(random: &mut fastrand::Rng) -> QueueSettings {
    // Every policy there is; a rate is switched on and off, because what a change of rate grants is the bucket's own
    // test.
    let delay = match random.u8(0..4) {
        0 => RetryPolicy::fixed(ms(random.u64(1..30))),
        1 => RetryPolicy::fast_slow(ms(3), ms(random.u64(3..60)), 2),
        _ => RetryPolicy::exponential(ms(5), ms(random.choice([40, 100, 10_000]).unwrap())),
    };
    let rate = RetryPolicy::bucket(50.0, 3);
    let retry = match random.u8(0..5) {
        0 => rate,
        1 | 2 => RetryPolicy::max_of([delay, rate]),
        _ => delay,
    };
    QueueSettings {
        retry: retry.with_jitter(0).with_max_attempts(random.choice([0, 0, 4]).unwrap()),
        retry_share: random.choice([1, 25, 50, 100]).unwrap(),
        max_wait: ms(random.choice([30, 200, 30_000]).unwrap()),
        max_depth: random.choice([0, 3, 8]).unwrap(),
    }
}

fn any_outcome(random: &mut fastrand::Rng) -> Outcome<'static> {
    match random.u8(0..11) {
        0..=2 => Outcome::Done,
        3 => Outcome::RequeueAfter(ms(random.u64(0..60))),
        4..=6 => Outcome::Failed("no", Next::Backoff),
        7 => Outcome::Failed("busy", Next::After(ms(random.u64(0..60)))),
        8 => Outcome::Failed("never", Next::Never),
        9 => Outcome::Park("paused"),
        _ => Outcome::PutBack,
    }
}

/// One event, to both.
fn step(
    random: &mut fastrand::Rng,
    inner: &mut Inner<Id>,
    model: &mut Model,
    jobs: &mut Vec<Job<Id>>,
) -> String {
    let id = random.u32(0..KEYS);
    match random.u8(0..100) {
        0..=44 => {
            let add = Add {
                strength: if random.bool() { Strength::Strong } else { Strength::Weak },
                band: if random.bool() { Band::Live } else { Band::Background },
                cause: Cause::bare(Trigger::Updated),
                after: (random.u8(0..4) == 0).then(|| ms(random.u64(0..50))),
                new_generation: random.u8(0..8) == 0,
            };
            let text = format!("add {id} {add:?}");
            let until = add.after.filter(|wait| !wait.is_zero()).map(|wait| model.now + millis(wait));
            let expected = if model.draining {
                Added::ShuttingDown
            } else {
                model.add(id, add.strength, add.band, until, add.new_generation)
            };
            assert_eq!(inner.add(Id(id), add), expected, "{text}");
            text
        }
        45..=59 => {
            let now = model.now + random.u64(0..12);
            model.advance(now);
            inner.advance(at(now));
            format!("advance to {now}")
        }
        60..=79 => {
            let job = inner.try_take();
            let taken = job.as_ref().map(|job| job.key.0);
            assert_eq!(taken, model.take(), "what is handed out");
            jobs.extend(job);
            format!("take {taken:?}")
        }
        80..=95 if !jobs.is_empty() => {
            let job = jobs.swap_remove(random.usize(0..jobs.len()));
            let outcome = any_outcome(random);
            model.finish(job.key.0, outcome);
            let _: Retried = inner.finish(job.slot, &job.cause, outcome);
            format!("finish {} {outcome:?}", job.key.0)
        }
        96 => {
            inner.forget(&Id(id));
            if let Some(entry) = model.keys.get_mut(&id) {
                entry.failures = 0;
                if entry.at == At::Parked {
                    model.keys.remove(&id);
                }
            }
            format!("forget {id}")
        }
        97 => {
            let leading = random.u8(0..4) > 0;
            inner.set_leading(leading);
            if leading && !model.leading {
                model.epoch = model.now;
            }
            model.leading = leading;
            format!("leading {leading}")
        }
        98 => {
            let (settings, workers) = (any_settings(random), random.usize(1..5));
            inner.reconfigure(settings.clone(), workers);
            model.reconfigure(settings.clone(), workers);
            format!("{settings:?} {workers}")
        }
        _ => "nothing".to_owned(),
    }
}

fn run(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (settings, workers) = (any_settings(&mut random), 3);
    let mut inner = Inner::new(settings.clone(), workers, fastrand::Rng::with_seed(seed));
    let mut model = Model {
        keys: BTreeMap::new(),
        tokens: settings.retry.rates.first().map_or(0, |rate| u64::from(rate.burst) * 1000),
        settings,
        workers,
        now: 0,
        epoch: 0,
        leading: true,
        draining: false,
        turn: 0,
        events: 0,
    };
    let (mut jobs, mut history) = (Vec::new(), Vec::new());
    for number in 0..STEPS {
        if number == STEPS - 200 {
            inner.shut_down(Phase::Draining);
            model.draining = true;
        }
        let done = step(&mut random, &mut inner, &mut model, &mut jobs);
        history.push(done);
        inner.check();
        for id in 0..KEYS {
            let slot = inner.slots.find(&Id(id)).map(|slot| inner.describe(inner.slots.get(slot)));
            let actual = slot.map(|key| (key.state, key.lane, key.attempts, key.next_run));
            let last = &history[history.len().saturating_sub(12)..];
            assert_eq!(actual, model.describe(id), "key {id} after step {number} of seed {seed}: {last:#?}");
        }
    }
}

#[test]
fn the_queue_does_what_a_map_would() {
    let one = std::env::var("MAINSTAY_QUEUE_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in one.map_or(0..RUNS, |seed: u64| seed..seed + 1) {
        run(seed);
    }
}
