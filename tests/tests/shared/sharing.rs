//! Several controllers of one kind share its store, and nothing else; the watch ends with the last of them.

use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use mainstay::cache::{Delta, Scope};
use mainstay::controller::Controller;
use mainstay::key::NamespacedName;
use mainstay::reconcile::{Action, Context, Outcome, ReconcileError};
use mainstay_tests::process::{get, sample};
use mainstay_tests::wait::until_so;
use mainstay_tests::witness::{Runs, witness};
use mainstay_tests::{LocalManager, TestCluster};
use serde_json::json;

/// Returns the number of watches on the server for single namespaces. No other client has one: no other test
/// uses this kind, and the cluster's own controllers watch all namespaces at once.
async fn watches(cluster: &TestCluster) -> f64 {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let metrics = cluster.client().request_text(request).await.expect("metrics for the administrator");
    let watched = metrics.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{")
            && [r#"resource="csistoragecapacities""#, r#"scope="namespace""#, r#"verb="WATCH""#]
                .iter()
                .all(|label| line.contains(label))
    });
    watched.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

async fn create(cluster: &TestCluster, name: &str) {
    let capacity = json!({"metadata": {"name": name}, "storageClassName": "fast"});
    let capacity: CSIStorageCapacity = serde_json::from_value(capacity).expect("a CSIStorageCapacity");
    cluster.api().create(&PostParams::default(), &capacity).await.expect("created");
}

async fn label(capacities: &Api<CSIStorageCapacity>, name: &str, value: &str) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"step": value}}}));
    capacities.patch(name, &PatchParams::default(), &patch).await.expect("labelled");
}

/// Waits until the server serves this number of watches.
async fn until_watches(cluster: &TestCluster, count: u8) {
    let there = async || (watches(cluster).await - f64::from(count)).abs() < 0.5;
    until_so(&format!("{count} watches on the server"), there).await;
}

async fn done(_: NamespacedName, _: Context) -> Outcome {
    Ok(Action::Done)
}

/// Returns whether an object has the label that the picky controller selects.
fn is_picked(delta: &Delta<'_>) -> bool {
    delta.latest().is_some_and(|view| view.meta().labels.get("step") == Some("pick"))
}

async fn next_two(runs: &mut Runs) -> [String; 2] {
    let mut names = [runs.next().await.name, runs.next().await.name];
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_of_one_kind_share_one_watch_that_ends_with_the_last_of_them() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let verbs = ["list", "watch"];
    let rules =
        json!([{"apiGroups": ["storage.k8s.io"], "resources": ["csistoragecapacities"], "verbs": verbs}]);
    let identity = cluster.install_base_with(&rules).await;
    for name in ["a", "b"] {
        create(&cluster, name).await;
    }
    assert!(watches(&cluster).await.abs() < 0.5, "no watch of the kind before");
    let changes = json!({"controllers": {"*": {"workers": 1, "queue": {"retry": {"baseDelay": "10m"}}}}});
    let (all, mut alls_runs) = witness(done);
    let (fails, mut failed) = witness(async |_, _| Err(ReconcileError::from("no luck")));
    let (picky, mut chosen) = witness(done);
    let mut handles = None;
    let manager = LocalManager::start_with(&cluster, &identity, &changes, |manager| {
        // Each controller declares a store of its own, as independent controllers do.
        let store = || manager.store::<CSIStorageCapacity>(Scope::all());
        let register = |registration| manager.register(registration).expect("registered");
        handles = Some((
            register(Controller::new("all").reconciles(&store()).reconciler(all)),
            register(Controller::new("fails").reconciles(&store()).reconciler(fails)),
            register(Controller::new("picky").reconciles(store().when(is_picked)).reconciler(picky)),
        ));
    })
    .await;
    let (all, fails, picky) = handles.expect("registered");
    assert_eq!(next_two(&mut alls_runs).await, ["a", "b"]);
    assert_eq!(next_two(&mut failed).await, ["a", "b"], "each controller sees every object");
    // One watch for three controllers.
    until_watches(&cluster, 1).await;

    let capacities = cluster.api::<CSIStorageCapacity>();
    label(&capacities, "a", "pick").await;
    assert_eq!(chosen.next().await.name, "a", "the first object that its predicate accepts");
    assert_eq!(alls_runs.next().await.name, "a", "seen by the controller without a predicate");
    let run = failed.next().await;
    assert_eq!((&*run.name, run.attempt), ("a", 2), "failures are counted per controller");

    picky.remove().await.expect("removed");
    label(&capacities, "b", "pick").await;
    create(&cluster, "c").await;
    assert_eq!(
        next_two(&mut alls_runs).await,
        ["b", "c"],
        "the other controllers see every object as before"
    );
    assert_eq!(chosen.to_the_end().await, [""; 0]);
    assert!((0.5..1.5).contains(&watches(&cluster).await), "the watch stays for the other controllers");
    let metrics = manager.metrics_text().await;
    let total = |controller: &str, result: &str| {
        let labels = format!(r#"{{controller="{controller}",result="{result}"}}"#);
        sample(&metrics, &format!("controller_runtime_reconcile_total{labels}"))
    };
    assert_eq!((total("all", "error"), total("picky", "success")), (Some(0.0), None));

    // A narrower scope is read through the existing watch.
    let labelled = manager
        .manager
        .store::<CSIStorageCapacity>(Scope::all().labels("step=pick".parse().expect("a selector")));
    let (reconciler, mut parts_runs) = witness(done);
    let part = Controller::new("part").reconciles(&labelled).reconciler(reconciler);
    let part = manager.manager.register(part).expect("registered");
    assert_eq!(next_two(&mut parts_runs).await, ["a", "b"]);
    assert!((0.5..1.5).contains(&watches(&cluster).await), "labels are matched in the cache");

    // Counter-check: field selectors are matched by the server only, so they need a second watch.
    let fields = format!("metadata.namespace={}", cluster.namespace());
    let store = |scope| manager.manager.store::<CSIStorageCapacity>(scope);
    let (reconciler, mut runs) = witness(done);
    let other =
        Controller::new("other").reconciles(&store(Scope::all().fields(fields))).reconciler(reconciler);
    let other = manager.manager.register(other).expect("registered");
    assert!(next_two(&mut runs).await.iter().all(|name| ["a", "b", "c"].contains(&name.as_str())));
    until_watches(&cluster, 2).await;

    // Each watch ends with its last user; the narrower scope counts as a user.
    other.remove().await.expect("removed");
    until_watches(&cluster, 1).await;
    all.remove().await.expect("removed");
    fails.remove().await.expect("removed");
    label(&capacities, "c", "pick").await;
    assert_eq!(parts_runs.next().await.name, "c", "its events arrive as before");
    assert!((0.5..1.5).contains(&watches(&cluster).await), "through the same watch");
    part.remove().await.expect("removed");
    assert!((0.5..1.5).contains(&watches(&cluster).await), "the store handle keeps the watch");
    drop(labelled);
    until_watches(&cluster, 0).await;
    let check = "/readyz/cache-CSIStorageCapacity.storage.k8s.io";
    assert_eq!(get(manager.probes(), check).await.0, 404, "the check is removed");
    let (of_kind, metrics) = (r#"kind="CSIStorageCapacity""#, manager.metrics_text().await);
    let left: Vec<_> = metrics.lines().filter(|line| line.contains(of_kind)).collect();
    assert_eq!(left, [""; 0], "every series is removed");

    // A new registration starts a list and a watch again.
    capacities.delete("b", &DeleteParams::default()).await.expect("deleted");
    let (reconciler, mut runs) = witness(done);
    let again = Controller::new("all").reconciles(&store(Scope::all())).reconciler(reconciler);
    let again = manager.manager.register(again).expect("the name is free");
    assert_eq!(next_two(&mut runs).await, ["a", "c"]);
    until_watches(&cluster, 1).await;
    again.remove().await.expect("removed");
    until_watches(&cluster, 0).await;
    manager.stop().await.expect("stopped in order");
}
