//! The status of each state in the eyes of deployment tools: kstatus (Flux, Helm) and the shipped health
//! script for Argo CD.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::{lay_over, tcp, wait_deployment, with_image};
use mainstay_tests::kstatus::{Kstatus, kstatus};
use mainstay_tests::manifests::Identity;
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::{LocalManager, TestCluster, argo, wait};
use serde::Serialize;
use serde_json::{Value, json};

struct Stage {
    cluster: TestCluster,
    identity: Identity,
    /// As JSON, so that kstatus and Argo CD see the object exactly as the server stores it.
    objects: Api<DynamicObject>,
}

// === impl Stage ===

impl Stage {
    async fn set_up() -> Option<Self> {
        let cluster = TestCluster::shared().await?;
        let identity = cluster.install_base().await;
        let resource = ApiResource::erase::<WaitDeployment>(&());
        let objects = Api::namespaced_with(cluster.client(), cluster.namespace(), &resource);
        Some(Self { cluster, identity, objects })
    }

    async fn manager(&self, changes: &Value) -> LocalManager {
        LocalManager::start(&self.cluster, &self.identity, changes).await
    }

    async fn create(&self, spec: &Value) {
        let mut changes = json!({"spec": {"replicas": 1}});
        lay_over(&mut changes, &json!({"spec": spec}));
        let object = wait_deployment("web", &changes);
        self.objects.create(&PostParams::default(), &object).await.expect("created");
    }

    async fn edit(&self, patch: &Value) {
        self.objects.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.expect("edited");
    }

    /// Waits until the `Ready` condition has this reason, and asserts the results of kstatus and Argo CD.
    async fn is(&self, reason: &str, expected: Kstatus, health: &str) {
        let state = |web: &DynamicObject| {
            let generation = web.metadata.generation;
            let conditions = web.data["status"]["conditions"].as_array().into_iter().flatten();
            let mut of_now = conditions.filter(|found| found["observedGeneration"].as_i64() == generation);
            of_now.any(|found| found["type"] == "Ready" && found["reason"] == reason)
        };
        let web = wait::until(&self.objects, "web", reason, state).await;
        judge(&web, reason, expected, health);
    }

    async fn is_now(&self, what: &str, expected: Kstatus, health: &str) {
        judge(&self.objects.get("web").await.expect("the object"), what, expected, health);
    }

    async fn end(&self) {
        self.objects.delete("web", &DeleteParams::background()).await.expect("deleted");
        wait::until_gone(&self.objects, "web").await;
        wait::until_gone(&self.cluster.api::<Deployment>(), "web").await;
    }
}

// === private functions ===

/// Asserts the results of kstatus and Argo CD for an object.
pub(super) fn judge(object: &impl Serialize, what: &str, expected: Kstatus, health: &str) {
    let object = serde_json::to_value(object).expect("JSON");
    let judged = argo::health(&object).expect("a health").status;
    assert_eq!((kstatus(&object), judged.as_str()), (expected, health), "{what}: {object:#}");
}

fn waits_for(prerequisite: &Prerequisite, others: &Value) -> Value {
    let mut dependency = tcp("db", prerequisite.address());
    dependency["failureThreshold"] = 1.into();
    let mut wait_for = others.clone();
    wait_for["dependencies"] = json!([dependency]);
    json!({"waitFor": wait_for})
}

#[tokio::test(flavor = "multi_thread")]
async fn kstatus_and_argo_cd_show_each_state_of_a_waitdeployment() {
    let Some(stage) = Stage::set_up().await else { return };
    let mut prerequisite = Prerequisite::closed();
    stage.create(&waits_for(&prerequisite, &json!({"deadlineSeconds": 3600}))).await;
    stage.is_now("not reconciled yet", Kstatus::InProgress, "Progressing").await;
    let manager = stage.manager(&json!({})).await;
    stage.is("WaitingForDependencies", Kstatus::InProgress, "Progressing").await;
    stage.edit(&json!({"spec": {"waitFor": {"deadlineSeconds": 1}}})).await;
    stage.is("DeadlineExceeded", Kstatus::Failed, "Degraded").await;
    stage.edit(&json!({"spec": {"waitFor": {"onDeadline": "KeepWaiting"}}})).await;
    stage.is("DeadlineExceeded", Kstatus::InProgress, "Progressing").await;
    prerequisite.come_up();
    stage.is("Available", Kstatus::Current, "Healthy").await;

    prerequisite.go_down().await;
    wait::until(&stage.objects, "web", "the loss to be reported", |web| {
        let conditions = web.data["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|found| found["reason"] == "Lost")
    })
    .await;
    stage.is_now("running replicas stay", Kstatus::Current, "Healthy").await;
    stage.edit(&json!({"spec": {"waitFor": {"gates": ["Create", "Update"]}}})).await;
    stage.edit(&with_image(2)).await;
    stage.is("WaitingForDependencies", Kstatus::InProgress, "Progressing").await;
    prerequisite.come_up();
    stage.is("Available", Kstatus::Current, "Healthy").await;

    let paused = json!({"spec": {"paused": true, "replicas": 2,
        "template": {"spec": {"terminationGracePeriodSeconds": 5}}}});
    stage.edit(&paused).await;
    stage.is("Paused", Kstatus::InProgress, "Suspended").await;
    stage.edit(&json!({"spec": {"paused": false}})).await;
    stage.is("Available", Kstatus::Current, "Healthy").await;

    manager.stop().await.expect("stopped in order");
    stage.edit(&json!({"spec": {"replicas": 1}})).await;
    stage.is_now("the edit is not reconciled yet", Kstatus::InProgress, "Progressing").await;
    stage.edit(&json!({"metadata": {"finalizers": ["test.mainstay.dev/keep"]}})).await;
    stage.objects.delete("web", &DeleteParams::background()).await.expect("deleted");
    let manager = stage.manager(&json!({})).await;
    stage.is_now("being deleted", Kstatus::Terminating, "Progressing").await;
    stage.edit(&json!({"metadata": {"finalizers": null}})).await;
    wait::until_gone(&stage.objects, "web").await;
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn states_that_need_a_user_are_failed_for_kstatus_and_degraded_for_argo_cd() {
    let Some(stage) = Stage::set_up().await else { return };
    if !stage.cluster.has_kubectl().await {
        return;
    }
    let manager =
        stage.manager(&json!({"probePolicy": {"mode": "ServicesOnly", "allowLoopback": false}})).await;
    let prerequisite = Prerequisite::closed();

    let mut refused = waits_for(&prerequisite, &json!({}));
    refused["template"] = json!({"spec": {"containers": []}});
    stage.create(&refused).await;
    stage.is("TemplateRejected", Kstatus::Failed, "Degraded").await;
    stage.end().await;

    stage.create(&waits_for(&prerequisite, &json!({}))).await;
    stage.is("PolicyDenied", Kstatus::Failed, "Degraded").await;
    stage.end().await;

    // The definition admits a number without a unit, since manifests for the original may have one.
    let nanoseconds = wait_deployment("web", &json!({"waitProbe": {"address": "db:5432", "timeout": 3}}));
    stage.objects.create(&PostParams::default(), &nanoseconds).await.expect("created");
    stage.is("InvalidProbe", Kstatus::Failed, "Degraded").await;
    stage.end().await;

    // The schema of the definition cannot check a JSON path.
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "jsonPath": "{.status..x}", "value": "1",
    });
    let invalid = json!({"waitFor": {"dependencies": [{"name": "schema", "resource": job}]}});
    stage.create(&invalid).await;
    stage.is("InvalidSpec", Kstatus::Failed, "Degraded").await;
    stage.end().await;

    stage.cluster.kubectl(&["create", "deployment", "web", "--image=example.invalid/main:1"]).await;
    stage.create(&waits_for(&prerequisite, &json!({"adoption": "Never"}))).await;
    stage.is("DeploymentConflict", Kstatus::Failed, "Degraded").await;
    manager.stop().await.expect("stopped in order");
}
