use std::time::Duration;

use http::header::CONTENT_TYPE;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;
use crate::client::Role;
use crate::client::testserver::{Answer, TestServer};
use crate::key::Fence;

struct Leader(kube::Client);

impl Authority for Leader {
    fn client(&self) -> &kube::Client {
        &self.0
    }
}

const STORED: &str = r#"{"metadata":{"name":"settings","namespace":"shop","resourceVersion":"7"}}"#;

fn applier() -> Applier<ConfigMap> {
    Applier::new(KindId::of::<ConfigMap>(), "mainstay-test")
}

fn settings() -> Value {
    json!({"metadata": {"name": "settings", "namespace": "shop"}, "data": {"a": "1"}})
}

async fn refusal_of(answer: Answer) -> WriteError {
    let server = TestServer::start([answer]).await;
    let leader = Leader(server.client(Role::Writes(Fence::open())));
    applier().apply(&leader, &settings()).await.unwrap_err()
}

#[tokio::test]
async fn an_apply_forces_its_fields_and_gives_the_stored_object() {
    let mut server = TestServer::start([Answer::ok(STORED)]).await;
    let leader = Leader(server.client(Role::Writes(Fence::open())));
    let stored = applier().apply(&leader, &settings()).await.unwrap();
    assert_eq!(stored.metadata.resource_version.as_deref(), Some("7"));

    let arrived = server.arrival().await;
    assert_eq!(arrived.method, Method::PATCH);
    assert_eq!(
        arrived.uri,
        "/api/v1/namespaces/shop/configmaps/settings?fieldManager=mainstay-test&force=true"
    );
    assert_eq!(arrived.headers[CONTENT_TYPE], "application/apply-patch+yaml");
    let mut expected = settings();
    expected["apiVersion"] = json!("v1");
    expected["kind"] = json!("ConfigMap");
    assert_eq!(serde_json::from_slice::<Value>(&arrived.body).unwrap(), expected);
}

#[tokio::test]
async fn status_and_dry_runs_go_to_their_own_addresses() {
    let mut server = TestServer::start([STORED; 3].map(Answer::ok)).await;
    let leader = Leader(server.client(Role::Writes(Fence::open())));
    let address = "/api/v1/namespaces/shop/configmaps/settings";
    applier().apply_status(&leader, &settings()).await.unwrap();
    let manager = "fieldManager=mainstay-test&force=true";
    assert_eq!(server.arrival().await.uri.to_string(), format!("{address}/status?{manager}"));
    applier().dry_run(&leader, &settings()).await.unwrap();
    assert_eq!(server.arrival().await.uri.to_string(), format!("{address}?{manager}&dryRun=All"));
    applier().dry_run_status(&leader, &settings()).await.unwrap();
    assert_eq!(server.arrival().await.uri.to_string(), format!("{address}/status?{manager}&dryRun=All"));
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let conflict = refusal_of(Answer::failure(409, "Conflict", "uid mismatch")).await;
    assert!(conflict.is_conflict() && !conflict.is_fenced());
    assert_eq!(
        conflict.to_string(),
        "apply of ConfigMap shop/settings was refused: 409 Conflict: uid mismatch"
    );
    assert!(refusal_of(Answer::failure(404, "NotFound", "")).await.is_not_found());
    assert!(refusal_of(Answer::failure(422, "Invalid", "")).await.is_invalid());
    assert!(refusal_of(Answer::failure(403, "Forbidden", "")).await.is_forbidden());
    let busy = refusal_of(Answer::With(429, "retry-after", "3", "slow down".to_owned())).await;
    assert_eq!(busy.retry_after(), Some(Duration::from_secs(3)));
    assert_eq!(
        busy.to_string(),
        "apply of ConfigMap shop/settings was refused: 429 Too Many Requests: slow down"
    );
}

#[tokio::test]
async fn an_answer_of_another_shape_says_that_the_write_happened() {
    let error = refusal_of(Answer::ok(r#"{"metadata":7}"#)).await;
    assert!(matches!(error, WriteError::Undecodable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_closed_fence_is_a_fenced_error() {
    let server = TestServer::start([]).await;
    let leader = Leader(server.client(Role::Writes(Fence::closed())));
    let error = applier().apply(&leader, &settings()).await.unwrap_err();
    assert!(error.is_fenced(), "{error:?}");
}

#[tokio::test]
async fn an_unreachable_server_leaves_the_outcome_open() {
    let server = TestServer::start([]).await;
    let leader = Leader(server.client(Role::Writes(Fence::open())));
    drop(server);
    let error = applier().apply(&leader, &settings()).await.unwrap_err();
    assert!(matches!(error, WriteError::Unanswered { .. }), "{error:?}");
}

#[tokio::test]
async fn malformed_objects_are_refused_before_they_are_sent() {
    let mut server = TestServer::start([]).await;
    let leader = Leader(server.client(Role::Writes(Fence::open())));
    for (object, expected) in [
        (json!(7), "apply of ConfigMap was not sent: it does not serialise to a JSON object"),
        (json!({"kind": "Secret"}), "its kind is \"Secret\"; this applier writes ConfigMap"),
        (json!({"metadata": {"namespace": "shop"}}), "its metadata.name is \"\"; it must be set"),
        (json!({"metadata": {"name": "../x", "namespace": "shop"}}), "its metadata.name is \"../x\""),
        (json!({"metadata": {"name": "settings"}}), "settings has no metadata.namespace"),
    ] {
        let error = applier().apply(&leader, &object).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error} should say {expected}");
    }
    assert!(server.nothing_arrived());
}
