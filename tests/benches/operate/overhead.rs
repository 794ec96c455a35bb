//! The cost of the bookkeeping around a reconcile: its span at info, its counters and its histogram.
//!
//! A subject has one controller with one worker, and its reconciles log nothing. The first key blocks the
//! worker until thousands of other keys are ready; then the worker runs their reconciles one after the other,
//! and each does nothing. Subjects alternate: in every second one the log filter excludes the worker's
//! module, so that it creates no span, and nothing else differs. The difference of the times is the cost of
//! the span.
//!
//! The metrics of a controller cannot be switched off, so the subject measures the same operations in a loop
//! on the same thread: on metrics of the same types, with as many buckets, and with the same two reads of the
//! clock. The figure is the sum of both costs. It does not contain the metrics of the queue, which are a few
//! comparisons and additions under a lock that the queue holds anyway; they are part of the time of a bare
//! queue with as many keys, which is printed too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use mainstay::controller::Controller;
use mainstay::key::{Cause, Key as _, NamespacedName, Trigger};
use mainstay::manager::{ControllerHandle, RunContext, Runnable};
use mainstay::metrics::Registry;
use mainstay::program::Program;
use mainstay::queue::{Add, QueueMetrics, QueueSettings, WorkQueue};
use mainstay::reconcile::{Action, BoxError, Context, Outcome, Reconciler};
use mainstay::watch::{Notifier, channel};
use mainstay_tests::report::figure;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::Form;
use crate::subject::Subject;

pub(crate) const SUBJECT: &str = "overhead";

const CONTROLLER: &str = "counted";
/// The key that blocks the worker.
const GATE: &str = "gate";
/// Environment variables with the numbers of keys and of rounds of the subject.
const KEYS: &str = "MAINSTAY_OPERATE_KEYS";
const ROUNDS: &str = "MAINSTAY_OPERATE_ROUNDS";
/// Log message after each round, with the fields `counted`, `series` and `bare` in nanoseconds per key.
const ROUND_ENDED: &str = "a round ended";
/// Log filters that enable and disable the span.
const WITH_SPAN: &str = "info";
const WITHOUT_SPAN: &str = "info,mainstay::controller::worker=off";
/// Buckets of `controller_runtime_reconcile_time_seconds`.
const BUCKETS: u16 = 40;
/// As a test: longest bookkeeping, as a multiple of a reconcile without a span, because both are slower on a
/// slow machine and without optimisation. A build without optimisation measures three to five.
const MOST: f64 = 30.0;

/// Reconciler that does nothing, and notifies when the last key of a round has run.
struct Counted(Arc<Round>);

#[derive(Default)]
struct Round {
    /// Number of keys that have not run yet.
    left: AtomicUsize,
    began: Mutex<Option<Instant>>,
    /// Ends the reconcile of the key `GATE`.
    open: Notify,
    /// Time in which all other keys ran.
    took: Mutex<Option<Duration>>,
    ended: Notify,
}

/// Runnable that runs the rounds.
struct Rounds {
    notifier: Notifier<NamespacedName>,
    controller: ControllerHandle<NamespacedName>,
    round: Arc<Round>,
}

/// The manager under measurement.
pub(crate) fn program() -> Program {
    let about = "Reconciles that do nothing";
    Program::new("operate", env!("CARGO_PKG_VERSION"), about).controllers([CONTROLLER]).setup(|manager| {
        let (notifier, source) = channel();
        let round = Arc::new(Round::default());
        let reconciler = Counted(Arc::clone(&round));
        let controller =
            manager.register(Controller::new(CONTROLLER).source(source).reconciler(reconciler))?;
        manager.add(Rounds { notifier, controller, round })?;
        Ok(())
    })
}

/// Nanoseconds per key, of one round or the median of several.
#[derive(Clone, Copy)]
struct Figures {
    counted: f64,
    series: f64,
    bare: f64,
}

pub(crate) async fn measure(form: Form) -> anyhow::Result<()> {
    let (keys, rounds, turns) = if form.quick { (2_000, 3, 1) } else { (100_000, 5, 4) };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        with.extend(subject(WITH_SPAN, keys, rounds).await?);
        without.extend(subject(WITHOUT_SPAN, keys, rounds).await?);
    }
    let (with, without) = (Figures::middle(&with), Figures::middle(&without));
    let span = with.counted - without.counted;
    let overhead = span + with.series;
    figure("metrics.reconcile_us", with.counted / 1e3, "us");
    figure("metrics.reconcile_us.without_span", without.counted / 1e3, "us");
    figure("metrics.reconcile_us.bare_queue", with.bare / 1e3, "us");
    figure("metrics.reconcile_overhead_us.span", span / 1e3, "us");
    figure("metrics.reconcile_overhead_us.series", with.series / 1e3, "us");
    figure("metrics.reconcile_overhead_us", overhead / 1e3, "us");
    let share = overhead / without.counted;
    anyhow::ensure!(!form.test || share < MOST, "{overhead} ns, {share} times a reconcile without a span");
    Ok(())
}

/// Returns the figures of each round of one subject.
async fn subject(level: &str, keys: usize, rounds: usize) -> anyhow::Result<Vec<Figures>> {
    let environment = [(KEYS, keys.to_string()), (ROUNDS, rounds.to_string())];
    let settings = json!({CONTROLLER: {"workers": 1}});
    let subject = Subject::start_at(SUBJECT, &settings, &environment, level)?;
    subject.process.logged_times("its rounds", rounds, |line| line["msg"] == ROUND_ENDED).await;
    let lines = subject.process.log().into_iter().filter(|line| line["msg"] == ROUND_ENDED);
    let figures = lines.map(|line| {
        let number = |name: &str| line[name].as_f64();
        Some(Figures { counted: number("counted")?, series: number("series")?, bare: number("bare")? })
    });
    let figures = figures.collect::<Option<_>>().context("a round without its figures")?;
    subject.stop().await?;
    Ok(figures)
}

// === impl Figures ===

impl Figures {
    /// Returns the median of each figure.
    fn middle(rounds: &[Self]) -> Self {
        let middle = |of: fn(&Self) -> f64| {
            let mut all: Vec<f64> = rounds.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
        };
        Self {
            counted: middle(|round| round.counted),
            series: middle(|round| round.series),
            bare: middle(|round| round.bare),
        }
    }
}

// === impl Counted ===

impl Reconciler for Counted {
    async fn reconcile(&self, request: &NamespacedName, _: &Context) -> Outcome {
        let round = &self.0;
        if request.name() == GATE {
            round.open.notified().await;
            *round.began.lock() = Some(Instant::now());
        } else if round.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            *round.took.lock() = round.began.lock().map(|began| began.elapsed());
            round.ended.notify_one();
        }
        Ok(Action::Done)
    }
}

// === impl Rounds ===

impl Rounds {
    /// Returns nanoseconds per key of the controller.
    async fn counted(&self, keys: &[NamespacedName]) -> Result<f64, BoxError> {
        let counts = || self.controller.status().map(|status| status.counts).ok_or("the controller has gone");
        self.round.left.store(keys.len(), Ordering::Relaxed);
        self.notifier.notify(NamespacedName::cluster(GATE));
        while counts()?.running == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        for key in keys {
            self.notifier.notify(key.clone());
        }
        while counts()?.ready() < keys.len() {
            sleep(Duration::from_millis(1)).await;
        }
        self.round.open.notify_one();
        self.round.ended.notified().await;
        let took = self.round.took.lock().take().ok_or("no time was taken")?;
        Ok(per_key(took, keys.len()))
    }
}

/// Returns nanoseconds per key of a bare queue.
async fn bare(keys: &[NamespacedName]) -> f64 {
    let queue =
        WorkQueue::new("bare", QueueSettings::default(), 1, &QueueMetrics::register(&Registry::new()));
    for key in keys {
        queue.add(key.clone(), Add::strong(Cause::bare(Trigger::Generic)));
    }
    let began = Instant::now();
    for _ in keys {
        let Some(running) = queue.get().await else { break };
        std::hint::black_box(running.key());
        running.done();
    }
    per_key(began.elapsed(), keys.len())
}

/// Returns nanoseconds per key of updating the metrics that a reconcile updates.
fn series(keys: usize) -> f64 {
    let (active, total) = (Gauge::<i64>::default(), Counter::<u64>::default());
    let time = Histogram::new((1..=BUCKETS).map(f64::from));
    let all = std::hint::black_box((&active, &total, &time));
    let began = Instant::now();
    for _ in 0..keys {
        let (active, total, time) = all;
        active.inc();
        let since = Instant::now();
        active.dec();
        time.observe(since.elapsed().as_secs_f64());
        total.inc();
    }
    per_key(began.elapsed(), keys)
}

fn per_key(took: Duration, keys: usize) -> f64 {
    took.as_secs_f64() * 1e9 / f64::from(u32::try_from(keys).unwrap_or(u32::MAX))
}

impl Runnable for Rounds {
    fn name(&self) -> &'static str {
        "rounds"
    }

    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        Box::pin(async move {
            let number = |variable| -> Result<usize, BoxError> { Ok(std::env::var(variable)?.parse()?) };
            let keys: Vec<_> = (0..number(KEYS)?)
                .map(|key| NamespacedName::namespaced("shop", format!("web-{key:06}")))
                .collect();
            for _ in 0..number(ROUNDS)? {
                let counted = self.counted(&keys).await?;
                // On a worker thread of the runtime, like the controller.
                let bare = bare(&keys).await;
                let series = series(keys.len());
                info!(counted, series, bare, "{ROUND_ENDED}");
            }
            cx.stop.cancelled().await;
            Ok(())
        })
    }
}
