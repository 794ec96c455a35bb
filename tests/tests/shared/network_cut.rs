//! The manager's own network is cut: everything it probes is silent at once. It takes nothing away for that, and is as
//! before once it is answered again; what is really lost afterwards is taken for it.

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
use mainstay_tests::wait::says;
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::json;

use super::gitops::judge;

/// How long the cut lasts: longer than a loss lasts at least before replicas are taken away for it, which is 30 s.
const CUT: Duration = Duration::from_secs(40);
const SHAKEN: &str = "mainstay_waitdeployment_probe_shaken";

/// Waits for what is on a host of its own: ports of one host would fall silent for a reason of theirs.
fn waiting(name: &str, prerequisite: &Prerequisite) -> WaitDeployment {
    let mut dependency = tcp("a", prerequisite.address());
    dependency["failureThreshold"] = 1.into();
    let wait_for = json!({"dependencies": [dependency], "onLoss": "ScaleToZero", "lossGraceSeconds": 1});
    wait_deployment(name, &json!({"spec": {"replicas": 1, "waitFor": wait_for}}))
}

async fn all_hold(objects: &Api<WaitDeployment>, count: usize) {
    wait::until_all(objects, &ListParams::default(), "all to be ready, with what they wait for", |found| {
        let (ready, held) = (says("Ready", "Available"), says("DependenciesReady", "AllReady"));
        let holds = |one| ready(one) && held(one);
        found.len() == count && found.iter().all(holds)
    })
    .await;
}

/// A generation counts every change of a Deployment's spec, also one that was taken back.
async fn generations(deployments: &Api<Deployment>) -> Vec<Option<i64>> {
    let found = deployments.list(&ListParams::default()).await.expect("listed").items;
    found.into_iter().map(|deployment| deployment.metadata.generation).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_network_takes_no_replicas_away_and_a_real_loss_does() {
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
    let is_shaken = async || sample(&manager.metrics_text().await, SHAKEN) == Some(1.0);

    for prerequisite in &mut prerequisites {
        prerequisite.fall_silent().await;
    }
    wait::until_so("the manager to doubt its own network", is_shaken).await;
    // The cut itself, not a wait for anything.
    tokio::time::sleep(CUT).await;
    assert!(is_shaken().await, "as long as nobody answers");
    assert_eq!(generations(&deployments).await, before, "nothing was taken away");
    for prerequisite in &mut prerequisites {
        prerequisite.come_up();
    }
    all_hold(&objects, prerequisites.len()).await;
    wait::until_so("the manager to trust its network again", async || !is_shaken().await).await;
    assert_eq!(generations(&deployments).await, before, "and nothing given back");

    prerequisites[0].go_down().await;
    let scaled = says("Ready", "ScaledToZero");
    let web = wait::until(&objects, "web-2", "what is really lost to be scaled down", scaled).await;
    judge(&web, "scaled to zero", Kstatus::InProgress, "Progressing");
    let replicas = |count| move |web: &Deployment| web.spec.replicas == Some(count);
    wait::until(&deployments, "web-2", "no replicas", replicas(0)).await;
    assert_eq!(generations(&deployments).await[1..], before[1..], "it alone");
    let impatient = Patch::Merge(json!({"spec": {"waitFor": {"recoveryDeadlineSeconds": 1}}}));
    objects.patch("web-2", &PatchParams::default(), &impatient).await.expect("edited");
    let over = says("Ready", "RecoveryDeadlineExceeded");
    let web = wait::until(&objects, "web-2", "the time to recover to be over", over).await;
    judge(&web, "not recovered in time", Kstatus::Failed, "Degraded");
    prerequisites[0].come_up();
    wait::until(&deployments, "web-2", "its replicas back", replicas(1)).await;
    all_hold(&objects, prerequisites.len()).await;
    manager.stop().await.expect("stopped in order");
}
