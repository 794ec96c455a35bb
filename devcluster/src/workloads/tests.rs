mod batch;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::object::Object as _;
use super::*;
use crate::api::{self, Api, ApiOptions, Content, Target};

/// An API and all controllers. The clock is paused: time passes only while all tasks wait.
struct Cluster {
    api: Api,
    _controllers: JoinSet<()>,
}

fn target(path: &str) -> Target {
    let mut parts = path.split('/');
    let mut next = || parts.next().unwrap_or_default();
    let (group, version, resource) = (next().to_owned(), next().to_owned(), next().to_owned());
    Target::new(&group, &version, &resource).namespace(next()).name(next())
}

impl Cluster {
    async fn start() -> Self {
        let started = Instant::now();
        let first: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
        let clock: Clock = Arc::new(move || {
            first + SignedDuration::try_from(started.elapsed()).expect("the duration of a test")
        });
        let api = Api::new(ApiOptions { seed: 1, ..ApiOptions::new(Arc::clone(&clock)) }).await;
        let mut controllers = JoinSet::new();
        controllers.spawn(run(api.clone(), Options::new("PEM", clock), CancellationToken::new()));
        Self { api, _controllers: controllers }
    }

    /// Waits until the controllers are idle.
    async fn idle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn call(&self, verb: api::Verb, path: &str, body: Value) -> Value {
        let mut request = api::Request::new(verb, target(path));
        if !body.is_null() {
            request = request.with_body(body);
        }
        match self.api.call(request).await {
            Ok(response) => match response.content {
                Content::Object(object) => object.value().clone(),
                Content::List(list) => list.items.iter().map(|item| item.value().clone()).collect(),
                Content::Watch(_) => Value::Null,
            },
            Err(status) => status.to_value(),
        }
    }

    async fn create(&self, path: &str, body: Value) -> Value {
        let created = self.call(api::Verb::Create, path, body).await;
        assert!(!created.uid().is_empty(), "{created}");
        created
    }

    async fn get(&self, path: &str) -> Value {
        self.call(api::Verb::Get, path, Value::Null).await
    }

    async fn patch(&self, path: &str, body: Value) {
        let patched = self.call(api::Verb::Patch(api::PatchType::Merge), path, body).await;
        assert!(!patched.uid().is_empty(), "{patched}");
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        self.call(api::Verb::List, path, Value::Null).await.as_array().cloned().unwrap_or_default()
    }

    /// Waits until the objects of a collection fulfil a condition, and returns them.
    async fn until(&self, path: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let watch = api::Request::new(api::Verb::Watch, target(path));
        let Ok(api::Response { content: Content::Watch(mut watch), .. }) = self.api.call(watch).await else {
            panic!("{path} cannot be watched");
        };
        let waiting = async {
            loop {
                let objects = self.list(path).await;
                if wanted(&objects) {
                    return objects;
                }
                watch.next().await.expect("the watch goes on");
            }
        };
        let outcome = timeout(Duration::from_mins(10), waiting).await;
        let Ok(objects) = outcome else { panic!("{path} is not as wanted: {:#?}", self.list(path).await) };
        objects
    }
}

fn deployment(replicas: i64, annotations: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": annotations},
                "spec": {"containers": [{"name": "main", "image": "example.invalid/main:1"}]},
            },
        },
    })
}

fn service() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    })
}

fn available(deployments: &[Value], replicas: i64) -> bool {
    deployments.iter().any(|web| {
        web.count("/status/availableReplicas") == replicas
            && web.count("/status/replicas") == replicas
            && web.count("/status/observedGeneration") == web.count("/metadata/generation")
            && web.condition("Progressing").is_some_and(|c| c["reason"] == "NewReplicaSetAvailable")
            && web.has_condition("Available")
    })
}

const DEPLOYMENTS: &str = "apps/v1/deployments/default";
const PODS: &str = "/v1/pods/default";

fn ready_endpoints(slices: &[Value]) -> usize {
    let web = slices.iter().filter(|slice| slice.label("kubernetes.io/service-name") == Some("web"));
    web.flat_map(|slice| slice.list("/endpoints")).filter(|e| e["conditions"]["ready"] == true).count()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_becomes_available_and_is_deleted_with_its_pods() {
    let cluster = Cluster::start().await;
    cluster.create("/v1/services/default", service()).await;
    cluster.create(DEPLOYMENTS, deployment(3, &json!({}))).await;
    cluster.until(DEPLOYMENTS, |all| available(all, 3)).await;
    let pods = cluster.list(PODS).await;
    assert_eq!(pods.len(), 3, "no Pod too many");
    for pod in &pods {
        assert!(pod["spec"]["nodeName"] == NODE && pod.has_condition("PodScheduled"), "{pod}");
    }
    cluster.until("discovery.k8s.io/v1/endpointslices/default", |all| ready_endpoints(all) == 3).await;
    cluster
        .until("/v1/endpoints/default", |all| {
            all.iter().any(|web| web.name() == "web" && web.list("/subsets/0/addresses").len() == 3)
        })
        .await;

    let path = format!("{DEPLOYMENTS}/web");
    cluster.call(api::Verb::Delete, &path, json!({"propagationPolicy": "Background"})).await;
    cluster.until(PODS, <[Value]>::is_empty).await;
    cluster.until("apps/v1/replicasets/default", <[Value]>::is_empty).await;
    cluster.until("discovery.k8s.io/v1/endpointslices/default", |all| ready_endpoints(all) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_image_is_rolled_out() {
    let cluster = Cluster::start().await;
    cluster.create(DEPLOYMENTS, deployment(4, &json!({"devcluster.mainstay.dev/ready-after": "5s"}))).await;
    cluster.until(DEPLOYMENTS, |all| available(all, 4)).await;
    let containers = json!([{"name": "main", "image": "example.invalid/main:2"}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    cluster.patch(&format!("{DEPLOYMENTS}/web"), patch).await;
    cluster.until(DEPLOYMENTS, |all| available(all, 4)).await;
    let pods = cluster.list(PODS).await;
    let new = pods.iter().filter(|pod| pod.text("/spec/containers/0/image").ends_with(":2"));
    assert_eq!(new.filter(|pod| !pod.is_deleting()).count(), 4);
    let mut sets: Vec<_> = cluster
        .list("apps/v1/replicasets/default")
        .await
        .iter()
        .map(|set| {
            (
                set.annotation("deployment.kubernetes.io/revision").map(str::to_owned),
                set.count("/spec/replicas"),
            )
        })
        .collect();
    sets.sort();
    assert_eq!(sets, [(Some("1".to_owned()), 0), (Some("2".to_owned()), 4)]);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_never_becomes_ready_passes_its_deadline() {
    let cluster = Cluster::start().await;
    let mut stuck = deployment(1, &json!({"devcluster.mainstay.dev/never-ready": "true"}));
    stuck["spec"]["progressDeadlineSeconds"] = 20.into();
    cluster.create(DEPLOYMENTS, stuck).await;
    let reason = "ProgressDeadlineExceeded";
    cluster
        .until(DEPLOYMENTS, |all| {
            all.iter().any(|web| web.condition("Progressing").is_some_and(|c| c["reason"] == reason))
        })
        .await;
    assert!(cluster.list(PODS).await.iter().all(|pod| pod["status"]["phase"] == "Pending"));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_has_its_defaults_and_waits_for_finalizers() {
    let cluster = Cluster::start().await;
    cluster.create("/v1/namespaces", json!({"metadata": {"name": "work"}})).await;
    cluster.until("/v1/serviceaccounts/work", |all| all.iter().any(|one| one.name() == "default")).await;
    cluster.until("/v1/configmaps/work", |all| all.iter().any(|one| one["data"]["ca.crt"] == "PEM")).await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    cluster.create("/v1/configmaps/work", held).await;
    cluster.create("/v1/secrets/work", json!({"metadata": {"name": "free"}})).await;

    cluster.call(api::Verb::Delete, "/v1/namespaces//work", Value::Null).await;
    let work = |all: &[Value]| all.iter().find(|one| one.name() == "work").cloned();
    let spaces = cluster.until("/v1/namespaces", |all| {
        work(all).is_some_and(|w| w.has_condition("NamespaceContentRemaining"))
    });
    let left = work(&spaces.await).expect("the namespace");
    let message = left.condition("NamespaceFinalizersRemaining").map(|c| c.text("/message").to_owned());
    assert_eq!(
        message.as_deref(),
        Some(
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        )
    );
    assert_eq!(left["status"]["phase"], "Terminating");
    cluster.until("/v1/secrets/work", <[Value]>::is_empty).await;
    cluster.patch("/v1/configmaps/work/held", json!({"metadata": {"finalizers": null}})).await;
    cluster.until("/v1/namespaces", |all| work(all).is_none()).await;
}

fn owned(name: &str, owner: &Value, blocks: bool) -> Value {
    let reference = json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner.name(), "uid": owner.uid(),
        "blockOwnerDeletion": blocks,
    });
    json!({"metadata": {"name": name, "ownerReferences": [reference]}})
}

const MAPS: &str = "/v1/configmaps/default";
const WIDGETS: &str = "example.com/v1/widgets/default";

async fn define_widgets(cluster: &Cluster) {
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    });
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        },
    });
    let definitions = "apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.create(definitions, definition).await;
    cluster.until(definitions, |all| all.iter().any(|one| one.has_condition("Established"))).await;
}

#[tokio::test(start_paused = true)]
async fn dependents_of_custom_resources_follow_their_owner() {
    let cluster = Cluster::start().await;
    define_widgets(&cluster).await;
    let widget =
        |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
    let has = |all: &[Value], name: &str| all.iter().any(|one| one.name() == name);

    for (policy, owner) in [("Background", "a"), ("Foreground", "b")] {
        let owner = cluster.create(WIDGETS, widget(owner)).await;
        let middle = cluster.create(WIDGETS, {
            let mut middle = owned("middle", &owner, true);
            middle["apiVersion"] = "example.com/v1".into();
            middle["kind"] = "Widget".into();
            middle
        });
        let middle = middle.await;
        cluster.create(MAPS, owned("leaf", &middle, true)).await;
        let path = format!("{WIDGETS}/{}", owner.name());
        cluster.call(api::Verb::Delete, &path, json!({ "propagationPolicy": policy })).await;
        cluster.until(MAPS, |all| !has(all, "leaf")).await;
        cluster.until(WIDGETS, <[Value]>::is_empty).await;
    }

    let owner = cluster.create(WIDGETS, widget("c")).await;
    cluster.create(MAPS, owned("kept", &owner, true)).await;
    cluster.call(api::Verb::Delete, &format!("{WIDGETS}/c"), json!({"propagationPolicy": "Orphan"})).await;
    cluster.until(WIDGETS, <[Value]>::is_empty).await;
    let kept = cluster.get(&format!("{MAPS}/kept")).await;
    assert!(!kept.uid().is_empty() && kept.owners().is_empty(), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn dependents_are_deleted_with_the_definition_of_their_owners() {
    let cluster = Cluster::start().await;
    define_widgets(&cluster).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}});
    let owner = cluster.create(WIDGETS, widget).await;
    cluster.create(MAPS, owned("child", &owner, false)).await;
    cluster.idle().await;
    let definition = "apiextensions.k8s.io/v1/customresourcedefinitions//widgets.example.com";
    cluster.call(api::Verb::Delete, definition, Value::Null).await;
    cluster.until(MAPS, |all| all.iter().all(|one| one.name() != "child")).await;
}

#[tokio::test(start_paused = true)]
async fn controllers_can_be_switched_off() {
    let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
    let api = Api::new(ApiOptions { seed: 1, ..ApiOptions::new(Arc::clone(&clock)) }).await;
    let mut options = Options::new("PEM", clock);
    options.controllers.remove(&Controller::Pods);
    let mut controllers = JoinSet::new();
    controllers.spawn(run(api.clone(), options, CancellationToken::new()));
    let cluster = Cluster { api, _controllers: controllers };
    cluster.create(DEPLOYMENTS, deployment(1, &json!({}))).await;
    cluster.until(PODS, |all| all.len() == 1).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(cluster.list(PODS).await.iter().all(|pod| pod.text("/spec/nodeName").is_empty()));
    assert!(cluster.list("/v1/nodes").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_aggregated_role_follows_the_roles_that_it_selects() {
    const ROLES: &str = "rbac.authorization.k8s.io/v1/clusterroles/";
    let cluster = Cluster::start().await;
    cluster.idle().await;
    let view = cluster.get(&format!("{ROLES}/view")).await;
    assert_eq!(view.text("/metadata/resourceVersion"), "1", "the first rules are complete");
    let read = json!({"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["widgets"]});
    let labels = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    cluster.create(ROLES, json!({"metadata": {"name": "widgets", "labels": labels}, "rules": [read]})).await;
    cluster.idle().await;
    for name in ["view", "edit", "admin"] {
        let role = cluster.get(&format!("{ROLES}/{name}")).await;
        assert!(role.list("/rules").contains(&read), "{role}");
    }
    let view = cluster.get(&format!("{ROLES}/view")).await;
    let managers = view.list("/metadata/managedFields").iter().map(|entry| entry.text("/manager"));
    assert_eq!(managers.collect::<Vec<_>>(), ["clusterrole-aggregation-controller", "kube-apiserver"]);
    cluster.call(api::Verb::Delete, &format!("{ROLES}/widgets"), Value::Null).await;
    cluster.idle().await;
    let view = cluster.get(&format!("{ROLES}/view")).await;
    assert!(!view.list("/rules").contains(&read), "{view}");
}
