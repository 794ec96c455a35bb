//! Controllers that come and go while their manager runs.

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

/// The rights these tests need besides the shipped ones.
fn rules() -> Value {
    json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "patch"]}])
}

/// The objects of a test, without the maps that every namespace has.
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

/// A controller that does nothing for them, and its runs.
fn idle(name: &'static str, maps: &Store<ConfigMap>) -> (Registration, Runs) {
    let (reconciler, runs) = witness(done);
    (Controller::new(name).reconciles(maps).reconciler(reconciler), runs)
}

fn request(cluster: &TestCluster, name: &str) -> NamespacedName {
    NamespacedName::namespaced(cluster.namespace(), name)
}

/// What tells that it was dropped.
fn token() -> (oneshot::Sender<()>, impl Future<Output = ()>) {
    let (kept, gone) = oneshot::channel();
    let gone = async {
        timeout(PATIENCE, gone).await.expect("it is dropped").expect_err("nobody sends");
    };
    (kept, gone)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_registered_on_the_leader_runs_and_once_removed_leaves_nothing() {
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
    assert_eq!(runs.next().await.name, WEB, "what is there already");
    create(&cluster, "other").await;
    assert_eq!(runs.next().await.name, "other", "what comes");
    let taken = manager.manager.register(idle("late", &store).0);
    assert!(matches!(&taken, Err(RegisterError::DuplicateName { name }) if **name == *"late"), "{taken:?}");
    let inspect = manager.manager.inspect_addr().expect("it is served");
    let page = async || get(inspect, "/debug/controllers/late/queue").await.0;
    assert!(manager.metrics_text().await.contains(r#"controller="late""#));
    assert_eq!(page().await, 200);

    late.remove().await.expect("it leaves in order");
    let metrics = manager.metrics_text().await;
    let left: Vec<_> = metrics.lines().filter(|line| line.contains(r#""late""#)).collect();
    assert_eq!(left, [""; 0], "no series is left");
    assert_eq!(page().await, 404);
    assert!(late.status().is_none());
    late.trigger(request(&cluster, WEB)).expect_err("it takes nothing any more");
    late.remove().await.expect("twice is the same as once");
    run_gone.await;
    predicate_gone.await;

    // The store stays, for this test holds it; and so does its check.
    assert!(store.get(&request(&cluster, "other")).expect("it is kept true").is_some());
    let check = async || get(manager.probes(), "/readyz/cache-ConfigMap").await.0;
    assert_eq!((check().await, get(manager.probes(), "/readyz").await.0), (200, 200));
    let (again, mut runs_again) = idle("late", &store);
    let again = manager.manager.register(again).expect("the name is free");
    let mut first = [runs_again.next().await.name, runs_again.next().await.name];
    first.sort();
    assert_eq!(first, ["other", WEB]);
    change(&cluster.api(), WEB, "1").await;
    assert_eq!(runs_again.next().await.name, WEB);
    assert_eq!(runs.to_the_end().await, [""; 0], "the one that left did not run again");

    again.remove().await.expect("it leaves in order");
    assert_eq!(check().await, 200);
    drop(store);
    until_so("its check to end with its last user", async || check().await == 404).await;
    assert_eq!(get(manager.probes(), "/readyz").await.0, 200, "nobody waits for what nobody uses");
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
    assert_eq!(runs.next().await.name, WEB, "what needs no Lease runs on a standby too");
    for handle in [&heir, &brief] {
        let warm = async || handle.status().is_some_and(|status| status.synced && status.counts.ready() == 1);
        until_so("its keys", warm).await;
        assert!(handle.status().is_some_and(|status| !status.leading));
    }
    let warm = r#"mainstay_queue_warm_keys{name="heir",controller="heir"}"#;
    assert_eq!(sample(&standby.metrics_text().await, warm), Some(1.0));
    brief.remove().await.expect("a standby lets it go as well");
    assert_eq!(briefs_runs.to_the_end().await, [""; 0], "it never led");
    let (second, mut seconds_runs) = idle("brief", &store);
    drop(standby.manager.register(second).expect("the name is free"));

    create(&cluster, "other").await;
    assert_eq!(runs.before("other").await, [""; 0]);
    assert!(heir.status().is_some_and(|status| !status.leading), "the leader still leads");
    leader.stop().await.expect("it gives the Lease back");
    for runs in [&mut heirs_runs, &mut seconds_runs] {
        let mut names = [runs.next().await.name, runs.next().await.name];
        names.sort();
        assert_eq!(names, ["other", WEB], "what came while it waited, once each");
    }
    standby.stop().await.expect("stopped in order");
    assert_eq!(heirs_runs.to_the_end().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_whose_kind_cannot_be_listed_yet_waits_holds_up_nobody_and_may_leave() {
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
    early.trigger(request(&cluster, WEB)).expect("it takes keys");
    manager.leads().await;
    let forbidden = async || {
        let (status, body) = get(manager.probes(), "/readyz/cache-Ingress.networking.k8s.io").await;
        status == 500 && body.contains("403")
    };
    until_so("the server to refuse the list", forbidden).await;

    let (other, mut others_runs) = idle("other", &maps(&manager.manager));
    drop(manager.manager.register(other).expect("registered"));
    assert_eq!(others_runs.next().await.name, WEB, "other kinds are reconciled");
    let status = early.status().expect("it lives");
    assert!(!status.synced && status.counts.ready() == 1, "it waits with its key: {status:?}");
    early.remove().await.expect("nothing keeps it");
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
    assert!(poll!(&mut removal).is_pending(), "it waits for the run");
    let taken = manager.manager.register(idle("slow", &store).0);
    assert!(
        matches!(taken, Err(RegisterError::DuplicateName { .. })),
        "the name is free only then: {taken:?}"
    );
    may_end.cancel();
    removal.await.expect("it leaves in order");
    let map = cluster.api::<ConfigMap>().get(WEB).await.expect("it is there");
    assert_eq!(map.data.unwrap_or_default()["value"], "finished");
    assert_eq!(runs.to_the_end().await, [""; 0], "its own write woke nobody");

    let (reconciler, mut runs) = witness(|_, _| std::future::pending());
    let endless = Controller::new("slow").reconciles(&store).reconciler(reconciler);
    let endless = manager.manager.register(endless).expect("the name is free");
    runs.next().await;
    match endless.remove().await {
        Err(RemoveError::Late { late, .. }) => assert_eq!(late, [request(&cluster, WEB).to_string()]),
        other => panic!("a run that never ends is dropped and named, not {other:?}"),
    }
    let (third, mut runs) = idle("slow", &store);
    drop(manager.manager.register(third).expect("the name is free"));
    assert_eq!(runs.next().await.name, WEB);
    manager.stop().await.expect("stopped in order");
}

/// A controller that reads by an index, wired in the same way each time: one index of its own, and one on a handle that
/// outlives it.
fn indexing(manager: &Manager, kept: &Store<ConfigMap>) -> (Registration, Runs) {
    let own = maps(manager);
    for store in [&own, kept] {
        let value = |map: &ConfigMap| map.data.iter().flat_map(|data| data.values().cloned()).collect();
        store.index("by-value", value).expect("nobody else has the name here");
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
async fn a_controller_that_comes_back_declares_its_indexes_again() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base_with(&rules()).await;
    for name in [WEB, "other"] {
        create(&cluster, name).await;
    }
    change(&cluster.api(), WEB, "1").await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    manager.leads().await;
    // Others use the store meanwhile.
    let kept = maps(&manager.manager);
    for round in 0..3 {
        let (indexing, mut runs) = indexing(&manager.manager, &kept);
        let indexing = manager.manager.register(indexing).expect("the name is free");
        let first = [runs.next().await, runs.next().await];
        assert!(first.iter().all(|run| run.attempt == 1), "round {round}: {first:?}");
        indexing.remove().await.expect("it leaves in order");
        let rest = runs.to_the_end().await;
        assert_eq!(rest, [""; 0], "round {round}: a run that finds what it looks for is the only one");
    }
    manager.stop().await.expect("stopped in order");
}

/// Rounds of registration and removal.
const ROUNDS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_the_name_runs_alone_however_often_it_changes_hands() {
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

    // Now, and at most.
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
        // One removed before it began, one in the middle of its work, and one after some of it.
        for _ in 0..round % 3 {
            runs.next().await;
        }
        churn.remove().await.expect("it leaves in order");
        assert_eq!(at_work.0.load(Ordering::SeqCst), 0, "nothing of it runs when it has left");
    }
    changing.shutdown().await;
    assert_eq!(at_work.1.load(Ordering::SeqCst), 1, "nobody had the key at the same time as another");
    let metrics = manager.metrics_text().await;
    assert!(!metrics.contains(r#""churn""#), "{metrics}");
    manager.stop().await.expect("stopped in order");
}
