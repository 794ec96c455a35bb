//! A tcpSocket dependency on a Service is probed at once when the Service changes, before its period.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_service_is_probed_before_its_period_ends() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let mut manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    manager.leads().await;

    let mut prerequisite = Prerequisite::closed();
    let services = cluster.api::<Service>();
    // The only type of Service that leads to loopback.
    let service =
        json!({"metadata": {"name": "db"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let service: Service = serde_json::from_value(service).expect("a Service");
    services.create(&PostParams::default(), &service).await.expect("created");
    let dependency = json!({
        "name": "database",
        "tcpSocket": {"host": "db", "port": prerequisite.address().port()},
        "periodSeconds": 3600,
    });
    let spec = json!({"replicas": 0, "waitFor": {"dependencies": [dependency]}});
    let object = wait_deployment("web", &json!({"spec": spec}));
    let objects = cluster.api::<WaitDeployment>();
    objects.create(&PostParams::default(), &object).await.expect("created");
    let not_ready = |object: &WaitDeployment| {
        let text = object.status.as_ref().and_then(|status| status.waiting_for.as_deref());
        text.is_some_and(|text| text.starts_with("database (NotReady)"))
    };
    wait::until(&objects, "web", "a failed probe", not_ready).await;

    prerequisite.come_up();
    let change = Patch::Merge(json!({"metadata": {"labels": {"changed": "once"}}}));
    services.patch("db", &PatchParams::default(), &change).await.expect("changed");
    wait::until(&cluster.api::<Deployment>(), "web", "its Deployment", |_| true).await;
    manager.manager.stop();
    manager.stopped().await.expect("stopped in order");
}
