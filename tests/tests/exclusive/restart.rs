//! The API server of a test cluster can be killed and started again.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, PostParams};
use mainstay_tests::{TestCluster, wait};

#[tokio::test]
async fn a_restarted_api_server_keeps_its_port_and_its_objects() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let maps = cluster.api::<ConfigMap>();
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("kept".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    maps.create(&PostParams::default(), &map).await.expect("created");

    cluster.control_plane().kill_apiserver().await;
    maps.list(&ListParams::default()).await.expect_err("the API server is down");
    cluster.control_plane().start_apiserver().await.expect("it starts again on its port");
    wait::until(&maps, "kept", "the object from before", |_| true).await;

    cluster.control_plane().restart_apiserver().await.expect("it starts once more");
    wait::until(&maps, "kept", "the object from before", |_| true).await;
    // Controllers, scheduler and kwok have reconnected.
    cluster.kubectl(&["create", "deployment", "web", "--image=example.invalid/main:1"]).await;
    cluster.kubectl(&["wait", "--for=condition=Available", "deployment/web", "--timeout=60s"]).await;
    cluster.stop().await;
}
