//! The project that `mainstay new` makes, installed in a cluster by its own manifests.

use std::path::Path;

use kube::Api;
use kube::api::PostParams;
use mainstay_tests::TestCluster;
use mainstay_tests::process::sample;
use mainstay_tests::wait::{until, until_so};
use shop::api::shop::{Shop, ShopSpec};
use tokio::process::Command;

use super::install::Replica;

/// Makes the binary under test that of the project.
const SHOP: (&str, &str) = ("MAINSTAY_UNDER_TEST_SHOP", "1");

/// Creates an object and waits until its Pods are ready.
async fn reconciled(cluster: &TestCluster, name: &str) {
    let objects: Api<Shop> = Api::namespaced(cluster.client(), "default");
    let spec = ShopSpec { image: "nginx:1.29".to_owned(), replicas: 2 };
    objects.create(&PostParams::default(), &Shop::new(name, spec)).await.expect("created");
    until(&objects, name, "its Pods are ready", |object| {
        object.status.as_ref().is_some_and(|status| status.ready_replicas == 2)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manifests_install_and_two_replicas_reconcile() {
    let Some(cluster) = TestCluster::exclusive_without_crds().await else { return };
    let config =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../controllers/templates/project/config/manager.yaml");
    let out = cluster.scratch("deploy");
    let made = Command::new(env!("CARGO_BIN_EXE_mainstay-under-test"))
        .env(SHOP.0, SHOP.1)
        .args(["manifests", "--config"])
        .arg(config)
        .arg("--out")
        .arg(&out)
        .status()
        .await
        .expect("it starts");
    assert!(made.success());
    let file = out.join("install.yaml").display().to_string();
    cluster.kubectl(&["--namespace=", "apply", "-f", &file]).await;
    cluster.kubectl(&["wait", "--for=condition=Established", "crd/shops.shop.example.com"]).await;

    let mut one = Replica::start_of(&cluster, "shop", 1, &[SHOP]).await;
    until_so("the first replica to lead", async || {
        let lease = r#"leader_election_master_status{name="shop"}"#;
        sample(&one.process.metrics_text().await, lease) == Some(1.0)
    })
    .await;
    let two = Replica::start_of(&cluster, "shop", 2, &[SHOP]).await;
    reconciled(&cluster, "hello").await;
    one.process.kill();
    one.process.ended().await;
    reconciled(&cluster, "bye").await;
    two.stop().await;
    cluster.stop().await;
}
