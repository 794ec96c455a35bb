//! Keeps a copy of every `ConfigMap` of namespace `shop` in namespace `attic`, and its own tests beside it.
//!
//! Owner references cannot cross namespaces, so nobody would collect the copies: a finalizer holds each original back
//! until its copy is gone. `cargo run --example copier -- run --leader-elect=false` runs it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use mainstay::cache::{Scope, Store};
use mainstay::client::{Applier, EventType, Finalizer, InvalidFinalizer, refusal};
use mainstay::controller::Controller;
use mainstay::key::KindId;
use mainstay::program::Program;
use mainstay::queue::{DEFAULT_BASE_DELAY, RetryPolicy};
use mainstay::reconcile::{self, Action, Context, ObjectReconciler, Outcome, PerObject};
use serde_json::json;

/// On a copy: whose it is. What does not say so is neither changed nor deleted.
const COPY_OF: &str = "copier.example.com/copy-of";

struct Copier {
    copies: Applier<ConfigMap>,
}

impl ObjectReconciler<ConfigMap> for Copier {
    async fn reconcile(&self, map: Arc<ConfigMap>, cx: &Context) -> Outcome {
        let (name, original) = (copy_name(&map), map.name_any());
        // An apply overwrites whatever is there.
        if attic(cx).get_opt(&name).await?.is_some_and(|found| !is_copy(&found, &original)) {
            return Err(format!("ConfigMap attic/{name} is no copy of shop/{original}: move it away").into());
        }
        let metadata = json!({"name": name, "namespace": "attic", "annotations": {COPY_OF: original}});
        self.copies.apply(cx, &json!({"metadata": metadata, "data": map.data})).await?;
        Ok(Action::Done)
    }

    async fn cleanup(&self, map: Arc<ConfigMap>, cx: &Context) -> Outcome {
        let found = attic(cx).get_opt(&copy_name(&map)).await?;
        let Some(copy) = found.filter(|found| is_copy(found, &map.name_any())) else {
            return Ok(Action::Done);
        };
        // This one, and none that has taken its name since.
        let only = Some(Preconditions { uid: copy.uid(), resource_version: None });
        let params = DeleteParams { preconditions: only, ..DeleteParams::default() };
        match attic(cx).delete(&copy.name_any(), &params).await {
            // A copy that is gone is what is asked for.
            Err(error) if refusal(&error).is_some_and(|status| status.code == 404) => {}
            deleted => drop(deleted?),
        }
        cx.events().event(
            &map.object_ref(&()),
            EventType::Normal,
            "CopyRemoved",
            "Clean",
            "the attic is clean",
        );
        Ok(Action::Done)
    }
}

fn attic(cx: &Context) -> Api<ConfigMap> {
    Api::namespaced(cx.client().clone(), "attic")
}

fn is_copy(found: &ConfigMap, original: &str) -> bool {
    found.annotations().get(COPY_OF).is_some_and(|of| of == original)
}

fn copy_name(map: &ConfigMap) -> String {
    format!("shop-{}", map.name_any())
}

fn copier(maps: &Store<ConfigMap>) -> Result<PerObject<ConfigMap, Copier>, InvalidFinalizer> {
    let copies = Applier::new(KindId::of::<ConfigMap>(), "copier");
    Ok(reconcile::object(maps, Finalizer::new("copier.example.com/attic")?, Copier { copies }))
}

fn main() -> std::process::ExitCode {
    Program::new("copier", env!("CARGO_PKG_VERSION"), "Keeps copies of ConfigMaps")
        .controllers(["copier"])
        .setup(|manager| {
            let maps = manager.store::<ConfigMap>(Scope::namespace("shop"));
            // Little work and much waiting for the server: many at once, and one that takes long hangs. The attic
            // may be locked for a while, so no retry waits longer than a minute. A file may say otherwise.
            let controller = Controller::new("copier")
                .reconciles(&maps)
                .workers(8)
                .reconcile_timeout(Duration::from_secs(20))
                .queue(|queue| {
                    queue.retry = RetryPolicy::exponential(DEFAULT_BASE_DELAY, Duration::from_mins(1));
                });
            manager.register(controller.reconciler(copier(&maps)?))?;
            Ok(())
        })
        .main()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::api::PostParams;
    use mainstay::key::NamespacedName;
    use mainstay::testing::reconcile_once;

    use super::*;

    fn prices() -> (Store<ConfigMap>, NamespacedName) {
        let mut map =
            ConfigMap { data: Some(BTreeMap::from([("tea".into(), "3".into())])), ..Default::default() };
        map.metadata.name = Some("prices".into());
        map.metadata.namespace = Some("shop".into());
        (Store::from_objects([map]), NamespacedName::namespaced("shop", "prices"))
    }

    #[tokio::test]
    async fn a_copy_is_made_once_the_original_is_held() {
        let (maps, request) = prices();
        let cx = Context::for_test().with_store(&maps);
        let run = reconcile_once(&copier(&maps).unwrap(), &request, &cx).await;

        assert_eq!(run.action(), Action::Done);
        assert_eq!(run.wrote(), ["merge configmaps shop/prices", "apply configmaps attic/shop-prices"]);
        assert_eq!(run.writes[1].body["data"], json!({"tea": "3"}));
    }

    #[tokio::test]
    async fn an_original_goes_after_its_copy() {
        let (maps, request) = prices();
        let cx = Context::for_test().with_store(&maps);
        let copier = copier(&maps).unwrap();
        let _first = reconcile_once(&copier, &request, &cx).await;
        // As kubectl does: the server marks the object and waits for the finalizer.
        let shop: Api<ConfigMap> = Api::namespaced(cx.client().clone(), "shop");
        shop.delete("prices", &DeleteParams::default()).await.unwrap();

        cx.api().refuse_next(500, "InternalError", "the attic is locked");
        let run = reconcile_once(&copier, &request, &cx).await;
        assert!(run.outcome.unwrap_err().to_string().contains("the attic is locked"));
        assert!(maps.get(&request).unwrap().is_some(), "still held");

        let run = reconcile_once(&copier, &request, &cx).await;
        assert_eq!(run.wrote(), ["delete configmaps attic/shop-prices", "merge configmaps shop/prices"]);
        assert_eq!(run.events[0].reason, "CopyRemoved");
        assert!(maps.get(&request).unwrap().is_none());
    }

    #[tokio::test]
    async fn what_is_no_copy_is_neither_overwritten_nor_deleted() {
        let (maps, request) = prices();
        let cx = Context::for_test().with_store(&maps);
        let theirs = json!({"metadata": {"name": "shop-prices", "namespace": "attic"}});
        let theirs = serde_json::from_value(theirs).unwrap();
        attic(&cx).create(&PostParams::default(), &theirs).await.unwrap();
        let copier = copier(&maps).unwrap();
        let run = reconcile_once(&copier, &request, &cx).await;
        assert!(run.outcome.unwrap_err().to_string().contains("attic/shop-prices is no copy of shop/prices"));

        let shop: Api<ConfigMap> = Api::namespaced(cx.client().clone(), "shop");
        shop.delete("prices", &DeleteParams::default()).await.unwrap();
        let run = reconcile_once(&copier, &request, &cx).await;
        assert_eq!(run.wrote(), ["merge configmaps shop/prices"]);
        assert!(attic(&cx).get("shop-prices").await.is_ok());
    }
}
