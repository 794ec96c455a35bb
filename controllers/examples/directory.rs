//! Lists every Service that carries the label `listed=yes`, and shows which writer is for what.
//!
//! A card for each Service, a `ConfigMap` that is wholly ours, is applied; a line in the `ConfigMap` `directory`, which all
//! Services of a namespace and people share, is patched in. The card goes with its owner; for the line there is a
//! finalizer. `cargo run --example directory -- run --leader-elect=false` runs it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{Resource, ResourceExt};
use mainstay::cache::{Delta, Scope, Store};
use mainstay::client::{
    Applier, Effect, EventType, Finalizer, InvalidFinalizer, Patcher, controller_reference, live,
};
use mainstay::controller::Controller;
use mainstay::key::{Key, KindId, NamespacedName};
use mainstay::program::Program;
use mainstay::reconcile::{
    self, Action, Context, ObjectReconciler, Outcome, PerObject, ReconcileError, Reconciler,
};

use serde_json::json;

/// On a Service: tell what would be listed, and list nothing.
const REHEARSE: &str = "directory.example.com/rehearse";

/// On a Service: list it.
const LISTED: (&str, &str) = ("listed", "yes");

/// Holds a Service back until its line is gone.
const LINE: &str = "directory.example.com/line";

#[derive(Clone)]
struct Directory {
    cards: Store<ConfigMap>,
    write_card: Applier<ConfigMap>,
    write_line: Patcher<ConfigMap>,
}

impl ObjectReconciler<Service> for Directory {
    async fn reconcile(&self, service: Arc<Service>, cx: &Context) -> Outcome {
        if service.annotations().contains_key(REHEARSE) {
            self.rehearse(&service, cx).await?;
        } else {
            self.card(&service, cx).await?;
            self.list(&service, cx).await?;
        }
        Ok(Action::Done)
    }

    async fn cleanup(&self, service: Arc<Service>, cx: &Context) -> Outcome {
        self.unlist(&service, cx).await?;
        Ok(Action::Done)
    }
}

impl Directory {
    async fn card(&self, service: &Service, cx: &Context) -> Result<(), ReconcileError> {
        let name = beside(service, &format!("{}-card", service.name_any()));
        let card = json!({
            "metadata": {
                "name": name.name(),
                "namespace": name.namespace(),
                "labels": {"card": "yes"},
                "ownerReferences": [controller_reference(service.meta(), &KindId::of::<Service>(), &name)?],
            },
            "data": {"ports": ports(service)},
        });
        match self.write_card.ensure(cx, self.cards.entry(&name)?.as_ref(), &card).await? {
            Effect::Created(card) => {
                let note = format!("its card is ConfigMap {}", card.name_any());
                cx.events().event(&service.object_ref(&()), EventType::Normal, "Listed", "List", &note);
            }
            Effect::Changed(_) | Effect::Unchanged => {}
        }
        Ok(())
    }

    async fn list(&self, service: &Service, cx: &Context) -> Result<(), ReconcileError> {
        let name = beside(service, "directory");
        let listed = self.write_line.ensure_live(cx, &name, |directory| {
            directory.data.get_or_insert_default().insert(service.name_any(), ports(service));
            Ok(())
        });
        if listed.await?.is_change() {
            tracing::info!("listed");
        }
        Ok(())
    }

    async fn unlist(&self, service: &Service, cx: &Context) -> Result<(), ReconcileError> {
        let name = beside(service, "directory");
        // Where there is no directory, none is made to take a line out of it.
        let Some(current) = live(cx, self.write_line.kind(), &name).await? else { return Ok(()) };
        let unlisted = self.write_line.ensure(cx, &name, Some(&current), |directory| {
            if let Some(lines) = &mut directory.data {
                lines.remove(&service.name_any());
            }
            Ok(())
        });
        if unlisted.await?.is_change() {
            tracing::info!("not listed any more");
        }
        Ok(())
    }

    async fn rehearse(&self, service: &Service, cx: &Context) -> Result<(), ReconcileError> {
        let name = beside(service, "directory");
        let current = live(cx, self.write_line.kind(), &name).await?;
        let effect = self.write_line.dry_run(cx, &name, current.as_ref(), |directory| {
            directory.data.get_or_insert_default().insert(service.name_any(), ports(service));
            Ok(())
        });
        let note = if effect.await?.is_change() { "it would be listed" } else { "it is listed as it is" };
        cx.events().event(&service.object_ref(&()), EventType::Normal, "Rehearsed", "List", note);
        Ok(())
    }
}

/// What a controller needs that cares for some objects of a kind only: lets go of those it holds and no longer cares for.
struct Listed {
    services: Store<Service>,
    line: Finalizer,
    directory: Directory,
    held: PerObject<Service, Directory>,
}

impl Reconciler for Listed {
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        let Some(service) = self.services.get(request)? else { return Ok(Action::Done) };
        let is_listed = service.labels().get(LISTED.0).is_some_and(|value| value == LISTED.1);
        if is_listed || service.metadata.deletion_timestamp.is_some() {
            return self.held.reconcile(request, cx).await;
        }
        if self.line.is_in(service.finalizers()) {
            self.directory.unlist(&service, cx).await?;
            self.line.remove(cx, &KindId::of::<Service>(), service.meta()).await?;
        }
        Ok(Action::Done)
    }
}

/// Admits the Services that are listed, and those that were and are still held.
fn concerns_us(delta: &Delta<'_>) -> bool {
    delta.new.is_none_or(|service| {
        let meta = service.meta();
        meta.labels.get(LISTED.0) == Some(LISTED.1) || meta.finalizers.iter().any(|name| &**name == LINE)
    })
}

/// Names an object in the namespace of the Service.
fn beside(service: &Service, name: &str) -> NamespacedName {
    NamespacedName::new(service.metadata.namespace.as_deref(), name)
}

fn ports(service: &Service) -> String {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports.map(|port| port.port.to_string()).collect::<Vec<_>>().join(", ")
}

fn directory(services: &Store<Service>, cards: &Store<ConfigMap>) -> Result<Listed, InvalidFinalizer> {
    let kind = KindId::of::<ConfigMap>();
    let directory = Directory {
        cards: cards.clone(),
        write_card: Applier::new(kind.clone(), "directory"),
        write_line: Patcher::new(kind, "directory"),
    };
    let line = Finalizer::new(LINE)?;
    let held = reconcile::object(services, line.clone(), directory.clone());
    Ok(Listed { services: services.clone(), line, directory, held })
}

fn main() -> std::process::ExitCode {
    Program::new("directory", env!("CARGO_PKG_VERSION"), "Keeps a directory of Services")
        .controllers(["directory"])
        .setup(|manager| {
            let services = manager.store::<Service>(Scope::all());
            let cards = manager.store::<ConfigMap>(Scope::all().labels("card=yes".parse()?));
            let controller =
                Controller::new("directory").reconciles_when(&services, concerns_us).owns(&cards);
            manager.register(controller.reconciler(directory(&services, &cards)?))?;
            Ok(())
        })
        .main()
}

#[cfg(test)]
mod tests {
    use kube::Api;
    use kube::api::{DeleteParams, Patch, PatchParams};
    use mainstay::testing::{TestContext, reconcile_once};

    use super::*;

    /// A listed Service with these annotations, and a directory that somebody has written something of their own into.
    fn bench(
        annotations: &serde_json::Value,
    ) -> (Store<Service>, Store<ConfigMap>, TestContext, NamespacedName) {
        let service = json!({
            "metadata": {"name": "web", "namespace": "shop", "labels": {"listed": "yes"}, "annotations": annotations},
            "spec": {"ports": [{"port": 80}, {"port": 443}]},
        });
        let shared = json!({"metadata": {"name": "directory", "namespace": "shop"}, "data": {"theirs": "1"}});
        let services = Store::from_objects([serde_json::from_value(service).unwrap()]);
        let maps = Store::from_objects([serde_json::from_value(shared).unwrap()]);
        let cx = Context::for_test().with_store(&services).with_store(&maps);
        (services, maps, cx, NamespacedName::namespaced("shop", "web"))
    }

    #[tokio::test]
    async fn a_service_gets_a_card_of_its_own_and_a_line_among_others() {
        let (services, maps, cx, request) = bench(&json!({}));
        let directory = directory(&services, &maps).unwrap();
        let run = reconcile_once(&directory, &request, &cx).await;
        assert_eq!(run.action(), Action::Done);
        let hold = "merge services shop/web";
        assert_eq!(run.wrote(), [hold, "apply configmaps shop/web-card", "merge configmaps shop/directory"]);
        assert_eq!(run.writes[1].body["metadata"]["ownerReferences"][0]["name"], "web");
        assert_eq!(run.writes[2].body["data"], json!({"web": "80, 443"}), "only what is ours");
        assert_eq!(run.events[0].to_string(), "Normal Listed: its card is ConfigMap web-card");

        let run = reconcile_once(&directory, &request, &cx).await;
        assert_eq!(run.wrote(), [""; 0], "nothing is written twice");
    }

    #[tokio::test]
    async fn a_line_goes_before_its_service_and_those_of_others_stay() {
        let (services, maps, cx, request) = bench(&json!({}));
        let directory = directory(&services, &maps).unwrap();
        let _listed = reconcile_once(&directory, &request, &cx).await;
        let shop: Api<Service> = Api::namespaced(cx.client().clone(), "shop");
        shop.delete("web", &DeleteParams::default()).await.unwrap();
        let run = reconcile_once(&directory, &request, &cx).await;
        assert_eq!(run.wrote(), ["merge configmaps shop/directory", "merge services shop/web"]);
        let left = maps.get(&NamespacedName::namespaced("shop", "directory")).unwrap().unwrap();
        assert_eq!(json!(left.data), json!({"theirs": "1"}));
        assert!(services.get(&request).unwrap().is_none(), "it was let go");
    }

    #[tokio::test]
    async fn a_service_that_is_not_listed_any_more_is_let_go() {
        let (services, maps, cx, request) = bench(&json!({}));
        let directory = directory(&services, &maps).unwrap();
        let _listed = reconcile_once(&directory, &request, &cx).await;
        let shop: Api<Service> = Api::namespaced(cx.client().clone(), "shop");
        let off = json!({"metadata": {"labels": {"listed": null}}});
        shop.patch("web", &PatchParams::default(), &Patch::Merge(off)).await.unwrap();
        let run = reconcile_once(&directory, &request, &cx).await;
        assert_eq!(run.wrote(), ["merge configmaps shop/directory", "merge services shop/web"]);
        assert_eq!(services.get(&request).unwrap().unwrap().finalizers(), [""; 0], "nothing holds it");

        let run = reconcile_once(&directory, &request, &cx).await;
        assert_eq!(run.wrote(), [""; 0], "it is none of ours");
    }

    #[tokio::test]
    async fn a_rehearsal_lists_nothing() {
        let (services, maps, cx, request) = bench(&json!({REHEARSE: ""}));
        let directory = directory(&services, &maps).unwrap();
        let run = reconcile_once(&directory, &request, &cx).await;
        let hold = "merge services shop/web";
        assert_eq!(run.wrote(), [hold, "merge configmaps shop/directory (dry run)"]);
        assert_eq!(run.events[0].to_string(), "Normal Rehearsed: it would be listed");
        let left = maps.get(&NamespacedName::namespaced("shop", "directory")).unwrap().unwrap();
        assert_eq!(json!(left.data), json!({"theirs": "1"}));
    }
}
