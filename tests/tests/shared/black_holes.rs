//! A thousand WaitDeployments that wait for black holes do not slow down the others.
//!
//! Two managers run side by side, each with its own Lease, namespace and a few open WaitDeployments; in one
//! namespace a thousand more wait for ten black holes. A sample is the time from a label change on an open
//! WaitDeployment until a watch sees the label on the Deployment. Short windows of samples of both sides
//! alternate, and each is compared with its neighbour: other work of the machine slows both sides, while only
//! the queue, workers and probes of one manager serve the black holes. The comparison misses processor time
//! that waiting objects take from the whole machine, so that is measured separately. Reconciles are counted
//! too: their number does not depend on the machine.

#![expect(clippy::cast_precision_loss, reason = "counts of a test are far below 2^52")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt as _};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::process::{memory, sample};
use mainstay_tests::report::{figure, long_form, percentile};
use mainstay_tests::sockets::{BlackHole, black_hole};
use mainstay_tests::{ManagerProcess, TestCluster, wait};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

const HOLES: usize = 10;
const WAITING: usize = 1000;
/// Open WaitDeployments on each side, each with one change in flight at a time.
const OPEN: usize = 4;
/// Changes of each open WaitDeployment in one window, which takes about a second: a burst of other work then
/// hits both sides.
const CHANGES: usize = 25;
/// Windows of each side, so two thousand samples in all; with `MAINSTAY_LONG=1`, ten times as many.
const WINDOWS: usize = 10;
/// Allowed growth of p90 in milliseconds, if that is more than a doubling.
const ALLOWED: f64 = 20.0;
/// Most reconciles per change: for its label, for the Deployment that gets the label, and for the status
/// updates of the gate and the mirror. Concurrent causes share one reconcile.
const RECONCILES: usize = 4;
/// The shortest period allowed, and a timeout that nearly fills it: all ten probes are in flight most of the
/// time.
const PERIOD: Duration = Duration::from_secs(1);
const TIMEOUT: &str = "900ms";
/// Concurrent requests while the thousand objects are created.
const CREATING: usize = 16;
/// The label that samples change.
const LABEL: &str = "sample";
/// Ticks per second in `/proc/PID/stat`, on every architecture of Linux that Rust's std runs on.
const TICKS: f64 = 100.0;
/// Growth of the manager's memory that is noise of its allocator.
const MEMORY_NOISE_MB: f64 = 17.0;

/// One of the two managers, with its open WaitDeployments.
struct Side {
    cluster: TestCluster,
    manager: ManagerProcess,
    objects: Api<WaitDeployment>,
    /// Last seen label value by name of the Deployment.
    labels: Arc<BTreeMap<String, watch::Sender<String>>>,
    _watching: JoinSet<()>,
    /// Number of changes so far, so that no two are equal.
    round: usize,
}

/// Times of changes in milliseconds.
#[derive(Default)]
struct Samples {
    undisturbed: Vec<f64>,
    disturbed: Vec<f64>,
    /// For each pair of windows, p90 beside black holes as a fraction of the allowed p90.
    parts: Vec<f64>,
}

/// Resource usage of a process, from `/proc`.
struct Usage {
    cpu_seconds: f64,
    resident_mb: f64,
}

// === impl Side ===

impl Side {
    async fn set_up() -> Option<Self> {
        let cluster = TestCluster::shared().await?;
        let identity = cluster.install_base().await;
        let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
        let manager = ManagerProcess::start(binary, &cluster, &identity, "manager", &json!({}));
        let objects = cluster.api::<WaitDeployment>();
        let names: Vec<_> = (0..OPEN).map(|at| format!("open-{at}")).collect();
        for name in &names {
            objects.create(&PostParams::default(), &object(name, None)).await.expect("created");
        }
        let deployments = cluster.api::<Deployment>();
        for name in &names {
            wait::until(&deployments, name, "its Deployment", |_| true).await;
        }
        let labels = names.into_iter().map(|name| (name, watch::Sender::new(String::new()))).collect();
        let labels: Arc<BTreeMap<_, _>> = Arc::new(labels);
        let (seen, mut watching) = (Arc::clone(&labels), JoinSet::new());
        watching.spawn(async move {
            follow(&deployments, |deployment| {
                if let Some(seen) = seen.get(&deployment.name_any())
                    && let Some(label) = deployment.labels().get(LABEL)
                {
                    seen.send_replace(label.clone());
                }
                false
            })
            .await;
        });
        Some(Self { cluster, manager, objects, labels, _watching: watching, round: 0 })
    }

    /// Returns the times in milliseconds that the changes of one window took to reach their Deployments,
    /// sorted.
    async fn window(&mut self) -> Vec<f64> {
        let first = self.round;
        self.round += CHANGES;
        let one = async |name: &String, seen: &watch::Sender<String>| {
            let mut took = Vec::with_capacity(CHANGES);
            for change in first..first + CHANGES {
                let value = change.to_string();
                let patch = Patch::Merge(json!({"metadata": {"labels": {LABEL: value}}}));
                let mut seen = seen.subscribe();
                let began = Instant::now();
                let arrived = async {
                    self.objects.patch(name, &PatchParams::default(), &patch).await.expect("changed");
                    seen.wait_for(|seen| *seen == value).await.expect("the watch lives as long as its side");
                };
                tokio::time::timeout(wait::PATIENCE, arrived)
                    .await
                    .expect("the change reaches its Deployment");
                took.push(began.elapsed().as_secs_f64() * 1000.0);
            }
            took
        };
        let all = self.labels.iter().map(|(name, seen)| one(name, seen));
        sorted(futures_util::future::join_all(all).await.concat())
    }

    /// Creates the waiting objects, and returns once the status of each names its black hole.
    async fn wait_for(&self, holes: &[BlackHole]) {
        let names = (0..WAITING).map(|at| (format!("waiting-{at}"), holes[at % HOLES].address().to_string()));
        let mut missing: BTreeMap<String, String> = names.collect();
        let objects: Vec<_> = missing.iter().map(|(name, address)| object(name, Some(address))).collect();
        let parameters = PostParams::default();
        let created = futures_util::stream::iter(&objects)
            .map(|object| self.objects.create(&parameters, object))
            .buffer_unordered(CREATING)
            .try_fold((), async |(), _| Ok(()));
        created.await.expect("created");
        let (left, mut fewer) = watch::channel(missing.len());
        let all_named = follow(&self.objects, |object| {
            let name = object.name_any();
            let waiting_for = object.status.as_ref().and_then(|status| status.waiting_for.as_deref());
            if missing.get(&name).is_some_and(|address| waiting_for == Some(&format!("{address} (NotReady)")))
            {
                missing.remove(&name);
                left.send_replace(missing.len());
            }
            missing.is_empty()
        });
        // The total time depends on the machine; only progress is required.
        let stuck = async {
            while matches!(tokio::time::timeout(wait::PATIENCE, fewer.changed()).await, Ok(Ok(()))) {}
        };
        // Biased: an update at the last moment is in time.
        tokio::select! {
            biased;
            () = all_named => {}
            () = stuck => panic!("{} of {WAITING} do not name their black hole", *left.borrow()),
        }
    }

    async fn metric(&self, series: &str) -> f64 {
        sample(&self.manager.metrics_text().await, series).unwrap_or_default()
    }

    /// Returns the number of probes that ended without an answer.
    async fn probes(&self) -> f64 {
        self.metric(r#"mainstay_waitdeployment_probe_total{type="tcp",result="not_ready"}"#).await
    }

    /// Waits until so many probes have ended without an answer; the probes may take any time while they go
    /// on.
    async fn until_probed(&self, count: f64) {
        loop {
            let probes = self.probes().await;
            if probes >= count {
                return;
            }
            wait::until_so("another probe to end", async || self.probes().await > probes).await;
        }
    }

    /// Returns the number of reconciles of the gate, with any result.
    async fn reconciles(&self) -> f64 {
        let series = r#"controller_runtime_reconcile_total{controller="wait-deployment""#;
        let metrics = self.manager.metrics_text().await;
        let counts = metrics.lines().filter(|line| line.starts_with(series));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    fn usage(&self) -> Usage {
        let id = self.manager.id();
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("it runs");
        // The name in parentheses may hold spaces; user and system time are the 12th and 13th field after it.
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let ticks =
            after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
        let resident_mb = memory(id, "VmRSS").expect("it runs");
        Usage { cpu_seconds: ticks.sum::<f64>() / TICKS, resident_mb }
    }

    async fn stop(mut self) {
        self.manager.terminate();
        assert!(self.manager.ended().await.success(), "{} ended in order", self.cluster.namespace());
    }
}

// === impl Samples ===

impl Samples {
    /// Adds a window of each side; the two ran one after the other.
    fn add(&mut self, undisturbed: &[f64], disturbed: &[f64]) {
        let calm = percentile(undisturbed, 90);
        self.parts.push(percentile(disturbed, 90) / (calm * 2.0).max(calm + ALLOWED));
        self.undisturbed.extend(undisturbed);
        self.disturbed.extend(disturbed);
    }

    /// Asserts that most windows beside black holes are within the allowed p90. A disturbance of one or two
    /// windows does not matter, nor do the slowest samples of a window.
    fn judge(self) {
        for (side, samples) in [("undisturbed", self.undisturbed), ("disturbed", self.disturbed)] {
            let samples = sorted(samples);
            figure(&format!("blackhole.samples.{side}"), samples.len() as f64, "samples");
            for percent in [50, 90, 99] {
                figure(&format!("blackhole.p{percent}.{side}"), percentile(&samples, percent), "ms");
            }
        }
        let parts = sorted(self.parts);
        let median = percentile(&parts, 50);
        figure("blackhole.p90.of_allowed", median, "parts");
        assert!(
            median <= 1.0,
            "p90 beside black holes as a fraction of the allowed p90, by window: {parts:.2?}"
        );
    }
}

// === private functions ===

/// An object that waits for this address, or has no dependency.
fn object(name: &str, address: Option<&str>) -> WaitDeployment {
    let wait_probe = address
        .map(|address| json!({"address": address, "timeout": TIMEOUT, "periodSeconds": PERIOD.as_secs()}));
    wait_deployment(name, &json!({"waitProbe": wait_probe, "spec": {"replicas": 0}}))
}

/// Passes every object and every change to `until`, until it returns true. Keeps no objects:
/// `wait::until_all` would copy a thousand objects at each change.
async fn follow<K>(api: &Api<K>, mut until: impl FnMut(&K) -> bool)
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    loop {
        let list = api.list(&ListParams::default()).await.expect("listed");
        for object in &list.items {
            if until(object) {
                return;
            }
        }
        let version = list.metadata.resource_version.unwrap_or_default();
        let events = api.watch(&WatchParams::default(), &version).await.expect("watched");
        let mut events = std::pin::pin!(events);
        // After an error, as after the end of the watch, it lists again.
        while let Ok(Some(event)) = events.try_next().await {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                && until(&object)
            {
                return;
            }
        }
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_objects_waiting_for_black_holes_do_not_slow_others() {
    let Some(mut undisturbed) = Side::set_up().await else { return };
    let Some(mut disturbed) = Side::set_up().await else { return };
    let holes = futures_util::future::join_all((0..HOLES).map(|_| black_hole())).await;
    let began = Instant::now();
    disturbed.wait_for(&holes).await;
    figure("blackhole.all_told", began.elapsed().as_secs_f64(), "s");

    // A first, uncounted window: it opens connections and allocates memory.
    undisturbed.window().await;
    disturbed.window().await;
    // The time includes the reads of the counters, so that a slow server adds time and no probes.
    let began = Instant::now();
    let (probes_before, reconciles_before) = (disturbed.probes().await, disturbed.reconciles().await);
    let (calm_before, before) = (undisturbed.usage(), disturbed.usage());
    let windows = if long_form() { 10 } else { 1 } * WINDOWS;
    let (mut samples, mut most_in_flight) = (Samples::default(), 0_f64);
    for window in 0..windows {
        // Each side goes first equally often.
        let (calm, busy) = if window % 2 == 0 {
            (undisturbed.window().await, disturbed.window().await)
        } else {
            let busy = disturbed.window().await;
            (undisturbed.window().await, busy)
        };
        samples.add(&calm, &busy);
        most_in_flight = most_in_flight.max(disturbed.metric("mainstay_waitdeployment_probe_inflight").await);
    }
    // At least one reconcile per change, except the last change of each object, which may be in flight. Each
    // waiting object may have one reconcile left, after its own status write.
    let changes = windows * OPEN * CHANGES;
    let (fewest, most) = ((changes - OPEN) as f64, (changes * RECONCILES + WAITING) as f64);
    // If each probe result woke the waiting objects, there would be twice as many reconciles after this many
    // probes, however fast the windows were.
    disturbed.until_probed(probes_before + 2.0 * most / (WAITING / HOLES) as f64).await;
    let probes = disturbed.probes().await - probes_before;
    let reconciles = disturbed.reconciles().await - reconciles_before;
    let (calm_after, after) = (undisturbed.usage(), disturbed.usage());
    let took = began.elapsed().as_secs_f64();
    samples.judge();
    figure("blackhole.reconciles", reconciles, "reconciles");
    let expected = fewest..=most;
    assert!(expected.contains(&reconciles), "{reconciles} reconciles of {changes} changes, not {expected:?}");

    // One probe per target, however many objects wait for it; and the holes were probed all the time.
    figure("blackhole.probes", probes / took, "per_s");
    let targets = disturbed.metric("mainstay_waitdeployment_probe_targets").await;
    assert!((targets - HOLES as f64).abs() < 0.5, "{targets} targets for {HOLES} addresses");
    assert!((1.0..=HOLES as f64).contains(&most_in_flight), "{most_in_flight} probes in flight");
    let rounds = took / PERIOD.as_secs_f64();
    let (least, most) = (HOLES as f64 * rounds / 4.0, HOLES as f64 * (rounds / 0.9 + 2.0));
    assert!((least..=most).contains(&probes), "{probes} probes in {took} s, expected {least} to {most}");

    let cpu = |after: &Usage, before: &Usage| (after.cpu_seconds - before.cpu_seconds) / took * 100.0;
    let (calm_cpu, busy_cpu) = (cpu(&calm_after, &calm_before), cpu(&after, &before));
    figure("blackhole.cpu.undisturbed", calm_cpu, "percent");
    figure("blackhole.cpu.disturbed", busy_cpu, "percent");
    assert!(busy_cpu - calm_cpu < 25.0, "waiting takes {} % of a core", busy_cpu - calm_cpu);
    figure("blackhole.memory.before", before.resident_mb, "MB");
    figure("blackhole.memory.after", after.resident_mb, "MB");
    let growth = after.resident_mb - before.resident_mb;
    assert!(growth < MEMORY_NOISE_MB, "memory grew by {growth} MB while the objects stayed the same");
    undisturbed.stop().await;
    disturbed.stop().await;
}
