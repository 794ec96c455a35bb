//! Metrics behind TLS with tokens that a real API server reviews, with the shipped rules for it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Config};
use mainstay_tests::manifests::{Identity, documents_of, documents_of_base};
use mainstay_tests::middlebox::Middlebox;
use mainstay_tests::wait::until_so;
use mainstay_tests::{LocalManager, TestCluster};
use serde_json::{Value, json};

/// Installs the component and the base, and an account that may read metrics.
async fn installed(cluster: &TestCluster) -> Identity {
    let metadata = json!({"name": "scraper", "namespace": "mainstay-system"});
    let scraper = [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "mainstay-metrics-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "scraper", "namespace": "mainstay-system"}],
        }),
    ];
    let documents = [documents_of_base(), documents_of("components/metrics-auth"), scraper.to_vec()].concat();
    let identity = cluster.install(&documents).await;
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client());
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{}:scraper", cluster.namespace())),
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some("/metrics".to_owned()),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    until_so("the scraper to have its right", async || {
        let answer = reviews.create(&PostParams::default(), &review).await.expect("a review");
        answer.status.is_some_and(|status| status.allowed)
    })
    .await;
    identity
}

/// Replaces the certificate in the directory by a new one for loopback; returns it as PEM.
fn renew(directory: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    std::fs::create_dir_all(directory).expect("a directory");
    std::fs::write(directory.join("tls.crt"), made.cert.pem()).expect("written");
    std::fs::write(directory.join("tls.key"), made.signing_key.serialize_pem()).expect("written");
    made.cert.pem()
}

async fn token_of(cluster: &TestCluster, account: &str) -> String {
    let kubeconfig = std::fs::read(cluster.kubeconfig_of(account).await).expect("a kubeconfig");
    let kubeconfig: Value = serde_json::from_slice(&kubeconfig).expect("JSON");
    kubeconfig["users"][0]["user"]["token"].as_str().expect("a token").to_owned()
}

/// A scraper of this address that trusts these certificates and sends this token.
struct Scraper(kube::Client);

impl Scraper {
    async fn new(cluster: &TestCluster, port: SocketAddr, trusted: &[&str], token: Option<&str>) -> Self {
        let path = |end: &str| -> PathBuf { cluster.scratch(&format!("scraper.{end}")) };
        std::fs::write(path("crt"), trusted.concat()).expect("written");
        let user = token.map_or_else(|| json!({}), |token| json!({"token": token}));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster":
                {"server": format!("https://{port}"), "certificate-authority": path("crt")}}],
            "users": [{"name": "test", "user": user}],
        });
        std::fs::write(path("kubeconfig"), config.to_string()).expect("written");
        let kubeconfig = Kubeconfig::read_from(path("kubeconfig")).expect("as written");
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
        // Each answer counts, so no request is retried.
        config.default_retry = false;
        Self(kube::Client::try_from(config).expect("a client"))
    }

    /// Returns the status of the answer, `None` without one.
    async fn status(&self) -> Option<u16> {
        let request = http::Request::get("/metrics").body(Body::empty()).expect("a request");
        self.0.send(request).await.ok().map(|answer| answer.status().as_u16())
    }

    async fn text(&self) -> String {
        let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
        self.0.request_text(request).await.expect("metrics")
    }
}

#[tokio::test]
async fn metrics_are_served_to_authorized_tokens_and_with_a_renewed_certificate() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = installed(&cluster).await;
    let directory = cluster.scratch("tls");
    let old = renew(&directory);
    let changes = json!({"metrics": {"auth": true, "tlsDir": directory}});
    let manager = LocalManager::start(&cluster, &identity, &changes).await;
    let port = manager.metrics();

    let scraper = token_of(&cluster, "scraper").await;
    let may = Scraper::new(&cluster, port, &[&old], Some(&scraper)).await;
    assert_eq!(may.status().await, Some(200));
    assert!(may.text().await.contains("\ncertwatcher_read_certificate_errors_total 0\n"));
    let manager_itself = token_of(&cluster, "mainstay").await;
    for (token, status) in [(Some(&*manager_itself), 403), (Some("made-up"), 401), (None, 401)] {
        let other = Scraper::new(&cluster, port, &[&old], token).await;
        assert_eq!(other.status().await, Some(status), "{token:?}");
    }

    let new = renew(&directory);
    let both = Scraper::new(&cluster, port, &[&old, &new], Some(&scraper)).await;
    until_so("the new certificate to be shown", async || {
        assert_eq!(
            both.status().await,
            Some(200),
            "a scraper that trusts both certificates is always served"
        );
        Scraper::new(&cluster, port, &[&new], Some(&scraper)).await.status().await == Some(200)
    })
    .await;
    assert_eq!(Scraper::new(&cluster, port, &[&old], Some(&scraper)).await.status().await, None);
    manager.stop().await.expect("a stop in order");
}

#[tokio::test]
async fn while_the_server_is_down_recently_authorized_tokens_read_metrics() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = installed(&cluster).await;
    let server =
        cluster.url().trim_start_matches("https://").trim_end_matches('/').parse().expect("an address");
    let middlebox = Middlebox::before(server).await;
    let directory = cluster.scratch("tls");
    let trusted = renew(&directory);
    let changes = json!({
        "metrics": {"auth": true, "tlsDir": directory}, "leaderElection": {"enabled": false},
    });
    let manager = LocalManager::start(&cluster, &identity.through(middlebox.address()), &changes).await;
    let scraper = token_of(&cluster, "scraper").await;
    let known = Scraper::new(&cluster, manager.metrics(), &[&trusted], Some(&scraper)).await;
    assert_eq!(known.status().await, Some(200));
    middlebox.close();
    assert_eq!(known.status().await, Some(200));
    let other = token_of(&cluster, "mainstay").await;
    let unknown = Scraper::new(&cluster, manager.metrics(), &[&trusted], Some(&other)).await;
    assert_eq!(unknown.status().await, Some(500));
    middlebox.open();
    until_so("the review of the server", async || unknown.status().await == Some(403)).await;
    manager.stop().await.expect("a stop in order");
}
