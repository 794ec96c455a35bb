//! A failing object waits for its backoff, or until another object changes that may have caused the failure.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams, Resource as _};
use mainstay::cache::{Scope, View};
use mainstay::controller::Controller;
use mainstay::key::{Key as _, NamespacedName};
use mainstay::manager::ControllerHandle;
use mainstay::reconcile::{Action, Context, Outcome, ReconcileError};
use mainstay::watch::{Notifier, channel, map_view};
use mainstay_tests::process::sample;
use mainstay_tests::witness::{Run, Runs, witness};
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::{Value, json};

const WEB: &str = "web";
const MARKER: &str = "marker";
const CHILD: &str = "child";
const FRIEND: &str = "friend";

/// Writes the attempt into the status of `web`, as controllers do, and fails.
async fn report_and_fail(request: NamespacedName, cx: Context) -> Outcome {
    if request.name() != WEB {
        return Ok(Action::Done);
    }
    let ingresses: Api<Ingress> =
        Api::namespaced(cx.client().clone(), request.namespace().unwrap_or_default());
    let status = of_attempt(cx.attempt());
    ingresses.patch_status(WEB, &PatchParams::default(), &Patch::Merge(status)).await?;
    Err(ReconcileError::from("no luck"))
}

/// Writes the status of a Service that `web` depends on.
async fn write_friend_status(request: NamespacedName, cx: Context) -> Outcome {
    let services: Api<Service> =
        Api::namespaced(cx.client().clone(), request.namespace().unwrap_or_default());
    services.patch_status(request.name(), &PatchParams::default(), &probed("False")).await?;
    Ok(Action::Done)
}

fn probed(status: &str) -> Patch<Value> {
    let condition = json!({
        "type": "Ready", "status": status, "reason": "Probed", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    Patch::Merge(json!({"status": {"conditions": [condition]}}))
}

fn of_attempt(attempt: u32) -> Value {
    json!({"status": {"loadBalancer": {"ingress": [{"hostname": host_of(attempt)}]}}})
}

fn host_of(attempt: u32) -> String {
    format!("attempt-{attempt}.example")
}

fn has_host(ingress: &Ingress, host: &str) -> bool {
    let balancer = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let hosts = balancer.and_then(|balancer| balancer.ingress.as_ref());
    hosts.into_iter().flatten().any(|one| one.hostname.as_deref() == Some(host))
}

/// A manager with one controller that failed once for `web`; the backoff of `web` takes minutes.
struct Scene {
    cluster: TestCluster,
    manager: LocalManager,
    controller: ControllerHandle,
    /// Makes another controller of the same manager write the status of `friend`.
    neighbour: Notifier<NamespacedName>,
    runs: Runs,
    /// Number of changes of `marker` so far.
    marks: u32,
}

impl Scene {
    async fn begin(cluster: TestCluster) -> Self {
        let ingress = |name: &str| {
            let spec = json!({"defaultBackend": {"service": {"name": name, "port": {"number": 80}}}});
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("an Ingress")
        };
        let ingresses = cluster.api::<Ingress>();
        let web: Ingress = ingresses.create(&PostParams::default(), &ingress(WEB)).await.expect("created");
        ingresses.create(&PostParams::default(), &ingress(MARKER)).await.expect("created");
        let owner = web.controller_owner_ref(&()).expect("it has a uid");
        for (name, owners) in [(CHILD, json!([owner])), (FRIEND, json!([]))] {
            let service = json!({
                "metadata": {"name": name, "labels": {"is": name}, "ownerReferences": owners},
                "spec": {"clusterIP": "None"},
            });
            let service: Service = serde_json::from_value(service).expect("a Service");
            cluster.api().create(&PostParams::default(), &service).await.expect("created");
        }
        let identity = cluster
            .install_base_with(&json!([
                {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses", "ingresses/status"],
                    "verbs": ["list", "watch", "patch"]},
                {"apiGroups": [""], "resources": ["services", "services/status"],
                    "verbs": ["list", "watch", "patch"]},
            ]))
            .await;
        let changes = json!({"controllers": {"*": {"workers": 1, "queue": {"retry": {"baseDelay": "10m"}}}}});
        let (reconciler, mut runs) = witness(report_and_fail);
        let (neighbour, orders) = channel();
        let mut controller = None;
        let manager = LocalManager::start_with(&cluster, &identity, &changes, |manager| {
            let ingresses = manager.store::<Ingress>(Scope::all());
            let children =
                manager.store::<Service>(Scope::all().labels("is=child".parse().expect("a selector")));
            let friends =
                manager.store::<Service>(Scope::all().labels("is=friend".parse().expect("a selector")));
            let waits_for = |view: &View| {
                view.request().namespace().map(|namespace| NamespacedName::namespaced(namespace, WEB))
            };
            let wired = Controller::new("backoff")
                .reconciles(&ingresses)
                .owns(&children)
                .watches(&friends, map_view(waits_for));
            controller = Some(manager.register(wired.reconciler(reconciler)).expect("registered"));
            let neighbour = Controller::new("neighbour").source(orders);
            drop(manager.register(neighbour.reconciler(witness(write_friend_status).0)).expect("registered"));
        })
        .await;
        let first = [runs.next().await, runs.next().await];
        for name in [WEB, MARKER] {
            let ran = first.iter().any(|run| run.name == name && run.attempt == 1);
            assert!(ran, "every object runs once, even if several sources enqueue it: {first:?}");
        }
        let controller = controller.expect("registered");
        Self { cluster, manager, controller, neighbour, runs, marks: 0 }
    }

    /// Changes `marker` and waits for its run. Asserts that no other key ran before, and that `web` waits
    /// after so many failures.
    async fn only_marker_runs(&mut self, failures: u32) {
        self.marks += 1;
        let mark = json!({"metadata": {"labels": {"mark": self.marks.to_string()}}});
        self.cluster
            .api::<Ingress>()
            .patch(MARKER, &PatchParams::default(), &Patch::Merge(mark))
            .await
            .expect("marked");
        assert_eq!(self.runs.before(MARKER).await, [""; 0], "a run before the marker");
        let counts = self.controller.status().expect("it lives").counts;
        assert_eq!((counts.delayed, counts.ready()), (1, 0), "web waits: {counts:?}");
        let metrics = self.manager.metrics_text().await;
        let errors = sample(&metrics, r#"controller_runtime_reconcile_errors_total{controller="backoff"}"#);
        assert_eq!(errors, Some(f64::from(failures)));
    }

    /// Writes a new status of a Service.
    async fn change_status(&self, service: &str) {
        let services = self.cluster.api::<Service>();
        services
            .patch_status(service, &PatchParams::default(), &probed("True"))
            .await
            .expect("its status is written");
    }

    async fn next(&mut self) -> Run {
        self.runs.next().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_change_of_another_object_ends_a_backoff_and_an_own_one_does_not() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let ingresses = cluster.api::<Ingress>();
    let mut scene = Scene::begin(cluster).await;

    // By now its own status write was watched; then another writer changes that status.
    wait::until(&ingresses, WEB, "its own report", |web| has_host(web, &host_of(1))).await;
    scene.only_marker_runs(1).await;
    let foreign = Patch::Merge(of_attempt(99));
    ingresses.patch_status(WEB, &PatchParams::default(), &foreign).await.expect("written");
    scene.only_marker_runs(1).await;

    for (attempt, service) in [(2, CHILD), (3, FRIEND)] {
        scene.change_status(service).await;
        let run = scene.next().await;
        assert_eq!(
            (&*run.name, run.attempt),
            (WEB, attempt),
            "at once, and all failures still count: {run:?}"
        );
        assert!(run.cause.starts_with("updated ") && run.cause.contains(service), "{run:?}");
        wait::until(&ingresses, WEB, "its own report", |web| has_host(web, &host_of(attempt))).await;
        scene.only_marker_runs(attempt).await;
    }

    let Scene { manager, runs, .. } = scene;
    manager.stop().await.expect("stopped in order");
    assert_eq!(runs.to_the_end().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_of_another_controller_of_the_manager_ends_a_backoff() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let friend = NamespacedName::namespaced(cluster.namespace(), FRIEND);
    let mut scene = Scene::begin(cluster).await;
    scene.only_marker_runs(1).await;
    scene.neighbour.notify(friend);
    let run = scene.next().await;
    assert_eq!((&*run.name, run.attempt), (WEB, 2), "a write of the same process wakes it too: {run:?}");
    scene.only_marker_runs(2).await;
    scene.manager.stop().await.expect("stopped in order");
    assert_eq!(scene.runs.to_the_end().await, [""; 0]);
}
