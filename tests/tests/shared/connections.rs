//! Connections through proxies, and with credentials from plug-ins, files and OIDC, each to the real server.

mod authority;
mod provider;

use std::net::Ipv4Addr;
use std::path::Path;

use authority::Authority;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use mainstay::client::{Connections, Role, infer};
use mainstay::metrics::Registry;
use mainstay_api::WaitDeployment;
use mainstay_tests::dial::NAME;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::manifests::Identity;
use mainstay_tests::proxy::{Protocol, Proxy};
use mainstay_tests::wait::{has_reason, until_so};
use mainstay_tests::{LocalManager, ManagerProcess, TestCluster, wait};
use parking_lot::Mutex;
use provider::Provider;
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const BINARY: &str = env!("CARGO_BIN_EXE_mainstay-under-test");

/// User and password of proxies with authentication; a proxy's URL contains the password with a percent
/// escape.
const USER: (&str, &str) = ("me", "a@b");

/// Returns the identity with changes to the cluster and the user in its kubeconfig.
fn edited(identity: &Identity, name: &str, cluster: &Value, user: Option<&Value>) -> Identity {
    let text = std::fs::read(&identity.kubeconfig).expect("a kubeconfig");
    let mut config: Value = serde_json::from_slice(&text).expect("JSON");
    for (key, value) in cluster.as_object().expect("a mapping") {
        config["clusters"][0]["cluster"][key] = value.clone();
    }
    if let Some(user) = user {
        config["users"][0]["user"] = user.clone();
    }
    let kubeconfig = identity.kubeconfig.with_extension(name);
    std::fs::write(&kubeconfig, config.to_string()).expect("written");
    Identity { service_account: identity.service_account.clone(), kubeconfig }
}

/// Returns a client for reads, with the kubeconfig of an identity.
async fn client(identity: &Identity) -> Client {
    let config = infer(Some(&identity.kubeconfig), None).await.expect("a connection");
    let connections = Connections::new(config, &Registry::new()).expect("connections");
    connections.client(Role::Watches).expect("a client")
}

/// Returns the user name by which the server knows this client.
async fn user_of(client: &Client) -> Result<String, kube::Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(answer.status.and_then(|status| status.user_info?.username).expect("a user"))
}

fn is_unauthorized(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 401)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_works_through_the_proxy_of_its_kubeconfig() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let server = format!("{NAME}:{}", cluster.address().port());
    for (number, (scheme, speaks)) in
        [("http", Protocol::Connect), ("socks5", Protocol::Socks)].into_iter().enumerate()
    {
        let proxy = Proxy::before(cluster.address(), speaks, Some(USER)).await;
        // The proxy resolves the server name, which is not in the certificate.
        let through = json!({
            "proxy-url": format!("{scheme}://me:a%40b@{}", proxy.address),
            "server": format!("https://{server}"),
            "tls-server-name": "localhost",
        });
        let identity = edited(&identity, scheme, &through, None);
        let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
        manager.leads().await;
        let name = format!("web-{number}");
        let objects = cluster.api::<WaitDeployment>();
        let object = wait_deployment(&name, &json!({"spec": {"replicas": 1}}));
        objects.create(&PostParams::default(), &object).await.expect("created");
        wait::until(&objects, &name, "Ready", has_reason("Ready", "Available")).await;
        manager.stop().await.expect("stopped in order");
        let targets = proxy.targets();
        assert!(
            targets.len() >= 3,
            "watches, writes and the Lease have connections of their own: {targets:?}"
        );
        assert!(targets.iter().all(|wanted| *wanted == server), "{targets:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_may_require_tls_and_a_user() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let proxy = Proxy::before(cluster.address(), Protocol::Connect, Some(USER)).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (acceptor, inner) = (Authority::of(&cluster).acceptor(), proxy.address);
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut carried = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            carried.spawn(async move {
                let mut client = acceptor.accept(client).await?;
                copy_bidirectional(&mut client, &mut TcpStream::connect(inner).await?).await
            });
        }
    });
    // `tls-server-name` applies to the certificate of the server, not to that of the proxy.
    let through = |user: &str| {
        json!({"proxy-url": format!("https://{user}@{address}"),
        "server": format!("https://{NAME}:1"), "tls-server-name": "localhost"})
    };
    let known = edited(&identity, "known", &through("me:a%40b"), None);
    let user = user_of(&client(&known).await).await.expect("an answer");
    assert_eq!(user, format!("system:serviceaccount:{}:{}", cluster.namespace(), identity.service_account));
    assert_eq!(proxy.targets(), [format!("{NAME}:1")]);
    let unknown = edited(&identity, "unknown", &through("you"), None);
    let error = user_of(&client(&unknown).await).await.expect_err("refused");
    assert!(format!("{error:?}").contains("ProxyAuthRequired"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_sets_a_proxy_and_its_exceptions() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let proxy = Proxy::before(cluster.address(), Protocol::Connect, None).await;
    let url = format!("http://{}", proxy.address);
    // An address of this host outside loopback: loopback bypasses the proxy without NO_PROXY.
    let server = json!({"server": format!("https://0.0.0.0:{}", cluster.address().port()),
        "tls-server-name": "localhost"});
    let by_address = edited(&identity, "address", &server, None);
    let run = async |name: &str, identity: &Identity, variables: &[(&str, &str)]| {
        let before = proxy.targets().len();
        let mut process = ManagerProcess::start_with(BINARY, &cluster, identity, name, &json!({}), variables);
        process.leads().await;
        process.terminate();
        assert!(process.ended().await.success(), "{:#?}", process.log());
        proxy.targets().len() - before
    };
    assert!(run("through", &by_address, &[("HTTPS_PROXY", &url)]).await >= 3);
    assert_eq!(run("beside", &by_address, &[("https_proxy", &url), ("NO_PROXY", "0.0.0.0/8")]).await, 0);
    assert_eq!(run("loopback", &identity, &[("HTTPS_PROXY", &url)]).await, 0);
}

/// Returns a credential plug-in that prints `1.json` in its first run, `2.json` in its second and so on;
/// `LATER` in a file is replaced by the time in eight seconds.
fn plugin(folder: &Path, statuses: &[Value]) -> Value {
    std::fs::create_dir_all(folder).expect("a folder");
    for (number, status) in statuses.iter().enumerate() {
        let answer = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": status});
        std::fs::write(folder.join(format!("{}.json", number + 1)), answer.to_string()).expect("written");
    }
    let script = r#"cd "$0" && echo >> runs && later=$(date -u -d '+8 seconds' +%Y-%m-%dT%H:%M:%SZ) &&
        sed "s/LATER/$later/" $(($(wc -l < runs))).json"#;
    json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "sh", "args": ["-c", script, folder],
    }})
}

fn runs(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("runs")).unwrap_or_default().lines().count()
}

fn certificate(authority: &Authority, name: &str) -> Value {
    let (certificate, key) = authority.sign(name, &[]);
    json!({"clientCertificateData": certificate.pem(), "clientKeyData": key.serialize_pem()})
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_a_plugin_are_renewed_before_they_end_and_no_request_fails() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let (authority, folder) = (Authority::of(&cluster), cluster.scratch("renewed"));
    let users = ["user-1", "user-2", "user-3"];
    let ending = |name| {
        let mut status = certificate(&authority, name);
        status["expirationTimestamp"] = "LATER".into();
        status
    };
    let mut statuses = users.map(ending);
    statuses[2].as_object_mut().expect("a mapping").remove("expirationTimestamp");
    let identity = edited(&identity, "renewed", &json!({}), Some(&plugin(&folder, &statuses)));
    let client = client(&identity).await;
    let seen = Mutex::new(Vec::new());
    until_so("the last user", async || {
        let user = user_of(&client).await.expect("every request is answered");
        let last = user == users[2];
        let mut seen = seen.lock();
        seen.push(user);
        seen.dedup();
        last
    })
    .await;
    assert_eq!((seen.into_inner(), runs(&folder)), (users.map(str::to_owned).to_vec(), users.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_certificate_of_a_plugin_is_replaced_by_the_next_one() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let installed = cluster.install_base().await;
    let folder = cluster.scratch("refused");
    let text = std::fs::read(&installed.kubeconfig).expect("a kubeconfig");
    let config: Value = serde_json::from_slice(&text).expect("JSON");
    let statuses = [certificate(&Authority::stranger(), "user-1"), config["users"][0]["user"].clone()];
    let identity = edited(&installed, "refused", &json!({}), Some(&plugin(&folder, &statuses)));
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    manager.leads().await;
    assert_eq!(runs(&folder), 2, "one run for all connections, and one after the refusal");
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_replaced_in_its_file_is_used_once_the_old_one_is_refused() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let accounts: Api<ServiceAccount> = cluster.api();
    let mut tokens = Vec::new();
    for name in ["before", "after"] {
        let account = serde_json::from_value(json!({"metadata": {"name": name}})).expect("an account");
        accounts.create(&PostParams::default(), &account).await.expect("created");
        let text = std::fs::read(cluster.kubeconfig_of(name).await).expect("a kubeconfig");
        let config: Value = serde_json::from_slice(&text).expect("JSON");
        tokens.push(config["users"][0]["user"]["token"].as_str().expect("a token").to_owned());
    }
    let file = cluster.scratch("token");
    std::fs::write(&file, format!("{}\n", tokens[0])).expect("written");
    // A manager in a Pod reads its token from such a file too.
    let identity = edited(&identity, "file", &json!({}), Some(&json!({"tokenFile": file})));
    let client = client(&identity).await;
    let name = |account| format!("system:serviceaccount:{}:{account}", cluster.namespace());
    assert_eq!(user_of(&client).await.expect("an answer"), name("before"));
    // Renamed over the old file, as the kubelet does.
    let next = file.with_extension("next");
    std::fs::write(&next, &tokens[1]).expect("written");
    std::fs::rename(&next, &file).expect("renamed");
    accounts.delete("before", &DeleteParams::default()).await.expect("deleted");
    // Not at once: the server caches valid tokens for a while.
    let refused = Mutex::new(0);
    until_so("the new token", async || match user_of(&client).await {
        Ok(user) => user == name("after"),
        Err(error) => {
            assert!(is_unauthorized(&error), "{error}");
            *refused.lock() += 1;
            false
        }
    })
    .await;
    let refused = refused.into_inner();
    assert!(refused <= 1, "{refused} requests were refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_an_openid_provider_are_renewed_with_single_use_refresh_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let provider = Provider::start(folder.path()).await;
    let flags = [
        ("issuer-url", provider.url.clone()),
        ("client-id", "mainstay".to_owned()),
        ("username-claim", "sub".to_owned()),
        ("username-prefix", "oidc:".to_owned()),
        ("signing-algs", "ES256".to_owned()),
        ("ca-file", provider.authority.display().to_string()),
    ];
    let flags = flags.map(|(name, value)| format!("--oidc-{name}={value}")).to_vec();
    let Some(cluster) = TestCluster::flagged(flags).await else { return };
    let installed = cluster.install_base().await;
    let metadata = json!({"name": "oidc"});
    let binding = serde_json::from_value(json!({
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "oidc:me"}],
    }));
    let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(cluster.client());
    bindings.create(&PostParams::default(), &binding.expect("a binding")).await.expect("created");
    let user = json!({"auth-provider": {"name": "oidc", "config": {
        "idp-issuer-url": provider.url, "client-id": "mainstay", "client-secret": "none",
        "id-token": provider.state.id_token(-60), "refresh-token": "refresh-0",
    }}});
    let identity = edited(&installed, "oidc", &json!({}), Some(&user));
    let trusted = provider.authority.display().to_string();
    let variables = [("SSL_CERT_FILE", trusted.as_str())];
    let mut process = ManagerProcess::start_with(BINARY, &cluster, &identity, "oidc", &json!({}), &variables);
    process.leads().await;
    // Each token lasts 15 seconds, of which the last ten are reserved for its renewal.
    until_so("three renewals", async || *provider.state.given.lock() >= 3).await;
    assert!(process.is_leader().await, "{:#?}", process.log());
    process.terminate();
    assert!(process.ended().await.success(), "{:#?}", process.log());
    cluster.stop().await;
}
