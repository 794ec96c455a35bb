//! The cost of the queue: time per key, allocations, bytes per key, wake-ups, and the longest hold of its
//! lock.
//!
//! `cargo bench -p mainstay --bench queue` prints criterion's report and, beside it, one line `figure NAME
//! VALUE UNIT` per figure, the median of three rounds where a machine's noise shows. With
//! `MAINSTAY_BENCH=quick` only the figures are measured, with smaller queues, and each is asserted against
//! ten times its bound. CI builds no release for that: it asserts bytes and allocations, which are equal on
//! all machines (`tests/queue_memory.rs`), and lints this file.
//!
//! Keys are `NamespacedName`s, made beforehand: cloning one is two reference counts, as for a source that
//! clones it from the cache. Every add names an object as its cause. Metrics are registered, and the clock is
//! the real one: tokio's `test-util`, which the tests turn on, adds one atomic load to a reading unless time
//! is paused, and here it is not.

#![expect(clippy::cast_precision_loss, reason = "figures have a few digits")]
#![expect(clippy::expect_used, reason = "a benchmark that cannot start must end")]

mod holds;
mod memory;

use std::collections::HashMap;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use criterion::{Criterion, Throughput};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use mainstay::key::{Cause, KindId, NamespacedName, Subject, Trigger};
use mainstay::metrics::Registry;
use mainstay::queue::{Add, Added, QueueMetrics, QueueSettings, Running, WorkQueue};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// How much is measured, and whether the bounds are asserted.
#[derive(Clone, Copy)]
struct Form {
    quick: bool,
    /// Keys of a large queue.
    many: usize,
    /// Keys that each of four producers adds in one round.
    batch: usize,
    /// Wake-ups per round.
    wakeups: usize,
    /// How long a resting queue is measured.
    rest: Duration,
}

/// A bound from above or from below.
enum Bound {
    Most(f64),
    Least(f64),
}

// === impl Form ===

impl Form {
    fn new(quick: bool) -> Self {
        if quick {
            let rest = Duration::from_millis(500);
            Self { quick, many: 200_000, batch: 50_000, wakeups: 200, rest }
        } else {
            let rest = Duration::from_secs(3);
            Self { quick, many: 1_000_000, batch: 250_000, wakeups: 1000, rest }
        }
    }

    /// Prints a figure; the quick form fails if it misses ten times its bound.
    #[expect(clippy::print_stdout, reason = "the figures are the output")]
    fn print(self, name: &str, value: f64, unit: &str, bound: &Bound) {
        println!("figure {name} {value:.2} {unit}");
        let held = match bound {
            Bound::Most(most) => value <= most * 10.0,
            Bound::Least(least) => value >= least / 10.0,
        };
        assert!(held || !self.quick, "{name} is {value} {unit}, beyond ten times its bound");
    }
}

fn main() {
    let form = Form::new(std::env::var("MAINSTAY_BENCH").is_ok_and(|form| form == "quick"));
    if !form.quick {
        report(form);
        // With a filter, or as a test, only criterion runs.
        if !std::env::args().skip(1).eq(["--bench"]) {
            return;
        }
    }
    form.print("queue.control_ns", median(|| control(500_000)), "ns", &Bound::Most(f64::MAX));
    form.print("queue.cycle_ns", median(|| cycle(500_000)), "ns", &Bound::Most(200.0));
    form.print("queue.throughput_per_s", median(|| throughput(form)), "1/s", &Bound::Least(2e6));
    form.print("queue.wakeup_us_p50", median(|| wakeup(form)), "us", &Bound::Most(20.0));
    form.print("queue.million_delayed_cpu_percent", resting_cpu(form), "%", &Bound::Most(1.0));
    for (name, hold) in holds::longest(form) {
        form.print(name, hold, "us", &Bound::Most(1000.0));
    }
    // From here on every allocation is counted, which is slow.
    let _profiler = dhat::Profiler::builder().testing().build();
    form.print("queue.cycle_allocs", memory::allocations_per_cycle(), "count", &Bound::Most(0.0));
    form.print("queue.ready_key_bytes", memory::bytes_per_key(form, false), "bytes", &Bound::Most(96.0));
    form.print("queue.delayed_key_bytes", memory::bytes_per_key(form, true), "bytes", &Bound::Most(128.0));
    form.print("queue.emptied_bytes", memory::emptied_bytes(form), "bytes", &Bound::Most(1e6));
}

/// Criterion's own report.
fn report(form: Form) {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("queue");
    let (queue, keys, cause) = (queue(1), keys(1024), cause());
    let mut turn = keys.iter().cycle();
    group.bench_function("add, get, done", |bencher| {
        bencher.iter(|| one_cycle(&queue, turn.next().unwrap_or(&keys[0]), &cause));
    });
    group.bench_function("add, get, retry, add, get, done", |bencher| {
        bencher.iter(|| {
            let key = turn.next().unwrap_or(&keys[0]);
            let _: Added = queue.add(key.clone(), Add::strong(cause.clone()));
            if let Some(running) = queue.try_get() {
                let _retried = black_box(running.retry("no"));
            }
            one_cycle(&queue, key, &cause);
        });
    });
    group.sample_size(10).throughput(Throughput::Elements(4 * form.batch as u64));
    group.bench_function("four producers, four workers", |bencher| {
        bencher.iter_custom(|rounds| (0..rounds).map(|_| crowd(form)).sum());
    });
    group.finish();
}

// --- time ---

/// Returns nanoseconds on the processor per add, get and done of one key at a time.
fn cycle(turns: u32) -> f64 {
    let (queue, keys, cause) = (queue(1), keys(1024), cause());
    for key in &keys {
        one_cycle(&queue, key, &cause);
    }
    let start = cpu_time(ClockId::ThreadCPUTime);
    for key in keys.iter().cycle().take(turns as usize) {
        one_cycle(&queue, key, &cause);
    }
    since(start, ClockId::ThreadCPUTime).as_secs_f64() * 1e9 / f64::from(turns)
}

/// Returns nanoseconds for the same clock readings, clones and lock around an ordinary map: a reference for
/// the speed of the machine.
fn control(turns: u32) -> f64 {
    let (keys, cause) = (keys(1024), cause());
    let map = Mutex::new(HashMap::new());
    let start = cpu_time(ClockId::ThreadCPUTime);
    for key in keys.iter().cycle().take(turns as usize) {
        let (key, cause) = (key.clone(), cause.clone());
        let now = Instant::now();
        map.lock().insert(key.clone(), (cause.clone(), now));
        black_box(Instant::now());
        let taken = map.lock().get(&key).cloned();
        black_box((taken, Instant::now()));
        map.lock().remove(&key);
    }
    since(start, ClockId::ThreadCPUTime).as_secs_f64() * 1e9 / f64::from(turns)
}

/// Runs one key through `get`, as a worker does, polled by hand so that the figure contains no runtime.
fn one_cycle(queue: &WorkQueue<NamespacedName>, key: &NamespacedName, cause: &Cause) {
    let _: Added = black_box(queue.add(key.clone(), Add::strong(cause.clone())));
    let mut task = Context::from_waker(Waker::noop());
    if let Poll::Ready(Some(running)) = pin!(queue.get()).poll(&mut task) {
        black_box(running.key());
        running.done();
    }
}

/// Returns keys per second from four producers through the queue to four workers.
fn throughput(form: Form) -> f64 {
    4.0 * form.batch as f64 / crowd(form).as_secs_f64()
}

/// Returns how long four producers and four workers take for all of their keys, all of them distinct. The
/// keys outlive the round, as keys in a cache do: else the figure would contain the time in which their names
/// are freed.
fn crowd(form: Form) -> Duration {
    let (queue, keys, cause) = (queue(4), keys(4 * form.batch), cause());
    let _kept = keys.clone();
    let runtime = runtime();
    runtime.block_on(async {
        let (producers, workers) = (TaskTracker::new(), TaskTracker::new());
        let start = Instant::now();
        for _ in 0..4 {
            let queue = queue.clone();
            workers.spawn(async move {
                while let Some(running) = queue.get().await {
                    running.done();
                }
            });
        }
        let mut rest = keys;
        while !rest.is_empty() {
            let part = rest.split_off(rest.len() - form.batch);
            let (queue, cause) = (queue.clone(), cause.clone());
            producers.spawn(async move {
                for (number, key) in part.into_iter().enumerate() {
                    let _: Added = queue.add(key, Add::strong(cause.clone()));
                    // A source awaits its next chunk of events every now and then.
                    if number % 64 == 63 {
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        producers.close();
        producers.wait().await;
        queue.shut_down_with_drain().await;
        let took = start.elapsed();
        workers.close();
        workers.wait().await;
        took
    })
}

/// Returns the median time in microseconds from an `add` outside the runtime, whose threads sleep, to the
/// worker's first line.
fn wakeup(form: Form) -> f64 {
    let (queue, keys, cause) = (queue(1), keys(1), cause());
    let runtime = runtime();
    let (woken, wakings) = sync_channel(1);
    let worker = runtime.spawn(send_when_woken(queue.clone(), woken));
    let mut took: Vec<f64> = (0..form.wakeups)
        .map(|_| {
            // Long enough for the runtime's threads to fall asleep again.
            assert!(wakings.recv_timeout(Duration::from_millis(1)).is_err(), "woken without an add");
            let start = Instant::now();
            let _: Added = queue.add(keys[0].clone(), Add::strong(cause.clone()));
            wakings.recv().map_or(0.0, |at| (at - start).as_secs_f64() * 1e6)
        })
        .collect();
    queue.shut_down();
    runtime.block_on(worker).expect("the worker ends");
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}

async fn send_when_woken(queue: WorkQueue<NamespacedName>, woken: SyncSender<Instant>) {
    while let Some(running) = queue.get().await {
        let now = Instant::now();
        running.done();
        if woken.send(now).is_err() {
            return;
        }
    }
}

/// Returns the cost of a million delayed keys and a sleeping worker while no key is due, in percent of one
/// core.
fn resting_cpu(form: Form) -> f64 {
    let queue = queue(1);
    for (number, key) in keys(form.many).into_iter().enumerate() {
        let wait = Duration::from_hours(1) + Duration::from_micros(scattered(number));
        let _: Added = queue.add(key, Add::strong(cause()).after(wait));
    }
    let runtime = runtime();
    let worker = runtime.spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(Running::done) }
    });
    let before = cpu_time(ClockId::ProcessCPUTime);
    runtime.block_on(async { tokio::time::sleep(form.rest).await });
    let used = since(before, ClockId::ProcessCPUTime);
    queue.shut_down();
    runtime.block_on(worker).expect("the worker ends");
    100.0 * used.as_secs_f64() / form.rest.as_secs_f64()
}

/// Time on a processor so far: of this thread, or of the whole process.
fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn since(earlier: Duration, clock: ClockId) -> Duration {
    cpu_time(clock).saturating_sub(earlier)
}

// --- shared by all figures ---

fn queue(workers: usize) -> WorkQueue<NamespacedName> {
    let metrics = QueueMetrics::register(&Registry::new());
    WorkQueue::new("bench", QueueSettings::default(), workers, &metrics)
}

fn keys(count: usize) -> Vec<NamespacedName> {
    let namespace: Arc<str> = "shop".into();
    (0..count)
        .map(|number| NamespacedName::namespaced(Arc::clone(&namespace), format!("web-{number}")))
        .collect()
}

fn cause() -> Cause {
    let kind = KindId::new("apps", "v1", "Deployment", "deployments", true);
    Cause::from_object(Trigger::Updated, Subject::Namesake(kind))
}

/// Returns a number below a hundred million that looks random and is the same in each run.
fn scattered(number: usize) -> u64 {
    (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) % 100_000_000
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("the runtime starts")
}

fn median(mut round: impl FnMut() -> f64) -> f64 {
    median_of([round(), round(), round()])
}

fn median_of(mut rounds: [f64; 3]) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[1]
}
