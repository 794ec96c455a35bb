//! The manager under measurement, the targets of its objects, and a watch of the Deployments.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{PartialObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use mainstay_api::WaitDeployment;
use mainstay_tests::process::memory;
use mainstay_tests::sockets::{BlackHole, Prerequisite, black_hole};
use mainstay_tests::{ManagerProcess, TestCluster};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::Form;
use crate::objects;

/// Ticks per second in `/proc/PID/stat`, on every architecture of Linux that Rust's std runs on.
const TICKS: f64 = 100.0;
/// Number of concurrent writes while the objects are created.
const CREATING: usize = 16;
/// Longest wait for any step.
const PATIENCE: Duration = Duration::from_mins(15);

/// The cluster, the manager and the targets of a measurement.
pub(crate) struct Stage {
    cluster: TestCluster,
    manager: ManagerProcess,
    /// Targets without a listener at first, each with the names of the objects that wait for it.
    targets: Vec<(Prerequisite, Vec<String>)>,
    _holes: Vec<BlackHole>,
    seen: watch::Receiver<Seen>,
    _watching: JoinSet<()>,
}

/// By name: the time at which the watch received each Deployment first.
type Seen = Arc<parking_lot::Mutex<HashMap<String, Instant>>>;

/// The resources that the manager has used so far.
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_mb: f64,
    pub(crate) probes: f64,
}

// === impl Stage ===

impl Stage {
    /// Starts the cluster and the manager, creates the objects, and waits until the status of each object
    /// names its dependency. Returns None if there is no control plane.
    pub(crate) async fn set_up(form: Form) -> anyhow::Result<Option<Self>> {
        let Some(cluster) = TestCluster::exclusive().await else { return Ok(None) };
        let identity = cluster.install_base().await;
        let limits = json!({"maxPerSecondPerNamespace": 200, "maxTargetsPerNamespace": 1000});
        let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
        let changes = json!({"probePolicy": limits});
        let manager = ManagerProcess::start(binary, &cluster, &identity, "manager", &changes);

        let holes = form.targets / 10;
        let holes: Vec<BlackHole> =
            stream::repeat_with(black_hole).take(holes).buffered(CREATING).collect().await;
        let mut targets: Vec<_> =
            (holes.len()..form.targets).map(|_| (Prerequisite::closed(), Vec::new())).collect();
        let mut create = Vec::with_capacity(form.objects);
        for number in 0..form.objects {
            let name = format!("web-{number}");
            // Neighbours wait for different targets, so that the objects of one target are spread over the
            // cache.
            let at = number % form.targets;
            let address = if let Some(hole) = holes.get(at) {
                hole.address()
            } else {
                let (target, names) = &mut targets[at - holes.len()];
                names.push(name.clone());
                target.address()
            };
            create.push(objects::on_target(&name, address, form));
        }
        let (seen, watching) = follow(cluster.api());
        let stage = Self { cluster, manager, targets, _holes: holes, seen, _watching: watching };
        stage.create(create).await?;
        stage.until_all_wait("web-", form.objects).await?;
        Ok(Some(stage))
    }

    /// Starts `count` targets one after the other. Returns for each waiting object the milliseconds from the
    /// start of its target to its Deployment.
    pub(crate) async fn open_targets(&mut self, count: usize) -> anyhow::Result<Vec<f64>> {
        let mut opened = Vec::new();
        for (target, names) in self.targets.iter_mut().take(count) {
            target.come_up();
            let at = Instant::now();
            opened.extend(names.drain(..).map(|name| (name, at)));
            // Spreads the load of the openings over time.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.seen_after(opened).await
    }

    /// Creates an endpoint for each of `count` Services, one after the other. Returns the milliseconds from
    /// the response to that write to the Deployment.
    pub(crate) async fn open_services(&mut self, count: usize) -> anyhow::Result<Vec<f64>> {
        let names: Vec<String> = (0..count).map(|number| format!("service-{number}")).collect();
        let services: Api<Service> = self.cluster.api();
        for name in &names {
            services.create(&PostParams::default(), &objects::service(name)?).await?;
        }
        self.create(names.iter().map(|name| objects::on_service(name)).collect()).await?;
        self.until_all_wait("service-", count).await?;
        let slices: Api<EndpointSlice> = self.cluster.api();
        let mut took = Vec::new();
        for name in names {
            slices.create(&PostParams::default(), &objects::endpoint(&name)?).await?;
            took.extend(self.seen_after(vec![(name, Instant::now())]).await?);
        }
        Ok(took)
    }

    pub(crate) async fn usage(&self) -> anyhow::Result<Usage> {
        let id = self.manager.id();
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
        // The name in parentheses may hold spaces; user and system time are the 12th and 13th field after it.
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let ticks = after_name.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
        let metrics = self.manager.metrics_text().await;
        let probes = metrics.lines().filter(|line| line.starts_with("mainstay_waitdeployment_probe_total{"));
        let probes = probes.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
        Ok(Usage { cpu_seconds: ticks / TICKS, resident_mb: memory(id, "VmRSS")?, probes })
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.manager.terminate();
        anyhow::ensure!(self.manager.ended().await.success(), "the manager did not end in order");
        self.cluster.stop().await;
        Ok(())
    }

    async fn create(&self, objects: Vec<WaitDeployment>) -> anyhow::Result<()> {
        let api: Api<WaitDeployment> = self.cluster.api();
        let params = PostParams::default();
        let one = async |object: WaitDeployment| api.create(&params, &object).await.map(drop);
        stream::iter(objects).map(Ok).try_for_each_concurrent(CREATING, one).await.context("creating objects")
    }

    /// Waits until `status.waitingFor` is set on `count` objects whose names begin with `prefix`.
    async fn until_all_wait(&self, prefix: &str, count: usize) -> anyhow::Result<()> {
        let api: Api<WaitDeployment> = self.cluster.api();
        let all_wait = async || {
            let objects = api.list(&kube::api::ListParams::default()).await?;
            let waits = |object: &&WaitDeployment| {
                let text = object.status.as_ref().and_then(|status| status.waiting_for.as_ref());
                object.name_any().starts_with(prefix) && text.is_some_and(|text| !text.is_empty())
            };
            anyhow::Ok(objects.items.iter().filter(waits).count() >= count)
        };
        let all = async {
            loop {
                let began = Instant::now();
                if all_wait().await? {
                    return anyhow::Ok(());
                }
                // A list of thousands of objects is expensive, so the manager gets most of the processor
                // time.
                tokio::time::sleep(began.elapsed() * 4 + Duration::from_millis(500)).await;
            }
        };
        timeout(PATIENCE, all).await.context("not every object has status.waitingFor")?
    }

    /// Waits for these Deployments. Returns for each the milliseconds from its time in `opened` until the
    /// watch received it.
    async fn seen_after(&mut self, opened: Vec<(String, Instant)>) -> anyhow::Result<Vec<f64>> {
        let all = async {
            loop {
                {
                    let seen = self.seen.borrow_and_update();
                    let seen = seen.lock();
                    let took = opened.iter().map(|(name, at)| seen.get(name).map(|seen| *seen - *at));
                    if let Some(took) = took.collect::<Option<Vec<_>>>() {
                        return anyhow::Ok(took.iter().map(|took| took.as_secs_f64() * 1000.0).collect());
                    }
                }
                self.seen.changed().await.context("the watch of Deployments ended")?;
            }
        };
        timeout(PATIENCE, all).await.context("a gate has not opened")?
    }
}

// === private functions ===

/// Watches the Deployments and records when each is received first.
fn follow(api: Api<Deployment>) -> (watch::Receiver<Seen>, JoinSet<()>) {
    let (sender, receiver) = watch::channel(Seen::default());
    let mut watching = JoinSet::new();
    watching.spawn(async move {
        let params = WatchParams::default().timeout(290);
        // The server ends a watch now and then. Events that a new watch repeats do not change the recorded
        // times.
        loop {
            let Ok(events) = api.watch_metadata(&params, "0").await else {
                // Retries without a pause would take processor time from the manager.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let mut events = std::pin::pin!(events);
            while let Ok(Some(event)) = events.try_next().await {
                if let WatchEvent::Added(object) = event {
                    note(&sender, &object);
                }
            }
        }
    });
    (receiver, watching)
}

fn note(sender: &watch::Sender<Seen>, object: &PartialObjectMeta<Deployment>) {
    let now = Instant::now();
    sender.send_modify(|seen| {
        seen.lock().entry(object.name_any()).or_insert(now);
    });
}
