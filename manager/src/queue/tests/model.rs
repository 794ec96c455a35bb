//! Comparison of the state machine with a model that is a plain map.
//!
//! Random events are applied to both; after each event every key must be in the same state in both, the
//! machine's own lists must agree with its slots, and the machine must hand out the key that is next in the
//! model. Callers, a source and a drain sleep meanwhile until the machine's signals wake them, so that a lost
//! wake-up fails the test.
//!
//! `MAINSTAY_QUEUE_SEED=n` runs that one seed.

mod map;
mod sleepers;

use super::*;
use crate::queue::machine::{Job, Outcome};
use map::Model;
use sleepers::Sleepers;

const KEYS: u32 = 16;
const RUNS: u64 = 100;
/// Steps per run: 150,000 in all.
const STEPS: u32 = 1500;
/// How many of the steps come after the queue has begun to drain, and after it has stopped.
const DRAINED_STEPS: u32 = 200;
const STOPPED_STEPS: u32 = 40;

/// The machine, the model, and the callers that wait for the machine.
struct World {
    random: fastrand::Rng,
    /// Milliseconds. Passed to the machine with the next event.
    clock: u64,
    inner: Inner<Id>,
    model: Model,
    sleepers: Sleepers,
    jobs: Vec<Job<Id>>,
    /// A source waits for room.
    source_waits: bool,
    /// A task waits for the end of the drain.
    drain_waits: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let settings = any_settings(&mut random);
        let callers = random.usize(2..=4);
        Self {
            inner: Inner::new(settings.clone(), 3, fastrand::Rng::with_seed(seed)),
            model: Model::new(settings, 3),
            sleepers: Sleepers::new(callers),
            random,
            clock: 0,
            jobs: Vec::new(),
            source_waits: false,
            drain_waits: false,
        }
    }

    /// Applies an event to both at the present time, and wakes the callers that the machine signals.
    fn with<R>(&mut self, act: impl FnOnce(&mut Inner<Id>, &mut Model) -> R) -> R {
        self.inner.advance(at(self.clock));
        self.model.advance(self.clock);
        let answer = act(&mut self.inner, &mut self.model);
        let signals = self.inner.signals();
        self.sleepers.wake(signals);
        self.source_waits &= !signals.room;
        self.drain_waits &= !signals.ended;
        answer
    }

    /// Applies one random event. Returns a description of it.
    fn step(&mut self) -> String {
        match self.random.u8(0..100) {
            0..=34 => self.add(),
            35..=47 => self.pass_time(),
            48..=71 => self.call(),
            72..=76 => self.try_get(),
            77..=94 if !self.jobs.is_empty() => self.finish(),
            95 | 96 => self.lead(),
            97 => self.reconfigure(),
            98 => self.wait_for_room(),
            _ => "nothing".to_owned(),
        }
    }

    fn add(&mut self) -> String {
        let id = self.random.u32(0..KEYS);
        let add = any_add(&mut self.random);
        let text = format!("add {id} {add:?}");
        let (added, expected) = self.with(|inner, model| {
            let until = add.after.filter(|wait| !wait.is_zero()).map(|wait| model.now + millis(wait));
            let expected = model.add(id, add.strength, add.band, until, add.new_generation);
            (inner.add(Id(id), add), expected)
        });
        assert_eq!(added, expected, "{text}");
        text
    }

    /// Moves the clock without an event for the machine: sleepers must have set their timer.
    fn pass_time(&mut self) -> String {
        self.clock += match self.random.u8(0..40) {
            0 => self.random.u64(1_000..100_000),
            1 => 24 * 3600 * 1000,
            _ => self.random.u64(0..12),
        };
        format!("it is {}", self.clock)
    }

    /// Runs the next step of a caller of `get`.
    fn call(&mut self) -> String {
        let caller = self.random.usize(0..self.sleepers.list.len());
        let now = at(self.clock);
        let cancelled = self.random.u8(0..10) == 0;
        let slept = match &self.sleepers.list[caller] {
            Some(sleep) if !cancelled && !sleep.is_woken(now) => return format!("caller {caller} sleeps on"),
            Some(sleep) => {
                // A caller whose timer is over too may leave the wake-up to another caller.
                let by_wake =
                    !cancelled && sleep.is_notified() && (sleep.timer.is_none() || self.random.bool());
                self.sleepers.end(caller, by_wake)
            }
            None => None,
        };
        let timer = slept.map(|sleep| sleep.timer.is_some());
        if cancelled {
            if let Some(timer) = timer {
                self.with(|inner, _| inner.leave(timer));
            }
            return format!("caller {caller} gives up");
        }
        let (take, expected, exhausted) = self.with(|inner, model| {
            if let Some(timer) = timer {
                inner.leave(timer);
            }
            let exhausted = model.is_exhausted();
            let expected = if exhausted { None } else { model.take() };
            (inner.take(), expected, exhausted)
        });
        let text = format!("caller {caller} gets {take:?}");
        match take {
            Take::Job(job) => {
                assert_eq!(Some(job.key.0), expected, "another key was handed out");
                self.jobs.push(job);
            }
            Take::Closed => assert!(exhausted, "the machine is exhausted, and the model is not"),
            Take::Wait(timer) => {
                assert_eq!((expected, exhausted), (None, false), "the model has a key, or is exhausted");
                assert!(timer.is_none_or(|timer| timer > now), "a timer in the past makes a caller spin");
                self.sleepers.fall_asleep(caller, timer);
            }
        }
        text
    }

    fn try_get(&mut self) -> String {
        let (job, expected) = self.with(|inner, model| (inner.try_take(), model.take()));
        let taken = job.as_ref().map(|job| job.key.0);
        assert_eq!(taken, expected, "another key was handed out");
        self.jobs.extend(job);
        format!("take {taken:?}")
    }

    fn finish(&mut self) -> String {
        let job = self.jobs.swap_remove(self.random.usize(0..self.jobs.len()));
        let outcome = any_outcome(&mut self.random);
        let _: Retried = self.with(|inner, model| {
            model.finish(job.key.0, outcome);
            inner.finish(job.slot, &job.cause, outcome)
        });
        format!("finish {} {outcome:?}", job.key.0)
    }

    fn lead(&mut self) -> String {
        let leading = self.random.u8(0..4) > 0;
        self.with(|inner, model| {
            inner.set_leading(leading);
            model.set_leading(leading);
        });
        format!("leading {leading}")
    }

    fn reconfigure(&mut self) -> String {
        let (settings, workers) = (any_settings(&mut self.random), self.random.usize(1..5));
        self.with(|inner, model| {
            let mut order: Vec<u32> = model.keys.keys().copied().collect();
            order.sort_by_key(|id| inner.slots.find(&Id(*id)));
            inner.reconfigure(settings.clone(), workers);
            model.reconfigure(settings.clone(), workers, &order);
        });
        format!("{settings:?} {workers}")
    }

    fn wait_for_room(&mut self) -> String {
        let (room, expected) = self.with(|inner, model| (inner.has_room(), model.has_room()));
        assert_eq!(room, expected, "machine and model differ in whether there is room");
        self.source_waits |= !room;
        format!("a source waits for room, which there is: {room}")
    }

    fn shut_down(&mut self, phase: Phase) {
        let ended = self.with(|inner, model| {
            inner.shut_down(phase);
            model.phase = phase;
            (inner.is_drained(), model.has_ended())
        });
        assert_eq!(ended.0, ended.1, "machine and model differ in whether the drain has ended");
        self.drain_waits = !ended.0;
    }

    /// Fails if machine and model differ, or if a caller sleeps that should be awake.
    fn check(&self) {
        self.inner.check();
        for id in 0..KEYS {
            let slot =
                self.inner.slots.find(&Id(id)).map(|slot| self.inner.describe(self.inner.slots.get(slot)));
            let actual = slot.map(|key| (key.state, key.lane, key.attempts, key.next_run));
            assert_eq!(actual, self.model.describe(id), "key {id}");
        }
        let (now, model) = (at(self.clock), &self.model);
        assert!(!self.source_waits || !model.has_room(), "a source sleeps while there is room");
        assert!(!self.drain_waits || !model.has_ended(), "the drain has ended without a signal");
        let asleep: Vec<_> = self.sleepers.list.iter().flatten().collect();
        let timers: Vec<Moment> = asleep.iter().filter_map(|sleep| sleep.timer).collect();
        assert!(timers.len() <= 1, "several callers hold the timer");
        if model.is_exhausted() {
            assert!(
                asleep.iter().all(|sleep| sleep.is_woken(now)),
                "a caller sleeps although the queue is exhausted"
            );
        }
        if asleep.is_empty() || asleep.iter().any(|sleep| sleep.is_woken(now)) {
            return;
        }
        assert!(!model.may_take(), "all callers sleep while a key may be handed out");
        if let Some(chance) = model.next_chance() {
            let timely = timers.first().is_some_and(|timer| *timer <= at(chance));
            assert!(timely, "no caller wakes at {chance}, when a key may be handed out: {asleep:?}");
        }
    }
}

/// Prints the last events before a failure.
struct History(u64, Vec<String>);

impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = &self.1[self.1.len().saturating_sub(12)..];
            eprintln!("after step {} of seed {}: {last:#?}", self.1.len(), self.0);
        }
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    let mut history = History(seed, Vec::new());
    for number in 0..STEPS {
        // Every fourth run is stopped at once.
        match STEPS - number {
            DRAINED_STEPS if !seed.is_multiple_of(4) => world.shut_down(Phase::Draining),
            STOPPED_STEPS => world.shut_down(Phase::Stopped),
            _ => {}
        }
        let done = world.step();
        history.1.push(done);
        world.check();
    }
}

#[test]
fn the_queue_behaves_like_a_plain_map_and_no_caller_sleeps_too_long() {
    let one = std::env::var("MAINSTAY_QUEUE_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in one.map_or(0..RUNS, |seed: u64| seed..seed + 1) {
        run(seed);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("short waits")
}

fn at(millis: u64) -> Moment {
    Moment::START.after(ms(millis))
}

fn any_settings(random: &mut fastrand::Rng) -> QueueSettings {
    // Every kind of policy. The rate is only switched on and off: the bucket has its own tests of a changed
    // limit.
    let delay = match random.u8(0..4) {
        0 => RetryPolicy::fixed(ms(random.u64(1..30))),
        1 => RetryPolicy::fast_slow(ms(3), ms(random.u64(3..60)), 2),
        _ => RetryPolicy::exponential(ms(5), ms(random.choice([40, 100, 10_000]).unwrap())),
    };
    let retry = match random.u8(0..5) {
        0 => RetryPolicy::fixed(Duration::ZERO).with_rate(50.0, 3),
        1 | 2 => delay.with_rate(50.0, 3),
        _ => delay,
    };
    QueueSettings {
        retry: retry.with_jitter(0).with_max_attempts(random.choice([0, 0, 4]).unwrap()),
        retry_share: random.choice([1, 25, 50, 100]).unwrap(),
        max_wait: ms(random.choice([30, 200, 30_000]).unwrap()),
        max_depth: random.choice([0, 3, 8]).unwrap(),
    }
}

fn any_add(random: &mut fastrand::Rng) -> Add {
    Add {
        strength: if random.bool() { Strength::Strong } else { Strength::Weak },
        band: random.choice([Band::Live, Band::New, Band::Background]).unwrap(),
        cause: Cause::bare(Trigger::Updated),
        after: (random.u8(0..4) == 0).then(|| ms(random.u64(0..50))),
        new_generation: random.u8(0..8) == 0,
    }
}

fn any_outcome(random: &mut fastrand::Rng) -> Outcome<'static> {
    match random.u8(0..14) {
        0..=2 => Outcome::Done,
        3 => Outcome::RequeueAfter(ms(random.u64(0..60))),
        4..=6 => Outcome::Failed("no", Retry::Backoff),
        7 => Outcome::Failed("busy", Retry::After(ms(random.u64(0..60)))),
        8 => Outcome::Failed("never", Retry::Never),
        9 => Outcome::Park("paused"),
        10 | 11 => Outcome::Dropped,
        12 => Outcome::Failed("refused", Retry::NotBefore(ms(random.u64(0..60)))),
        _ => Outcome::PutBack,
    }
}
