//! A reconcile that panics, hangs or fails terminally affects its own object only.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use mainstay::cache::Scope;
use mainstay::controller::Controller;
use mainstay::key::{Key as _, NamespacedName};
use mainstay::reconcile::{Action, Context, Outcome, ReconcileError};
use mainstay_tests::process::{get, sample};
use mainstay_tests::wait::until_so;
use mainstay_tests::witness::witness;
use mainstay_tests::{LocalManager, TestCluster};
use serde_json::{Value, json};

/// One object for each outcome, by name.
const NAMES: [&str; 5] = ["fails", "fine", "hangs", "hopeless", "panics"];

async fn end_as_named(request: NamespacedName, _: Context) -> Outcome {
    match request.name() {
        "fails" => Err(ReconcileError::from("no luck")),
        "hangs" => std::future::pending().await,
        "hopeless" => Err(ReconcileError::terminal("nothing will help")),
        "panics" => panic!("a bug in a reconcile"),
        _ => Ok(Action::Done),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_a_timeout_and_a_terminal_error_are_counted_apart_and_affect_their_own_objects_only() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]);
    let identity = cluster.install_base_with(&rules).await;
    let maps = cluster.api::<ConfigMap>();
    for name in NAMES {
        let map = json!({"metadata": {"name": name, "labels": {"of": "failures"}}});
        let map: ConfigMap = serde_json::from_value(map).expect("a ConfigMap");
        maps.create(&PostParams::default(), &map).await.expect("created");
    }
    // One worker: after any outcome it must go on with the next object.
    let every = json!({"workers": 1, "reconcileTimeout": "1s", "queue": {"retry": {"baseDelay": "10m"}}});
    let changes = json!({"inspect": {"bindAddress": "127.0.0.1:0"}, "controllers": {"*": every}});
    let (reconciler, mut runs) = witness(end_as_named);
    let mut controller = None;
    let manager = LocalManager::start_with(&cluster, &identity, &changes, |manager| {
        let store =
            manager.store::<ConfigMap>(Scope::all().labels("of=failures".parse().expect("a selector")));
        let wired = Controller::new("failures").reconciles(&store).reconciler(reconciler);
        controller = Some(manager.register(wired).expect("registered"));
    })
    .await;
    let controller = controller.expect("registered");
    let mut names = Vec::new();
    for _ in NAMES {
        let run = runs.next().await;
        assert_eq!(run.attempt, 1, "{run:?}");
        names.push(run.name);
    }
    names.sort();
    assert_eq!(names, NAMES);

    let counts = || controller.status().expect("a running controller").counts;
    until_so("the last of them to end", async || counts().delayed == 3 && counts().parked == 1).await;
    let expected = [
        ("controller_runtime_reconcile_panics_total", 1.0),
        ("controller_runtime_reconcile_timeouts_total", 1.0),
        ("controller_runtime_terminal_reconcile_errors_total", 1.0),
        ("controller_runtime_reconcile_errors_total", 4.0),
    ];
    for (family, value) in expected {
        assert_eq!(count(&manager, family).await, Some(value), "{family}");
    }
    let inspect = manager.manager.inspect_addr().expect("an address");
    let (_, page) = get(inspect, "/debug/controllers/failures/queue").await;
    let page: Value = serde_json::from_str(&page).expect("JSON");
    let found: BTreeMap<&str, [&str; 2]> = page["keys"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|key| {
            let text = |field: &str| key[field].as_str().unwrap_or_default();
            (text("name"), [text("state"), text("lastError")])
        })
        .collect();
    assert_eq!(
        found,
        BTreeMap::from([
            ("fails", ["backoff", "no luck"]),
            ("hangs", ["backoff", "no outcome within reconcileTimeout 1s"]),
            ("hopeless", ["parked", "nothing will help"]),
            ("panics", ["backoff", "panic: a bug in a reconcile"]),
        ]),
        "the object fine is not in the queue"
    );

    // A change of an object ends its backoff, and the worker has survived all failures.
    for (name, attempt) in [("panics", 2), ("hopeless", 2), ("hangs", 2), ("fine", 1)] {
        let patch = Patch::Merge(json!({"data": {"value": "1"}}));
        maps.patch(name, &PatchParams::default(), &patch).await.expect("changed");
        let run = runs.next().await;
        assert_eq!((&*run.name, run.attempt), (name, attempt), "{run:?}");
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(get(manager.probes(), path).await.0, 200, "{path}");
    }
    manager.stop().await.expect("stopped in order");
}

async fn count(manager: &LocalManager, family: &str) -> Option<f64> {
    sample(&manager.metrics_text().await, &format!(r#"{family}{{controller="failures"}}"#))
}
