//! Gates that wait for Services, for objects, and for each other, on a real server.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::kstatus::Kstatus;
use mainstay_tests::report::figure;
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::gitops::judge;

fn waits_for(name: &str, dependency: &Value) -> WaitDeployment {
    let mut dependency = dependency.clone();
    dependency["name"] = "other".into();
    wait_deployment(name, &json!({"spec": {"waitFor": {"dependencies": [dependency]}}}))
}

fn service(name: &str, selector: &Value) -> Service {
    let ports = json!([{"name": "sql", "port": 5432}]);
    let spec = json!({"selector": selector, "ports": ports});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a Service")
}

/// A slice written by hand, with an endpoint that is ready or not. No connection goes to it.
fn slice(of: &str, ready: bool) -> EndpointSlice {
    serde_json::from_value(json!({
        "metadata": {"name": format!("{of}-1"), "labels": {"kubernetes.io/service-name": of}},
        "addressType": "IPv4",
        "ports": [{"name": "sql", "port": 5432}],
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": ready}}],
    }))
    .expect("an EndpointSlice")
}

fn reason<'a>(object: &'a WaitDeployment, condition: &str) -> &'a str {
    object.condition(condition).and_then(|condition| condition.reason.as_deref()).unwrap_or_default()
}

fn of_dependency(object: &WaitDeployment) -> &str {
    let status = object.status.as_ref().and_then(|status| status.dependencies.first());
    status.and_then(|entry| entry.reason.as_deref()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_opens_as_soon_as_an_endpoint_of_its_service_is_ready() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let (objects, slices) = (cluster.api::<WaitDeployment>(), cluster.api::<EndpointSlice>());
    let waits = waits_for("web", &json!({"service": {"name": "db", "port": "sql"}, "periodSeconds": 3600}));
    objects.create(&PostParams::default(), &waits).await.expect("created");
    wait::until(&objects, "web", "no Service", |web| of_dependency(web) == "ServiceNotFound").await;
    cluster.api().create(&PostParams::default(), &service("db", &json!(null))).await.expect("created");
    wait::until(&objects, "web", "no endpoint", |web| of_dependency(web) == "NoEndpoints").await;
    slices.create(&PostParams::default(), &slice("db", false)).await.expect("created");
    wait::until(&objects, "web", "still none", |web| of_dependency(web) == "NoEndpoints").await;

    let ready = Patch::Merge(json!({"endpoints": slice("db", true).endpoints}));
    slices.patch("db-1", &PatchParams::default(), &ready).await.expect("ready");
    let up = Instant::now();
    wait::until(&cluster.api::<Deployment>(), "web", "the Deployment", |_| true).await;
    let took = up.elapsed();
    figure("gate.open_after_endpoint", took.as_secs_f64() * 1000.0, "ms");
    assert!(took < Duration::from_secs(30), "faster than the period of an hour: {took:?}");
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn gates_that_wait_for_each_other_report_the_cycle_until_one_opens() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let objects = cluster.api::<WaitDeployment>();
    for name in ["api", "web"] {
        let service = service(name, &json!({"app": name}));
        cluster.api().create(&PostParams::default(), &service).await.expect("created");
    }
    let (web, api) = ("web", "api");
    for (name, other) in [(web, api), (api, web)] {
        let waits = waits_for(name, &json!({"service": {"name": other}}));
        objects.create(&PostParams::default(), &waits).await.expect("created");
    }
    for (name, path) in [(web, "web -> api -> web"), (api, "api -> web -> api")] {
        let tells = |object: &WaitDeployment| {
            let cycle = object.condition("DependencyCycle").filter(|condition| condition.status == "True");
            cycle.and_then(|cycle| cycle.message.as_deref()).is_some_and(|message| message.contains(path))
        };
        let waits = wait::until(&objects, name, path, tells).await;
        judge(&waits, path, Kstatus::Failed, "Degraded");
    }

    // A gate by `onDeadline: Proceed` counts as open, even without replicas or ready dependencies: the cycle
    // ends.
    let proceeds = json!({"replicas": 0, "waitFor": {"deadlineSeconds": 1, "onDeadline": "Proceed"}});
    let proceeds = Patch::Merge(json!({"spec": proceeds}));
    objects.patch("api", &PatchParams::default(), &proceeds).await.expect("edited");
    wait::until(&objects, "web", "no cycle, and closed", |web| {
        web.condition("DependencyCycle").is_none() && of_dependency(web) == "NoEndpoints"
    })
    .await;

    let nothing = Patch::Merge(json!({"spec": {"replicas": 1, "waitFor": null}}));
    objects.patch("api", &PatchParams::default(), &nothing).await.expect("edited");
    wait::until(&objects, "web", "no cycle, and open", |web| {
        web.condition("DependencyCycle").is_none() && reason(web, "Ready") == "Available"
    })
    .await;
    manager.stop().await.expect("stopped in order");
}
