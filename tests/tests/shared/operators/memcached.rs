//! The scenarios of operator-sdk's Memcached.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use mainstay_operators::memcached::{self, Memcached};

use super::*;

const SAMPLE: &str = include_str!("../../../../operators/samples/memcached/memcached.yaml");

/// The finalizer of the test, with which it sees a Memcached after the cleanup.
const HOLD: &str = "tests.mainstay.dev/hold";

fn memcached(name: &str, size: i32) -> Value {
    json!({"metadata": {"name": name}, "spec": {"size": size, "containerPort": 11211}})
}

/// Returns whether a Memcached has this status and reason of the condition `Available` for its newest spec.
fn available(status: &'static str, reason: &'static str) -> impl Fn(&Value) -> bool {
    move |object| {
        let observed = &object["status"]["conditions"][0]["observedGeneration"];
        condition(object, "Available") == Some((status, reason))
            && *observed == object["metadata"]["generation"]
    }
}

async fn scenarios(cluster: &TestCluster) -> Result<(), BoxError> {
    let (memcacheds, deployments) = (Objects::<Memcached>::of(cluster), Objects::<Deployment>::of(cluster));

    // The Deployment is created, and the Memcached becomes available: the test of the scaffold.
    memcacheds.create(serde_saphyr::from_str(SAMPLE)?).await?;
    let running = memcacheds.until("memcached-sample", "is available", available("True", "Reconciling"));
    let running = running.await?;
    assert_eq!(running["status"]["conditions"].as_array().map(Vec::len), Some(2));
    assert_eq!(condition(&running, "Degraded"), Some(("False", "Reconciling")));
    assert_eq!(running["metadata"]["finalizers"], json!(["cache.example.com/finalizer"]));
    let deployment = json!(deployments.0.get("memcached-sample").await?);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(container["image"], "memcached:1.6-alpine");
    assert_eq!(container["ports"][0]["containerPort"], 11211);
    recorded(cluster, "memcached-sample", "Created").await?;

    // The Deployment follows the size, also against changes by hand.
    memcacheds.patch("memcached-sample", json!({"spec": {"size": 3}})).await?;
    let grown = memcacheds.until("memcached-sample", "is available again", available("True", "Reconciling"));
    let message = &grown.await?["status"]["conditions"][0]["message"];
    assert_eq!(*message, "3 of 3 Pods are available");
    deployments.patch("memcached-sample", json!({"spec": {"replicas": 1}})).await?;
    let has_three = |deployment: &Value| deployment["spec"]["replicas"] == 3;
    deployments.until("memcached-sample", "is scaled back", has_three).await?;

    // A Deployment of another controller cannot be resized.
    let other = Objects::<ConfigMap>::of(cluster).create(json!({"metadata": {"name": "other"}})).await?;
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": other.metadata.uid, "controller": true,
    });
    let mut theirs = deployment;
    theirs["metadata"] = json!({"name": "taken", "ownerReferences": [owner]});
    deployments.create(theirs).await?;
    memcacheds.create(memcached("taken", 2)).await?;
    memcacheds.until("taken", "is not available", available("False", "Resizing")).await?;
    memcacheds.delete("taken").await?;

    // The schema has the limits of the original.
    let large = memcacheds.refused(memcached("large", 4)).await;
    assert!(large.contains("spec.size"), "{large}");

    // The cleanup reports the end before the finalizer goes, and the Deployment is deleted with its owner.
    let finalizers = json!(["cache.example.com/finalizer", HOLD]);
    memcacheds.patch("memcached-sample", json!({"metadata": {"finalizers": finalizers}})).await?;
    memcacheds.0.delete("memcached-sample", &DeleteParams::default()).await?;
    let cleaned = |object: &Value| object["metadata"]["finalizers"] == json!([HOLD]);
    let cleaned = memcacheds.until("memcached-sample", "is cleaned up", cleaned).await?;
    assert_eq!(condition(&cleaned, "Degraded"), Some(("True", "Finalizing")));
    recorded(cluster, "memcached-sample", "Deleting").await?;
    memcacheds.patch("memcached-sample", json!({"metadata": {"finalizers": null}})).await?;
    memcacheds.gone("memcached-sample").await?;
    deployments.gone("memcached-sample").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memcached_runs_reports_its_state_and_is_cleaned_up() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let (program, setup) = (memcached::program(), memcached::setup);
    run::<Memcached>(&cluster, &program, setup, async || Box::pin(scenarios(&cluster)).await).await;
    cluster.stop().await;
}
