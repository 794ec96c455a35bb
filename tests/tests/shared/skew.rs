//! Terminating replicas, which only newer clusters count, are shown as the cluster counts them.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::json;

/// A finalizer that keeps a Pod terminating, so that it can be counted.
const KEEP: &str = "test.mainstay.dev/keep";

#[tokio::test(flavor = "multi_thread")]
async fn terminating_pods_are_counted_where_the_cluster_counts_them() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let (objects, pods) = (cluster.api::<WaitDeployment>(), cluster.api::<Pod>());
    // The Pods fit no node, so that no kubelet deletes them; the finalizer goes at the end of the test.
    let nowhere = json!({"nodeSelector": {"test.mainstay.dev/nowhere": "true"}});
    let template = json!({"metadata": {"finalizers": [KEEP]}, "spec": nowhere});
    let object = wait_deployment("web", &json!({"spec": {"replicas": 2, "template": template}}));
    objects.create(&PostParams::default(), &object).await.expect("created");
    let counts = |replicas: i32, terminating: i32| {
        move |web: &WaitDeployment| {
            let status = web.status.clone().unwrap_or_default();
            (status.replicas, status.terminating_replicas) == (Some(replicas), Some(terminating))
        }
    };
    wait::until(&objects, "web", "two Pods, none terminating", counts(2, 0)).await;
    let scale = Patch::Merge(json!({"spec": {"replicas": 1}}));
    objects.patch("web", &PatchParams::default(), &scale).await.expect("scaled");
    wait::until(&objects, "web", "one Pod, and one terminating", counts(1, 1)).await;
    let deployment = cluster.api::<Deployment>().get("web").await.expect("the Deployment");
    assert_eq!(deployment.status.and_then(|status| status.terminating_replicas), Some(1));

    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for pod in pods.list(&ListParams::default()).await.expect("listed") {
        pods.patch(&pod.name_any(), &PatchParams::default(), &release).await.expect("released");
    }
    wait::until(&objects, "web", "one Pod", counts(1, 0)).await;
    manager.stop().await.expect("stopped in order");
}
