//! The probe policy's view of the cluster, read from a real server with the shipped rights.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use mainstay::config::{ConfigSource, Overrides};
use mainstay::manager::ManagerOptions;
use mainstay_api::WaitDeployment;
use mainstay_controllers::config_schema;
use mainstay_tests::dial::NAME;
use mainstay_tests::fixtures::{tcp, wait_deployment};
use mainstay_tests::manager::configuration_of;
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::{LocalManager, TestCluster, wait};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

async fn waits_for(cluster: &TestCluster, name: &str, dependencies: &[Value]) {
    let object: WaitDeployment =
        wait_deployment(name, &json!({"spec": {"waitFor": {"dependencies": dependencies}}}));
    cluster.api().create(&PostParams::default(), &object).await.expect("created");
}

/// Waits until the status entry of a dependency has these words in its message.
async fn until_message(cluster: &TestCluster, name: &str, dependency: &str, words: &str) {
    wait::until(&cluster.api::<WaitDeployment>(), name, words, |object| {
        let mut entries = object.status.iter().flat_map(|status| &status.dependencies);
        entries.any(|entry| {
            entry.name == dependency && entry.message.as_ref().is_some_and(|message| message.contains(words))
        })
    })
    .await;
}

async fn opened(cluster: &TestCluster, name: &str) {
    wait::until(&cluster.api::<Deployment>(), name, "the gate to open", |_| true).await;
}

/// The manager sees one namespace only, without the Service `kubernetes` of the API server.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_not_dialled_under_any_of_its_addresses() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let port = cluster.address().port();
    let identity = cluster.install_base().await.through(format!("localhost:{port}"));
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let kubernetes = Api::<Service>::namespaced(cluster.client(), "default").get("kubernetes").await;
    let service = kubernetes.ok().and_then(|service| service.spec?.cluster_ip).expect("an address");
    let other = Prerequisite::open();
    let host = |name: &str, host: &str, port: u16| {
        let socket = json!({"host": host, "port": port});
        json!({"name": name, "tcpSocket": socket, "periodSeconds": 1})
    };
    let dependencies = [
        host("name", "localhost", port),
        tcp("address", cluster.address()),
        host("service", &service, 443),
        host("service-six", &format!("64:ff9b::{service}"), 443),
        tcp("other", other.address()),
    ];
    waits_for(&cluster, "web", &dependencies).await;
    for dependency in ["name", "address", "service", "service-six"] {
        until_message(&cluster, "web", dependency, "it is the API server").await;
    }
    timeout(wait::PATIENCE, other.connected(1)).await.expect("another port of the same address is dialled");
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_with_a_pod_security_level_needs_an_entry_of_its_own() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let label = async |level: Value| {
        let labels =
            Patch::Merge(json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}}));
        let namespaces: Api<Namespace> = Api::all(cluster.client());
        namespaces.patch(cluster.namespace(), &PatchParams::default(), &labels).await.expect("labelled");
    };
    label("restricted".into()).await;
    let prerequisite = Prerequisite::open();
    let policy = json!({"probePolicy": {"mode": "AllowList", "allow": [NAME]}});
    let manager = LocalManager::start(&cluster, &identity, &policy).await;
    let port = prerequisite.address().port();
    let by_name = json!({"name": "database", "tcpSocket": {"host": NAME, "port": port}, "periodSeconds": 1});
    waits_for(&cluster, "web", &[by_name]).await;
    until_message(&cluster, "web", "database", &format!("namespaces: [{}]", cluster.namespace())).await;
    assert_eq!(prerequisite.connections(), 0);
    // The labels of a namespace are cached for half a minute.
    label("privileged".into()).await;
    opened(&cluster, "web").await;
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_policy_applies_to_probes_and_to_resource_checks() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let file = cluster.scratch("manager.yaml");
    let save = |changes: &Value| {
        std::fs::write(&file, configuration_of(&cluster, changes).to_string()).expect("saved");
    };
    let policy = |allow: &[&str], resources: &[&str]| {
        let policy = json!({"mode": "AllowList", "allow": allow, "resources": resources});
        json!({"probePolicy": policy})
    };
    let strict = policy(&["elsewhere.example"], &[]);
    save(&strict);
    let source = Some(ConfigSource::new(&file, Overrides::default(), config_schema()));
    let options = ManagerOptions { signals: false, source, ..ManagerOptions::replica("mainstay") };
    let manager = LocalManager::start_as(options, &cluster, &identity, &strict, |_| {}).await;
    let prerequisite = Prerequisite::open();
    let port = prerequisite.address().port();
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "condition": "Complete"});
    let dependencies = [
        json!({"name": "database", "tcpSocket": {"host": NAME, "port": port}, "periodSeconds": 1}),
        json!({"name": "schema", "resource": job}),
    ];
    waits_for(&cluster, "web", &dependencies).await;
    let is_told = |dependency: &'static str, reason: &'static str| {
        let objects = cluster.api::<WaitDeployment>();
        let has_reason = wait::dependency_has_reason(dependency, reason);
        async move { wait::until(&objects, "web", reason, has_reason).await }
    };
    is_told("database", "PolicyDenied").await;
    is_told("schema", "PolicyDenied").await;
    assert_eq!(prerequisite.connections(), 0);

    save(&policy(&[NAME], &["Job.batch"]));
    is_told("database", "Connected").await;
    // The kind is watched now, and its access check comes first: the ServiceAccount of the template has no
    // rights.
    is_told("schema", "AccessDenied").await;
    save(&strict);
    is_told("database", "PolicyDenied").await;
    is_told("schema", "PolicyDenied").await;
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn authorities_are_read_from_a_config_map_once_a_component_grants_it() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let (authority, address, _serving) = serving("db.example.com").await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let dependency = json!({
        "name": "database",
        "tls": {
            "host": address.ip(), "port": address.port(), "serverName": "db.example.com",
            "caConfigMap": {"name": "authorities"},
        },
        "periodSeconds": 1,
    });
    waits_for(&cluster, "web", &[dependency]).await;
    until_message(&cluster, "web", "database", "deploy/components/tls-authorities allows it").await;
    cluster.install_component(&identity, "tls-authorities").await;
    until_message(&cluster, "web", "database", "there is no key ca.crt").await;
    let map = json!({"metadata": {"name": "authorities"}, "data": {"ca.crt": authority}});
    let map: ConfigMap = serde_json::from_value(map).expect("a ConfigMap");
    cluster.api().create(&PostParams::default(), &map).await.expect("created");
    opened(&cluster, "web").await;
    manager.stop().await.expect("stopped in order");
}

/// Starts a TLS server with a certificate for this name; returns the authority that signed it, as PEM, and
/// its address.
async fn serving(name: &str) -> (String, std::net::SocketAddr, JoinSet<()>) {
    let (authority, acceptor) = certified(vec![name.to_owned()]);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("accepted");
            drop(acceptor.accept(stream).await);
        }
    });
    (authority, address, serving)
}

/// Returns a new authority, as PEM, and a TLS acceptor with a certificate for these names signed by it.
pub(super) fn certified(names: Vec<String>) -> (String, TlsAcceptor) {
    let (own, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&own).expect("signed").pem();
    let leaf = CertificateParams::new(names).expect("parameters");
    let leaf = leaf.signed_by(&key, &Issuer::new(params, own)).expect("signed");
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            )
            .expect("a certificate");
    (authority, TlsAcceptor::from(Arc::new(config)))
}
