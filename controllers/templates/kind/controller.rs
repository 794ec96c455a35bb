//! Writes a `ConfigMap` for each object of the kind Shop.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use mainstay::client::set_condition;
use mainstay::prelude::*;

use crate::api::shop::Shop;

/// The label of every `ConfigMap` that this controller writes. The cache holds no others.
const MANAGED: &str = "app.kubernetes.io/managed-by";

struct ShopReconciler;

/// Registers the controller.
pub fn setup(manager: &Manager) -> Result<(), BoxError> {
    let objects = manager.store::<Shop>(Scope::all());
    let maps = manager.store::<ConfigMap>(Scope::all().labels(format!("{MANAGED}=shop").parse()?));
    let controller = Controller::new("shop").reconciles(&objects).owns(&maps).writes_status::<Shop>();
    manager.register(controller.reconciler(without_finalizer(&objects, ShopReconciler)))?;
    Ok(())
}

impl ObjectReconciler<Shop> for ShopReconciler {
    async fn reconcile(&self, shop: Arc<Shop>, cx: &Context) -> Outcome {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("{}-shop", shop.name_any()));
        map.labels_mut().insert(MANAGED.into(), "shop".into());
        map.data = Some([("text".into(), shop.spec.text.clone())].into());
        cx.apply(&*shop, &map).await?;

        let mut status = shop.status.clone().unwrap_or_default();
        let ready = Condition {
            type_: "Ready".into(),
            status: "True".into(),
            reason: "Written".into(),
            message: format!("the text is in ConfigMap {}", map.name_any()),
            observed_generation: shop.metadata.generation,
            last_transition_time: Time(Timestamp::now()),
        };
        set_condition(&mut status.conditions, ready);
        cx.apply_status(&*shop, &status).await?;
        Ok(Action::Done)
    }
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;
    use mainstay::testing::reconcile_once;
    use serde_json::{from_value, json};

    use super::*;

    #[tokio::test]
    async fn the_text_is_written_once() {
        let object = json!({"metadata": {"name": "hello", "generation": 1}, "spec": {"text": "hi"}});
        let objects = Store::from_objects([from_value::<Shop>(object).unwrap()]);
        let maps = Store::from_objects([] as [ConfigMap; 0]);
        let cx = Context::for_test().with_definition(&Shop::crd());
        let cx = cx.with_store(&objects).with_store(&maps);
        let reconciler = without_finalizer(&objects, ShopReconciler);
        let hello = NamespacedName::namespaced("default", "hello");
        let run = reconcile_once(&reconciler, &hello, &cx).await;
        assert_eq!(run.wrote()[0], "apply configmaps default/hello-shop");
        assert_eq!(run.writes[0].body["data"]["text"], "hi");
        assert_eq!(run.writes[1].body["status"]["conditions"][0]["reason"], "Written");

        let run = reconcile_once(&reconciler, &hello, &cx).await;
        assert_eq!(run.action(), Action::Done);
        assert_eq!(run.wrote(), [""; 0]);
    }
}
