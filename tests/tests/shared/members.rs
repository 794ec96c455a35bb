//! Controllers that are registered and removed while their manager runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::poll;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::networking::v1::Ingress;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use mainstay::cache::{Delta, Scope, Select, Store};
use mainstay::controller::{Controller, Registration};
use mainstay::key::{Key as _, NamespacedName};
use mainstay::manager::{Manager, RegisterError, RemoveError};
use mainstay::reconcile::{Action, Context, Outcome};
use mainstay_tests::process::{get, sample};
use mainstay_tests::wait::{self, PATIENCE, until_so};
use mainstay_tests::witness::{Runs, witness};
use mainstay_tests::{LocalManager, TestCluster};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::holder;

const WEB: &str = "web";

/// Additional rights for these tests.
fn rules() -> Value {
    json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "patch"]}])
}

/// Returns the store of the test's objects, without the `ConfigMap`s that every namespace has.
fn maps(manager: &Manager) -> Store<ConfigMap> {
    manager.store(Scope::all().labels("of=members".parse().expect("a selector")))
}

async fn create(cluster: &TestCluster, name: &str) {
    let map = json!({"metadata": {"name": name, "labels": {"of": "members"}}});
    let map: ConfigMap = serde_json::from_value(map).expect("a ConfigMap");
    cluster.api().create(&PostParams::default(), &map).await.expect("created");
}

async fn change(maps: &Api<ConfigMap>, name: &str, value: &str) {
    let patch = Patch::Merge(json!({"data": {"value": value}}));
    maps.patch(name, &PatchParams::default(), &patch).await.expect("changed");
}

async fn done(_: NamespacedName, _: Context) -> Outcome {
    Ok(Action::Done)
}

/// Returns a controller with a reconcile that does no work, and its runs.
fn idle(name: &'static str, maps: &Store<ConfigMap>) -> (Registration, Runs) {
    let (reconciler, runs) = witness(done);
    (Controller::new(name).reconciles(maps).reconciler(reconciler), runs)
}

fn request(cluster: &TestCluster, name: &str) -> NamespacedName {
    NamespacedName::namespaced(cluster.namespace(), name)
}

/// Returns a value and a future that ends when the value is dropped.
fn token() -> (oneshot::Sender<()>, impl Future<Output = ()>) {
    let (kept, gone) = oneshot::channel();
    let gone = async {
        timeout(PATIENCE, gone).await.expect("dropped").expect_err("nothing is sent");
    };
    (kept, gone)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_registered_on_the_leader_runs_and_is_removed_completely() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base_with(&rules()).await;
    let changes = json!({"inspect": {"bindAddress": "127.0.0.1:0"}, "controllers": {"*": {"workers": 1}}});
    let manager = LocalManager::start(&cluster, &identity, &changes).await;
    manager.leads().await;
    create(&cluster, WEB).await;

    let store = maps(&manager.manager);
    let ((in_run, run_gone), (in_predicate, predicate_gone)) = (token(), token());
    let (reconciler, mut runs) = witness(move |_, _| {
        let _kept = &in_run;
        async { Ok(Action::Done) }
    });
    let sees_all = move |_: &Delta<'_>| !in_predicate.is_closed();
    let late = Controller::new("late").reconciles(store.when(sees_all)).reconciler(reconciler);
    let late = manager.manager.register(late).expect("registered");
    assert_eq!(runs.next().await.name, WEB, "an object from before the registration");
    create(&cluster, "other").await;
    assert_eq!(runs.next().await.name, "other", "a new object");
    let taken = manager.manager.register(idle("late", &store).0);
    assert!(
        matches!(&taken, Err(RegisterError::DuplicateName { name, .. }) if **name == *"late"),
        "{taken:?}"
    );
    let inspect = manager.manager.inspect_addr().expect("an address");
    let page = async || get(inspect, "/debug/controllers/late/queue").await.0;
    assert!(manager.metrics_text().await.contains(r#"controller="late""#));
    assert_eq!(page().await, 200);

    late.remove().await.expect("removed");
    let metrics = manager.metrics_text().await;
    let left: Vec<_> = metrics.lines().filter(|line| line.contains(r#""late""#)).collect();
    assert_eq!(left, [""; 0], "every series is removed");
    assert_eq!(page().await, 404);
    assert!(late.status().is_none());
    late.trigger(request(&cluster, WEB)).expect_err("a removed controller refuses keys");
    late.remove().await.expect("a second removal succeeds");
    run_gone.await;
    predicate_gone.await;

    // The store and its check stay as long as this test holds the store.
    assert!(store.get(&request(&cluster, "other")).expect("a synced store").is_some());
    let check = async || get(manager.probes(), "/readyz/cache-ConfigMap").await.0;
    assert_eq!((check().await, get(manager.probes(), "/readyz").await.0), (200, 200));
    let (again, mut runs_again) = idle("late", &store);
    let again = manager.manager.register(again).expect("the name is free");
    let mut first = [runs_again.next().await.name, runs_again.next().await.name];
    first.sort();
    assert_eq!(first, ["other", WEB]);
    change(&cluster.api(), WEB, "1").await;
    assert_eq!(runs_again.next().await.name, WEB);
    assert_eq!(runs.to_the_end().await, [""; 0], "the removed controller did not run again");

    again.remove().await.expect("removed");
    assert_eq!(check().await, 200);
    drop(store);
    until_so("its check to end with its last user", async || check().await == 404).await;
    assert_eq!(get(manager.probes(), "/readyz").await.0, 200, "an unused store does not affect readiness");
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_registered_on_a_standby_keeps_its_keys_and_runs_once_it_leads() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base_with(&rules()).await;
    create(&cluster, WEB).await;
    let leader = LocalManager::start(&cluster, &identity, &json!({})).await;
    wait::until(&cluster.api::<Lease>(), "mainstay", "a leader", |lease| !holder(lease).is_empty()).await;
    let standby = LocalManager::start(&cluster, &identity, &json!({})).await;

    let store = maps(&standby.manager);
    let (heir, mut heirs_runs) = idle("heir", &store);
    let heir = standby.manager.register(heir).expect("registered");
    let (brief, briefs_runs) = idle("brief", &store);
    let brief = standby.manager.register(brief).expect("registered");
    let (reconciler, mut runs) = witness(done);
    let always = Controller::new("always").reconciles(&store).runs_without_lease().reconciler(reconciler);
    drop(standby.manager.register(always).expect("registered"));
    assert_eq!(runs.next().await.name, WEB, "a controller without Lease runs on a standby");
    for handle in [&heir, &brief] {
        let warm = async || handle.status().is_some_and(|status| status.synced && status.counts.ready() == 1);
        until_so("its keys", warm).await;
        assert!(handle.status().is_some_and(|status| !status.leading));
    }
    let warm = r#"mainstay_queue_warm_keys{name="heir",controller="heir"}"#;
    assert_eq!(sample(&standby.metrics_text().await, warm), Some(1.0));
    brief.remove().await.expect("removed on the standby");
    assert_eq!(briefs_runs.to_the_end().await, [""; 0], "no run without the Lease");
    let (second, mut seconds_runs) = idle("brief", &store);
    drop(standby.manager.register(second).expect("the name is free"));

    create(&cluster, "other").await;
    assert_eq!(runs.before("other").await, [""; 0]);
    assert!(heir.status().is_some_and(|status| !status.leading), "the leader still leads");
    leader.stop().await.expect("stopped, with the Lease released");
    for runs in [&mut heirs_runs, &mut seconds_runs] {
        let mut names = [runs.next().await.name, runs.next().await.name];
        names.sort();
        assert_eq!(names, ["other", WEB], "one run for each key that was added before the term");
    }
    standby.stop().await.expect("stopped in order");
    assert_eq!(heirs_runs.to_the_end().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_of_an_unlisted_kind_waits_alone_and_can_be_removed() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base_with(&rules()).await;
    create(&cluster, WEB).await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let ingresses = manager.manager.store::<Ingress>(Scope::all());
    let register = || {
        let (reconciler, runs) = witness(done);
        let early = Controller::new("early").reconciles(&ingresses).reconciler(reconciler);
        (manager.manager.register(early).expect("registered"), runs)
    };
    let (early, runs) = register();
    early.trigger(request(&cluster, WEB)).expect("a key added");
    manager.leads().await;
    let forbidden = async || {
        let (status, body) = get(manager.probes(), "/readyz/cache-Ingress.networking.k8s.io").await;
        status == 500 && body.contains("403")
    };
    until_so("the server to refuse the list", forbidden).await;

    let (other, mut others_runs) = idle("other", &maps(&manager.manager));
    drop(manager.manager.register(other).expect("registered"));
    assert_eq!(others_runs.next().await.name, WEB, "other kinds are reconciled");
    let status = early.status().expect("a running controller");
    assert!(!status.synced && status.counts.ready() == 1, "the key waits for the sync: {status:?}");
    early.remove().await.expect("removed");
    assert_eq!(runs.to_the_end().await, [""; 0], "no run before the first sync, and none after the removal");

    let (_, mut runs) = register();
    let list =
        json!([{"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": ["list", "watch"]}]);
    cluster.grant(&identity, &list).await;
    let ingress = json!({"metadata": {"name": WEB}, "spec": {"defaultBackend":
        {"service": {"name": WEB, "port": {"number": 80}}}}});
    let ingress: Ingress = serde_json::from_value(ingress).expect("an Ingress");
    cluster.api().create(&PostParams::default(), &ingress).await.expect("created");
    assert_eq!(runs.next().await.name, WEB, "picked up without a restart");
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_lets_a_run_finish_its_writes_and_drops_one_that_takes_too_long() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base_with(&rules()).await;
    create(&cluster, WEB).await;
    let changes = json!({"shutdown": {"gracePeriod": "5s"}});
    let manager = LocalManager::start(&cluster, &identity, &changes).await;
    let store = maps(&manager.manager);

    let may_end = CancellationToken::new();
    let wait_for = may_end.clone();
    let (reconciler, mut runs) = witness(move |request, cx: Context| {
        let may_end = wait_for.clone();
        async move {
            may_end.cancelled().await;
            let namespace = request.namespace().unwrap_or_default();
            change(&Api::namespaced(cx.client().clone(), namespace), request.name(), "finished").await;
            Ok(Action::Done)
        }
    });
    let slow = Controller::new("slow").reconciles(&store).reconciler(reconciler);
    let slow = manager.manager.register(slow).expect("registered");
    runs.next().await;
    let mut removal = Box::pin(slow.remove());
    assert!(poll!(&mut removal).is_pending(), "the removal waits for the run");
    let taken = manager.manager.register(idle("slow", &store).0);
    assert!(
        matches!(taken, Err(RegisterError::DuplicateName { .. })),
        "the name is free only after the removal: {taken:?}"
    );
    may_end.cancel();
    removal.await.expect("removed");
    let map = cluster.api::<ConfigMap>().get(WEB).await.expect("the object");
    assert_eq!(map.data.unwrap_or_default()["value"], "finished");
    assert_eq!(runs.to_the_end().await, [""; 0], "its own write caused no run");

    let (reconciler, mut runs) = witness(|_, _| std::future::pending());
    let endless = Controller::new("slow").reconciles(&store).reconciler(reconciler);
    let endless = manager.manager.register(endless).expect("the name is free");
    runs.next().await;
    match endless.remove().await {
        Err(RemoveError::Late { late, .. }) => assert_eq!(late, [request(&cluster, WEB).to_string()]),
        other => panic!("expected a dropped and named run, got {other:?}"),
    }
    let (third, mut runs) = idle("slow", &store);
    drop(manager.manager.register(third).expect("the name is free"));
    assert_eq!(runs.next().await.name, WEB);
    manager.stop().await.expect("stopped in order");
}

/// Returns a controller that reads by an index, wired in the same way each time, and its runs. One index is
/// on its own store handle, the other on a handle that outlives the controller.
fn indexing(manager: &Manager, kept: &Store<ConfigMap>) -> (Registration, Runs) {
    let own = maps(manager);
    for store in [&own, kept] {
        let value = |map: &ConfigMap| map.data.iter().flat_map(|data| data.values().cloned()).collect();
        store.index("by-value", value).expect("an index");
    }
    let (read_own, read_kept) = (own.clone(), kept.clone());
    let (reconciler, runs) = witness(move |_, _| {
        let of_one = Select::index("by-value", "1");
        let found = [&read_own, &read_kept].map(|store| store.list(&of_one).map(|found| found.len()));
        async move {
            match found {
                [Ok(1), Ok(1)] => Ok(Action::Done),
                found => Err(format!("not the one map of this value: {found:?}").into()),
            }
        }
    });
    (Controller::new("indexing").reconciles(&own).reconciler(reconciler), runs)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_registered_again_declares_its_indexes_again() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base_with(&rules()).await;
    for name in [WEB, "other"] {
        create(&cluster, name).await;
    }
    change(&cluster.api(), WEB, "1").await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    manager.leads().await;
    // This handle keeps the store in use between the rounds.
    let kept = maps(&manager.manager);
    for round in 0..3 {
        let (indexing, mut runs) = indexing(&manager.manager, &kept);
        let indexing = manager.manager.register(indexing).expect("the name is free");
        let first = [runs.next().await, runs.next().await];
        assert!(first.iter().all(|run| run.attempt == 1), "round {round}: {first:?}");
        indexing.remove().await.expect("removed");
        let rest = runs.to_the_end().await;
        assert_eq!(rest, [""; 0], "round {round}: a key runs once if its run finds the object by the index");
    }
    manager.stop().await.expect("stopped in order");
}

/// Number of rounds of registration and removal.
const ROUNDS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn controllers_of_one_name_never_run_concurrently() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base_with(&rules()).await;
    create(&cluster, WEB).await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    manager.leads().await;
    let store = maps(&manager.manager);
    let mut changing = JoinSet::new();
    let objects = cluster.api::<ConfigMap>();
    changing.spawn(async move {
        for value in 0_u64.. {
            change(&objects, WEB, &value.to_string()).await;
        }
    });

    // Current and highest number of concurrent runs.
    let at_work = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    for round in 0..ROUNDS {
        let shared = Arc::clone(&at_work);
        let (reconciler, mut runs) = witness(move |_, _| {
            let at_work = Arc::clone(&shared);
            async move {
                let now = at_work.0.fetch_add(1, Ordering::SeqCst) + 1;
                at_work.1.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                at_work.0.fetch_sub(1, Ordering::SeqCst);
                Ok(Action::Done)
            }
        });
        let churn = Controller::new("churn").reconciles(&store).reconciler(reconciler);
        let churn = manager.manager.register(churn).expect("the name is free");
        // The rounds remove a controller before its first run, during it, and after some runs.
        for _ in 0..round % 3 {
            runs.next().await;
        }
        churn.remove().await.expect("removed");
        assert_eq!(at_work.0.load(Ordering::SeqCst), 0, "no run outlasts the removal");
    }
    changing.shutdown().await;
    assert_eq!(at_work.1.load(Ordering::SeqCst), 1, "two runs never overlap");
    let metrics = manager.metrics_text().await;
    assert!(!metrics.contains(r#""churn""#), "{metrics}");
    manager.stop().await.expect("stopped in order");
}
