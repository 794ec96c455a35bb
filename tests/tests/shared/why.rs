//! The command `why` against a running manager.

use std::process::{Output, Stdio};

use kube::api::PostParams;
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::{tcp, wait_deployment};
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::wait::until_so;
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::{Value, json};
use tokio::process::Command;

fn waiting(name: &str, dependency: &Value) -> WaitDeployment {
    let wait_for = json!({"dependencies": [dependency], "deadlineSeconds": 3600});
    wait_deployment(name, &json!({"spec": {"waitFor": wait_for}}))
}

async fn why(manager: &LocalManager, arguments: &[&str]) -> Output {
    let address = manager.manager.inspect_addr().expect("an address").to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay-under-test"));
    command.arg("why").args(arguments).args(["--address", &address]);
    command.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("started")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_shows_why_an_object_waits_and_when_it_is_probed_again() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let changes = json!({"inspect": {"bindAddress": "127.0.0.1:0"}});
    let manager = LocalManager::start(&cluster, &identity, &changes).await;
    let objects = cluster.api::<WaitDeployment>();
    let closed = Prerequisite::closed();
    let dial = tcp("db", closed.address());
    let of_api = json!({"name": "backend", "resource": {
        "apiVersion": "apps.mainstay.dev/v1alpha1", "kind": "WaitDeployment", "name": "api",
        "condition": "Ready",
    }});
    for object in [waiting("api", &dial), waiting("cron", &dial), waiting("web", &of_api)] {
        objects.create(&PostParams::default(), &object).await.expect("created");
    }
    for name in ["api", "cron", "web"] {
        wait::until(&objects, name, "a status of waiting", |object| {
            let ready = object.condition("Ready").map(|ready| ready.status.as_str());
            ready == Some("False")
                && object.status.as_ref().is_some_and(|status| status.waiting_for.is_some())
        })
        .await;
    }

    let namespace = cluster.namespace();
    let key = format!("{namespace}/web");
    // The cache behind the page may lag a moment behind the API server.
    until_so("the whole tree", async || {
        let output = why(&manager, &[&key]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let tree = String::from_utf8(output.stdout).expect("text");
        let expected = [
            format!("{key}   not ready"),
            "deadline in".to_owned(),
            "└─ backend   WaitDeployment api: Ready=True".to_owned(),
            format!("└─ {namespace}/api   not ready"),
            format!("└─ db   TCP {}", closed.address()),
            "in a row (NotReady)".to_owned(),
            "every 1.0s".to_owned(),
            format!("also waited for by {namespace}/cron"),
        ];
        expected.iter().all(|expected| tree.contains(expected))
    })
    .await;

    let output = why(&manager, &[&key, "-o", "json"]).await;
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let probe = &answer["dependencies"][0]["waits"]["dependencies"][0]["probe"];
    assert_eq!((&answer["leading"], &probe["periodSeconds"]), (&json!(true), &json!(1.0)), "{answer}");

    let wrong = why(&manager, &["web"]).await;
    assert_eq!(wrong.status.code(), Some(2), "{}", String::from_utf8_lossy(&wrong.stderr));
    let missing = why(&manager, &[&format!("{namespace}/nobody")]).await;
    let error = String::from_utf8_lossy(&missing.stderr);
    assert_eq!(missing.status.code(), Some(2), "{error}");
    assert!(error.contains(&format!("no WaitDeployment {namespace}/nobody is known here")), "{error}");
    manager.stop().await.expect("stopped in order");
}
