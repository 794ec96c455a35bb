//! A manager with a second cluster: it is read and written like the manager's own cluster, and delays only
//! its own users.
//!
//! The other cluster is a separate control plane, which a test may stop.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource as _};
use mainstay::cache::{Delta, Scope};
use mainstay::client::{EventType, is_fenced};
use mainstay::controller::Controller;
use mainstay::key::{Key as _, NamespacedName};
use mainstay::manager::{Cluster, Manager, ManagerError};
use mainstay::reconcile::{Action, Context, Outcome};
use mainstay::watch::Enqueue;
use mainstay_tests::manifests::Identity;
use mainstay_tests::process::{get, sample};
use mainstay_tests::witness::{Runs, witness};
use mainstay_tests::{LocalManager, TestCluster, wait};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Enough writes to catch a late own write: the event of a single write might already have arrived.
const WRITES: usize = 20;

/// Additional rights of the manager in its own cluster.
fn rules() -> Value {
    json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}])
}

async fn put(cluster: &TestCluster, name: &str, text: &str) {
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}});
    let params = PatchParams::apply("somebody").force();
    cluster.api::<ConfigMap>().patch(name, &params, &Patch::Apply(map)).await.expect("put");
}

fn text(map: &ConfigMap) -> Option<&str> {
    map.data.as_ref()?.get("text").map(String::as_str)
}

async fn until_copied(edge: &TestCluster, name: &str, expected: &str) {
    let what = format!("{name} is copied as {expected}");
    wait::until(&edge.api::<ConfigMap>(), name, &what, |map| text(map) == Some(expected)).await;
}

/// Registers a controller that copies each `ConfigMap` of this cluster to the other, and restores changed
/// copies. After each write it reads the copy back and records an Event there. Returns the list of copies
/// that differed when read back.
fn register_copier(
    manager: &Manager,
    own: &TestCluster,
    edge: &TestCluster,
    there: &Cluster,
) -> Arc<Mutex<Vec<String>>> {
    let maps = manager.store::<ConfigMap>(Scope::all());
    let theirs = there.store::<ConfigMap>(Scope::namespace(edge.namespace()));
    let applier = there.applier::<ConfigMap>("copier");
    let (home, abroad): (Arc<str>, Arc<str>) = (own.namespace().into(), edge.namespace().into());
    let back = move |delta: &Delta<'_>, keys: &mut Enqueue<NamespacedName>| {
        if let Some(copy) = delta.latest() {
            keys.add(NamespacedName::namespaced(Arc::clone(&home), copy.meta().name()));
        }
    };
    let controller = Controller::new("copier").reconciles(&maps).watches(&theirs, back);
    let (there, stale) = (there.clone(), Arc::default());
    let found: Arc<Mutex<Vec<String>>> = Arc::clone(&stale);
    let (copier, _runs) = witness(move |request: NamespacedName, cx: Context| {
        let (maps, theirs, applier) = (maps.clone(), theirs.clone(), applier.clone());
        let (there, abroad, found) = (there.clone(), Arc::clone(&abroad), Arc::clone(&found));
        async move {
            let Some(map) = maps.get(&request)? else { return Ok(Action::Done) };
            let cx = there.context(&cx);
            let name = NamespacedName::namespaced(Arc::clone(&abroad), request.name());
            let metadata = json!({"name": name.name(), "namespace": name.namespace()});
            let copy = json!({"metadata": metadata, "data": map.data});
            if applier.ensure(&cx, theirs.entry(&name)?.as_ref(), &copy).await?.is_change() {
                let read = theirs.get(&name)?;
                let data = read.as_ref().map(|read| &read.data);
                if data != Some(&map.data) {
                    found.lock().push(format!("of {name} {:?} was written and {data:?} read", map.data));
                }
                let copy = ObjectReference { namespace: Some(abroad.to_string()), ..map.object_ref(&()) };
                cx.events().event(&copy, EventType::Normal, "Copied", "Copy", "it is a copy");
            }
            Ok(Action::Done)
        }
    });
    manager.register(controller.reconciler(copier)).expect("registered");
    stale
}

/// Starts a manager with a cluster `edge`; `more` registers controllers on both.
async fn start(
    own: &TestCluster,
    identity: &Identity,
    edge: &TestCluster,
    more: impl FnOnce(&Manager, &Cluster),
) -> LocalManager {
    let connection = edge.connection().await;
    LocalManager::start_with(own, identity, &json!({}), |manager| {
        let there = manager.cluster("edge", connection).expect("a cluster");
        more(manager, &there);
    })
    .await
}

/// Registers a controller that does no work for each `ConfigMap`, and returns its runs.
fn register_idle(manager: &Manager, controller: Controller) -> Runs {
    let (idle, runs) = witness(|_: NamespacedName, _: Context| async { Outcome::Ok(Action::Done) });
    manager.register(controller.reconciler(idle)).expect("registered");
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_is_read_written_and_measured_like_the_own_one() {
    let Some(own) = TestCluster::shared().await else { return };
    let Some(edge) = TestCluster::another().await else { return };
    let identity = own.install_base_with(&rules()).await;
    put(&own, "card", "one").await;
    let mut stale = None;
    let manager = start(&own, &identity, &edge, |manager, there| {
        stale = Some(register_copier(manager, &own, &edge, there));
    })
    .await;
    until_copied(&edge, "card", "one").await;
    put(&own, "card", "two").await;
    until_copied(&edge, "card", "two").await;
    put(&edge, "card", "meddled with").await;
    until_copied(&edge, "card", "two").await;

    for number in 0..WRITES {
        put(&own, "count", &number.to_string()).await;
        until_copied(&edge, "count", &number.to_string()).await;
    }
    let stale = stale.expect("registered");
    assert_eq!(*stale.lock(), Vec::<String>::new(), "own writes are read at once");

    let copied = |events: &[Event]| events.iter().any(|event| event.reason.as_deref() == Some("Copied"));
    let events = wait::until_all(&edge.api(), &ListParams::default(), "the Event is there", copied).await;
    assert_eq!(events[0].reporting_controller.as_deref(), Some("mainstay/copier"));
    let at_home = own.api::<Event>().list(&ListParams::default()).await.expect("Events");
    assert!(!copied(&at_home.items), "the Event belongs to the other cluster: {at_home:?}");

    assert_eq!(get(manager.probes(), "/readyz").await.0, 200);
    assert_eq!(get(manager.probes(), "/readyz/cache-edge-ConfigMap").await, (200, "ok".to_owned()));
    let row = r#"mainstay_cache_objects{kind="ConfigMap",group="",of_cluster="edge"}"#;
    assert_eq!(sample(&manager.metrics_text().await, row), Some(2.0), "the objects card and count");
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_stops_writes_in_every_cluster() {
    let Some(own) = TestCluster::shared().await else { return };
    let Some(edge) = TestCluster::another().await else { return };
    let identity = own.install_base_with(&rules()).await;
    put(&own, "seed", "").await;
    let contexts = Arc::new(Mutex::new(Vec::new()));
    let mut runs = None;
    let mut manager = start(&own, &identity, &edge, |manager, there| {
        let maps = manager.store::<ConfigMap>(Scope::all());
        let (there, contexts) = (there.clone(), Arc::clone(&contexts));
        // Leaks its context, as no controller should.
        let (leaky, told) = witness(move |_: NamespacedName, cx: Context| {
            contexts.lock().push(there.context(&cx));
            async { Ok(Action::Done) }
        });
        manager.register(Controller::new("leaky").reconciles(&maps).reconciler(leaky)).expect("registered");
        runs = Some(told);
    })
    .await;
    runs.expect("registered").next().await;
    manager.leads().await;
    let cx = contexts.lock().pop().expect("a run");
    let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), edge.namespace());
    let counter: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "counter"}})).expect("a map");
    maps.create(&PostParams::default(), &counter).await.expect("a leader may write");
    let mut writing = JoinSet::new();
    writing.spawn(async move {
        for count in 1_u64.. {
            let change = Patch::Merge(json!({"data": {"text": count.to_string()}}));
            if let Err(error) = maps.patch("counter", &PatchParams::default(), &change).await {
                return (count - 1, error);
            }
        }
        unreachable!("the loop ends with the Lease");
    });
    wait::until(&edge.api::<ConfigMap>(), "counter", "a count", |map| text(map).is_some()).await;

    let stolen =
        json!({"spec": {"holderIdentity": "thief", "renewTime": format!("{:.6}", Timestamp::now())}});
    let leases: Api<Lease> = own.api();
    leases.patch("mainstay", &PatchParams::default(), &Patch::Merge(stolen)).await.expect("stolen");
    let ended = manager.stopped().await.expect_err("a replica that lost the Lease fails");
    assert!(matches!(ended, ManagerError::LeaseLost { .. }), "{ended:?}");
    let stopped =
        tokio::time::timeout(wait::PATIENCE, writing.join_next()).await.expect("the writer is stopped");
    let (answered, error) = stopped.expect("one writer").expect("no panic");
    assert!(is_fenced(&error), "{error:?}");
    let last = edge.api::<ConfigMap>().get("counter").await.expect("it is there");
    let last: u64 = text(&last).and_then(|count| count.parse().ok()).expect("a count");
    // A request that the server had received when the fence closed may have been executed.
    assert!((answered..=answered + 1).contains(&last), "{answered} writes were answered, {last} were made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_down_delays_only_controllers_that_watch_it() {
    let Some(own) = TestCluster::shared().await else { return };
    let Some(edge) = TestCluster::another().await else { return };
    let identity = own.install_base_with(&rules()).await;
    put(&own, "here-1", "").await;
    put(&edge, "there-1", "").await;
    edge.control_plane().stop_apiserver().await;
    let mut runs = None;
    let manager = start(&own, &identity, &edge, |manager, there| {
        let here = Controller::new("here").reconciles(&manager.store::<ConfigMap>(Scope::all()));
        let maps = there.store::<ConfigMap>(Scope::namespace(edge.namespace()));
        runs = Some((
            register_idle(manager, here),
            register_idle(manager, Controller::new("there").reconciles(&maps)),
        ));
    })
    .await;
    let (mut here, mut there) = runs.expect("registered");
    assert_eq!(here.next().await.name, "here-1", "this replica leads and works");
    let ready = async |path| get(manager.probes(), path).await;
    wait::until_so("this replica is ready", async || ready("/readyz").await.0 == 200).await;
    let (status, why) = ready("/readyz/cache-edge-ConfigMap").await;
    assert!(status == 500 && why.contains("has not been listed: "), "{status} {why}");

    edge.control_plane().start_apiserver().await.expect("started");
    assert_eq!(there.next().await.name, "there-1", "the waiting controller begins");
    edge.control_plane().kill_apiserver().await;
    put(&own, "here-2", "").await;
    assert_eq!(here.before("here-2").await, Vec::<String>::new());
    let down = r#"mainstay_cache_down{kind="ConfigMap",group="",of_cluster="edge"}"#;
    let told = async || sample(&manager.metrics_text().await, down) == Some(1.0);
    wait::until_so("the metric reports that the cluster is down", told).await;
    assert_eq!(ready("/readyz").await.0, 200);

    edge.control_plane().start_apiserver().await.expect("started again");
    put(&edge, "there-2", "").await;
    there.before("there-2").await;
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_managers_share_no_state_and_each_adds_a_cluster_while_it_runs() {
    let Some(own) = TestCluster::shared().await else { return };
    let Some(edge) = TestCluster::another().await else { return };
    let mut rules = rules();
    let verbs = ["get", "list", "watch", "update"];
    let lease = json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "resourceNames": ["mainstay-too"], "verbs": verbs});
    rules.as_array_mut().expect("rules").push(lease);
    let identity = own.install_base_with(&rules).await;
    let connection = edge.connection().await;
    let start = async |lease: &str| {
        let changes = json!({"leaderElection": {"leaseName": lease}});
        let manager = LocalManager::start(&own, &identity, &changes).await;
        let there =
            manager.manager.cluster("edge", connection.clone()).expect("the name is free in each manager");
        let maps = there.store::<ConfigMap>(Scope::namespace(edge.namespace()));
        let copier = Controller::new("there").reconciles(&maps);
        let runs = register_idle(&manager.manager, copier);
        (manager, runs)
    };
    put(&edge, "first", "").await;
    let ((one, mut ones), (other, mut others)) = tokio::join!(start("mainstay"), start("mainstay-too"));
    assert_eq!((ones.next().await.name, others.next().await.name), ("first".into(), "first".into()));
    let counted = async |manager: &LocalManager| {
        let reconciles = r#"controller_runtime_reconcile_total{controller="there",result="success"}"#;
        sample(&manager.metrics_text().await, reconciles)
    };
    assert_eq!(
        (counted(&one).await, counted(&other).await),
        (Some(1.0), Some(1.0)),
        "each manager counts its own reconciles"
    );

    let metrics = one.metrics();
    one.stop().await.expect("stopped in order");
    assert_eq!(ones.to_the_end().await, Vec::<String>::new());
    assert!(tokio::net::TcpStream::connect(metrics).await.is_err(), "its ports are closed");
    put(&edge, "second", "").await;
    assert_eq!(others.next().await.name, "second");
    assert_eq!(get(other.probes(), "/readyz").await.0, 200);
    assert_eq!(counted(&other).await, Some(2.0));
    let leases = own.api::<Lease>().list(&ListParams::default()).await.expect("Leases");
    let held = |name: &str| {
        leases
            .items
            .iter()
            .any(|lease| lease.metadata.name.as_deref() == Some(name) && !super::holder(lease).is_empty())
    };
    assert!(!held("mainstay") && held("mainstay-too"), "{leases:?}");
    other.stop().await.expect("stopped in order");
}
