//! `inspect` and `why` on each replica and a real server: the answers of a standby, and those it gets from
//! the leader.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::PostParams;
use mainstay::manager::ManagerOptions;
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::{tcp, wait_deployment};
use mainstay_tests::manifests::{Identity, documents_of, documents_of_base};
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::wait::until_so;
use mainstay_tests::{LocalManager, TestCluster};
use serde_json::{Value, json};
use tokio::process::Command;

const HEAD: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";
const AUDIENCE: &str = "mainstay-inspect";

/// Starts a replica as in a Pod of this name.
async fn replica(cluster: &TestCluster, identity: &Identity, pod: &str, inspect: &Value) -> LocalManager {
    let options = ManagerOptions {
        signals: false,
        identity: format!("{pod}_1"),
        pod: Some(ObjectReference {
            name: Some(pod.to_owned()),
            namespace: Some(cluster.namespace().to_owned()),
            ..ObjectReference::default()
        }),
        pod_ip: Some([127, 0, 0, 1].into()),
        ..ManagerOptions::replica("mainstay")
    };
    LocalManager::start_as(options, cluster, identity, &json!({"inspect": inspect}), |_| {}).await
}

/// Creates `NAMESPACE/web`, which waits for a closed port. Returns its key and that port.
async fn create_waiting(cluster: &TestCluster) -> (String, Prerequisite) {
    let closed = Prerequisite::closed();
    let wait_for = json!({"dependencies": [tcp("db", closed.address())], "deadlineSeconds": 3600});
    let object = wait_deployment("web", &json!({"spec": {"waitFor": wait_for}}));
    cluster.api::<WaitDeployment>().create(&PostParams::default(), &object).await.expect("created");
    (format!("{}/web", cluster.namespace()), closed)
}

async fn mainstay(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay-under-test"));
    let run = command.args(arguments).stdin(Stdio::null()).kill_on_drop(true).output();
    let Output { status, stdout, stderr } = run.await.expect("started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_prints_how_to_query_the_leader() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let loopback = json!({"bindAddress": "127.0.0.1:0"});
    let leader = replica(&cluster, &identity, "web-0", &loopback).await;
    leader.leads().await;
    let standby = replica(&cluster, &identity, "web-1", &loopback).await;
    let (key, _closed) = create_waiting(&cluster).await;
    let address = |replica: &LocalManager| replica.manager.inspect_addr().expect("an address").to_string();
    let (of_leader, of_standby) = (address(&leader), address(&standby));
    let note_of_standby = format!(
        "this replica (web-1_1) is a standby and reconciles nothing; the leader is web-0_1. Ask it:\n  \
         kubectl exec -n {} web-0 -- mainstay why {key}\n",
        cluster.namespace()
    );
    until_so("the standby to have read the object and the Lease", async || {
        let (code, tree, note) = mainstay(&["why", &key, "--address", &of_standby]).await;
        code == Some(0) && tree.starts_with("answer of a standby") && note == note_of_standby
    })
    .await;
    until_so("the leader to have probed", async || {
        let (_, tree, note) = mainstay(&["why", &key, "--address", &of_leader]).await;
        assert_eq!(note, "", "a leader prints no note");
        tree.contains("in a row (NotReady)")
    })
    .await;
    let (_, rows, note) = mainstay(&["inspect", "queue", "wait-deployment", "--address", &of_standby]).await;
    assert!(rows.contains(&key), "its keys are warm: {rows}");
    assert!(note.ends_with("web-0 -- mainstay inspect queue wait-deployment\n"), "{note}");
    leader.stop().await.expect("stopped in order");
    until_so("the standby to lead", async || {
        mainstay(&["inspect", "leader", "--address", &of_standby]).await.2.is_empty()
    })
    .await;
    standby.stop().await.expect("stopped in order");
}

/// Writes a configuration with which the command connects to this replica.
fn configuration(
    cluster: &TestCluster,
    replica: &LocalManager,
    name: &str,
    tls: &Path,
    token: &Path,
) -> String {
    let port = replica.manager.inspect_addr().expect("an address").port();
    let inspect = json!({
        "bindAddress": format!("127.0.0.1:{port}"), "auth": true, "tlsDir": tls, "tokenFile": token,
    });
    let path = cluster.scratch(&format!("{name}.yaml"));
    std::fs::write(&path, format!("{HEAD}inspect: {inspect}\n")).expect("written");
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_peers_a_standby_forwards_authorized_requests_to_the_leader() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let metadata = json!({"name": "stranger", "namespace": "mainstay-system"});
    let stranger = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
    let documents = [documents_of_base(), documents_of("components/inspect-peers"), vec![stranger]].concat();
    let identity = cluster.install(&documents).await;
    // Self-signed certificates for a name that no replica has.
    let [of_leader, of_standby] = ["leader", "standby"].map(|name| -> PathBuf {
        let directory = cluster.scratch(name);
        let made = rcgen::generate_simple_self_signed(["nobody".to_owned()]).expect("a certificate");
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join("tls.crt"), made.cert.pem()).expect("written");
        std::fs::write(directory.join("tls.key"), made.signing_key.serialize_pem()).expect("written");
        directory
    });
    let inspect =
        |tls: &Path| json!({"bindAddress": "0.0.0.0:0", "auth": true, "tlsDir": tls, "peers": true});
    let leader = replica(&cluster, &identity, "web-0", &inspect(&of_leader)).await;
    leader.leads().await;
    let standby = replica(&cluster, &identity, "web-1", &inspect(&of_standby)).await;
    let (key, _closed) = create_waiting(&cluster).await;
    let token = cluster.scratch("token");
    let show = |text: &str| std::fs::write(&token, text).expect("written");
    let config = configuration(&cluster, &standby, "standby", &of_standby, &token);
    let why = async |more: &[&str]| mainstay(&[&["why", &key, "--config", &config], more].concat()).await;

    show(&cluster.token_of(&identity.service_account, &[AUDIENCE]).await);
    let through = "this is the answer of the leader web-0_1, through the standby web-1_1\n";
    until_so("the answer of the leader", async || {
        let (code, tree, note) = why(&[]).await;
        code == Some(0) && tree.contains("in a row (NotReady)") && note == through
    })
    .await;
    let (_, answer, note) = why(&["-o", "json"]).await;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!((&answer["leading"], &*note), (&json!(true), through));
    let reconcile = ["inspect", "reconcile", "wait-deployment", &key, "--config", &config];
    assert_eq!(mainstay(&reconcile).await, (Some(0), "1 key on the queue\n".to_owned(), through.to_owned()));
    let (code, tree, note) = why(&["--own"]).await;
    assert!(code == Some(0) && tree.starts_with("answer of a standby"), "{tree}");
    assert!(note.contains("the leader is web-0_1. Ask it"), "{note}");
    let (code, _, note) = mainstay(&["inspect", "caches", "--config", &config]).await;
    assert!(code == Some(0) && note.contains("this replica (web-1_1) is a standby"), "{note}");

    for (text, status) in [
        ("made-up", "401"),
        // A token for the API server is no token for this audience.
        (&*cluster.token_of(&identity.service_account, &[]).await, "401"),
        (&*cluster.token_of("stranger", &[AUDIENCE]).await, "403"),
    ] {
        show(text);
        let (code, out, error) = why(&[]).await;
        assert_eq!((code, &*out), (Some(1), ""), "{error}");
        assert!(error.starts_with(&format!("error: {status} ")), "{error}");
    }

    show(&cluster.token_of(&identity.service_account, &[AUDIENCE]).await);
    leader.stop().await.expect("stopped in order");
    until_so("the standby to lead, and to answer without a note", async || {
        let (code, tree, note) = why(&[]).await;
        code == Some(0) && tree.contains("in a row (NotReady)") && note.is_empty()
    })
    .await;
    standby.stop().await.expect("stopped in order");
}
