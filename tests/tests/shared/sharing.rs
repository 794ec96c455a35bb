//! Several controllers for one kind share its store, and nothing else; the watch ends with the last of them.

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

/// The watches on the server of one namespace each. Nobody else watches this kind so: no other test looks at it, and the
/// cluster's own controllers watch all namespaces at once.
async fn watches(cluster: &TestCluster) -> f64 {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let metrics = cluster.client().request_text(request).await.expect("the administrator may ask");
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

/// Waits until the server serves as many.
async fn until_watches(cluster: &TestCluster, count: u8) {
    let there = async || (watches(cluster).await - f64::from(count)).abs() < 0.5;
    until_so(&format!("{count} watches on the server"), there).await;
}

async fn done(_: NamespacedName, _: Context) -> Outcome {
    Ok(Action::Done)
}

/// Whether an object has the label that a picky controller looks for.
fn is_picked(delta: &Delta<'_>) -> bool {
    delta.latest().is_some_and(|view| view.meta().labels.get("step") == Some("pick"))
}

async fn next_two(runs: &mut Runs) -> [String; 2] {
    let mut names = [runs.next().await.name, runs.next().await.name];
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_of_one_kind_share_one_watch_that_ends_with_the_last_and_disturb_each_other_in_nothing() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let rules = json!([{"apiGroups": ["storage.k8s.io"], "resources": ["csistoragecapacities"], "verbs": ["list", "watch"]}]);
    let identity = cluster.install_base_with(&rules).await;
    for name in ["a", "b"] {
        create(&cluster, name).await;
    }
    assert!(watches(&cluster).await.abs() < 0.5, "nobody watches the kind before");
    let changes = json!({"controllers": {"*": {"workers": 1, "queue": {"retry": {"baseDelay": "10m"}}}}});
    let (all, mut alls_runs) = witness(done);
    let (fails, mut failed) = witness(async |_, _| Err(ReconcileError::from("no luck")));
    let (picky, mut chosen) = witness(done);
    let mut handles = None;
    let manager = LocalManager::start_with(&cluster, &identity, &changes, |manager| {
        // Each asks for a store of its own, as controllers that do not know of each other would.
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
    assert_eq!(next_two(&mut failed).await, ["a", "b"], "each sees every object");
    // Three controllers.
    until_watches(&cluster, 1).await;

    let capacities = cluster.api::<CSIStorageCapacity>();
    label(&capacities, "a", "pick").await;
    assert_eq!(chosen.next().await.name, "a", "the first that its predicate lets through");
    assert_eq!(alls_runs.next().await.name, "a", "seen by who has no predicate");
    let run = failed.next().await;
    assert_eq!((&*run.name, run.attempt), ("a", 2), "failures are counted by controller");

    picky.remove().await.expect("it leaves in order");
    label(&capacities, "b", "pick").await;
    create(&cluster, "c").await;
    assert_eq!(next_two(&mut alls_runs).await, ["b", "c"], "the others see everything as before");
    assert_eq!(chosen.to_the_end().await, [""; 0]);
    assert!((0.5..1.5).contains(&watches(&cluster).await), "the watch stays, for others need it");
    let metrics = manager.metrics_text().await;
    let total = |controller: &str, result: &str| {
        let labels = format!(r#"{{controller="{controller}",result="{result}"}}"#);
        sample(&metrics, &format!("controller_runtime_reconcile_total{labels}"))
    };
    assert_eq!((total("all", "error"), total("picky", "success")), (Some(0.0), None));

    // A part of what is watched already is read through that watch.
    let labelled = manager
        .manager
        .store::<CSIStorageCapacity>(Scope::all().labels("step=pick".parse().expect("a selector")));
    let (reconciler, mut parts_runs) = witness(done);
    let part = Controller::new("part").reconciles(&labelled).reconciler(reconciler);
    let part = manager.manager.register(part).expect("registered");
    assert_eq!(next_two(&mut parts_runs).await, ["a", "b"]);
    assert!((0.5..1.5).contains(&watches(&cluster).await), "labels can be judged here");

    // That a second watch would be seen: only the server can judge fields.
    let ours = format!("metadata.namespace={}", cluster.namespace());
    let store = |scope| manager.manager.store::<CSIStorageCapacity>(scope);
    let (reconciler, mut runs) = witness(done);
    let other = Controller::new("other").reconciles(&store(Scope::all().fields(ours))).reconciler(reconciler);
    let other = manager.manager.register(other).expect("registered");
    assert!(next_two(&mut runs).await.iter().all(|name| ["a", "b", "c"].contains(&name.as_str())));
    until_watches(&cluster, 2).await;

    // Each watch ends with its last user, and a part is a user of the whole.
    other.remove().await.expect("it leaves in order");
    until_watches(&cluster, 1).await;
    all.remove().await.expect("it leaves in order");
    fails.remove().await.expect("it leaves in order");
    label(&capacities, "c", "pick").await;
    assert_eq!(parts_runs.next().await.name, "c", "it is told as before");
    assert!((0.5..1.5).contains(&watches(&cluster).await), "by the same watch");
    part.remove().await.expect("it leaves in order");
    assert!((0.5..1.5).contains(&watches(&cluster).await), "who declared it holds it still");
    drop(labelled);
    until_watches(&cluster, 0).await;
    let check = "/readyz/cache-CSIStorageCapacity.storage.k8s.io";
    assert_eq!(get(manager.probes(), check).await.0, 404, "nothing is left to be checked");
    let (of_kind, metrics) = (r#"kind="CSIStorageCapacity""#, manager.metrics_text().await);
    let left: Vec<_> = metrics.lines().filter(|line| line.contains(of_kind)).collect();
    assert_eq!(left, [""; 0], "no series is left");

    // Whoever asks again gets a list and a watch again.
    capacities.delete("b", &DeleteParams::default()).await.expect("deleted");
    let (reconciler, mut runs) = witness(done);
    let again = Controller::new("all").reconciles(&store(Scope::all())).reconciler(reconciler);
    let again = manager.manager.register(again).expect("the name is free");
    assert_eq!(next_two(&mut runs).await, ["a", "c"]);
    until_watches(&cluster, 1).await;
    again.remove().await.expect("it leaves in order");
    until_watches(&cluster, 0).await;
    manager.stop().await.expect("stopped in order");
}
