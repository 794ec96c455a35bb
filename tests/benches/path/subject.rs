//! The process under measurement: a manager with one controller that reads every Pod typed and writes
//! nothing.
//!
//! It prints one figure per line, `ready` when the patches may begin, and `end` at the end.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use mainstay::cache::{Delta, DeltaHandler, Scope, Store};
use mainstay::client::connect;
use mainstay::config::{ConfigSchema, Overrides};
use mainstay::controller::Controller;
use mainstay::key::NamespacedName;
use mainstay::manager::{Manager, ManagerOptions};
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
use mainstay_tests::process::memory;
use mainstay_tests::report::percentile;
use parking_lot::Mutex;
use rustix::time::ClockId;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::watcher::{self, seconds};

/// Pause between the last initial reconcile and the measurement of memory, for background work.
const SETTLE: Duration = Duration::from_secs(10);
/// Longest wait for any step.
const PATIENCE: Duration = Duration::from_mins(2);

/// The times at which each change arrived.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Number of reconciles.
    runs: AtomicU32,
    /// By resourceVersion, from the first event of the watcher on.
    seen: Mutex<HashMap<u64, Seen>>,
}

/// The times at which one change arrived at the watcher, at a delta handler and at the reconciler.
#[derive(Clone, Copy, Default)]
struct Seen {
    watched: Option<Instant>,
    handled: Option<Instant>,
    reconciled: Option<Instant>,
}

/// Delta handler that records when a change arrives.
struct Listener(Arc<Arrivals>);

struct Reader {
    pods: Store<Pod>,
    arrivals: Arc<Arrivals>,
}

pub(crate) fn run(kubeconfig: &Path, pods: u32, patches: u32) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(kubeconfig, pods, patches))
}

async fn measure(kubeconfig: &Path, pods: u32, patches: u32) -> anyhow::Result<()> {
    let arrivals = Arc::new(Arrivals::default());
    let began = Instant::now();
    let (manager, store) = manager(kubeconfig, arrivals.clone()).await?;
    let listener = store.untyped().subscribe(Box::new(Listener(arrivals.clone())));
    let mut running = JoinSet::new();
    running.spawn({
        let manager = manager.clone();
        async move { manager.run().await }
    });
    arrivals
        .until(|arrivals| arrivals.runs.load(Ordering::Relaxed) >= pods)
        .await
        .context("first reconciles")?;
    print_figure("cold_cpu_s", seconds(ClockId::ProcessCPUTime), "s");
    print_figure("cold_wall_s", began.elapsed().as_secs_f64(), "s");
    sleep(SETTLE).await;
    print_figure("rss_mb", memory(std::process::id(), "VmRSS")?, "MB");
    print_figure("peak_mb", memory(std::process::id(), "VmHWM")?, "MB");

    let (ready, watching) = oneshot::channel();
    let stop = CancellationToken::new();
    let control = watcher::start(kubeconfig.to_owned(), arrivals.clone(), ready, stop.clone());
    watching.await.context("the watcher does not watch")?;
    let before = seconds(ClockId::ProcessCPUTime);
    print("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().lock().read_line(&mut String::new())).await??;
    arrivals.until(|arrivals| arrivals.complete(patches)).await.context("patches seen by both")?;
    let spent = seconds(ClockId::ProcessCPUTime) - before;
    stop.cancel();
    let control = control.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))??;
    print_figure("cpu_us_per_event", (spent - control) * 1e6 / f64::from(patches), "us");
    for (name, over) in [
        ("overhead", arrivals.between(|seen| Some((seen.watched?, seen.reconciled?)))),
        ("queue", arrivals.between(|seen| Some((seen.handled?, seen.reconciled?)))),
    ] {
        print_figure(&format!("{name}_us_p50"), percentile(&over, 50), "us");
        print_figure(&format!("{name}_us_p99"), percentile(&over, 99), "us");
    }
    drop(listener);
    manager.stop();
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    print("end");
    Ok(())
}

async fn manager(kubeconfig: &Path, arrivals: Arc<Arrivals>) -> anyhow::Result<(Manager, Store<Pod>)> {
    let name = "path";
    let configuration = json!({
        "apiVersion": "config.mainstay.dev/v1alpha1",
        "kind": "ManagerConfiguration",
        "leaderElection": {"enabled": false},
        "health": {"bindAddress": "127.0.0.1:0"},
        "metrics": {"bindAddress": "127.0.0.1:0"},
        "inspect": {"bindAddress": "127.0.0.1:0"},
        "controllers": {name: {"workers": 4}},
    });
    let schema = ConfigSchema::new().controllers([name]);
    let configuration = schema.parse(&configuration.to_string(), name, &Overrides::default())?;
    let options = ManagerOptions { signals: false, ..ManagerOptions::replica(name) };
    let connection = connect::infer(Some(kubeconfig), None).await?;
    let manager = Manager::new(options, configuration, connection)?;
    let pods = manager.store::<Pod>(Scope::all());
    let controller = Controller::new(name).reconciles(&pods);
    manager.register(controller.reconciler(Reader { pods: pods.clone(), arrivals }))?;
    Ok((manager, pods))
}

impl Reconciler for Reader {
    async fn reconcile(&self, request: &NamespacedName, _: &Context) -> Outcome {
        let now = Instant::now();
        if let Some(pod) = self.pods.get(request)? {
            let version = pod.metadata.resource_version.as_ref().and_then(|version| version.parse().ok());
            self.arrivals.reconciled(version, now);
        }
        Ok(Action::Done)
    }
}

impl DeltaHandler for Listener {
    fn handle(&self, delta: &Delta<'_>) {
        let now = Instant::now();
        let version = delta.new.and_then(|new| new.meta().resource_version.to_string().parse().ok());
        if let Some(version) = version.filter(|_| !delta.initial) {
            self.0.seen.lock().entry(version).or_default().handled = Some(now);
        }
    }
}

// === impl Arrivals ===

impl Arrivals {
    pub(crate) fn watched(&self, version: u64) {
        let now = Instant::now();
        self.seen.lock().entry(version).or_default().watched = Some(now);
    }

    fn reconciled(&self, version: Option<u64>, at: Instant) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let mut seen = self.seen.lock();
        // Before the watcher's first event there is nothing to compare with: these are the initial
        // reconciles.
        if let Some(version) = version.filter(|_| !seen.is_empty()) {
            seen.entry(version).or_default().reconciled = Some(at);
        }
    }

    /// Returns whether the watcher has received all patches and the reconciler the last one. Earlier patches
    /// may have no reconcile of their own, because two quick patches of one Pod may be coalesced.
    fn complete(&self, patches: u32) -> bool {
        let seen = self.seen.lock();
        let watched = seen.values().filter(|seen| seen.watched.is_some()).count();
        let newest = seen.iter().max_by_key(|(version, _)| **version);
        watched >= patches as usize && newest.is_some_and(|(_, seen)| seen.reconciled.is_some())
    }

    /// Returns the microseconds between two times of each change, sorted.
    fn between(&self, times: impl Fn(&Seen) -> Option<(Instant, Instant)>) -> Vec<f64> {
        let seen = self.seen.lock();
        let over = seen.values().filter_map(times).map(|(from, to)| {
            let late = to.saturating_duration_since(from).as_secs_f64();
            (late - from.saturating_duration_since(to).as_secs_f64()) * 1e6
        });
        let mut over: Vec<f64> = over.collect();
        over.sort_by(f64::total_cmp);
        over
    }

    async fn until(&self, so: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let wait = async {
            while !so(self) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        Ok(timeout(PATIENCE, wait).await?)
    }
}

fn print_figure(name: &str, value: f64, unit: &str) {
    print(&format!("{name} {value:.3} {unit}"));
}

fn print(line: &str) {
    // An error means that the parent process has closed the pipe.
    drop(writeln!(std::io::stdout(), "{line}"));
}
