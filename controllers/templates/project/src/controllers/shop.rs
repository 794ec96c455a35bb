//! Runs a Deployment for each object of the kind Shop.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use mainstay::client::set_condition;
use mainstay::prelude::*;
use serde_json::{from_value, json};
use tokio::sync::watch;

use crate::api::shop::{Shop, ShopStatus};
use crate::limits::Limits;

/// The label of every Deployment that this controller writes. The cache holds no others.
const MANAGED: &str = "app.kubernetes.io/managed-by";

struct ShopReconciler {
    deployments: Store<Deployment>,
    limits: watch::Receiver<Arc<Limits>>,
}

/// Registers the controller.
pub fn setup(manager: &Manager) -> Result<(), BoxError> {
    let objects = manager.store::<Shop>(Scope::all());
    let deployments = manager.store(Scope::all().labels(format!("{MANAGED}=shop").parse()?));
    let controller =
        Controller::new("shop").reconciles(&objects).owns(&deployments).writes_status::<Shop>();
    let limits = manager.section::<Limits>("limits")?;
    let shop = ShopReconciler { deployments, limits };
    // The garbage collector deletes the Deployments, so no finalizer is needed.
    manager.register(controller.reconciler(without_finalizer(&objects, shop)))?;
    Ok(())
}

impl ObjectReconciler<Shop> for ShopReconciler {
    async fn reconcile(&self, shop: Arc<Shop>, cx: &Context) -> Outcome {
        let limit = self.limits.borrow().max_replicas;
        let wanted = deployment(&shop, limit)?;
        if let Effect::Created(child) = cx.apply(&*shop, &wanted).await? {
            let note = format!("Deployment {}", child.name_any());
            let target = shop.object_ref(&());
            cx.events().event(&target, EventType::Normal, "Created", "Create", &note);
        }
        let name = NamespacedName::new(shop.namespace().as_deref(), &shop.name_any());
        let status = status(&shop, limit, self.deployments.get(&name)?.as_deref());
        cx.apply_status(&*shop, &status).await?;
        Ok(Action::Done)
    }
}

/// Returns the Deployment as it should be. Only these fields are the controller's.
fn deployment(shop: &Shop, limit: i32) -> Result<Deployment, serde_json::Error> {
    let name = shop.name_any();
    let labels = json!({"app.kubernetes.io/instance": &name, MANAGED: "shop"});
    from_value(json!({
        "metadata": {"name": &name, "labels": &labels},
        "spec": {
            "replicas": shop.spec.replicas.min(limit),
            "selector": {"matchLabels": &labels},
            "template": {
                "metadata": {"labels": &labels},
                "spec": {"containers": [{"name": "web", "image": &shop.spec.image}]},
            },
        },
    }))
}

/// Returns the status for the Deployment as it is.
fn status(shop: &Shop, limit: i32, found: Option<&Deployment>) -> ShopStatus {
    let wanted = shop.spec.replicas.min(limit);
    let found = found.and_then(|found| found.status.as_ref()?.ready_replicas);
    let ready = found.unwrap_or(0);
    let mut status = shop.status.clone().unwrap_or_default();
    status.ready_replicas = ready;
    let condition = Condition {
        type_: "Ready".into(),
        status: if ready >= wanted { "True" } else { "False" }.into(),
        reason: if ready >= wanted { "AllReady" } else { "Starting" }.into(),
        message: format!("{ready} of {wanted} Pods are ready; at most {limit} are allowed"),
        observed_generation: shop.metadata.generation,
        last_transition_time: Time(Timestamp::now()),
    };
    set_condition(&mut status.conditions, condition);
    status
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;
    use mainstay::testing::{TestContext, reconcile_once};

    use super::*;

    /// Makes a reconciler with one Shop and no Deployment.
    fn fixture(replicas: i32) -> (impl Reconciler, TestContext, NamespacedName) {
        let spec = json!({"image": "nginx:1.29", "replicas": replicas});
        let shop = json!({"metadata": {"name": "hello", "generation": 1}, "spec": spec});
        let objects = Store::from_objects([from_value::<Shop>(shop).unwrap()]);
        let deployments = Store::from_objects([] as [Deployment; 0]);
        let cx = Context::for_test().with_definition(&Shop::crd());
        let cx = cx.with_store(&objects).with_store(&deployments);
        let limits = watch::channel(Arc::default()).1;
        let shop = ShopReconciler { deployments, limits };
        let name = NamespacedName::namespaced("default", "hello");
        (without_finalizer(&objects, shop), cx, name)
    }

    #[tokio::test]
    async fn the_deployment_is_created_and_the_second_run_writes_nothing() {
        let (reconciler, cx, hello) = fixture(2);
        let run = reconcile_once(&reconciler, &hello, &cx).await;
        assert_eq!(run.wrote()[0], "apply deployments.apps default/hello");
        assert_eq!(run.writes[0].body["spec"]["replicas"], 2);
        let condition = &run.writes[1].body["status"]["conditions"][0];
        assert_eq!(condition["reason"], "Starting");
        let event = run.events[0].to_string();
        assert_eq!(event, "Normal Created: Deployment hello");

        let run = reconcile_once(&reconciler, &hello, &cx).await;
        assert_eq!(run.action(), Action::Done);
        assert_eq!(run.wrote(), [""; 0]);
    }

    #[tokio::test]
    async fn the_limit_of_the_configuration_applies() {
        let (reconciler, cx, hello) = fixture(20);
        let run = reconcile_once(&reconciler, &hello, &cx).await;
        assert_eq!(run.writes[0].body["spec"]["replicas"], 10);
        let condition = &run.writes[1].body["status"]["conditions"][0];
        let expected = "0 of 10 Pods are ready; at most 10 are allowed";
        assert_eq!(condition["message"], expected);
    }
}
