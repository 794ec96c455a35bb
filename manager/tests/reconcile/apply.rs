//! `Context::apply`, `apply_unowned` and `apply_status`: filled in, compared, refused.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::ResourceExt as _;
use mainstay::cache::Store;
use mainstay::client::Effect;
use mainstay::controller::Controller;
use mainstay::key::NamespacedName;
use mainstay::reconcile::{Context, ReconcileError, Retry};
use mainstay::testing::TestContext;
use serde_json::{from_value, json};

fn owner() -> Deployment {
    from_value(json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "5"}}))
        .unwrap()
}

fn card(data: &str) -> ConfigMap {
    from_value(json!({"metadata": {"name": "card"}, "data": {"text": data}})).unwrap()
}

fn wrote(cx: &TestContext) -> Vec<String> {
    cx.take_writes().iter().map(ToString::to_string).collect()
}

fn refused<K: std::fmt::Debug>(result: Result<Effect<K>, ReconcileError>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.retry(), Retry::Never, "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_child_gets_namespace_owner_and_field_manager_and_is_sent_once() {
    let cards = Store::<ConfigMap>::from_objects([]);
    let cx = Context::for_test().with_store(&cards);
    assert!(matches!(cx.apply(&owner(), &card("a")).await.unwrap(), Effect::Created(_)));
    let child = cards.get(&NamespacedName::namespaced("shop", "card")).unwrap().unwrap();
    let reference = &child.owner_references()[0];
    assert_eq!((&*reference.kind, &*reference.uid, reference.controller), ("Deployment", "u1", Some(true)));
    assert!(!cx.apply(&owner(), &card("a")).await.unwrap().is_change());
    assert_eq!(wrote(&cx), ["apply configmaps shop/card"], "the same child is not sent again");
    assert!(matches!(cx.apply(&owner(), &card("b")).await.unwrap(), Effect::Changed(_)));
    assert_eq!(wrote(&cx), ["apply configmaps shop/card"]);
}

#[tokio::test]
async fn a_kind_without_a_store_is_compared_with_the_object_at_the_server() {
    let cx = Context::for_test().with_writes::<ConfigMap>();
    assert!(matches!(cx.apply(&owner(), &card("a")).await.unwrap(), Effect::Created(_)));
    assert!(!cx.apply(&owner(), &card("a")).await.unwrap().is_change());
    assert_eq!(wrote(&cx), ["apply configmaps shop/card"]);
}

#[tokio::test]
async fn an_undeclared_kind_is_refused_before_any_request() {
    let deployments = Store::from_objects([owner()]);
    let cx = Context::for_test().with_store(&deployments);
    cx.api().refuse_next(500, "InternalError", "no request is expected");
    let error = refused(cx.apply(&owner(), &card("a")).await);
    assert!(
        error.starts_with(
            "ConfigMap shop/card was not sent: controller \"test\" has not declared this write; call \
             .owns(&store) or .writes::<ConfigMap>() on the controller; declared: Deployment.apps ("
        ) && error.contains(file!()),
        "{error}"
    );
    refused(cx.apply_unowned(&card("a")).await);
    let error = refused(cx.apply_status(&card("a"), &json!({})).await);
    assert!(
        error.contains("ConfigMap status card") && error.contains(".writes_status::<ConfigMap>()"),
        "{error}"
    );
    // The refusal that was scripted is still there, so none of the three has sent a request.
    let error = cx.apply_status(&owner(), &DeploymentStatus::default()).await.unwrap_err();
    assert!(error.to_string().contains("no request is expected"), "{error}");
}

#[tokio::test]
async fn an_owner_that_cannot_own_the_child_is_refused_before_any_request() {
    let cx = Context::for_test().with_writes::<ConfigMap>().with_writes::<Namespace>();
    let mut elsewhere = card("a");
    elsewhere.metadata.namespace = Some("bank".into());
    assert!(refused(cx.apply(&owner(), &elsewhere).await).contains("cannot own bank/card"));
    let unread: Deployment = from_value(json!({"metadata": {"name": "web", "namespace": "shop"}})).unwrap();
    assert!(refused(cx.apply(&unread, &card("a")).await).contains("it has no metadata.uid"));
    let nameless = cx.apply(&owner(), &ConfigMap::default()).await;
    assert!(refused(nameless).contains("its metadata.name is"));
    assert_eq!(wrote(&cx), [""; 0]);
}

#[tokio::test]
async fn an_unowned_object_may_be_in_another_namespace_and_has_no_owner() {
    let cx = Context::for_test().with_writes::<ConfigMap>();
    let mut copy = card("a");
    copy.metadata.namespace = Some("attic".into());
    let effect = cx.apply_unowned(&copy).await.unwrap();
    assert!(effect.object().unwrap().owner_references().is_empty());
    assert_eq!(wrote(&cx), ["apply configmaps attic/card"]);
}

#[tokio::test]
async fn a_status_is_sent_once_and_for_the_object_that_was_read() {
    let deployments = Store::from_objects([owner()]);
    let cx = Context::for_test().with_store(&deployments);
    let ready = |replicas| DeploymentStatus {
        replicas: Some(replicas),
        ready_replicas: Some(replicas),
        ..DeploymentStatus::default()
    };
    assert!(cx.apply_status(&owner(), &ready(1)).await.unwrap().is_change());
    assert!(!cx.apply_status(&owner(), &ready(1)).await.unwrap().is_change());
    let sent = cx.take_writes();
    assert_eq!(
        sent.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["apply deployments.apps/status shop/web"]
    );
    assert_eq!(sent[0].body["metadata"], json!({"name": "web", "namespace": "shop", "uid": "u1"}));
    assert_eq!(sent[0].body["status"]["readyReplicas"], 1);

    let mut gone = owner();
    gone.metadata.name = Some("gone".into());
    let error = cx.apply_status(&gone, &ready(1)).await.unwrap_err();
    assert_eq!(mainstay::client::refusal(error.source()).map(|status| status.code), Some(404), "{error}");
}

#[test]
fn kinds_are_declared_with_the_line_of_code() {
    let owned = Store::<ConfigMap>::from_objects([]);
    let primary = Store::from_objects([owner()]);
    let controller =
        Controller::new(format!("web-{}", 1)).reconciles(&primary).owns(&owned).writes::<Namespace>();
    let line = line!() - 1;
    let shown = format!("{controller:?}");
    for kind in ["ConfigMap", "Namespace"] {
        assert!(shown.contains(&format!("{kind} ({}:{line}", file!())), "{shown}");
    }
}
