//! Warnings of the API server are logged, and do not flood the log.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::PostParams;
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::{wait_deployment, wait_probe};
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::{ManagerProcess, TestCluster, wait};
use serde_json::{Value, json};

/// Number of objects that cause the same warning.
const MANY: usize = 20;

/// Creates an object whose Deployment selects nodes by a deprecated label.
async fn create(cluster: &TestCluster, name: &str, label: &str, prerequisite: &Prerequisite) {
    let template = json!({"spec": {"nodeSelector": {label: "any"}}});
    let changes = json!({
        "waitProbe": wait_probe(prerequisite.address()),
        "spec": {"replicas": 0, "template": template},
    });
    let object: WaitDeployment = wait_deployment(name, &changes);
    cluster.api().create(&PostParams::default(), &object).await.expect("created");
    wait::until(&cluster.api::<Deployment>(), name, "its Deployment", |_| true).await;
}

#[tokio::test]
async fn a_repeated_warning_of_the_server_is_logged_once() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    let mut process = ManagerProcess::start(binary, &cluster, &identity, "warned", &json!({}));
    let prerequisite = Prerequisite::open();
    for number in 0..MANY {
        create(&cluster, &format!("web-{number}"), "beta.kubernetes.io/arch", &prerequisite).await;
    }
    // Another warning, logged after all the others.
    create(&cluster, "last", "beta.kubernetes.io/os", &prerequisite).await;
    let about = |line: &Value, label: &str| {
        line["msg"] == "warning from the API server"
            && line["warning"].as_str().is_some_and(|text| text.contains(label))
    };
    let line = process.logged("the other warning", |line| about(line, "beta.kubernetes.io/os")).await;
    assert_eq!((&line["level"], line["method"].as_str()), (&json!("warn"), Some("PATCH")), "{line}");
    process.terminate();
    assert!(process.ended().await.success(), "{:#?}", process.log());
    let log = process.log();
    let logged = |label: &str| log.iter().filter(|line| about(line, label)).count();
    assert_eq!(logged("beta.kubernetes.io/arch"), 1, "one line for {MANY} warnings: {log:#?}");
    assert_eq!(logged("beta.kubernetes.io/os"), 1);
}
