//! A manager that restarts uses the observations that an earlier one wrote into the status, and no others.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::manifests::Identity;
use mainstay_tests::wait::{dependency_has_reason, has_reason};
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::json;

use super::resource_checks::{admit, dismiss, finish, job};

/// Returns an object that waits for the Job `migrate` to complete, read by the ServiceAccount `reader`.
fn after_migration(name: &str) -> WaitDeployment {
    let resource =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "condition": "Complete"});
    let spec = json!({
        "replicas": 1,
        "template": {"spec": {"serviceAccountName": "reader"}},
        "waitFor": {
            "dependencies": [{"name": "schema", "resource": resource}],
            "onLoss": "ScaleToZero",
            "lossGraceSeconds": 0,
        },
    });
    wait_deployment(name, &json!({"spec": spec}))
}

/// Completes a readable Job, and opens the gate of `web` with a manager that is then stopped.
async fn migrated(cluster: &TestCluster) -> Identity {
    let identity = cluster.install_base().await;
    let jobs = cluster.api::<Job>();
    jobs.create(&PostParams::default(), &job("migrate")).await.expect("created");
    admit(cluster, "reader", "jobs.batch").await;
    finish(cluster, "migrate").await;
    let manager = LocalManager::start(cluster, &identity, &json!({})).await;
    let objects = cluster.api::<WaitDeployment>();
    objects.create(&PostParams::default(), &after_migration("web")).await.expect("created");
    wait::until(&objects, "web", "Ready", has_reason("Ready", "Available")).await;
    manager.stop().await.expect("stopped in order");
    identity
}

#[tokio::test(flavor = "multi_thread")]
async fn a_succeeded_job_still_counts_after_its_deletion() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let identity = migrated(&cluster).await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    cluster.api::<Job>().delete("migrate", &DeleteParams::background()).await.expect("deleted");
    wait::until_gone(&cluster.api::<Job>(), "migrate").await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let before = deployments.get("web").await.expect("the Deployment").uid();
    deployments.delete("web", &DeleteParams::background()).await.expect("deleted");
    wait::until(&deployments, "web", "another Deployment", |web| web.uid() != before).await;
    let web = wait::until(&objects, "web", "Ready", has_reason("Ready", "Available")).await;
    assert!(dependency_has_reason("schema", "GoneAfterSuccess")(&web), "{:#?}", web.status);
    // The status of this object has no record of the success.
    objects.create(&PostParams::default(), &after_migration("late")).await.expect("created");
    wait::until(&objects, "late", "the Job to be not found", dependency_has_reason("schema", "NotFound"))
        .await;
    assert!(deployments.get_opt("late").await.expect("read").is_none());
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_revoked_between_restarts_is_no_loss_and_scales_nothing() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = migrated(&cluster).await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let before = deployments.get("web").await.expect("the Deployment").metadata.generation;
    dismiss(&cluster, "reader", "jobs.batch").await;

    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let stands = |web: &WaitDeployment| {
        let ready =
            web.condition("DependenciesReady").filter(|found| found.reason.as_deref() == Some("AllReady"));
        let message = ready.and_then(|ready| ready.message.as_deref());
        message
            .is_some_and(|message| message.starts_with("ready at the last check; schema cannot be checked"))
    };
    wait::until(&objects, "web", "the missing right to be reported", stands).await;
    // Longer than the shortest grace time before a loss scales down, which is 30 s.
    tokio::time::sleep(Duration::from_secs(35)).await;
    let web = objects.get("web").await.expect("the object");
    assert!(stands(&web) && has_reason("Ready", "Available")(&web), "{:#?}", web.status);
    assert_eq!(deployments.get("web").await.expect("the Deployment").metadata.generation, before);
    // A gate that was never open stays closed.
    objects.create(&PostParams::default(), &after_migration("late")).await.expect("created");
    wait::until(
        &objects,
        "late",
        "the missing right to be reported",
        dependency_has_reason("schema", "AccessDenied"),
    )
    .await;
    assert!(deployments.get_opt("late").await.expect("read").is_none());
    manager.stop().await.expect("stopped in order");
}
