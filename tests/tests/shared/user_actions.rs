//! Actions of people and autoscalers on a WaitDeployment and its Deployment: wait, scale, restart, label.
//! Each has its effect, and later edits keep it.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::{image, lay_over, tcp, wait_deployment, with_image};
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::{Value, json};

/// Number of edits, after each of which `kubectl wait` is called.
const EDITS: usize = 4;

/// One manager, and the objects of its namespace.
struct Stage {
    cluster: TestCluster,
    manager: LocalManager,
    objects: kube::Api<WaitDeployment>,
    deployments: kube::Api<Deployment>,
}

// === impl Stage ===

impl Stage {
    async fn set_up() -> Option<Self> {
        let cluster = TestCluster::shared().await?;
        let identity = cluster.install_base().await;
        let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
        let (objects, deployments) = (cluster.api(), cluster.api());
        Some(Self { cluster, manager, objects, deployments })
    }

    async fn create(&self, name: &str, spec: &Value) {
        let mut changes = with_image(0);
        lay_over(&mut changes, &json!({"spec": spec}));
        let object = wait_deployment(name, &changes);
        self.objects.create(&PostParams::default(), &object).await.expect("created");
    }

    async fn edit(&self, name: &str, spec: &Value) -> WaitDeployment {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.objects.patch(name, &PatchParams::default(), &patch).await.expect("edited")
    }

    /// Edits the image of the object to that of this round.
    async fn release(&self, name: &str, round: usize) {
        self.edit(name, &with_image(round)["spec"]).await;
    }

    async fn kubectl_wait(&self, name: &str, condition: &str) {
        let object = format!("waitdeployment/{name}");
        self.cluster
            .kubectl(&["wait", &format!("--for=condition={condition}"), "--timeout=60s", &object])
            .await;
    }

    async fn deployment(&self, name: &str) -> Deployment {
        self.deployments.get(name).await.expect("the Deployment")
    }

    /// Waits until the Deployment specifies this number of Pods and all are available.
    async fn has(&self, name: &str, replicas: i32) -> Deployment {
        wait::until(&self.deployments, name, &format!("{replicas} Pods of {name}"), |found| {
            let status = found.status.clone().unwrap_or_default();
            found.spec.replicas == Some(replicas)
                && is_rolled_out(found)
                && status.available_replicas.unwrap_or_default() == replicas
        })
        .await
    }
}

// === private functions ===

fn image_of(deployment: &Deployment) -> Option<&str> {
    deployment.spec.template.spec.as_ref()?.containers.first()?.image.as_deref()
}

/// Returns whether `kubectl rollout status` would succeed.
fn is_rolled_out(deployment: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.replicas.unwrap_or_default();
    status.observed_generation == deployment.metadata.generation
        && status.updated_replicas.unwrap_or_default() == wanted
        && status.replicas.unwrap_or_default() == wanted
        && status.available_replicas.unwrap_or_default() == wanted
}

fn restart_of(deployment: &Deployment) -> Option<&String> {
    deployment.spec.template.metadata.as_ref()?.annotations.as_ref()?.get("kubectl.kubernetes.io/restartedAt")
}

fn depends_on(prerequisite: &Prerequisite) -> Value {
    json!({"dependencies": [tcp("db", prerequisite.address())]})
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_wait_returns_for_the_current_generation_only() {
    let Some(stage) = Stage::set_up().await else { return };
    if !stage.cluster.has_kubectl().await {
        return;
    }
    let mut prerequisite = Prerequisite::closed();
    stage.create("web", &json!({"replicas": 1, "waitFor": depends_on(&prerequisite)})).await;
    stage.kubectl_wait("web", "DependenciesReady=False").await;
    stage.kubectl_wait("web", "Ready=False").await;
    prerequisite.come_up();
    for condition in ["DependenciesReady", "Ready", "Available"] {
        stage.kubectl_wait("web", condition).await;
    }

    for round in 1..=EDITS {
        // Only kubectl waits for the edit: the conditions it reads must be of this generation.
        stage.release("web", round).await;
        stage.kubectl_wait("web", "Ready").await;
        let deployment = stage.deployment("web").await;
        assert_eq!(image_of(&deployment), Some(image(round).as_str()), "a condition of an earlier template");
        assert!(is_rolled_out(&deployment), "a condition too early: {:?}", deployment.status);

        stage.release("web", round + EDITS).await;
        stage.kubectl_wait("web", "Available").await;
        let deployment = stage.deployment("web").await;
        assert_eq!(
            image_of(&deployment),
            Some(image(round + EDITS).as_str()),
            "a condition of an earlier template"
        );
        stage.kubectl_wait("web", "Ready").await;

        // An edit without effect on the Deployment raises the generation too: kubectl must not wait for ever.
        let mut wait_for = depends_on(&prerequisite);
        wait_for["deadlineSeconds"] = json!(100 + round);
        stage.edit("web", &json!({"waitFor": wait_for})).await;
        for condition in ["Ready", "Available", "DependenciesReady"] {
            stage.kubectl_wait("web", condition).await;
        }

        let replicas = (1 + round % 2).to_string();
        stage.cluster.kubectl(&["scale", "waitdeployment/web", "--replicas", &replicas]).await;
        stage.kubectl_wait("web", "Ready").await;
        let deployment = stage.deployment("web").await;
        assert_eq!(deployment.spec.replicas.map(|count| count.to_string()), Some(replicas));
        assert!(is_rolled_out(&deployment), "a condition too early: {:?}", deployment.status);

        // This edit concerns the Deployment only: its generation runs ahead of the object's.
        stage.cluster.kubectl(&["rollout", "restart", "deployment/web"]).await;
        stage.cluster.kubectl(&["rollout", "status", "--timeout=60s", "deployment/web"]).await;
        stage.kubectl_wait("web", "Ready").await;
        stage.kubectl_wait("web", "Available").await;
    }
    stage.manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_reads_and_writes_the_scale_subresource() {
    let Some(stage) = Stage::set_up().await else { return };
    if !stage.cluster.has_kubectl().await {
        return;
    }
    stage.create("set", &json!({"replicas": 2})).await;
    stage.create("unset", &json!({})).await;
    stage.has("set", 2).await;
    wait::until(&stage.objects, "set", "its status", |set| {
        set.status.as_ref().is_some_and(|status| status.replicas == Some(2))
    })
    .await;

    let mut scale = stage.objects.get_scale("set").await.expect("a scale");
    let status = scale.status.clone().expect("a status");
    assert_eq!((scale.spec.as_ref().and_then(|spec| spec.replicas), status.replicas), (Some(2), 2));
    assert_eq!(status.selector.as_deref(), Some("app=set"), "autoscalers select Pods by it");
    scale.spec = Some(k8s_openapi::api::autoscaling::v1::ScaleSpec { replicas: Some(3) });
    let put = stage.objects.replace_scale("set", &PostParams::default(), &scale).await;
    assert_eq!(put.expect("scaled").spec.and_then(|spec| spec.replicas), Some(3));
    stage.has("set", 3).await;
    // A stale scale is refused.
    let refused = stage.objects.replace_scale("set", &PostParams::default(), &scale).await;
    assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 409), "{refused:?}");
    stage.cluster.kubectl(&["scale", "wdeploy/set", "--current-replicas=3", "--replicas=1"]).await;
    stage.has("set", 1).await;

    // Without `replicas` only the Deployment can be scaled: a default would fight its autoscaler.
    stage.has("unset", 1).await;
    let refused = stage.objects.get_scale("unset").await;
    let words = refused.expect_err("an error").to_string();
    assert!(words.contains(".spec.replicas"), "{words}");
    stage.cluster.kubectl(&["scale", "deployment/unset", "--replicas=2"]).await;
    stage.has("unset", 2).await;
    stage.release("unset", 1).await;
    let deployment = wait::until(&stage.deployments, "unset", "the edit", |found| {
        image_of(found) == Some(image(1).as_str()) && is_rolled_out(found)
    })
    .await;
    assert_eq!(deployment.spec.replicas, Some(2), "an edit keeps the replicas");
    // Setting `replicas` takes the field back.
    stage.edit("unset", &json!({"replicas": 1})).await;
    stage.has("unset", 1).await;
    stage.manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_works_on_either_object() {
    let Some(stage) = Stage::set_up().await else { return };
    stage.create("outer", &json!({"replicas": 1})).await;
    stage.create("inner", &json!({})).await;
    for name in ["outer", "inner"] {
        stage.has(name, 1).await;
    }
    // Below its minimum an autoscaler acts without metrics, and this cluster has none.
    let autoscaler = |name: &str, api_version: &str, kind: &str| -> HorizontalPodAutoscaler {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": name},
                "minReplicas": 2, "maxReplicas": 4,
            },
        }))
        .expect("an autoscaler")
    };
    let autoscalers = stage.cluster.api::<HorizontalPodAutoscaler>();
    let both = [
        autoscaler("outer", "apps.mainstay.dev/v1alpha1", "WaitDeployment"),
        autoscaler("inner", "apps/v1", "Deployment"),
    ];
    for autoscaler in &both {
        autoscalers.create(&PostParams::default(), autoscaler).await.expect("created");
    }
    for name in ["outer", "inner"] {
        stage.has(name, 2).await;
        stage.release(name, 1).await;
        let deployment = wait::until(&stage.deployments, name, "the edit", |found| {
            image_of(found) == Some(image(1).as_str()) && is_rolled_out(found)
        })
        .await;
        assert_eq!(deployment.spec.replicas, Some(2), "{name}: an edit keeps the autoscaler's replicas");
        stage.kubectl_wait(name, "Ready").await;
    }
    let replicas = async |name: &str| stage.objects.get(name).await.expect("the object").spec.replicas;
    assert_eq!((replicas("outer").await, replicas("inner").await), (Some(2), None));
    stage.manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_annotations_and_restarts_of_users_survive_an_edit() {
    let Some(stage) = Stage::set_up().await else { return };
    if !stage.cluster.has_kubectl().await {
        return;
    }
    stage.create("web", &json!({"replicas": 1})).await;
    stage.has("web", 1).await;
    stage.cluster.kubectl(&["label", "deployment/web", "team=shop"]).await;
    stage.cluster.kubectl(&["annotate", "deployment/web", "example.com/on-call=anna"]).await;
    stage.cluster.kubectl(&["rollout", "restart", "deployment/web"]).await;
    stage.cluster.kubectl(&["rollout", "status", "--timeout=60s", "deployment/web"]).await;
    let restarted = stage.deployment("web").await;
    assert!(restart_of(&restarted).is_some());

    stage.release("web", 1).await;
    stage.kubectl_wait("web", "Ready").await;
    let edited = stage.deployment("web").await;
    assert_eq!(image_of(&edited), Some(image(1).as_str()));
    assert_eq!(edited.labels().get("team").map(String::as_str), Some("shop"));
    assert_eq!(edited.annotations().get("example.com/on-call").map(String::as_str), Some("anna"));
    assert_eq!(restart_of(&edited), restart_of(&restarted), "the restart is kept");
    let sets = stage.cluster.api::<ReplicaSet>().list(&ListParams::default()).await.expect("listed").items;
    assert_eq!(sets.len(), 3, "the first template, the restarted one, the edited one");

    // A field that the WaitDeployment sets is restored.
    stage.cluster.kubectl(&["set", "image", "deployment/web", "main=example.invalid/main:by-hand"]).await;
    wait::until(&stage.deployments, "web", "the object's image again", |web| {
        image_of(web) == Some(image(1).as_str()) && web.metadata.generation > edited.metadata.generation
    })
    .await;
    stage.manager.stop().await.expect("stopped in order");
}
