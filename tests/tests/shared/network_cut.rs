//! The manager's own network is cut: all its targets fall silent at once. It scales nothing down for that,
//! and continues once they answer again; a real loss afterwards is treated as one.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::{tcp, wait_deployment};
use mainstay_tests::kstatus::Kstatus;
use mainstay_tests::process::sample;
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::wait::has_reason;
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::json;

use super::gitops::judge;

/// Duration of the cut: longer than the shortest grace time before a loss scales down, which is 30 s.
const CUT: Duration = Duration::from_secs(40);
const OUTAGE: &str = "mainstay_waitdeployment_probe_outage_suspected";

/// Returns an object that waits for a host of its own: ports of a single host may fall silent together for
/// another reason.
fn waiting(name: &str, prerequisite: &Prerequisite) -> WaitDeployment {
    let mut dependency = tcp("a", prerequisite.address());
    dependency["failureThreshold"] = 1.into();
    let wait_for = json!({"dependencies": [dependency], "onLoss": "ScaleToZero", "lossGraceSeconds": 1});
    wait_deployment(name, &json!({"spec": {"replicas": 1, "waitFor": wait_for}}))
}

async fn all_hold(objects: &Api<WaitDeployment>, count: usize) {
    wait::until_all(
        objects,
        &ListParams::default(),
        "all objects and their dependencies to be ready",
        |found| {
            let (ready, held) =
                (has_reason("Ready", "Available"), has_reason("DependenciesReady", "AllReady"));
            let holds = |one| ready(one) && held(one);
            found.len() == count && found.iter().all(holds)
        },
    )
    .await;
}

/// Returns the generation of each Deployment: it counts every change of the spec, also a reverted one.
async fn generations(deployments: &Api<Deployment>) -> Vec<Option<i64>> {
    let found = deployments.list(&ListParams::default()).await.expect("listed").items;
    found.into_iter().map(|deployment| deployment.metadata.generation).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_network_scales_nothing_down_and_a_real_loss_does() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let mut prerequisites = Vec::new();
    for host in 2..6 {
        let address = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
        let mut prerequisite = Prerequisite::closed_at(address);
        prerequisite.come_up();
        let object = waiting(&format!("web-{host}"), &prerequisite);
        objects.create(&PostParams::default(), &object).await.expect("created");
        prerequisites.push(prerequisite);
    }
    all_hold(&objects, prerequisites.len()).await;
    let before = generations(&deployments).await;
    let is_suspected = async || sample(&manager.metrics_text().await, OUTAGE) == Some(1.0);

    for prerequisite in &mut prerequisites {
        prerequisite.fall_silent().await;
    }
    wait::until_so("the outage guard to freeze", is_suspected).await;
    // The duration of the cut.
    tokio::time::sleep(CUT).await;
    assert!(is_suspected().await, "frozen as long as every target is silent");
    assert_eq!(generations(&deployments).await, before, "no Deployment was changed");
    for prerequisite in &mut prerequisites {
        prerequisite.come_up();
    }
    all_hold(&objects, prerequisites.len()).await;
    wait::until_so("the outage guard to end", async || !is_suspected().await).await;
    assert_eq!(generations(&deployments).await, before, "no Deployment was changed afterwards");

    prerequisites[0].go_down().await;
    let scaled = has_reason("Ready", "ScaledToZero");
    let web = wait::until(&objects, "web-2", "the lost target's Deployment to be scaled down", scaled).await;
    judge(&web, "scaled to zero", Kstatus::InProgress, "Progressing");
    let replicas = |count| move |web: &Deployment| web.spec.replicas == Some(count);
    wait::until(&deployments, "web-2", "no replicas", replicas(0)).await;
    assert_eq!(generations(&deployments).await[1..], before[1..], "only that Deployment");
    let impatient = Patch::Merge(json!({"spec": {"waitFor": {"recoveryDeadlineSeconds": 1}}}));
    objects.patch("web-2", &PatchParams::default(), &impatient).await.expect("edited");
    let over = has_reason("Ready", "RecoveryDeadlineExceeded");
    let web = wait::until(&objects, "web-2", "the time to recover to be over", over).await;
    judge(&web, "not recovered in time", Kstatus::Failed, "Degraded");
    prerequisites[0].come_up();
    wait::until(&deployments, "web-2", "its replicas back", replicas(1)).await;
    all_hold(&objects, prerequisites.len()).await;
    manager.stop().await.expect("stopped in order");
}
