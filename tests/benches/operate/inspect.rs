//! How soon a queue of many keys is shown, and what that does to its reconciles.
//!
//! The subject has one controller. Most of its keys rest, a tenth has failed and waits for its next attempt, and a
//! thousand times a second one more is added that is done at once: the time from that add to its reconcile is what a look
//! at the queue may disturb. Rounds with and without looks take turns, so that both see the same machine. A round with
//! looks has somebody who follows the queue from its beginning to its end, and a further look every half second.

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
/// How late the timer itself may be.
const COARSE: Duration = Duration::from_millis(2);
/// Keys that take turns in being added: enough that none is added while it is on the queue.
const TURNS: usize = 1024;
/// How often the subject tells its times.
const TELL: Duration = Duration::from_millis(250);
/// What it says then: `at`, when the first of these was added, in microseconds, and `micros`, how late each was.
const TOLD: &str = "reconciled";

/// All keys in backoff are to be shown.
const LIMIT: &str = "100000";
/// Between two looks.
const LOOKS: Duration = Duration::from_millis(500);
/// What the figures may be as a test, on a machine that is busy with other things: a hundred times their bound, and ten
/// times unless they are so small that a neighbour's turns of the processor are all of it.
const FIRST_ROWS_MS: f64 = 20_000.0;
const P99_RATIO: f64 = 20.0;
const P99_FLOOR_US: f64 = 100_000.0;

struct Crowd(Arc<Times>);

/// Adds the keys whose reconcile is timed.
struct Load {
    notifier: Notifier<NamespacedName>,
    times: Arc<Times>,
}

struct Times {
    /// When each key was last added.
    added: Mutex<Vec<Instant>>,
    /// How late the reconciles were since they were last told, in microseconds.
    late: Mutex<Vec<u64>>,
}

/// A running `mainstay inspect`.
struct Look {
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
    let look = || Look::begin(&subject, &address, "backoff");
    while look()?.end().await?.0 < failing {
        sleep(Duration::from_millis(100)).await;
    }
    let (mut first_rows, mut requests, mut late) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..rounds {
        for (disturbed, late) in late.iter_mut().enumerate() {
            let began = Timestamp::now().as_microsecond();
            let end = Instant::now() + round;
            if disturbed == 1 {
                let _follower = Look::follow(&subject, &address)?;
                while Instant::now() < end {
                    let (rows, first) = look()?.end().await?;
                    anyhow::ensure!(rows == failing, "{rows} rows, though {failing} keys are in backoff");
                    first_rows.push(first);
                    requests.push(request(&subject).await?);
                    sleep(LOOKS).await;
                }
            }
            sleep_until(end).await;
            let ended = Timestamp::now().as_microsecond();
            sleep(2 * TELL).await;
            late.extend(told(&subject.process.log(), began..ended));
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
    anyhow::ensure!(!form.test || quick, "reconciles were {ratio} times as late: {disturbed} us");
    subject.stop().await
}

/// Asks for the same keys without a process, and returns how long the whole answer took in milliseconds.
async fn request(subject: &Subject) -> anyhow::Result<f64> {
    let path = format!("/debug/controllers/{CROWD}/queue?state=backoff&limit={LIMIT}");
    let address = subject.process.address("inspect").await;
    let began = Instant::now();
    let (status, page) = get(address, &path).await;
    anyhow::ensure!(status == 200, "{status}: {page}");
    Ok(began.elapsed().as_secs_f64() * 1e3)
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

// === impl Look ===

impl Look {
    /// Starts `mainstay inspect queue` for the keys in this state.
    fn begin(subject: &Subject, address: &str, state: &str) -> anyhow::Result<Self> {
        let mut command = subject.command()?;
        command.args(["inspect", "queue", CROWD, "--state", state, "--limit", LIMIT, "--address", address]);
        let began = Instant::now();
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        Ok(Self { process, began })
    }

    /// Starts somebody who follows all keys that wait.
    fn follow(subject: &Subject, address: &str) -> anyhow::Result<Self> {
        let mut command = subject.command()?;
        command.args(["inspect", "-w", "queue", CROWD, "--state", "delayed", "--address", address]);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { process: process.kill_on_drop(true).spawn()?, began: Instant::now() })
    }

    /// Returns how many keys it showed with all there is to say of one that failed, and after how many milliseconds the
    /// first.
    async fn end(mut self) -> anyhow::Result<(usize, f64)> {
        let out = self.process.stdout.take().context("standard output was asked for")?;
        let mut lines = BufReader::new(out).lines();
        let titles = lines.next_line().await?;
        let first = lines.next_line().await?;
        let after = self.began.elapsed();
        // Key, state, attempts, next run, since when, how long the last one took, cause, error.
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
            // An add that could not be made in time counts from when it was planned: what holds up the queue or the runtime
            // would else hide the very reconciles it delays.
            period.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let (mut told, mut at) = (Instant::now(), Timestamp::now());
            for (turn, key) in keys.iter().enumerate().cycle() {
                let Some(planned) = cx.stop.run_until_cancelled(period.tick()).await else { break };
                if told.elapsed() >= TELL {
                    let late = std::mem::take(&mut *self.times.late.lock());
                    let micros: Vec<_> = late.iter().map(ToString::to_string).collect();
                    info!(at = at.as_microsecond(), micros = micros.join(" "), "{TOLD}");
                    (told, at) = (Instant::now(), Timestamp::now());
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
