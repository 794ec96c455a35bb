//! `mainstay dev --kubeconfig FILE`: runs its sample on an existing cluster, and removes it at the end.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use mainstay_api::WaitDeployment;
use mainstay_tests::{Terminal, TestCluster, wait};

#[tokio::test]
async fn dev_runs_its_sample_on_an_existing_cluster_and_deletes_it() {
    let Some(cluster) = TestCluster::shared().await else { return };
    // The configuration of `dev`, restricted to one namespace so that it ignores objects of concurrent tests.
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../controllers/src/dev/manager.yaml");
    let shipped = std::fs::read_to_string(shipped).expect("the configuration of dev");
    let config = cluster.scratch("dev.yaml");
    std::fs::write(&config, format!("{shipped}\ncache:\n  namespaces: [default]\n")).expect("written");
    let (config, kubeconfig) =
        (config.display().to_string(), cluster.kubeconfig_path().display().to_string());
    let arguments = ["dev", "--kubeconfig", &kubeconfig, "--config", &config];
    let mut dev = Terminal::start(env!("CARGO_BIN_EXE_mainstay-under-test"), &arguments);
    let ready = dev.line_with("WaitDeployment default/hello: Ready=True").await;
    assert!(ready.is_some(), "dev ended early: {:?}", dev.ended().await);
    assert!(
        !dev.printed().iter().any(|line| line.contains("starting a control plane")),
        "{:#?}",
        dev.printed()
    );

    dev.interrupt();
    let (status, errors) = dev.ended().await;
    assert!(status.success(), "{status}: {errors}");
    assert!(dev.printed().iter().any(|line| line.contains("deleted the sample")), "{:#?}", dev.printed());
    wait::until_gone(&Api::<WaitDeployment>::namespaced(cluster.client(), "default"), "hello").await;
    wait::until_gone(&Api::<Deployment>::namespaced(cluster.client(), "default"), "hello").await;
}
