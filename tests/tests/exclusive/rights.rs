//! The RBAC rules in `deploy` are exactly those that the manager needs: a run that uses every feature gets no
//! 403 and uses every right.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::{tcp, wait_deployment};
use mainstay_tests::kstatus::{Kstatus, kstatus};
use mainstay_tests::manifests::{documents_of, documents_of_base};
use mainstay_tests::rights::{Right, rights_of};
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::wait::{dependency_has_reason, has_reason};
use mainstay_tests::{LocalManager, TestCluster, argo, wait};
use serde_json::{Value, json};

const GROUP: &str = "apps.mainstay.dev";

/// Returns a `waitFor` with one dependency of each type that needs a right.
fn waits_for_all(prerequisite: &Prerequisite) -> Value {
    let (host, port) = (prerequisite.address().ip().to_string(), prerequisite.address().port());
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "condition": "Complete"});
    let tls = json!({"host": host, "port": port, "caConfigMap": {"name": "roots"}});
    let mut cache = tcp("cache", prerequisite.address());
    cache["failureThreshold"] = 1.into();
    json!({"dependencies": [
        {"name": "db", "service": {"name": "db"}},
        cache,
        {"name": "schema", "resource": job, "optional": true},
        {"name": "front", "tls": tls, "optional": true},
        {"name": "elsewhere", "tcpSocket": {"host": "192.0.2.1", "port": 80}, "optional": true},
    ]})
}

fn object(name: &str, wait_for: &Value) -> WaitDeployment {
    wait_deployment(name, &json!({"spec": {"replicas": 1, "waitFor": wait_for}}))
}

/// Creates a Service with one endpoint. No probe connects to the endpoint.
async fn make_service(cluster: &TestCluster) {
    let service: Service =
        serde_json::from_value(json!({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}}))
            .expect("a Service");
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": {"name": "db-1", "labels": {"kubernetes.io/service-name": "db"}},
        "addressType": "IPv4",
        "ports": [{"port": 5432}],
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": true}}],
    }))
    .expect("an EndpointSlice");
    cluster.api().create(&PostParams::default(), &service).await.expect("created");
    cluster.api().create(&PostParams::default(), &slice).await.expect("created");
}

/// Waits for the reason `ApplyForbidden` and returns the message of the API server.
async fn forbidden(cluster: &TestCluster, name: &str) -> String {
    let refused = has_reason("Ready", "ApplyForbidden");
    let object =
        wait::until(&cluster.api::<WaitDeployment>(), name, "the apply to be refused", refused).await;
    let seen = serde_json::to_value(&object).expect("JSON");
    let health = argo::health(&seen).expect("a health").status;
    assert_eq!(
        (kstatus(&seen), health.as_str()),
        (Kstatus::Failed, "Degraded"),
        "the refusal is not a failure: {seen:#}"
    );
    object.condition("Ready").and_then(|ready| ready.message.clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_rights_are_exactly_those_the_manager_uses() {
    let Some(cluster) = TestCluster::observed().await else { return };
    // This right is never the subject of a request, so a separate role grants it and the test can revoke it.
    let finalizers =
        json!([{"apiGroups": [GROUP], "resources": ["waitdeployments/finalizers"], "verbs": ["update"]}]);
    let mut base = documents_of_base();
    base.extend(documents_of("components/tls-authorities"));
    let granted = rights_of("mainstay", &base);
    let is_apart = |rule: &Value| rule["resources"] == finalizers[0]["resources"];
    let mut documents = base.clone();
    for rules in documents.iter_mut().filter_map(|document| document["rules"].as_array_mut()) {
        rules.retain(|rule| !is_apart(rule));
    }
    let identity = cluster.install(&documents).await;
    cluster.grant(&identity, &finalizers).await;
    let account = format!("--serviceaccount={}:default", cluster.namespace());
    cluster.kubectl(&["create", "rolebinding", "reader", "--clusterrole=view", &account]).await;
    make_service(&cluster).await;
    let objects = cluster.api::<WaitDeployment>();
    let mut prerequisite = Prerequisite::open();
    // This host is allowed by an entry, but not for a namespace with this level of Pod security.
    let changes = json!({"probePolicy": {"mode": "AllowList", "allow": ["192.0.2.1"]}});
    let level = "pod-security.kubernetes.io/enforce=baseline";
    cluster.kubectl(&["label", "namespace", cluster.namespace(), level]).await;
    let manager = LocalManager::start(&cluster, &identity, &changes).await;
    let web = object("web", &waits_for_all(&prerequisite));
    objects.create(&PostParams::default(), &web).await.expect("created");
    wait::until(&objects, "web", "Ready", has_reason("Ready", "Available")).await;
    // The second loss is counted in the Event of the first.
    let lost = has_reason("DependenciesReady", "Lost");
    for _ in 0..2 {
        prerequisite.go_down().await;
        wait::until(&objects, "web", "the reason Lost", &lost).await;
        prerequisite.come_up();
        wait::until(&objects, "web", "the reason AllReady", has_reason("DependenciesReady", "AllReady"))
            .await;
    }
    let repeated = Right::new("patch", "events", "events.k8s.io");
    wait::until_so("the count of an Event", async || cluster.usage().used.contains(&repeated)).await;
    for (name, reason) in
        [("schema", "NotFound"), ("front", "AuthoritiesNotFound"), ("elsewhere", "PolicyDenied")]
    {
        wait::until(&objects, "web", reason, dependency_has_reason(name, reason)).await;
    }
    assert_eq!(cluster.usage().missing, BTreeSet::new(), "a request was refused");

    // With OwnerReferencesPermissionEnforcement, adopting a Deployment needs more rights than `deploy`
    // grants.
    cluster.kubectl(&["create", "deployment", "old", "--image=example.invalid/main:1"]).await;
    let adopts = json!({"dependencies": [{"name": "db", "service": {"name": "db"}}]});
    objects.create(&PostParams::default(), &object("old", &adopts)).await.expect("created");
    let message = forbidden(&cluster, "old").await;
    assert!(message.contains("cannot set an ownerRef on a resource you can't delete"), "{message}");
    cluster.revoke(&identity, &finalizers).await;
    objects.create(&PostParams::default(), &object("late", &adopts)).await.expect("created");
    let message = forbidden(&cluster, "late").await;
    assert!(message.contains("a resource you can't set finalizers on"), "{message}");
    let more =
        json!([finalizers[0], {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["delete"]}]);
    cluster.grant(&identity, &more).await;
    let again = Patch::Merge(json!({"metadata": {"annotations": {"mainstay.dev/reconcile-at": "now"}}}));
    for name in ["old", "late"] {
        objects.patch(name, &PatchParams::default(), &again).await.expect("annotated");
        wait::until(&objects, name, "Ready", has_reason("Ready", "Available")).await;
    }
    let owned = |old: &Deployment| old.metadata.owner_references.iter().flatten().count() == 1;
    wait::until(&cluster.api::<Deployment>(), "old", "an owner reference", owned).await;
    manager.stop().await.expect("stopped in order");

    let mut used = cluster.usage().used;
    used.insert(Right::new("update", "waitdeployments/finalizers", GROUP));
    assert_eq!(&granted - &used, BTreeSet::new(), "granted in deploy/base/rbac.yaml, and never used");
    cluster.stop().await;
}
