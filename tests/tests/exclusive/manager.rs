//! The API server goes away under a running manager, or has not heard of a kind yet.

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

/// An outage that leaves the default Lease time: renewDeadline is 10 s, and requests may be on their way.
const SHORT: Duration = Duration::from_secs(8);
/// An outage that outlives the default Lease of 15 s.
const LONG: Duration = Duration::from_secs(20);
/// An outage that also outlives the patience of readiness, which is 60 s. Only with `MAINSTAY_LONG=1`.
const VERY_LONG: Duration = Duration::from_secs(75);
/// What readiness allows a watch to be down.
const WATCH_DOWN_LIMIT: Duration = Duration::from_mins(1);
/// How often the probes are asked: many times within the shortest outage.
const ASK_PERIOD: Duration = Duration::from_millis(50);

const WAIT_DEPLOYMENTS: &str = "cache-WaitDeployment.apps.mainstay.dev";
const DEPLOYMENTS: &str = "cache-Deployment.apps";

// === what happens ===

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_costs_neither_lease_nor_change_nor_liveness() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let mut scene = Scene::begin(&cluster, &json!({})).await;
    let lease = cluster.api::<Lease>().get("mainstay").await.expect("a Lease").spec.expect("a holder");

    let outage = scene.outage(Duration::ZERO).await;
    figure_of_time("api.outage.killed", outage);
    if outage > SHORT {
        say(&format!("skipped: the server took {outage:?} to start, longer than a Lease must outlive"));
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
    assert_eq!(scene.probes.heard().unready, Vec::new(), "an outage of seconds is routine");
    scene.end().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stays_away_is_waited_for_even_past_the_lease() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let full = long_form();
    let mut scene = Scene::begin(&cluster, &json!({"leaderElection": {"onLost": "Campaign"}})).await;

    let away = if full { VERY_LONG } else { LONG };
    let began = Instant::now();
    let outage = scene.outage(away).await;
    figure_of_time("api.outage.away", outage);
    let back = Instant::now();
    scene.nothing_was_lost().await;
    figure_of_time("api.recovered_after", back.elapsed());
    scene.acts_on_new_objects("after-return").await;
    assert!(back.elapsed() < Duration::from_mins(1), "it works again after {:?}", back.elapsed());

    scene.probes.until("/readyz", 200).await;
    let unready = scene.probes.heard().unready;
    match unready.first() {
        None => assert!(outage <= WATCH_DOWN_LIMIT, "not ready with watches down for {outage:?}"),
        Some((at, reason)) => {
            let after = at.duration_since(began);
            figure_of_time("readiness.false_after", after);
            assert!(after >= WATCH_DOWN_LIMIT, "false after only {after:?}");
            assert!(reason.contains(&format!("[-]{WAIT_DEPLOYMENTS} failed")), "{reason}");
            let last = unready.last().map(|(at, _)| at.saturating_duration_since(back));
            figure_of_time("readiness.true_after_return", last.unwrap_or_default());
        }
    }
    assert_eq!(full, !unready.is_empty(), "the full form, and only that, lasts longer than readiness allows");
    scene.end().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_crd_holds_up_its_own_controllers_only_and_is_picked_up_when_it_comes() {
    let Some(cluster) = TestCluster::exclusive_without_crds().await else { return };
    let identity = cluster.install_base().await;

    // In a process of its own, for its log.
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    let mut process = ManagerProcess::start(binary, &cluster, &identity, "no-crd", &json!({}));
    let line = process
        .logged("that the kind is missing", |line| {
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
    let probes = Probes::ask(manager.probes());
    probes.until_ready().await;
    let (status, body) = get(manager.probes(), &format!("/readyz/{WAIT_DEPLOYMENTS}")).await;
    assert_eq!(status, 500, "{body}");
    assert!(
        body.contains("WaitDeployment.apps.mainstay.dev has not been listed: the server answered 404"),
        "{body}"
    );
    assert_eq!(get(manager.probes(), &format!("/readyz/{DEPLOYMENTS}")).await, (200, "ok".to_owned()));
    let unsynced = r#"mainstay_cache_unsynced{kind="WaitDeployment",group="apps.mainstay.dev"}"#;
    assert_eq!(sample(&get(manager.metrics(), "/metrics").await.1, unsynced), Some(1.0));

    cluster.kubectl(&["create", "deployment", "other", "--image=example.invalid/main:1"]).await;
    let other = deployments_seen.wait_for(|names: &Vec<String>| names.iter().any(|name| name == "other"));
    tokio::time::timeout(wait::PATIENCE, other).await.expect("other kinds are reconciled").expect("it runs");

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

        // The kind goes, with all its objects, and comes back under the same name.
        cluster.kubectl(&["delete", "--wait=true", "--timeout=60s", "-f", crd]).await;
    }
    assert_eq!(probes.end().await.unready, Vec::new(), "the replica was ready all along");
    manager.stop().await.expect("it ran all along");
    cluster.stop().await;
}

// === a manager at work ===

/// A leading manager with one WaitDeployment that is open and one that waits.
struct Scene<'a> {
    cluster: &'a TestCluster,
    manager: LocalManager,
    probes: Probes,
    prerequisite: Prerequisite,
    /// Of the objects that were made during an outage.
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
        wait::until(&cluster.api::<WaitDeployment>(), "waiting", "it says that it waits", |object| {
            object.condition("Ready").is_some_and(|ready| ready.status == "False")
        })
        .await;
        let probes = Probes::ask(manager.probes());
        probes.until_ready().await;
        Self { cluster, manager, probes, prerequisite, open }
    }

    /// Takes the server away; while it is, what was waited for comes up. Right after the return objects are created
    /// and changed. Returns how long it was away.
    async fn outage(&mut self, at_least: Duration) -> Duration {
        let began = Instant::now();
        self.cluster.control_plane().kill_apiserver().await;
        self.prerequisite.come_up();
        let asked = tokio::time::timeout(wait::PATIENCE, self.prerequisite.connected(1)).await;
        asked.expect("the prerequisite is still asked while the server is away");
        // The outage itself, not a wait for anything.
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
        wait::until(&deployments, "waiting", "the gate that could open during the outage", |_| true).await;
        wait::until(&deployments, "created", "what was created right after the outage", |_| true).await;
        wait::until(&deployments, "open", "what was changed right after the outage", |deployment| {
            deployment.spec.replicas == Some(3)
        })
        .await;
        // Not until the Pods are ready: the cluster's own controllers wait up to a minute between two tries.
        for name in ["waiting", "created", "open"] {
            let uid = deployments.get(name).await.expect("the Deployment").metadata.uid;
            wait::until(&self.cluster.api::<WaitDeployment>(), name, "it is mirrored", |object| {
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

    /// Stops the manager, which must have run all along and been alive all along.
    async fn end(self) {
        let heard = self.probes.end().await;
        assert!(heard.alive > 0, "liveness was asked");
        assert_eq!(heard.dead, Vec::<String>::new(), "an outage is no reason to be restarted");
        say(&format!("figure livez.answers {} count", heard.alive));
        self.manager.stop().await.expect("stopped in order");
    }
}

async fn create(cluster: &TestCluster, name: &str, prerequisite: &Prerequisite) {
    let changes = json!({"waitProbe": wait_probe(prerequisite.address())});
    let object: WaitDeployment = wait_deployment(name, &changes);
    cluster.api().create(&PostParams::default(), &object).await.expect("created");
}

/// A controller of a kind that is there.
struct Remembers(watch::Sender<Vec<String>>);

impl Reconciler for Remembers {
    async fn reconcile(&self, request: &NamespacedName, _cx: &Context) -> Outcome {
        self.0.send_modify(|names| names.push(request.name().to_owned()));
        Ok(Action::Done)
    }
}

// === probes ===

/// Asks a manager's probes again and again, as a kubelet would.
struct Probes {
    address: SocketAddr,
    heard: Arc<Mutex<Heard>>,
    asking: JoinSet<()>,
}

#[derive(Clone, Debug, Default)]
struct Heard {
    alive: u64,
    /// Answers of `/livez` other than 200.
    dead: Vec<String>,
    /// Answers of `/readyz` other than 200, and when.
    unready: Vec<(Instant, String)>,
}

impl Heard {
    fn hear(&mut self, live: (u16, String), ready: (u16, String)) {
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
    fn ask(address: SocketAddr) -> Self {
        let heard = Arc::new(Mutex::new(Heard::default()));
        let mut asking = JoinSet::new();
        let told = Arc::clone(&heard);
        asking.spawn(async move {
            loop {
                let (live, ready) = (get(address, "/livez").await, get(address, "/readyz").await);
                told.lock().hear(live, ready);
                tokio::time::sleep(ASK_PERIOD).await;
            }
        });
        Self { address, heard, asking }
    }

    /// Waits until it is ready, and forgets that it was not before the first time.
    async fn until_ready(&self) {
        self.until("/readyz", 200).await;
        self.heard.lock().unready.clear();
    }

    async fn until(&self, path: &str, status: u16) {
        let answered = async {
            while get(self.address, path).await.0 != status {
                tokio::time::sleep(ASK_PERIOD).await;
            }
        };
        let in_time = tokio::time::timeout(wait::PATIENCE, answered).await.is_ok();
        assert!(in_time, "{path} answers {:?}, not {status}", get(self.address, path).await);
    }

    fn heard(&self) -> Heard {
        self.heard.lock().clone()
    }

    /// Asks no more and returns all that was heard.
    async fn end(mut self) -> Heard {
        self.asking.shutdown().await;
        self.heard()
    }
}

// === output ===

/// Writes past the test runner's capture. A reader who has gone away has seen enough.
fn say(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}
