//! The API server is down while a manager runs, or does not serve a kind yet.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use mainstay::cache::Scope;
use mainstay::controller::Controller;
use mainstay::key::{Key as _, NamespacedName};
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::{wait_deployment, wait_probe};
use mainstay_tests::process::{get, sample};
use mainstay_tests::report::{figure_of_time, long_form};
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::{LocalManager, ManagerProcess, TestCluster, wait};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// An outage that leaves time to renew the default Lease: renewDeadline is 10 s, minus time for requests in
/// flight.
const SHORT: Duration = Duration::from_secs(8);
/// An outage longer than the default Lease of 15 s.
const LONG: Duration = Duration::from_secs(20);
/// An outage also longer than `WATCH_DOWN_LIMIT`. Only with `MAINSTAY_LONG=1`.
const VERY_LONG: Duration = Duration::from_secs(75);
/// How long a watch may be down before the replica is not ready.
const WATCH_DOWN_LIMIT: Duration = Duration::from_mins(1);
/// Period of requests to the health endpoints: many within the shortest outage.
const PROBE_PERIOD: Duration = Duration::from_millis(50);

const WAIT_DEPLOYMENTS: &str = "cache-WaitDeployment.apps.mainstay.dev";
const DEPLOYMENTS: &str = "cache-Deployment.apps";

// === outages and missing kinds ===

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_restart_loses_no_lease_no_change_and_no_liveness() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let mut scene = Scene::begin(&cluster, &json!({})).await;
    let lease = cluster.api::<Lease>().get("mainstay").await.expect("a Lease").spec.expect("a holder");

    let outage = scene.outage(Duration::ZERO).await;
    figure_of_time("api.outage.killed", outage);
    if outage > SHORT {
        print(&format!("skipped: the server took {outage:?} to start, too long to renew the Lease"));
        return;
    }
    scene.nothing_was_lost().await;

    let began = Instant::now();
    cluster.control_plane().restart_apiserver().await.expect("it starts again");
    let outage = began.elapsed();
    figure_of_time("api.outage.restarted", outage);
    scene.acts_on_new_objects("after-restart").await;

    if outage <= SHORT {
        let now = cluster.api::<Lease>().get("mainstay").await.expect("a Lease").spec.expect("a holder");
        assert_eq!(
            (now.holder_identity, now.lease_transitions),
            (lease.holder_identity, lease.lease_transitions)
        );
    }
    assert_eq!(scene.probes.answers().unready, Vec::new(), "not ready because of an outage of seconds");
    scene.end().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manager_survives_an_outage_longer_than_its_lease() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let full = long_form();
    let mut scene = Scene::begin(&cluster, &json!({"leaderElection": {"onLost": "Campaign"}})).await;

    let at_least = if full { VERY_LONG } else { LONG };
    let began = Instant::now();
    let outage = scene.outage(at_least).await;
    figure_of_time("api.outage.away", outage);
    let back = Instant::now();
    scene.nothing_was_lost().await;
    figure_of_time("api.recovered_after", back.elapsed());
    scene.acts_on_new_objects("after-return").await;
    assert!(back.elapsed() < Duration::from_mins(1), "recovered only after {:?}", back.elapsed());

    scene.probes.until("/readyz", 200).await;
    let unready = scene.probes.answers().unready;
    match unready.first() {
        None => assert!(outage <= WATCH_DOWN_LIMIT, "not ready with watches down for {outage:?}"),
        Some((at, reason)) => {
            let after = at.duration_since(began);
            figure_of_time("readiness.false_after", after);
            assert!(after >= WATCH_DOWN_LIMIT, "not ready after only {after:?}");
            assert!(reason.contains(&format!("[-]{WAIT_DEPLOYMENTS} failed")), "{reason}");
            let last = unready.last().map(|(at, _)| at.saturating_duration_since(back));
            figure_of_time("readiness.true_after_return", last.unwrap_or_default());
        }
    }
    assert_eq!(full, !unready.is_empty(), "only the outage of the long form is longer than the limit");
    scene.end().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_crd_blocks_only_its_own_controllers_and_is_picked_up_once_installed() {
    let Some(cluster) = TestCluster::exclusive_without_crds().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let identity = cluster.install_base().await;

    // In a process of its own, so that the test can read its log.
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    let mut process = ManagerProcess::start(binary, &cluster, &identity, "no-crd", &json!({}));
    let line = process
        .logged("the missing kind", |line| {
            line["msg"] == "list or watch failed" && line["kind"] == "WaitDeployment.apps.mainstay.dev"
        })
        .await;
    assert_eq!(line["level"], "warn", "{line}");
    process.terminate();
    assert!(process.ended().await.success(), "{:#?}", process.log());

    let (seen, mut deployments_seen) = watch::channel(Vec::new());
    let manager = LocalManager::start_with(&cluster, &identity, &json!({}), |manager| {
        let deployments = manager.store::<Deployment>(Scope::all());
        let controller = Controller::new("of-another-kind").reconciles(&deployments).runs_without_lease();
        manager.register(controller.reconciler(Remembers(seen))).expect("registered");
    })
    .await;
    let probes = Probes::start(manager.probes());
    probes.until_ready().await;
    let (status, body) = get(manager.probes(), &format!("/readyz/{WAIT_DEPLOYMENTS}")).await;
    assert_eq!(status, 500, "{body}");
    assert!(
        body.contains("WaitDeployment.apps.mainstay.dev has not been listed: the server answered 404"),
        "{body}"
    );
    assert_eq!(get(manager.probes(), &format!("/readyz/{DEPLOYMENTS}")).await, (200, "ok".to_owned()));
    let unsynced = r#"mainstay_cache_unsynced{kind="WaitDeployment",group="apps.mainstay.dev"}"#;
    assert_eq!(sample(&manager.metrics_text().await, unsynced), Some(1.0));

    cluster.kubectl(&["create", "deployment", "other", "--image=example.invalid/main:1"]).await;
    let other = deployments_seen.wait_for(|names: &Vec<String>| names.iter().any(|name| name == "other"));
    tokio::time::timeout(wait::PATIENCE, other)
        .await
        .expect("other kinds are reconciled")
        .expect("the manager runs");

    let crd = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/base/crd.yaml");
    for (name, apply) in
        [("first", &["apply", "-f", crd][..]), ("again", &["apply", "--server-side", "-f", crd])]
    {
        cluster.kubectl(apply).await;
        cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "-f", crd]).await;
        let there = Instant::now();
        probes.until(&format!("/readyz/{WAIT_DEPLOYMENTS}"), 200).await;
        let prerequisite = Prerequisite::open();
        create(&cluster, name, &prerequisite).await;
        wait::until(&cluster.api::<Deployment>(), name, "its Deployment", |_| true).await;
        let took = there.elapsed();
        figure_of_time(&format!("crd.picked_up.{name}"), took);
        assert!(took < Duration::from_secs(30), "picked up after {took:?}");

        // The CRD is deleted with all its objects, and installed again under the same name.
        cluster.kubectl(&["delete", "--wait=true", "--timeout=60s", "-f", crd]).await;
    }
    assert_eq!(probes.end().await.unready, Vec::new(), "the replica was not always ready");
    manager.stop().await.expect("the manager ran until now");
    cluster.stop().await;
}

// === a manager with objects ===

/// A leading manager with one open WaitDeployment and one that waits.
struct Scene<'a> {
    cluster: &'a TestCluster,
    manager: LocalManager,
    probes: Probes,
    prerequisite: Prerequisite,
    /// The address that is always up, for all objects except `waiting`.
    open: Prerequisite,
}

impl<'a> Scene<'a> {
    async fn begin(cluster: &'a TestCluster, changes: &Value) -> Self {
        let identity = cluster.install_base().await;
        let manager = LocalManager::start(cluster, &identity, changes).await;
        let (open, prerequisite) = (Prerequisite::open(), Prerequisite::closed());
        create(cluster, "open", &open).await;
        create(cluster, "waiting", &prerequisite).await;
        wait::until(&cluster.api::<Deployment>(), "open", "its Deployment", |_| true).await;
        wait::until(&cluster.api::<WaitDeployment>(), "waiting", "Ready to be False", |object| {
            object.condition("Ready").is_some_and(|ready| ready.status == "False")
        })
        .await;
        let probes = Probes::start(manager.probes());
        probes.until_ready().await;
        Self { cluster, manager, probes, prerequisite, open }
    }

    /// Kills the API server, starts the prerequisite of `waiting` meanwhile, and starts the API server again
    /// after `at_least`. Then creates `created` and changes `open` at once. Returns how long the API server
    /// was down.
    async fn outage(&mut self, at_least: Duration) -> Duration {
        let began = Instant::now();
        self.cluster.control_plane().kill_apiserver().await;
        self.prerequisite.come_up();
        let probed = tokio::time::timeout(wait::PATIENCE, self.prerequisite.connected(1)).await;
        probed.expect("probes go on while the API server is down");
        // This sleep is the outage itself; it waits for nothing.
        tokio::time::sleep_until(began + at_least).await;
        self.cluster.control_plane().start_apiserver().await.expect("it starts again");
        let outage = began.elapsed();
        create(self.cluster, "created", &self.open).await;
        let more = json!({"spec": {"replicas": 3}});
        let objects = self.cluster.api::<WaitDeployment>();
        objects.patch("open", &PatchParams::default(), &Patch::Merge(more)).await.expect("changed");
        outage
    }

    async fn nothing_was_lost(&self) {
        let deployments = self.cluster.api::<Deployment>();
        wait::until(&deployments, "waiting", "the Deployment of the gate that opened", |_| true).await;
        wait::until(&deployments, "created", "the Deployment of the new object", |_| true).await;
        wait::until(&deployments, "open", "the changed replicas", |deployment| {
            deployment.spec.replicas == Some(3)
        })
        .await;
        // This does not wait until the Pods are ready, because the cluster's own controllers back off up to a
        // minute.
        for name in ["waiting", "created", "open"] {
            let uid = deployments.get(name).await.expect("the Deployment").metadata.uid;
            wait::until(&self.cluster.api::<WaitDeployment>(), name, "a mirrored status", |object| {
                let mirrored = object.status.as_ref().and_then(|status| status.deployment.as_ref());
                mirrored.map(|mirrored| &mirrored.uid) == uid.as_ref()
            })
            .await;
        }
    }

    async fn acts_on_new_objects(&self, name: &str) {
        create(self.cluster, name, &self.open).await;
        wait::until(&self.cluster.api::<Deployment>(), name, "its Deployment", |_| true).await;
    }

    /// Stops the manager. Panics if it has exited before or if `/livez` ever failed.
    async fn end(self) {
        let answers = self.probes.end().await;
        assert!(answers.alive > 0, "/livez was never requested");
        assert_eq!(answers.dead, Vec::<String>::new(), "an outage failed liveness");
        print(&format!("figure livez.answers {} count", answers.alive));
        self.manager.stop().await.expect("stopped in order");
    }
}

async fn create(cluster: &TestCluster, name: &str, prerequisite: &Prerequisite) {
    let changes = json!({"waitProbe": wait_probe(prerequisite.address())});
    let object: WaitDeployment = wait_deployment(name, &changes);
    cluster.api().create(&PostParams::default(), &object).await.expect("created");
}

/// Reconciler of a kind that is served: publishes the names of its objects.
struct Remembers(watch::Sender<Vec<String>>);

impl Reconciler for Remembers {
    async fn reconcile(&self, request: &NamespacedName, _cx: &Context) -> Outcome {
        self.0.send_modify(|names| names.push(request.name().to_owned()));
        Ok(Action::Done)
    }
}

// === probes ===

/// Requests `/livez` and `/readyz` of a manager periodically, as a kubelet does.
struct Probes {
    address: SocketAddr,
    answers: Arc<Mutex<Answers>>,
    task: JoinSet<()>,
}

#[derive(Clone, Debug, Default)]
struct Answers {
    /// Number of answers of `/livez` with status 200.
    alive: u64,
    /// Bodies of the other answers of `/livez`.
    dead: Vec<String>,
    /// Answers of `/readyz` with another status than 200: time and body.
    unready: Vec<(Instant, String)>,
}

impl Answers {
    fn record(&mut self, live: (u16, String), ready: (u16, String)) {
        match live {
            (200, _) => self.alive += 1,
            (_, body) => self.dead.push(body),
        }
        if ready.0 != 200 {
            self.unready.push((Instant::now(), ready.1));
        }
    }
}

impl Probes {
    fn start(address: SocketAddr) -> Self {
        let answers = Arc::new(Mutex::new(Answers::default()));
        let mut task = JoinSet::new();
        let shared = Arc::clone(&answers);
        task.spawn(async move {
            loop {
                let (live, ready) = (get(address, "/livez").await, get(address, "/readyz").await);
                shared.lock().record(live, ready);
                tokio::time::sleep(PROBE_PERIOD).await;
            }
        });
        Self { address, answers, task }
    }

    /// Waits until the manager is ready, and discards the answers of `/readyz` before that.
    async fn until_ready(&self) {
        self.until("/readyz", 200).await;
        self.answers.lock().unready.clear();
    }

    async fn until(&self, path: &str, status: u16) {
        let answered = async {
            while get(self.address, path).await.0 != status {
                tokio::time::sleep(PROBE_PERIOD).await;
            }
        };
        let in_time = tokio::time::timeout(wait::PATIENCE, answered).await.is_ok();
        assert!(in_time, "{path} answers {:?}, not {status}", get(self.address, path).await);
    }

    fn answers(&self) -> Answers {
        self.answers.lock().clone()
    }

    /// Stops the requests and returns all answers.
    async fn end(mut self) -> Answers {
        self.task.shutdown().await;
        self.answers()
    }
}

// === output ===

/// Prints past the test runner's capture of output, and ignores a closed standard output.
fn print(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}
