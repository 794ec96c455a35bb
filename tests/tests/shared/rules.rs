//! The rules of `deploy/base` are sufficient for the manager, and minimal.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::flowcontrol::v1::PriorityLevelConfiguration;
use kube::Api;
use kube::api::{DeleteParams, ListParams, WatchParams};
use kube::client::Body;
use mainstay_api::WaitDeployment;
use mainstay_tests::TestCluster;
use mainstay_tests::cluster::client_of;
use mainstay_tests::wait::until_so;

#[tokio::test]
async fn the_shipped_identity_reaches_its_own_lease_and_kinds_only() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let client = client_of(&identity.kubeconfig).await;
    let (all, every) = (ListParams::default(), WatchParams::default());
    let own = WatchParams::default().fields("metadata.name=mainstay");

    let leases = Api::<Lease>::default_namespaced(client.clone());
    assert_eq!(
        leases.get_opt("mainstay").await.expect("its own Lease"),
        None,
        "the Lease does not exist yet"
    );
    drop(leases.watch(&own, "0").await.expect("a watch of the one name"));
    assert_forbidden(leases.get_opt("another").await, "another Lease");
    assert_forbidden(leases.watch(&every, "0").await.map(drop), "a watch of every Lease");
    assert_forbidden(leases.list(&all).await, "a list of every Lease");
    Api::<WaitDeployment>::all(client.clone()).list(&all).await.expect("its own kind, everywhere");
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    assert_forbidden(deployments.delete("any", &DeleteParams::default()).await, "deleting a Deployment");
    assert_forbidden(Api::<Secret>::default_namespaced(client).list(&all).await, "reading Secrets");
}

#[tokio::test]
async fn the_shipped_flow_schema_gives_the_lease_a_priority_of_its_own() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let client = client_of(&identity.kubeconfig).await;
    let levels = Api::<PriorityLevelConfiguration>::all(cluster.client());
    let elections = levels.get("leader-election").await.expect("a level that every server has").metadata.uid;
    let level = async |path: &str| {
        let path = format!("{path}/namespaces/{}", cluster.namespace());
        let resource = if path.contains("coordination") { "leases/mainstay" } else { "deployments/any" };
        let request =
            http::Request::get(format!("{path}/{resource}")).body(Body::empty()).expect("a request");
        let answer = client.send(request).await.expect("an answer");
        let uid = answer.headers().get("x-kubernetes-pf-prioritylevel-uid");
        uid.map(|uid| uid.to_str().expect("text").to_owned())
    };
    let (lease, work) = ("/apis/coordination.k8s.io/v1", "/apis/apps/v1");
    assert_ne!(
        level(lease).await,
        elections,
        "without the FlowSchema a renewal has the level of other requests"
    );

    cluster.prefer_elections().await;
    until_so("the Lease to have the level of elections", async || level(lease).await == elections).await;
    assert_ne!(level(work).await, elections, "other requests keep their level");
}

fn assert_forbidden<T>(answer: Result<T, kube::Error>, what: &str) {
    let error = answer.err().unwrap_or_else(|| panic!("{what} should be refused"));
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 403), "{what}: {error}");
}
