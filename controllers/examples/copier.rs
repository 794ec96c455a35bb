//! Keeps a copy of every `ConfigMap` of namespace `shop` in namespace `attic`. Its tests are in this file.
//!
//! Owner references cannot cross namespaces, so a finalizer holds each original back until its copy is
//! deleted. `cargo run --example copier -- run --leader-elect=false` runs it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use mainstay::prelude::*;
use mainstay::rbac::Access;

/// On a copy: the name of its original. A `ConfigMap` without it is neither changed nor deleted.
const COPY_OF: &str = "copier.example.com/copy-of";
const FINALIZER: &str = "copier.example.com/attic";

struct Copier;

impl ObjectReconciler<ConfigMap> for Copier {
    async fn reconcile(&self, map: Arc<ConfigMap>, cx: &Context) -> Outcome {
        let (name, original) = (format!("shop-{}", map.name_any()), map.name_any());
        // An apply overwrites the object that has the name.
        if api(cx, "attic").get_opt(&name).await?.is_some_and(|found| !is_copy(&found, &map)) {
            return Err(format!("ConfigMap attic/{name} is no copy of shop/{original}: move it away").into());
        }
        let mut copy = ConfigMap { data: map.data.clone(), ..ConfigMap::default() };
        (copy.metadata.name, copy.metadata.namespace) = (Some(name), Some("attic".into()));
        copy.annotations_mut().insert(COPY_OF.into(), original);
        cx.apply_unowned(&copy).await?;
        Ok(Action::Done)
    }

    async fn cleanup(&self, map: Arc<ConfigMap>, cx: &Context) -> Outcome {
        let found = api(cx, "attic").get_opt(&format!("shop-{}", map.name_any())).await?;
        if let Some(copy) = found.filter(|found| is_copy(found, &map)) {
            // Not another object that has taken the name of the copy since.
            let same = Preconditions { uid: copy.uid(), resource_version: None };
            api(cx, "attic").delete(&copy.name_any(), &DeleteParams::default().preconditions(same)).await?;
            cx.events().event(&map.object_ref(&()), EventType::Normal, "CopyRemoved", "Clean", "deleted");
        }
        Ok(Action::Done)
    }
}

fn api(cx: &Context, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(cx.client().clone(), namespace)
}

fn is_copy(found: &ConfigMap, original: &ConfigMap) -> bool {
    found.annotations().get(COPY_OF) == original.metadata.name.as_ref()
}

pub(crate) fn setup(manager: &Manager) -> Result<(), BoxError> {
    let maps = manager.store(Scope::namespace("shop"));
    let other = Access::to::<ConfigMap>(["get", "delete"]).in_namespace("attic");
    let controller = Controller::new("copier").reconciles(&maps).writes_in::<ConfigMap>("attic");
    let controller = controller.needs(other.because("looks at copies, and deletes them"));
    manager.register(controller.reconciler(with_finalizer(&maps, FINALIZER, Copier)))?;
    Ok(())
}

fn main() -> ExitCode {
    Program::new("copier", env!("CARGO_PKG_VERSION"), "Keeps copies of ConfigMaps")
        .controllers(["copier"])
        .setup(setup)
        .main()
}

#[cfg(test)]
mod tests {
    use mainstay::testing::{TestContext, reconcile_once};
    use serde_json::{from_value, json};

    use super::*;

    /// Makes a `ConfigMap` of the shop, and one in the attic that is no copy and has the name `in_attic`.
    fn fixture(in_attic: &str) -> (impl Reconciler, Store<ConfigMap>, TestContext, NamespacedName) {
        let prices = json!({"metadata": {"name": "prices", "namespace": "shop"}, "data": {"tea": "3"}});
        let theirs = json!({"metadata": {"name": in_attic, "namespace": "attic"}});
        let maps = Store::from_objects([prices, theirs].map(|map| from_value(map).unwrap()));
        let cx = Context::for_test().with_store(&maps);
        (with_finalizer(&maps, FINALIZER, Copier), maps, cx, NamespacedName::namespaced("shop", "prices"))
    }

    #[tokio::test]
    async fn a_copy_is_made_after_the_finalizer_and_deleted_before_its_original() {
        let (copier, maps, cx, prices) = fixture("other");
        let run = reconcile_once(&copier, &prices, &cx).await;
        assert_eq!(run.wrote(), ["merge configmaps shop/prices", "apply configmaps attic/shop-prices"]);
        assert_eq!(run.writes[1].body["data"], json!({"tea": "3"}));

        api(&cx, "shop").delete("prices", &DeleteParams::default()).await.unwrap();
        cx.api().refuse_next(500, "InternalError", "the attic is locked");
        let run = reconcile_once(&copier, &prices, &cx).await;
        assert!(run.outcome.unwrap_err().to_string().contains("the attic is locked"));
        assert!(maps.get(&prices).unwrap().is_some(), "still held");

        let run = reconcile_once(&copier, &prices, &cx).await;
        assert_eq!(run.wrote(), ["delete configmaps attic/shop-prices", "merge configmaps shop/prices"]);
        assert_eq!(run.events[0].reason, "CopyRemoved");
        assert!(maps.get(&prices).unwrap().is_none());
    }

    #[tokio::test]
    async fn an_object_that_is_no_copy_is_neither_overwritten_nor_deleted() {
        let (copier, _maps, cx, prices) = fixture("shop-prices");
        let run = reconcile_once(&copier, &prices, &cx).await;
        assert!(run.outcome.unwrap_err().to_string().contains("attic/shop-prices is no copy of shop/prices"));
        api(&cx, "shop").delete("prices", &DeleteParams::default()).await.unwrap();
        let run = reconcile_once(&copier, &prices, &cx).await;
        assert_eq!(run.wrote(), ["merge configmaps shop/prices"]);
        assert!(api(&cx, "attic").get("shop-prices").await.is_ok());
    }
}
