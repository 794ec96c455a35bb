//! How soon a queue of many keys is shown, and what that does to its reconciles.
//!
//! The subject has one controller. Most of its keys rest, a tenth has failed and waits for its next attempt, and a
//! thousand times a second one more is added that is done at once: the time from that add to its reconcile is what a look
//! at the queue may disturb. Rounds with and without looks take turns, so that both see the same machine.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use mainstay::controller::Controller;
use mainstay::key::{Key as _, Request};
use mainstay::manager::{Program, RunContext, Runnable};
use mainstay::reconcile::{Action, BoxError, Context, Outcome, ReconcileError, Reconciler};
use mainstay::watch::{Notifier, channel};
use mainstay_tests::process::get;
use mainstay_tests::report::{figure, percentile};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::info;

use crate::Form;
use crate::subject::Subject;

pub(crate) const SUBJECT: &str = "inspect";

/// The controller.
const CROWD: &str = "crowd";
/// What the keys of a namespace do.
const RESTING: &str = "resting";
const FAILING: &str = "failing";
const MEASURED: &str = "measured";
/// Says to the subject how many keys it has; a tenth of them fails.
const KEYS: &str = "MAINSTAY_OPERATE_KEYS";

/// Between two adds whose reconcile is timed.
const PERIOD: Duration = Duration::from_millis(1);
/// Keys that take turns in being added: enough that none is added while it is on the queue.
const TURNS: usize = 1024;
/// How often the subject tells its times.
const TELL: Duration = Duration::from_millis(250);
/// What it says then: `at`, when the first of these was added, in microseconds, and `micros`, how late each was.
const TOLD: &str = "reconciled";

/// Between two looks.
const LOOKS: Duration = Duration::from_millis(500);
/// What the figures may be as a test: ten times their bounds.
const FIRST_ROWS_MS: f64 = 2_000.0;
const P99_RATIO: f64 = 20.0;

struct Crowd(Arc<Times>);

/// Adds the keys whose reconcile is timed.
struct Load {
    notifier: Notifier<Request>,
    times: Arc<Times>,
}

struct Times {
    /// When each key was last added.
    added: Mutex<Vec<Instant>>,
    /// How late the reconciles were since they were last told, in microseconds.
    late: Mutex<Vec<u64>>,
}

/// The manager under measurement.
pub(crate) fn program() -> Program {
    Program::new("operate", env!("CARGO_PKG_VERSION"), "A crowded queue").controllers([CROWD]).setup(
        |manager| {
            let keys: usize = std::env::var(KEYS)?.parse()?;
            let (notifier, source) = channel();
            for number in 0..keys {
                let namespace = if number % 10 == 0 { FAILING } else { RESTING };
                notifier.notify(Request::namespaced(namespace, format!("key-{number:05}")));
            }
            let times =
                Arc::new(Times { added: Mutex::new(vec![Instant::now(); TURNS]), late: Mutex::default() });
            manager.register(Controller::new(CROWD).source(source).reconciler(Crowd(times.clone())))?;
            manager.add(Load { notifier, times })?;
            Ok(())
        },
    )
}

pub(crate) async fn measure(form: Form) -> anyhow::Result<()> {
    let (keys, rounds, round) =
        if form.quick { (5_000, 2, Duration::from_secs(2)) } else { (50_000, 8, Duration::from_secs(5)) };
    let retry = json!({"baseDelay": "1h", "maxDelay": "2h"});
    let controllers = json!({CROWD: {"workers": 4, "queue": {"retry": retry}}});
    let subject = Subject::start(SUBJECT, &controllers, &[(KEYS, keys.to_string())])?;
    let failing = keys / 10;
    let address = subject.process.address("inspect").await;
    let path = format!("/debug/controllers/{CROWD}/queue?state=backoff");
    let look = async || {
        let began = Instant::now();
        let (status, page) = get(address, &path).await;
        anyhow::ensure!(status == 200, "{status}: {page}");
        let page: Value = serde_json::from_str(&page)?;
        Ok((page["matched"].as_u64().context("no count")?, began.elapsed().as_secs_f64() * 1e3))
    };
    while look().await?.0 < failing {
        sleep(Duration::from_millis(100)).await;
    }
    let (mut requests, mut late) = (Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..rounds {
        for (disturbed, late) in late.iter_mut().enumerate() {
            let began = Timestamp::now().as_microsecond();
            let end = Instant::now() + round;
            while disturbed == 1 && Instant::now() < end {
                requests.push(look().await?.1);
                sleep(LOOKS).await;
            }
            tokio::time::sleep_until(end).await;
            let ended = Timestamp::now().as_microsecond();
            sleep(2 * TELL).await;
            late.extend(told(&subject.process.log(), began..ended));
        }
    }
    requests.sort_by(f64::total_cmp);
    figure("inspect.request_ms_p50", percentile(&requests, 50), "ms");
    figure("inspect.request_ms_max", percentile(&requests, 100), "ms");
    let [undisturbed, disturbed] = late.map(|mut late| {
        late.sort_by(f64::total_cmp);
        percentile(&late, 99)
    });
    let ratio = disturbed / undisturbed;
    figure("inspect.reconcile_us_p99", disturbed, "us");
    figure("inspect.reconcile_us_p99.undisturbed", undisturbed, "us");
    figure("inspect.reconcile_p99_ratio", ratio, "");
    let first = percentile(&requests, 100);
    anyhow::ensure!(!form.test || first < FIRST_ROWS_MS, "the first rows took {first} ms");
    anyhow::ensure!(!form.test || ratio < P99_RATIO, "reconciles were {ratio} times as late");
    subject.stop().await
}

/// Returns the times that were told of adds in this span, in microseconds.
fn told(log: &[Value], span: std::ops::Range<i64>) -> Vec<f64> {
    let told = log.iter().filter(|line| line["msg"] == TOLD);
    let within = told.filter(|line| {
        let at = line["at"].as_i64().unwrap_or_default();
        span.contains(&at) && span.contains(&(at + i64::try_from(TELL.as_micros()).unwrap_or(i64::MAX)))
    });
    let micros = within.filter_map(|line| line["micros"].as_str());
    micros.flat_map(|micros| micros.split(' ').filter_map(|micros| micros.parse().ok())).collect()
}

// === impl Crowd ===

impl Reconciler for Crowd {
    async fn reconcile(&self, request: &Request, _: &Context) -> Outcome {
        match request.namespace() {
            Some(FAILING) => Err(ReconcileError::from("probe refused: connection refused")),
            Some(RESTING) => Ok(Action::RequeueAfter(Duration::from_hours(1))),
            _ => {
                let turn: usize = request.name().parse()?;
                let added = self.0.added.lock().get(turn).copied();
                let late = added.map_or(0, |added| added.elapsed().as_micros());
                self.0.late.lock().push(u64::try_from(late).unwrap_or(u64::MAX));
                Ok(Action::Done)
            }
        }
    }
}

// === impl Load ===

impl Runnable for Load {
    fn name(&self) -> &'static str {
        "load"
    }

    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        Box::pin(async move {
            let keys: Vec<_> =
                (0..TURNS).map(|turn| Request::namespaced(MEASURED, turn.to_string())).collect();
            let mut period = interval(PERIOD);
            // What is late is a reconcile, not the add: a burst of adds would be late by itself.
            period.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let (mut told, mut at) = (Instant::now(), Timestamp::now());
            for (turn, key) in keys.iter().enumerate().cycle() {
                if cx.stop.run_until_cancelled(period.tick()).await.is_none() {
                    break;
                }
                if told.elapsed() >= TELL {
                    let late = std::mem::take(&mut *self.times.late.lock());
                    let micros: Vec<_> = late.iter().map(ToString::to_string).collect();
                    info!(at = at.as_microsecond(), micros = micros.join(" "), "{TOLD}");
                    (told, at) = (Instant::now(), Timestamp::now());
                }
                if let Some(added) = self.times.added.lock().get_mut(turn) {
                    *added = Instant::now();
                }
                self.notifier.notify(key.clone());
            }
            Ok(())
        })
    }
}
