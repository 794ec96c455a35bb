//! Typed writes of a controller on a real API server, with the test helpers that users have.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PodTemplate, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use mainstay::prelude::*;
use mainstay::testing::{Condition, eventually};
use mainstay_tests::TestCluster;
use parking_lot::Mutex;
use serde_json::json;

const FINALIZER: &str = "orders.example.com/bill";

/// Applies a card, named after the order, for each order (a `PodTemplate`), and records the effects with
/// their causes.
struct Orders {
    effects: Arc<Mutex<Vec<(&'static str, String)>>>,
}

impl ObjectReconciler<PodTemplate> for Orders {
    async fn reconcile(&self, order: Arc<PodTemplate>, cx: &Context) -> Outcome {
        let mut card =
            ConfigMap { data: Some([("item".into(), item(&order))].into()), ..ConfigMap::default() };
        card.metadata.name = Some(order.name_any());
        let effect = match cx.apply(&*order, &card).await? {
            Effect::Created(_) => "created",
            Effect::Changed(_) => "changed",
            Effect::Unchanged => "unchanged",
        };
        self.effects.lock().push((effect, cx.cause().to_string()));
        if item(&order) == "contraband" {
            let secret = Secret { metadata: card.metadata, ..Secret::default() };
            cx.apply(&*order, &secret).await?;
        }
        Ok(Action::Done)
    }

    async fn cleanup(&self, _: Arc<PodTemplate>, cx: &Context) -> Outcome {
        self.effects.lock().push(("cleaned up", cx.cause().to_string()));
        Ok(Action::Done)
    }
}

fn item(order: &PodTemplate) -> String {
    order.annotations().get("item").cloned().unwrap_or_default()
}

/// Maps a shelf, a `ConfigMap` with the data `order`, to its order.
fn order_of(shelf: &ConfigMap) -> Option<NamespacedName> {
    let order = shelf.data.as_ref()?.get("order")?;
    Some(NamespacedName::new(shelf.metadata.namespace.as_deref(), order.as_str()))
}

async fn create(cluster: &TestCluster, name: &str, item: &str) {
    let metadata = json!({"name": name, "annotations": {"item": item}, "labels": {"kind": "order"}});
    let template = json!({"spec": {"containers": [{"name": "main", "image": "example.invalid/main"}]}});
    let order = serde_json::from_value(json!({"metadata": metadata, "template": template}));
    let order: PodTemplate = order.expect("an order");
    cluster.api().create(&PostParams::default(), &order).await.expect("created");
}

#[tokio::test(flavor = "multi_thread")]
async fn children_follow_their_owner_and_only_declared_kinds_are_written() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let effects = Arc::new(Mutex::new(Vec::new()));
    let seen = || effects.lock().clone();
    let (orders, cards): (Api<PodTemplate>, Api<ConfigMap>) = (cluster.api(), cluster.api());
    let reconciler = Orders { effects: Arc::clone(&effects) };
    let setup = |manager: &Manager| {
        let scope = || Scope::namespace(cluster.namespace());
        let orders = manager.store(scope());
        let maps = manager.store::<ConfigMap>(scope());
        let controller = Controller::new(String::from("orders"))
            .reconciles(orders.when(GenerationChanged.or(mainstay::watch::AnnotationsChanged)))
            .owns(&maps)
            .watches(&maps, map(order_of))
            .field_manager("order-cards");
        let is_order = |order: &PodTemplate| order.labels().get("kind").is_some_and(|kind| kind == "order");
        let reconciler = with_finalizer(&orders, FINALIZER, reconciler).when(is_order);
        manager.register(controller.reconciler(reconciler))?;
        Ok(())
    };
    create(&cluster, "web", "tea").await;
    let manager = Manager::for_test(cluster.connection().await, setup).expect("a manager");

    // The child has the namespace, the owner and the field manager.
    let card = Condition::exists().wait(&cards, "web").await.expect("a card").expect("a card");
    let owner = &card.owner_references()[0];
    assert_eq!((&*owner.kind, &*owner.name, owner.controller), ("PodTemplate", "web", Some(true)));
    assert_eq!(card.managed_fields()[0].manager.as_deref(), Some("order-cards"));

    // A change of the child enqueues the owner, whose reconcile restores it.
    let spoilt = Patch::Merge(json!({"data": {"item": "sand"}}));
    cards.patch("web", &PatchParams::default(), &spoilt).await.expect("patched");
    let is_tea = |card: &ConfigMap| card.data.as_ref().is_some_and(|data| data["item"] == "tea");
    Condition::new("has tea again", is_tea).wait(&cards, "web").await.expect("restored");
    let has = |effect: &str| seen().iter().any(|(found, _)| *found == effect);
    let restored = async || if has("changed") { Ok(()) } else { Err(format!("{:?}", seen())) };
    eventually(Duration::from_secs(30), restored).await.expect("a changed effect");

    // A shelf enqueues its order, whose card needs no write.
    effects.lock().clear();
    let shelf = json!({"metadata": {"name": "shelf"}, "data": {"order": "web"}});
    let shelf: ConfigMap = serde_json::from_value(shelf).expect("a shelf");
    cards.create(&PostParams::default(), &shelf).await.expect("created");
    // A run for an earlier event may come first.
    let is_mapped = |(effect, cause): &(&str, String)| *effect == "unchanged" && cause.ends_with("/shelf");
    let mapped = async || if seen().iter().any(is_mapped) { Ok(()) } else { Err(format!("{:?}", seen())) };
    eventually(Duration::from_secs(30), mapped).await.expect("a run for the shelf, without a write");
    assert!(!has("changed") && !has("created"), "{:?}", seen());

    // An undeclared kind fails without a request: the identity of this test has the right to write Secrets.
    create(&cluster, "bad", "contraband").await;
    Condition::exists().wait(&cards, "bad").await.expect("a card");
    let terminal = async || {
        let shown = manager.registry().encode(mainstay::metrics::Format::OpenMetrics).expect("encoded");
        let wanted = "controller_runtime_terminal_reconcile_errors_total{controller=\"orders\"} ";
        let line = shown.lines().find(|line| line.starts_with(wanted)).unwrap_or_default().to_owned();
        if line.ends_with(" 1") || line.ends_with(" 2") { Ok(()) } else { Err(line) }
    };
    eventually(Duration::from_secs(30), terminal).await.expect("a terminal error");
    let secrets: Api<Secret> = cluster.api();
    assert!(secrets.get_opt("bad").await.expect("an answer").is_none());

    // An order that loses its label is cleaned up, and can be deleted at once.
    effects.lock().clear();
    let sold =
        Patch::Merge(json!({"metadata": {"labels": {"kind": "receipt"}, "annotations": {"item": "none"}}}));
    orders.patch("web", &PatchParams::default(), &sold).await.expect("patched");
    let is_free = |order: &PodTemplate| order.finalizers().is_empty();
    Condition::new("has no finalizer", is_free).wait(&orders, "web").await.expect("the finalizer removed");
    assert!(has("cleaned up"), "{:?}", seen());
    orders.delete("bad", &DeleteParams::default()).await.expect("deleted");
    Condition::deleted().wait(&orders, "bad").await.expect("gone after its cleanup");
    manager.stop().await.expect("stopped in order");
}
