//! Existing Deployments: adopted without a restart, or left alone.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::{tcp, wait_deployment};
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::{Value, json};

/// The template of the original, with fields that a test removes.
fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main", "image": "example.invalid/main:1", "env": [{"name": "MODE", "value": "x"}],
            }],
        },
    })
}

fn object(prerequisite: &Prerequisite, template: &Value, others: &Value) -> WaitDeployment {
    let mut wait_for = others.clone();
    wait_for["dependencies"] = json!([tcp("a", prerequisite.address())]);
    let spec = json!({"minReadySeconds": 1, "template": template, "waitFor": wait_for});
    wait_deployment("web", &json!({"metadata": {"labels": {"team": "a"}}, "spec": spec}))
}

/// A Deployment as the original controller made it: created, not applied, without an owner.
async fn old_deployment(cluster: &TestCluster) -> Deployment {
    let old = json!({
        "metadata": {"name": "web", "labels": {"by": "hand"}},
        "spec": {
            "replicas": 2, "minReadySeconds": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": template(),
        },
    });
    let old = serde_json::from_value(old).expect("a Deployment");
    let params = PostParams { field_manager: Some("waitdeployment-controller".to_owned()), dry_run: false };
    cluster.api::<Deployment>().create(&params, &old).await.expect("created");
    wait::until(&cluster.api::<Deployment>(), "web", "it to be available", |web| {
        web.status.as_ref().is_some_and(|status| status.available_replicas == Some(2))
    })
    .await
}

fn has_condition(object: &WaitDeployment, type_: &str, status: &str, reason: &str) -> bool {
    object
        .condition(type_)
        .is_some_and(|found| found.status == status && found.reason.as_deref() == Some(reason))
}

fn is_owned(deployment: &Deployment) -> bool {
    deployment.owner_references().iter().any(|owner| owner.controller == Some(true))
}

async fn replica_sets(cluster: &TestCluster) -> Vec<String> {
    let sets = cluster.api::<ReplicaSet>().list(&ListParams::default()).await.expect("listed").items;
    sets.iter().map(kube::ResourceExt::name_any).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_deployment_is_adopted_with_its_fields_and_without_a_restart() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let identity = cluster.install_base().await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    old_deployment(&cluster).await;
    cluster.kubectl(&["rollout", "restart", "deployment/web"]).await;
    cluster.kubectl(&["rollout", "status", "--timeout=60s", "deployment/web"]).await;
    let before = deployments.get("web").await.expect("there");
    let sets = replica_sets(&cluster).await;

    // The prerequisite is down: a running Deployment is not gated again.
    let prerequisite = Prerequisite::closed();
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    objects
        .create(&PostParams::default(), &object(&prerequisite, &template(), &json!({})))
        .await
        .expect("made");
    let adopted = wait::until(&deployments, "web", "to be adopted", is_owned).await;
    let ready = |web: &WaitDeployment| has_condition(web, "Ready", "True", "Available");
    wait::until(&objects, "web", "Ready", ready).await;
    assert_eq!(adopted.uid(), before.uid(), "the same Deployment");
    assert_eq!(adopted.spec, before.spec, "with the same spec, replicas and the user's restart included");
    assert_eq!(replica_sets(&cluster).await, sets, "and no new ReplicaSet");
    assert_eq!(adopted.labels().get("by").map(String::as_str), Some("hand"), "a label of another writer");
    assert_eq!(adopted.labels().get("team").map(String::as_str), Some("a"), "a label of the WaitDeployment");

    // A field removed from now on disappears from the Deployment.
    let mut edited = template();
    edited["spec"]["terminationGracePeriodSeconds"] = Value::Null;
    edited["spec"]["containers"][0]["env"] = Value::Null;
    edited["spec"]["containers"][0]["image"] = "example.invalid/main:2".into();
    let edit = Patch::Merge(json!({"spec": {"template": edited, "minReadySeconds": null}}));
    objects.patch("web", &PatchParams::default(), &edit).await.expect("edited");
    let now = wait::until(&deployments, "web", "the edit", |web| {
        let spec = web.spec.template.spec.as_ref();
        spec.is_some_and(|spec| spec.containers[0].image.as_deref() == Some("example.invalid/main:2"))
    })
    .await;
    let spec = now.spec.template.spec.expect("a Pod");
    assert_eq!(spec.containers[0].env, None, "a removed field");
    assert_eq!(spec.termination_grace_period_seconds, Some(30), "the server's default again");
    assert_eq!(now.spec.min_ready_seconds, None);
    assert_eq!(now.spec.replicas, Some(2), "replicas still belong to another writer");
    let managers: Vec<_> = now.metadata.managed_fields.unwrap_or_default();
    let creator = managers.iter().find(|entry| entry.manager.as_deref() == Some("waitdeployment-controller"));
    let left = creator.and_then(|entry| entry.fields_v1.as_ref()).map(|fields| fields.0["f:spec"].clone());
    assert_eq!(
        left,
        Some(json!({"f:replicas": {}})),
        "the creator keeps the fields that mainstay does not write"
    );
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orphaned_deployment_is_adopted_by_the_next_object_of_its_name() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let prerequisite = Prerequisite::open();
    let object = object(&prerequisite, &template(), &json!({}));
    objects.create(&PostParams::default(), &object).await.expect("created");
    let before = wait::until(&deployments, "web", "the Deployment", is_owned).await;
    objects.delete("web", &DeleteParams::orphan()).await.expect("deleted");
    wait::until_gone(&objects, "web").await;
    let orphan = deployments.get("web").await.expect("it stays");
    assert!(!is_owned(&orphan));
    objects.create(&PostParams::default(), &object).await.expect("created");
    let again = wait::until(&deployments, "web", "to be adopted", is_owned).await;
    assert_eq!((again.uid(), &again.spec), (before.uid(), &before.spec));
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_may_not_be_adopted_is_left_unchanged() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let before = old_deployment(&cluster).await;
    let prerequisite = Prerequisite::open();
    let mut other = template();
    other["spec"]["containers"][0]["image"] = "example.invalid/other:1".into();
    let invalid = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}});
    let refused = [
        (object(&prerequisite, &template(), &json!({"adoption": "Never"})), "adoption is Never"),
        (object(&prerequisite, &other, &json!({"adoption": "IfIdentical"})), "its template differs"),
        (object(&prerequisite, &invalid, &json!({"adoption": "IfIdentical"})), "its template differs"),
    ];
    for (object, why) in refused {
        objects.create(&PostParams::default(), &object).await.expect("created");
        let conflict = |web: &WaitDeployment| has_condition(web, "Ready", "False", "DeploymentConflict");
        let web = wait::until(&objects, "web", why, conflict).await;
        let message = web.condition("Ready").and_then(|ready| ready.message.clone()).unwrap_or_default();
        assert!(message.contains(why), "{message}");
        let now = deployments.get("web").await.expect("there");
        assert_eq!((&now.spec, now.owner_references()), (&before.spec, &[][..]), "{why}");
        assert_eq!(now.annotations().get("apps.mainstay.dev/generation"), None, "{why}");
        objects.delete("web", &DeleteParams::background()).await.expect("deleted");
        wait::until_gone(&objects, "web").await;
    }
    let identical = object(&prerequisite, &template(), &json!({"adoption": "IfIdentical"}));
    objects.create(&PostParams::default(), &identical).await.expect("created");
    let adopted = wait::until(&deployments, "web", "to be adopted", is_owned).await;
    assert_eq!(adopted.spec, before.spec);
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_of_another_controller_is_left_alone_whatever_the_policy() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let other: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "other"}})).expect("a ConfigMap");
    let other = cluster.api::<ConfigMap>().create(&PostParams::default(), &other).await.expect("created");
    old_deployment(&cluster).await;
    let owner = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": other.uid(), "controller": true,
    }]);
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owner}}));
    let before = deployments.patch("web", &PatchParams::default(), &patch).await.expect("owned");

    let prerequisite = Prerequisite::open();
    for policy in ["Never", "IfUnowned", "IfIdentical"] {
        let object = object(&prerequisite, &template(), &json!({"adoption": policy}));
        objects.create(&PostParams::default(), &object).await.expect("created");
        let conflict = |web: &WaitDeployment| has_condition(web, "Ready", "False", "DeploymentConflict");
        let web = wait::until(&objects, "web", policy, conflict).await;
        let message = web.condition("Ready").and_then(|ready| ready.message.clone()).unwrap_or_default();
        assert!(message.contains("is controlled by ConfigMap other"), "{policy}: {message}");
        objects.delete("web", &DeleteParams::background()).await.expect("deleted");
        wait::until_gone(&objects, "web").await;
    }
    manager.stop().await.expect("stopped in order");
    let now = deployments.get("web").await.expect("it stays");
    assert_eq!(now.metadata.uid, before.metadata.uid, "the same Deployment");
    assert_eq!((&now.spec, now.owner_references()), (&before.spec, before.owner_references()));
    // Its resourceVersion changes with the status of the Deployment controller, so the audit log must prove
    // it.
    let writes = cluster.writes();
    let by_mainstay: Vec<_> =
        writes.iter().filter(|write| write.resource.starts_with("deployments")).collect();
    assert!(by_mainstay.is_empty(), "{by_mainstay:#?}");
}
