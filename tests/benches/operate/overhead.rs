//! What the bookkeeping around a reconcile costs.
//!
//! The subject has one controller with one worker, the log at info and nothing to say. A first key keeps the worker until
//! thousands of others are ready behind it; then it runs them one after the other, and each does nothing. Beside it, in the
//! same process and in turns, a bare queue of as many keys is emptied by a loop. What the controller takes longer per key
//! is context, deadline, term and the outcome's way through the worker, and the bookkeeping: counters, histograms, span.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use mainstay::controller::Controller;
use mainstay::key::{Cause, Key as _, Request, Trigger};
use mainstay::manager::{ControllerHandle, Program, RunContext, Runnable};
use mainstay::metrics::Registry;
use mainstay::queue::{Add, QueueMetrics, QueueSettings, WorkQueue};
use mainstay::reconcile::{Action, BoxError, Context, Outcome, Reconciler};
use mainstay::watch::{Notifier, channel};
use mainstay_tests::report::figure;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::Form;
use crate::subject::Subject;

pub(crate) const SUBJECT: &str = "overhead";

const CONTROLLER: &str = "counted";
/// The key that keeps the worker.
const GATE: &str = "gate";
/// Says to the subject how many keys and rounds it has.
const KEYS: &str = "MAINSTAY_OPERATE_KEYS";
const ROUNDS: &str = "MAINSTAY_OPERATE_ROUNDS";
/// What it says after each round, with `counted` and `bare` in nanoseconds per key.
const TOLD: &str = "a round ended";
/// What it may be as a test: what no build and no machine is slow enough to miss.
const OVERHEAD_US: f64 = 1_000.0;

/// Does nothing, and says when the last key has had that done.
struct Counted(Arc<Round>);

#[derive(Default)]
struct Round {
    /// Keys that have not run.
    left: AtomicUsize,
    began: Mutex<Option<Instant>>,
    /// Opens the gate.
    open: Notify,
    /// How long the keys behind the gate took.
    took: Mutex<Option<Duration>>,
    ended: Notify,
}

/// Runs the rounds.
struct Rounds {
    notifier: Notifier<Request>,
    controller: ControllerHandle<Request>,
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

pub(crate) async fn measure(form: Form) -> anyhow::Result<()> {
    let (keys, rounds) = if form.quick { (2_000, 3) } else { (100_000, 9) };
    let environment = [(KEYS, keys.to_string()), (ROUNDS, rounds.to_string())];
    let subject = Subject::start(SUBJECT, &json!({CONTROLLER: {"workers": 1}}), &environment)?;
    subject.process.logged_times("its rounds", rounds, |line| line["msg"] == TOLD).await;
    let lines = subject.process.log().into_iter().filter(|line| line["msg"] == TOLD);
    let rounds = lines.map(|line| Some((line["counted"].as_f64()?, line["bare"].as_f64()?)));
    let mut rounds: Vec<_> = rounds.collect::<Option<_>>().context("a round without its figures")?;
    // The middle by what is asked for.
    rounds.sort_by(|(counted, bare), (others, more)| (counted - bare).total_cmp(&(others - more)));
    let (counted, bare) = rounds[rounds.len() / 2];
    let overhead = (counted - bare) / 1e3;
    figure("metrics.reconcile_us", counted / 1e3, "us");
    figure("metrics.reconcile_us.bare_queue", bare / 1e3, "us");
    figure("metrics.reconcile_overhead_us", overhead, "us");
    anyhow::ensure!(!form.test || overhead < OVERHEAD_US, "{overhead} µs");
    subject.stop().await
}

// === impl Counted ===

impl Reconciler for Counted {
    async fn reconcile(&self, request: &Request, _: &Context) -> Outcome {
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
    async fn counted(&self, keys: &[Request]) -> Result<f64, BoxError> {
        let counts = || self.controller.status().map(|status| status.counts).ok_or("the controller has gone");
        self.round.left.store(keys.len(), Ordering::Relaxed);
        self.notifier.notify(Request::cluster(GATE));
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
        Ok(per_key(took, keys))
    }
}

/// Returns nanoseconds per key of a bare queue.
async fn bare(keys: &[Request]) -> f64 {
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
    per_key(began.elapsed(), keys)
}

fn per_key(took: Duration, keys: &[Request]) -> f64 {
    took.as_secs_f64() * 1e9 / f64::from(u32::try_from(keys.len()).unwrap_or(u32::MAX))
}

impl Runnable for Rounds {
    fn name(&self) -> &'static str {
        "rounds"
    }

    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        Box::pin(async move {
            let number = |variable| -> Result<usize, BoxError> { Ok(std::env::var(variable)?.parse()?) };
            let keys: Vec<_> =
                (0..number(KEYS)?).map(|key| Request::namespaced("shop", format!("web-{key:06}"))).collect();
            for _ in 0..number(ROUNDS)? {
                let counted = self.counted(&keys).await?;
                // On a worker thread, as the controller.
                let bare = bare(&keys).await;
                info!(counted, bare, "{TOLD}");
            }
            cx.stop.cancelled().await;
            Ok(())
        })
    }
}
