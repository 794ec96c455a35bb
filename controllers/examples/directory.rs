//! Lists every Service with the label `listed=yes`, and shows the purpose of each writer.
//!
//! Each Service gets a card, a `ConfigMap` of its own that is deleted with it. The `ConfigMap` `directory`,
//! which all Services of a namespace and other clients share, gets a line; a finalizer keeps the Service
//! until the line is removed. `cargo run --example directory -- run --leader-elect=false` runs it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{Resource, ResourceExt};
use mainstay::client::{Patcher, live};
use mainstay::prelude::*;
use mainstay::rbac::Access;

const FINALIZER: &str = "directory.example.com/line";

struct Directory(Patcher<ConfigMap>);

impl ObjectReconciler<Service> for Directory {
    async fn reconcile(&self, service: Arc<Service>, cx: &Context) -> Outcome {
        let mut card =
            ConfigMap { data: Some([("ports".into(), ports(&service))].into()), ..ConfigMap::default() };
        card.metadata.name = Some(format!("{}-card", service.name_any()));
        card.labels_mut().insert("card".into(), "yes".into());
        if let Effect::Created(card) = cx.apply(&*service, &card).await? {
            let note = format!("its card is ConfigMap {}", card.name_any());
            cx.events().event(&service.object_ref(&()), EventType::Normal, "Listed", "List", &note);
        }
        let name = directory_of(&service);
        let line = self.0.ensure_live(cx, &name, |directory| {
            directory.data.get_or_insert_default().insert(service.name_any(), ports(&service));
            Ok(())
        });
        if line.await?.is_change() {
            tracing::info!("listed");
        }
        Ok(Action::Done)
    }

    async fn cleanup(&self, service: Arc<Service>, cx: &Context) -> Outcome {
        let name = directory_of(&service);
        // A directory that does not exist is not created to remove a line from it.
        let Some(current) = live(cx, self.0.kind(), &name).await? else { return Ok(Action::Done) };
        let line = self.0.ensure(cx, &name, Some(&current), |directory| {
            directory.data.get_or_insert_default().remove(&service.name_any());
            Ok(())
        });
        if line.await?.is_change() {
            tracing::info!("not listed any more");
        }
        Ok(Action::Done)
    }
}

fn is_listed(service: &Service) -> bool {
    service.labels().get("listed").is_some_and(|listed| listed == "yes")
}

fn directory_of(service: &Service) -> NamespacedName {
    NamespacedName::new(service.metadata.namespace.as_deref(), "directory")
}

fn ports(service: &Service) -> String {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports.map(|port| port.port.to_string()).collect::<Vec<_>>().join(", ")
}

fn reconciler(services: &Store<Service>) -> impl Reconciler + use<> {
    let directory = Directory(Patcher::new(KindId::of::<ConfigMap>(), "directory"));
    with_finalizer(services, FINALIZER, directory).when(is_listed)
}

pub(crate) fn setup(manager: &Manager) -> Result<(), BoxError> {
    let services = manager.store(Scope::all());
    let cards = manager.store::<ConfigMap>(Scope::all().labels("card=yes".parse()?));
    let controller = Controller::new("directory").reconciles(&services).owns(&cards);
    let read = Access::to::<ConfigMap>(["get"]).because("reads the directory before a line changes");
    manager.register(controller.needs(read).reconciler(reconciler(&services)))?;
    Ok(())
}

fn main() -> ExitCode {
    Program::new("directory", env!("CARGO_PKG_VERSION"), "Keeps a directory of Services")
        .controllers(["directory"])
        .setup(setup)
        .main()
}

#[cfg(test)]
mod tests {
    use kube::Api;
    use kube::api::{DeleteParams, Patch, PatchParams};
    use mainstay::testing::{TestContext, reconcile_once};
    use serde_json::{from_value, json};

    use super::*;

    struct Fixture {
        services: Store<Service>,
        maps: Store<ConfigMap>,
        cx: TestContext,
        web: NamespacedName,
    }

    /// A listed Service, and a directory with a line that another client has written.
    fn fixture() -> Fixture {
        let service = json!({
            "metadata": {"name": "web", "namespace": "shop", "labels": {"listed": "yes"}},
            "spec": {"ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}]},
        });
        let shared = json!({"metadata": {"name": "directory", "namespace": "shop"}, "data": {"theirs": "1"}});
        let services = Store::from_objects([from_value(service).unwrap()]);
        let maps = Store::from_objects([from_value(shared).unwrap()]);
        let cx = Context::for_test().with_store(&services).with_store(&maps);
        Fixture { services, maps, cx, web: NamespacedName::namespaced("shop", "web") }
    }

    #[tokio::test]
    async fn a_service_gets_a_card_of_its_own_and_a_line_among_others() {
        let Fixture { services, cx, web, .. } = fixture();
        let reconciler = reconciler(&services);
        let run = reconcile_once(&reconciler, &web, &cx).await;
        assert_eq!(run.action(), Action::Done);
        let hold = "merge services shop/web";
        assert_eq!(run.wrote(), [hold, "apply configmaps shop/web-card", "merge configmaps shop/directory"]);
        assert_eq!(run.writes[1].body["metadata"]["ownerReferences"][0]["name"], "web");
        assert_eq!(run.writes[2].body["data"], json!({"web": "80, 443"}), "only its own line");
        assert_eq!(run.events[0].to_string(), "Normal Listed: its card is ConfigMap web-card");

        let run = reconcile_once(&reconciler, &web, &cx).await;
        assert_eq!(run.wrote(), [""; 0], "no second write without a change");
    }

    #[tokio::test]
    async fn a_line_is_removed_before_its_service_and_other_lines_stay() {
        let Fixture { services, maps, cx, web } = fixture();
        let reconciler = reconciler(&services);
        let _listed = reconcile_once(&reconciler, &web, &cx).await;
        let shop: Api<Service> = Api::namespaced(cx.client().clone(), "shop");
        shop.delete("web", &DeleteParams::default()).await.unwrap();
        let run = reconcile_once(&reconciler, &web, &cx).await;
        assert_eq!(run.wrote(), ["merge configmaps shop/directory", "merge services shop/web"]);
        let left = maps.get(&NamespacedName::namespaced("shop", "directory")).unwrap().unwrap();
        assert_eq!(json!(left.data), json!({"theirs": "1"}));
        assert!(services.get(&web).unwrap().is_none(), "the finalizer is removed");
    }

    #[tokio::test]
    async fn a_service_that_loses_the_label_loses_its_line_and_the_finalizer() {
        let Fixture { services, cx, web, .. } = fixture();
        let reconciler = reconciler(&services);
        let _listed = reconcile_once(&reconciler, &web, &cx).await;
        let shop: Api<Service> = Api::namespaced(cx.client().clone(), "shop");
        let off = json!({"metadata": {"labels": {"listed": null}}});
        shop.patch("web", &PatchParams::default(), &Patch::Merge(off)).await.unwrap();
        let run = reconcile_once(&reconciler, &web, &cx).await;
        assert_eq!(run.wrote(), ["merge configmaps shop/directory", "merge services shop/web"]);
        assert_eq!(services.get(&web).unwrap().unwrap().finalizers(), [""; 0]);
        let run = reconcile_once(&reconciler, &web, &cx).await;
        assert_eq!(run.wrote(), [""; 0], "a Service without the label is left alone");
    }
}
