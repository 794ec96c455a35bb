//! Annotations that steer a controller: pause this object, or reconcile that one now.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodTemplate;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use mainstay::cache::{Delta, PAUSED_ANNOTATION, RECONCILE_AT_ANNOTATION, Scope, Store};
use mainstay::controller::Controller;
use mainstay::key::{Key as _, NamespacedName};
use mainstay::reconcile::{Action, Context, Outcome};
use mainstay_tests::process::{get, sample};
use mainstay_tests::wait::{until_gone, until_so};
use mainstay_tests::witness::{Runs, witness};
use mainstay_tests::{LocalManager, TestCluster};
use parking_lot::Mutex;
use serde_json::{Value, json};

const WEB: &str = "web";
const MARKER: &str = "marker";
/// An object whose run deletes `web`.
const REAPER: &str = "reaper";
const HELD: &str = "steering.example.com/held";

/// A manager with one controller of one worker.
struct Scene {
    manager: LocalManager,
    templates: Api<PodTemplate>,
    runs: Runs,
    /// The image of `web` at each of its runs; empty if it was gone.
    images: Arc<Mutex<Vec<String>>>,
    /// Number of changes of `marker` so far.
    marks: u32,
}

impl Scene {
    /// Begins with the existing objects; `wire` adds sources and predicates to the controller.
    async fn begin(
        cluster: &TestCluster,
        wire: impl FnOnce(Controller, &Store<PodTemplate>) -> Controller,
    ) -> Self {
        let verbs = ["list", "watch", "patch", "delete"];
        let rules = json!([{"apiGroups": [""], "resources": ["podtemplates"], "verbs": verbs}]);
        let identity = cluster.install_base_with(&rules).await;
        let changes =
            json!({"inspect": {"bindAddress": "127.0.0.1:0"}, "controllers": {"*": {"workers": 1}}});
        let images = Arc::new(Mutex::default());
        let mut parts = None;
        let manager = LocalManager::start_with(cluster, &identity, &changes, |manager| {
            let store = manager.store::<PodTemplate>(Scope::all());
            let (reader, seen) = (store.clone(), Arc::clone(&images));
            let (reconciler, runs) =
                witness(move |request, cx| record(reader.clone(), Arc::clone(&seen), request, cx));
            let controller = wire(Controller::new("steering"), &store);
            let handle = manager.register(controller.reconciler(reconciler)).expect("registered");
            parts = Some((handle, runs));
        })
        .await;
        let (handle, runs) = parts.expect("registered");
        // Only a value that differs from the value in the first list triggers a reconcile.
        let synced = async || handle.status().is_some_and(|status| status.synced);
        until_so("the first list", synced).await;
        let templates = cluster.api();
        Self { manager, templates, runs, images, marks: 0 }
    }

    async fn annotate(&self, name: &str, annotations: Value) {
        self.patch(name, json!({"metadata": {"annotations": annotations}})).await;
    }

    async fn patch(&self, name: &str, patch: Value) {
        self.templates.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    }

    async fn set_image(&self, name: &str, image: &str) {
        let containers = json!([{"name": "main", "image": image}]);
        self.patch(name, json!({"template": {"spec": {"containers": containers}}})).await;
    }

    /// Requests a reconcile of `marker` and waits for it. Asserts that no other object ran before.
    async fn only_marker_runs(&mut self) {
        self.marks += 1;
        self.annotate(MARKER, json!({RECONCILE_AT_ANNOTATION: self.marks.to_string()})).await;
        assert_eq!(self.runs.before(MARKER).await, [""; 0], "ran without reason");
    }

    /// Returns the page of the queue.
    async fn queue(&self) -> Value {
        let inspect = self.manager.manager.inspect_addr().expect("an address");
        let (status, body) = get(inspect, "/debug/controllers/steering/queue").await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    }
}

/// Notes the image of `web`, and removes the finalizers of objects that are being deleted.
async fn record(
    store: Store<PodTemplate>,
    images: Arc<Mutex<Vec<String>>>,
    request: NamespacedName,
    cx: Context,
) -> Outcome {
    let template = store.get(&request)?;
    if request.name() == WEB {
        let spec = template.as_ref().and_then(|template| template.template.as_ref()?.spec.as_ref());
        let image = spec.and_then(|spec| spec.containers.first()?.image.clone());
        images.lock().push(image.unwrap_or_default());
    }
    let namespace = request.namespace().unwrap_or_default();
    let templates = Api::<PodTemplate>::namespaced(cx.client().clone(), namespace);
    if request.name() == REAPER {
        drop(templates.delete(WEB, &DeleteParams::default()).await?);
    }
    if template.is_some_and(|template| template.metadata.deletion_timestamp.is_some()) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        templates.patch(request.name(), &PatchParams::default(), &patch).await?;
    }
    Ok(Action::Done)
}

/// Creates an object without finalizers.
async fn create(cluster: &TestCluster, name: &str, annotations: Value) {
    create_held(cluster, name, annotations, &[]).await;
}

/// Creates an object with these finalizers.
async fn create_held(cluster: &TestCluster, name: &str, annotations: Value, finalizers: &[&str]) {
    let template = json!({
        "metadata": {"name": name, "annotations": annotations, "finalizers": finalizers},
        "template": {"spec": {"containers": [{"name": "main", "image": "example.invalid/main:1"}]}},
    });
    let template: PodTemplate = serde_json::from_value(template).expect("a PodTemplate");
    cluster.api().create(&PostParams::default(), &template).await.expect("created");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_object_is_parked_until_it_runs_once_with_its_last_state() {
    let Some(cluster) = TestCluster::shared().await else { return };
    create(&cluster, WEB, json!({PAUSED_ANNOTATION: "true"})).await;
    create(&cluster, MARKER, json!({})).await;
    let mut scene = Scene::begin(&cluster, |controller, store| controller.reconciles(store)).await;
    assert_eq!(scene.runs.next().await.name, MARKER, "the only object that is not paused");
    scene.set_image(WEB, "example.invalid/main:2").await;
    scene.only_marker_runs().await;
    // The annotation for a reconcile does not end a pause.
    scene.annotate(WEB, json!({RECONCILE_AT_ANNOTATION: "noon"})).await;
    scene.only_marker_runs().await;

    let queue = scene.queue().await;
    let web = queue["keys"].as_array().and_then(|keys| keys.iter().find(|key| key["name"] == WEB));
    let web = web.unwrap_or_else(|| panic!("web is not listed: {queue:#}"));
    assert_eq!(
        (&web["state"], &web["reason"], &web["attempts"], &web["lastError"]),
        (&json!("parked"), &json!("paused by annotation mainstay.dev/paused"), &json!(0), &Value::Null),
        "{queue:#}"
    );
    assert_eq!(queue["queue"]["paused"], json!(1));
    let paused = r#"mainstay_queue_paused_keys{name="steering",controller="steering"}"#;
    assert_eq!(sample(&scene.manager.metrics_text().await, paused), Some(1.0));

    scene.set_image(WEB, "example.invalid/main:3").await;
    scene.annotate(WEB, json!({PAUSED_ANNOTATION: null})).await;
    assert_eq!(scene.runs.next().await.name, WEB, "the end of the pause enqueues it");
    scene.only_marker_runs().await;
    assert_eq!(*scene.images.lock(), ["example.invalid/main:3"], "one run, with the last image");
    assert_eq!(sample(&scene.manager.metrics_text().await, paused), Some(0.0));

    // Paused again while no run is due.
    scene.annotate(WEB, json!({PAUSED_ANNOTATION: "true"})).await;
    scene.set_image(WEB, "example.invalid/main:4").await;
    scene.only_marker_runs().await;
    scene.manager.stop().await.expect("stopped in order");
    assert_eq!(scene.runs.to_the_end().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_object_is_cleaned_up_when_it_is_deleted() {
    let Some(cluster) = TestCluster::shared().await else { return };
    create_held(&cluster, WEB, json!({PAUSED_ANNOTATION: "true"}), &[HELD]).await;
    create(&cluster, MARKER, json!({})).await;
    let mut scene = Scene::begin(&cluster, |controller, store| controller.reconciles(store)).await;
    assert_eq!(scene.runs.next().await.name, MARKER);
    scene.only_marker_runs().await;
    drop(scene.templates.delete(WEB, &DeleteParams::default()).await.expect("deleted"));
    assert_eq!(scene.runs.next().await.name, WEB);
    until_gone(&scene.templates, WEB).await;
    scene.manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_object_that_another_objects_run_deletes_is_cleaned_up() {
    let Some(cluster) = TestCluster::shared().await else { return };
    create_held(&cluster, WEB, json!({PAUSED_ANNOTATION: "true"}), &[HELD]).await;
    let mut scene = Scene::begin(&cluster, |controller, store| controller.reconciles(store)).await;
    create(&cluster, REAPER, json!({})).await;
    assert_eq!(scene.runs.next().await.name, REAPER);
    assert_eq!(scene.runs.next().await.name, WEB);
    until_gone(&scene.templates, WEB).await;
    scene.manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_reconcile_at_value_bypasses_predicates_and_a_repeated_one_is_ignored() {
    let Some(cluster) = TestCluster::shared().await else { return };
    create(&cluster, WEB, json!({RECONCILE_AT_ANNOTATION: "before"})).await;
    create(&cluster, MARKER, json!({})).await;
    let refuses = |controller: Controller, store: &Store<PodTemplate>| {
        controller.reconciles(store.when(|_: &Delta<'_>| false))
    };
    let mut scene = Scene::begin(&cluster, refuses).await;
    scene.only_marker_runs().await;
    scene.set_image(WEB, "example.invalid/main:2").await;
    scene.only_marker_runs().await;
    for (value, image) in [("first", "example.invalid/main:2"), ("second", "example.invalid/main:3")] {
        scene.set_image(WEB, image).await;
        scene.annotate(WEB, json!({RECONCILE_AT_ANNOTATION: value})).await;
        assert_eq!(scene.runs.next().await.name, WEB);
        scene.only_marker_runs().await;
        assert_eq!(
            scene.images.lock().last().map(String::as_str),
            Some(image),
            "one run, with the last image"
        );
        // The same value again, also beside other changes.
        scene.annotate(WEB, json!({RECONCILE_AT_ANNOTATION: value, "note": value})).await;
        scene.set_image(WEB, "example.invalid/main:9").await;
        scene.only_marker_runs().await;
    }
    scene.annotate(WEB, json!({RECONCILE_AT_ANNOTATION: null})).await;
    scene.only_marker_runs().await;
    scene.manager.stop().await.expect("stopped in order");
}
