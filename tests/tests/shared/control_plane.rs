//! The control plane provides the behaviour that the other tests rely on.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, Resource as _, ResourceExt as _};
use mainstay_api::WaitDeployment;
use mainstay_tests::cluster::client_of;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::{TestCluster, wait};
use serde_json::json;

/// Period in which upstream's garbage collector discovers new kinds.
const GC_DISCOVERY_PERIOD: Duration = Duration::from_secs(30);

fn deployment(name: &str, replicas: u32, annotations: &serde_json::Value) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations},
                "spec": {"containers": [{"name": "main", "image": "example.invalid/main:1"}]},
            },
        },
    }))
    .expect("a Deployment")
}

fn ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn available(deployment: &Deployment) -> Option<i32> {
    deployment.status.as_ref()?.available_replicas
}

#[tokio::test]
async fn pods_of_a_deployment_become_ready_and_are_deleted_with_it() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let (deployments, pods) = (cluster.api::<Deployment>(), cluster.api::<Pod>());
    deployments.create(&PostParams::default(), &deployment("web", 3, &json!({}))).await.expect("created");

    wait::until(&deployments, "web", "3 available replicas", |web| available(web) == Some(3)).await;
    let selected = ListParams::default().labels("app=web");
    let ours = wait::until_all(&pods, &selected, "3 ready Pods", |pods| {
        pods.iter().filter(|pod| ready(pod)).count() == 3
    });
    for pod in ours.await {
        let address = pod.status.and_then(|status| status.pod_ip).expect("a ready Pod has an address");
        assert!(address.starts_with("198.18."), "{address} is in the range without listeners");
    }

    deployments.delete("web", &DeleteParams::background()).await.expect("deleted");
    wait::until_all(&pods, &selected, "no Pods", <[Pod]>::is_empty).await;
}

#[tokio::test]
async fn a_pod_annotated_never_ready_stays_pending() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let (deployments, pods) = (cluster.api::<Deployment>(), cluster.api::<Pod>());
    let annotations = json!({"devcluster.mainstay.dev/never-ready": "true"});
    deployments.create(&PostParams::default(), &deployment("stuck", 1, &annotations)).await.expect("created");
    deployments.create(&PostParams::default(), &deployment("after", 1, &json!({}))).await.expect("created");

    // Once a later Pod is ready, the earlier one would be ready too.
    wait::until(&deployments, "after", "an available replica", |after| available(after) == Some(1)).await;
    let stuck = ListParams::default().labels("app=stuck");
    let scheduled =
        |pods: &[Pod]| pods.iter().any(|pod| pod.spec.as_ref().is_some_and(|s| s.node_name.is_some()));
    let stuck = wait::until_all(&pods, &stuck, "a scheduled Pod", scheduled).await;
    assert!(!stuck.iter().any(ready), "the annotation keeps it from becoming ready");
}

#[tokio::test]
async fn a_deleted_namespace_disappears_with_its_objects() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let name = format!("{}-extra", cluster.namespace());
    cluster.kubectl(&["create", "namespace", &name]).await;
    cluster.kubectl(&["--namespace", &name, "create", "configmap", "settings"]).await;

    namespaces.delete(&name, &DeleteParams::default()).await.expect("deleted");
    wait::until_gone(&namespaces, &name).await;
}

#[tokio::test]
async fn kubectl_reads_writes_of_the_client() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("settings".to_owned()), ..ObjectMeta::default() },
        data: Some([("color".to_owned(), "green".to_owned())].into()),
        ..ConfigMap::default()
    };
    cluster.api::<ConfigMap>().create(&PostParams::default(), &map).await.expect("created");
    let printed =
        cluster.kubectl(&["get", "configmap", "settings", "--output", "jsonpath={.data.color}"]).await;
    assert_eq!(printed, "green");
    let version = cluster.kubectl(&["version", "--output", "json"]).await;
    let version: serde_json::Value = serde_json::from_str(&version).expect("JSON");
    assert_eq!(
        version["clientVersion"]["gitVersion"], version["serverVersion"]["gitVersion"],
        "kubectl and the server come from one build, with its version"
    );
}

#[tokio::test]
async fn the_definitions_are_served_from_the_start() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let printed = cluster.kubectl(&["get", "waitdeployments", "--output", "name"]).await;
    assert_eq!(printed, "", "the kind is served without objects");
}

#[tokio::test]
async fn the_garbage_collector_knows_the_kind_at_once() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let owner = wait_deployment("owner", &json!({"waitProbe": {"address": "127.0.0.1:1"}}));
    let (owners, maps) = (cluster.api::<WaitDeployment>(), cluster.api::<ConfigMap>());
    let owner = owners.create(&PostParams::default(), &owner).await.expect("created");
    let metadata = ObjectMeta {
        name: Some("owned".to_owned()),
        owner_references: owner.controller_owner_ref(&()).map(|reference| vec![reference]),
        ..ObjectMeta::default()
    };
    maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() })
        .await
        .expect("created");

    owners.delete("owner", &DeleteParams::background()).await.expect("deleted");
    let asked = tokio::time::Instant::now();
    wait::until_gone(&maps, "owned").await;
    assert!(asked.elapsed() < GC_DISCOVERY_PERIOD, "the kind was known without discovery");
}

#[tokio::test]
async fn an_installed_identity_has_exactly_the_rights_of_its_rules() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let documents = [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "elsewhere"}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "elsewhere"}]}),
    ];
    let identity = cluster.install(&documents).await;
    let client = client_of(&identity.kubeconfig).await;
    assert_eq!(client.default_namespace(), cluster.namespace());

    let all = ListParams::default();
    Api::<ConfigMap>::default_namespaced(client.clone()).list(&all).await.expect("allowed by the Role");
    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(client.clone()).list(&all).await;
    assert_eq!(nodes.expect("allowed by the ClusterRole").items[0].name_any(), "devcluster");
    let refused = Api::<Secret>::default_namespaced(client).list(&all).await.expect_err("no rule allows it");
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");
}
