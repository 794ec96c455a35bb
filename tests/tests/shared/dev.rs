//! `mainstay dev --kubeconfig FILE`: the story on a cluster that is there already, which stays as it was.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use mainstay_api::WaitDeployment;
use mainstay_tests::{Terminal, TestCluster, wait};

#[tokio::test]
async fn dev_tells_its_story_on_a_cluster_one_has_and_takes_its_sample_away() {
    let Some(cluster) = TestCluster::shared().await else { return };
    // As config/dev.yaml, and blind to the objects of the tests beside this one.
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/dev.yaml");
    let shipped = std::fs::read_to_string(shipped).expect("config/dev.yaml");
    let config = cluster.scratch("dev.yaml");
    std::fs::write(&config, format!("{shipped}\ncache:\n  namespaces: [default]\n")).expect("written");
    let (config, kubeconfig) =
        (config.display().to_string(), cluster.kubeconfig_path().display().to_string());
    let arguments = ["dev", "--kubeconfig", &kubeconfig, "--config", &config];
    let mut dev = Terminal::start(env!("CARGO_BIN_EXE_mainstay-under-test"), &arguments);
    let ready = dev.tells("default/hello is Ready").await;
    assert!(ready.is_some(), "it ended early: {:?}", dev.ended().await);
    assert!(!dev.told().iter().any(|line| line.contains("starting a control plane")), "{:#?}", dev.told());

    dev.interrupt();
    let (status, errors) = dev.ended().await;
    assert!(status.success(), "{status}: {errors}");
    assert!(dev.told().iter().any(|line| line.contains("deleted the sample")), "{:#?}", dev.told());
    wait::until_gone(&Api::<WaitDeployment>::namespaced(cluster.client(), "default"), "hello").await;
    wait::until_gone(&Api::<Deployment>::namespaced(cluster.client(), "default"), "hello").await;
}
