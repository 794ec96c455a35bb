//! A static Pod needs files only: it starts before there is an API server, and joins once there is.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Pod;
use mainstay_tests::manifests::documents_of;
use mainstay_tests::process::{ManagerProcess, get};
use mainstay_tests::wait::until_so;
use mainstay_tests::{TestCluster, manager};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::process::Command;

/// Returns the status of a probe; 0 while nothing listens there.
async fn status(probes: SocketAddr, path: &str) -> u16 {
    if TcpStream::connect(probes).await.is_err() {
        return 0;
    }
    get(probes, path).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_pod_starts_without_an_api_server_and_joins_later() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let identity = cluster.install_base().await;
    let pods = documents_of("static-pod");
    let pod: Pod = serde_json::from_value(pods[0].clone()).expect("a Pod");
    let spec = pod.spec.expect("a spec");
    assert_eq!(spec.automount_service_account_token, Some(false));
    let container = &spec.containers[0];
    let mount = &container.volume_mounts.as_ref().expect("a mount")[0].mount_path;
    let folder = cluster.scratch("static-pod");
    std::fs::create_dir_all(&folder).expect("made");
    let configuration = manager::configuration_of(&cluster, &json!({})).to_string();
    std::fs::write(folder.join("manager.yaml"), configuration).expect("written");
    std::fs::copy(&identity.kubeconfig, folder.join("kubeconfig")).expect("copied");

    cluster.control_plane().stop_apiserver().await;
    let probes = SocketAddr::from(([127, 0, 3, 1], 8081));
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay-under-test"));
    for argument in container.args.iter().flatten() {
        let argument = argument.replace(mount, &folder.display().to_string());
        command.arg(argument.replace("mainstay-system", cluster.namespace()));
    }
    command.arg(format!("--health-probe-bind-address={probes}"));
    let mut process = ManagerProcess::spawn(command);
    until_so("the process to be alive", async || status(probes, "/livez").await == 200).await;
    assert_eq!(status(probes, "/readyz").await, 500, "it is not ready without an API server");

    cluster.control_plane().start_apiserver().await.expect("started");
    until_so("the replica to be ready", async || status(probes, "/readyz").await == 200).await;
    process.leads().await;
    process.terminate();
    assert!(process.ended().await.success());
    cluster.stop().await;
}
