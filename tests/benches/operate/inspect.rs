//! How soon `mainstay inspect` prints a queue of many keys, and how much that delays the reconciles of the
//! queue.
//!
//! The subject has one controller. Most of its keys are requeued after an hour, a tenth has failed and backs
//! off, and a thousand times per second one more key is added whose reconcile returns at once. The figure is
//! the time from that add to the reconcile. Rounds with and without inspection alternate, so that both run
//! under the same conditions. A round with inspection runs `inspect -w` from its begin to its end, and one
//! more `inspect` every half second.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use mainstay::controller::Controller;
use mainstay::key::{Key as _, NamespacedName};
use mainstay::manager::{RunContext, Runnable};
use mainstay::program::Program;
use mainstay::reconcile::{Action, BoxError, Context, Outcome, ReconcileError, Reconciler};
use mainstay::watch::{Notifier, channel};
use mainstay_tests::process::get;
use mainstay_tests::report::{figure, percentile};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tracing::info;

use crate::Form;
use crate::subject::Subject;

pub(crate) const SUBJECT: &str = "inspect";

/// The name of the controller.
const CROWD: &str = "crowd";
/// Namespaces of the keys; the reconciler requeues, fails or returns by namespace.
const RESTING: &str = "resting";
const FAILING: &str = "failing";
const MEASURED: &str = "measured";
/// Environment variable with the number of keys of the subject; a tenth of them fails.
const KEYS: &str = "MAINSTAY_OPERATE_KEYS";

/// Period of the timed adds.
const PERIOD: Duration = Duration::from_millis(1);
/// Resolution of the timer: an add that is later than this counts from its planned time.
const COARSE: Duration = Duration::from_millis(2);
/// Number of measured keys, added in turn: enough that none is added again while it is on the queue.
const TURNS: usize = 1024;
/// How often the subject logs its latencies.
const LOG_PERIOD: Duration = Duration::from_millis(250);
/// Message of that log line. Its fields: `at`, microseconds at which its first key was added, and `micros`,
/// the latencies.
const RECONCILED: &str = "reconciled";

/// Enough to print all keys in backoff.
const LIMIT: &str = "100000";
/// Pause between two runs of `inspect`.
const INSPECT_PAUSE: Duration = Duration::from_millis(500);
/// Bounds of the figures as a test, on a machine that is busy with other work: a hundred times the bound of
/// the first rows, and ten times the bound of the ratio. A p99 below the floor always passes, because other
/// processes on the processor can cause it.
const FIRST_ROWS_MS: f64 = 20_000.0;
const P99_RATIO: f64 = 20.0;
const P99_FLOOR_US: f64 = 100_000.0;

struct Crowd(Arc<Times>);

/// Runnable that makes the timed adds.
struct Load {
    notifier: Notifier<NamespacedName>,
    times: Arc<Times>,
}

struct Times {
    /// Time at which each key was last added.
    added: Mutex<Vec<Instant>>,
    /// Latencies of the reconciles since the last log line, in microseconds.
    late: Mutex<Vec<u64>>,
}

/// A running `mainstay inspect`.
struct Inspection {
    process: Child,
    began: Instant,
}

/// The manager under measurement.
pub(crate) fn program() -> Program {
    Program::new("operate", env!("CARGO_PKG_VERSION"), "A crowded queue").controllers([CROWD]).setup(
        |manager| {
            let keys: usize = std::env::var(KEYS)?.parse()?;
            let (notifier, source) = channel();
            for number in 0..keys {
                let namespace = if number % 10 == 0 { FAILING } else { RESTING };
                notifier.notify(NamespacedName::namespaced(namespace, format!("key-{number:05}")));
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
    let address = subject.process.address("inspect").await.to_string();
    let inspect = || Inspection::begin(&subject, &address, "backoff");
    while inspect()?.end().await?.0 < failing {
        sleep(Duration::from_millis(100)).await;
    }
    let (mut first_rows, mut requests, mut late) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..rounds {
        for (disturbed, late) in late.iter_mut().enumerate() {
            let began = Timestamp::now().as_microsecond();
            let end = Instant::now() + round;
            if disturbed == 1 {
                let _follower = Inspection::follow(&subject, &address)?;
                while Instant::now() < end {
                    let (rows, first) = inspect()?.end().await?;
                    anyhow::ensure!(rows == failing, "{rows} rows, but {failing} keys are in backoff");
                    first_rows.push(first);
                    requests.push(request(&subject).await?);
                    sleep(INSPECT_PAUSE).await;
                }
            }
            sleep_until(end).await;
            let ended = Timestamp::now().as_microsecond();
            sleep(2 * LOG_PERIOD).await;
            late.extend(latencies(&subject.process.log(), began..ended));
        }
    }
    for (name, times) in [("inspect.first_rows_ms", &mut first_rows), ("inspect.request_ms", &mut requests)] {
        times.sort_by(f64::total_cmp);
        figure(name, percentile(times, 50), "ms");
        figure(&format!("{name}_max"), percentile(times, 100), "ms");
    }
    let [undisturbed, disturbed] = late.map(|mut late| {
        late.sort_by(f64::total_cmp);
        percentile(&late, 99)
    });
    let ratio = disturbed / undisturbed;
    figure("inspect.reconcile_us_p99", disturbed, "us");
    figure("inspect.reconcile_us_p99.undisturbed", undisturbed, "us");
    figure("inspect.reconcile_p99_ratio", ratio, "");
    let first = percentile(&first_rows, 50);
    anyhow::ensure!(!form.test || first < FIRST_ROWS_MS, "the first rows took {first} ms");
    let quick = ratio < P99_RATIO || disturbed < P99_FLOOR_US;
    anyhow::ensure!(!form.test || quick, "the p99 of reconciles is {ratio} times as long: {disturbed} us");
    subject.stop().await
}

/// Requests the same keys over HTTP without starting a process, and returns the milliseconds until the whole
/// response.
async fn request(subject: &Subject) -> anyhow::Result<f64> {
    let path = format!("/debug/controllers/{CROWD}/queue?state=backoff&limit={LIMIT}");
    let address = subject.process.address("inspect").await;
    let began = Instant::now();
    let (status, page) = get(address, &path).await;
    anyhow::ensure!(status == 200, "{status}: {page}");
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// Returns the logged latencies of adds in this span of time, in microseconds.
fn latencies(log: &[Value], span: std::ops::Range<i64>) -> Vec<f64> {
    let lines = log.iter().filter(|line| line["msg"] == RECONCILED);
    let within = lines.filter(|line| {
        let at = line["at"].as_i64().unwrap_or_default();
        span.contains(&at) && span.contains(&(at + i64::try_from(LOG_PERIOD.as_micros()).unwrap_or(i64::MAX)))
    });
    let micros = within.filter_map(|line| line["micros"].as_str());
    micros.flat_map(|micros| micros.split(' ').filter_map(|micros| micros.parse().ok())).collect()
}

// === impl Inspection ===

impl Inspection {
    /// Starts `mainstay inspect queue` for the keys in this state.
    fn begin(subject: &Subject, address: &str, state: &str) -> anyhow::Result<Self> {
        let mut command = subject.command()?;
        command.args(["inspect", "queue", CROWD, "--state", state, "--limit", LIMIT, "--address", address]);
        let began = Instant::now();
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        Ok(Self { process, began })
    }

    /// Starts `mainstay inspect -w queue`, which follows all delayed keys.
    fn follow(subject: &Subject, address: &str) -> anyhow::Result<Self> {
        let mut command = subject.command()?;
        command.args(["inspect", "-w", "queue", CROWD, "--state", "delayed", "--address", address]);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { process: process.kill_on_drop(true).spawn()?, began: Instant::now() })
    }

    /// Returns the number of rows that have all columns of a failed key, and the milliseconds until the first
    /// row.
    async fn end(mut self) -> anyhow::Result<(usize, f64)> {
        let out = self.process.stdout.take().context("no standard output")?;
        let mut lines = BufReader::new(out).lines();
        let titles = lines.next_line().await?;
        let first = lines.next_line().await?;
        let after = self.began.elapsed();
        // Columns: key, state, attempts, next run, time in this state, duration of the last run, cause,
        // error.
        let whole = |line: &str| {
            let cells: Vec<_> = line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
            cells.len() == 8 && cells[1] == "backoff" && !cells.contains(&"-")
        };
        let mut rows = usize::from(first.is_some_and(|line| whole(&line)));
        while let Some(line) = lines.next_line().await? {
            rows += usize::from(whole(&line));
        }
        let status = self.process.wait().await?;
        anyhow::ensure!(status.success(), "inspect ended with {status} after {titles:?}");
        Ok((rows, after.as_secs_f64() * 1e3))
    }
}

// === impl Crowd ===

impl Reconciler for Crowd {
    async fn reconcile(&self, request: &NamespacedName, _: &Context) -> Outcome {
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
                (0..TURNS).map(|turn| NamespacedName::namespaced(MEASURED, turn.to_string())).collect();
            let mut period = interval(PERIOD);
            // An add that is late counts from its planned time. Otherwise a stall of the queue or of the
            // runtime would hide the reconciles that it delays.
            period.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let (mut logged, mut at) = (Instant::now(), Timestamp::now());
            for (turn, key) in keys.iter().enumerate().cycle() {
                let Some(planned) = cx.stop.run_until_cancelled(period.tick()).await else { break };
                if logged.elapsed() >= LOG_PERIOD {
                    let late = std::mem::take(&mut *self.times.late.lock());
                    let micros: Vec<_> = late.iter().map(ToString::to_string).collect();
                    info!(at = at.as_microsecond(), micros = micros.join(" "), "{RECONCILED}");
                    (logged, at) = (Instant::now(), Timestamp::now());
                }
                if let Some(added) = self.times.added.lock().get_mut(turn) {
                    *added = if planned.elapsed() > COARSE { planned } else { Instant::now() };
                }
                self.notifier.notify(key.clone());
            }
            Ok(())
        })
    }
}
