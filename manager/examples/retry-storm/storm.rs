//! Many objects that always fail beside a few healthy ones: how late is the reconcile after a change of a
//! healthy object?
//!
//! One controller, one queue. The failing objects are created evenly over some time and take a worker for a
//! moment per attempt; the healthy ones are patched in turn. A bare watch of the same objects is the control:
//! delay beyond the watch comes from the runtime, and the delay of the watch itself from the API server and
//! the machine.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use mainstay::cache::Store;
use mainstay::key::{Key as _, NamespacedName};
use mainstay::queue::{DEFAULT_MAX_WAIT, DEFAULT_RETRY_SHARE, RetryPolicy};
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::ledger::{Ledger, Side};
use super::load;
use super::site::{Site, create_namespace};
use super::watcher;

/// Time until both sides must have seen the last patch, and the last object must have run; after it they
/// count as lost.
const PATIENCE: Duration = Duration::from_mins(1);

/// The parameters of a storm.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Objects that always fail.
    pub(crate) failing: usize,
    /// Objects that never fail.
    pub(crate) healthy: usize,
    /// Patches over all healthy objects, in turn.
    pub(crate) patches_per_second: u32,
    /// Time over which the failing objects are created; at most `window`.
    pub(crate) creations: Duration,
    /// Time over which the healthy objects are patched.
    pub(crate) window: Duration,
    /// Workers of the controller.
    pub(crate) workers: usize,
    /// `retryShare` of its queue.
    pub(crate) retry_share: u8,
    /// `maxWait` of its queue.
    pub(crate) max_wait: Duration,
    /// How long a failing reconcile takes.
    pub(crate) failing_run: Duration,
    /// How long a healthy reconcile takes.
    pub(crate) healthy_run: Duration,
}

/// The figures of a storm, in milliseconds except for `failing_runs`.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// From the watcher's decoding to the start of the reconcile that sees the patch. Negative where the
    /// reconcile was first.
    pub(crate) over_watcher_p50: f64,
    /// The same, for all but one in a hundred.
    pub(crate) over_watcher_p99: f64,
    /// From sending a patch to the start of the reconcile that sees it.
    pub(crate) healthy_p50: f64,
    /// The same, for all but one in a hundred.
    pub(crate) healthy_p99: f64,
    /// From sending a patch to the watcher's decoding.
    pub(crate) watcher_p50: f64,
    /// The same, for all but one in a hundred.
    pub(crate) watcher_p99: f64,
    /// Runs of failing objects within the window.
    pub(crate) failing_runs: f64,
    /// The longest time for which a failing object waited beyond its delay.
    pub(crate) late_max: f64,
}

/// The reconciler: it fails for the failing objects.
struct Stormed {
    maps: Store<ConfigMap>,
    ledger: Arc<Ledger>,
    failing_run: Duration,
    healthy_run: Duration,
}

/// Runs the storm in its own namespace and returns its figures.
pub(crate) async fn run(
    connection: &kube::Config,
    namespace: &str,
    plan: &Plan,
    say: impl Fn(&str),
) -> anyhow::Result<Figures> {
    let client = Client::try_from(connection.clone())?;
    create_namespace(&client, namespace).await?;
    load::prepare(&Api::namespaced(client, namespace), plan).await?;

    let ledger = Arc::new(Ledger::new(plan.patches(), plan.healthy, plan.failing, RetryPolicy::default()));
    let max_wait = format!("{}ms", plan.max_wait.as_millis());
    let queue = json!({"retryShare": plan.retry_share, "maxWait": max_wait});
    let settings = json!({"workers": plan.workers, "queue": queue});
    let of_reconciler = Arc::clone(&ledger);
    let mut site = Site::start(connection, namespace, "retry-storm", &settings, |maps| Stormed {
        maps,
        ledger: of_reconciler,
        failing_run: plan.failing_run,
        healthy_run: plan.healthy_run,
    })?;
    if let Some(url) = site.queue_url() {
        say(&format!("its queue, live: curl '{url}?limit=5'"));
    }
    let figures = site.meanwhile(measure(connection, namespace, plan, &ledger)).await?;
    site.stop().await?;
    Ok(figures)
}

async fn measure(
    connection: &kube::Config,
    namespace: &str,
    plan: &Plan,
    ledger: &Arc<Ledger>,
) -> anyhow::Result<Figures> {
    ledger.warm().await;
    let (ready, watching) = oneshot::channel();
    // Stops on cancellation too: the watcher's thread ends only then.
    let stop = CancellationToken::new();
    let stop_watcher = stop.clone().drop_guard();
    let book = Arc::clone(ledger);
    let watcher =
        aside(connection, namespace, async move |maps| watcher::watch(maps, &book, ready, stop).await);
    let (book, to_do) = (Arc::clone(ledger), plan.clone());
    let storm = async {
        watching.await.context("the watcher ended before it watched")?;
        aside(connection, namespace, async move |maps| load::storm(maps, &to_do, book).await).await?;
        let failing_runs = ledger.failing_runs();
        let complete = timeout(PATIENCE, ledger.complete()).await.is_ok();
        drop(stop_watcher);
        anyhow::Ok((failing_runs, complete))
    };
    let (control, outcome) = tokio::join!(watcher, storm);
    control?;
    let (failing_runs, complete) = outcome?;
    let seen = ledger.seen();
    anyhow::ensure!(
        complete,
        "within {PATIENCE:?}, {} of {} patches were not seen by both the watcher and the controller, and {} \
         failing objects were never reconciled",
        plan.patches() - seen.len(),
        plan.patches(),
        ledger.never_ran()
    );
    let spread = |of: fn(&super::ledger::Seen) -> f64| Spread::of(seen.iter().map(of).collect());
    let over = spread(|patch| patch.controller - patch.watcher);
    let (healthy, watcher) = (spread(|patch| patch.controller), spread(|patch| patch.watcher));
    Ok(Figures {
        over_watcher_p50: over.percentile(50),
        over_watcher_p99: over.percentile(99),
        healthy_p50: healthy.percentile(50),
        healthy_p99: healthy.percentile(99),
        watcher_p50: watcher.percentile(50),
        watcher_p99: watcher.percentile(99),
        failing_runs: f64::from(u32::try_from(failing_runs)?),
        late_max: ledger.latest().as_secs_f64() * 1000.0,
    })
}

/// Runs `work` on its own thread, runtime and connection: the load and the watcher must not queue up behind
/// the workers under measurement, nor the workers behind them.
async fn aside<T, F>(
    connection: &kube::Config,
    namespace: &str,
    work: impl FnOnce(Api<ConfigMap>) -> F + Send + 'static,
) -> anyhow::Result<T>
where
    T: Send + 'static,
    F: Future<Output = anyhow::Result<T>>,
{
    let (connection, namespace) = (connection.clone(), namespace.to_owned());
    spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = Client::try_from(connection)?;
            work(Api::namespaced(client, &namespace)).await
        })
    })
    .await?
}

// === impl Plan ===

impl Plan {
    /// Returns the storm of the documented figures.
    pub(crate) fn full() -> Self {
        Self {
            failing: 5000,
            healthy: 100,
            patches_per_second: 100,
            creations: Duration::from_secs(20),
            window: Duration::from_secs(20),
            workers: 4,
            retry_share: DEFAULT_RETRY_SHARE,
            max_wait: DEFAULT_MAX_WAIT,
            failing_run: Duration::from_millis(1),
            healthy_run: Duration::ZERO,
        }
    }

    /// Returns the number of all patches.
    pub(crate) fn patches(&self) -> usize {
        let whole_seconds = usize::try_from(self.window.as_secs()).unwrap_or(usize::MAX);
        whole_seconds.saturating_mul(self.patches_per_second as usize)
    }

    /// Returns the time between two creations.
    pub(crate) fn between_creations(&self) -> Duration {
        self.creations / u32::try_from(self.failing).unwrap_or(u32::MAX)
    }
}

// === impl Stormed ===

impl Reconciler for Stormed {
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        let now = Instant::now();
        if let Some(number) = load::failing(request.name()) {
            self.ledger.begins(number, now);
            sleep(self.failing_run).await;
            self.ledger.failed(number, cx.attempt());
            return Err("always fails".into());
        }
        if let Some(map) = self.maps.get(request)? {
            match load::patch_of(&map) {
                Some(patch) => self.ledger.saw(Side::Controller, patch, now),
                None => self.ledger.greet(),
            }
        }
        if !self.healthy_run.is_zero() {
            sleep(self.healthy_run).await;
        }
        Ok(Action::Done)
    }
}

// === impl Figures ===

impl Figures {
    /// Returns each figure with its name and unit.
    pub(crate) fn all(&self) -> [(&'static str, f64, &'static str); 8] {
        [
            ("over_watcher_ms_p50", self.over_watcher_p50, "ms"),
            ("over_watcher_ms_p99", self.over_watcher_p99, "ms"),
            ("healthy_ms_p50", self.healthy_p50, "ms"),
            ("healthy_ms_p99", self.healthy_p99, "ms"),
            ("watcher_ms_p50", self.watcher_p50, "ms"),
            ("watcher_ms_p99", self.watcher_p99, "ms"),
            ("failing_runs", self.failing_runs, "runs"),
            ("late_ms_max", self.late_max, "ms"),
        ]
    }

    /// Returns the median of each figure over several storms; NaN for no storms.
    pub(crate) fn median(storms: &[Self]) -> Self {
        let median = |of: fn(&Self) -> f64| Spread::of(storms.iter().map(of).collect()).percentile(50);
        Self {
            over_watcher_p50: median(|figures| figures.over_watcher_p50),
            over_watcher_p99: median(|figures| figures.over_watcher_p99),
            healthy_p50: median(|figures| figures.healthy_p50),
            healthy_p99: median(|figures| figures.healthy_p99),
            watcher_p50: median(|figures| figures.watcher_p50),
            watcher_p99: median(|figures| figures.watcher_p99),
            failing_runs: median(|figures| figures.failing_runs),
            late_max: median(|figures| figures.late_max),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} ms behind the watcher (p50), {:.2} ms (p99); from the patch {:.1} ms (p50), {:.1} ms \
             (p99), the watcher {:.1} ms (p50), {:.1} ms (p99); {} failing runs, at most {:.0} ms late",
            self.over_watcher_p50,
            self.over_watcher_p99,
            self.healthy_p50,
            self.healthy_p99,
            self.watcher_p50,
            self.watcher_p99,
            self.failing_runs,
            self.late_max
        )
    }
}

/// Values in order.
struct Spread(Vec<f64>);

// === impl Spread ===

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// Returns the smallest value that at least this percentage of the values does not exceed.
    fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or(f64::NAN)
    }
}
