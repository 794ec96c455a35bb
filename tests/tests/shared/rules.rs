//! The rules of `deploy/base` are enough for the manager, and no more than that.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::TestCluster;
use mainstay_tests::cluster::client_of;

#[tokio::test]
async fn the_shipped_identity_reaches_its_own_lease_and_kinds_only() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let client = client_of(&identity.kubeconfig).await;
    let (all, own) = (ListParams::default(), ListParams::default().fields("metadata.name=mainstay"));

    let leases = Api::<Lease>::default_namespaced(client.clone());
    leases.list(&own).await.expect("a list of the one name is what a watch begins with");
    assert_forbidden(leases.list(&all).await, "a list of every Lease");
    Api::<WaitDeployment>::all(client.clone()).list(&all).await.expect("its own kind, everywhere");
    let deployments = Api::<Deployment>::default_namespaced(client.clone());
    assert_forbidden(deployments.delete("any", &DeleteParams::default()).await, "deleting a Deployment");
    assert_forbidden(Api::<Secret>::default_namespaced(client).list(&all).await, "reading Secrets");
}

fn assert_forbidden<T>(answer: Result<T, kube::Error>, what: &str) {
    let error = answer.err().unwrap_or_else(|| panic!("{what} should be refused"));
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 403), "{what}: {error}");
}
