use std::time::Duration;

use http::header::CONTENT_TYPE;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;
use crate::client::Live;
use crate::client::tests::server::{Answer, TestAuthority, TestServer};
use crate::key::Fence;

const STORED: &str = r#"{"metadata":{"name":"settings","namespace":"shop","resourceVersion":"7"}}"#;

/// The stored object at a version, with a value for `a`.
fn version(version: u64, a: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "settings", "namespace": "shop", "uid": "u1", "resourceVersion": version.to_string(),
            "managedFields": [{"manager": version.to_string()}],
        },
        "data": {"a": a},
    })
}

fn live(object: &Value) -> Live {
    Live::read(object.to_string().into()).unwrap()
}

fn stored(at: u64, a: &str) -> Live {
    live(&version(at, a))
}

fn reply(object: &Value) -> Answer {
    Answer::ok(&object.to_string())
}

/// An applier after an apply with version 7 in its response, and the server.
async fn applied() -> (Applier<ConfigMap>, TestAuthority, TestServer) {
    let mut server = TestServer::start([reply(&version(7, "1"))]).await;
    let leader = server.authority(Fence::open());
    let applier = applier();
    let effect = applier.ensure(&leader, Some(&stored(6, "0")), &settings()).await.unwrap();
    assert!(matches!(effect, Effect::Changed(_)), "{effect:?}");
    server.arrival().await;
    (applier, leader, server)
}

fn applier() -> Applier<ConfigMap> {
    Applier::new(KindId::of::<ConfigMap>(), "mainstay-test")
}

fn settings() -> Value {
    json!({"metadata": {"name": "settings", "namespace": "shop"}, "data": {"a": "1"}})
}

async fn refusal_of(answer: Answer) -> WriteError {
    let server = TestServer::start([answer]).await;
    let leader = server.authority(Fence::open());
    applier().apply(&leader, &settings()).await.unwrap_err()
}

#[tokio::test]
async fn an_apply_forces_its_fields_and_returns_the_stored_object() {
    let mut server = TestServer::start([Answer::ok(STORED)]).await;
    let leader = server.authority(Fence::open());
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
    let leader = server.authority(Fence::open());
    let address = "/api/v1/namespaces/shop/configmaps/settings";
    applier().apply_status(&leader, &settings()).await.unwrap();
    let manager = "fieldManager=mainstay-test";
    assert_eq!(server.arrival().await.uri.to_string(), format!("{address}/status?{manager}&force=true"));
    drop(applier().dry_run(&leader, None::<&Live>, &settings()).await.unwrap());
    assert_eq!(server.arrival().await.uri.to_string(), format!("{address}?{manager}&dryRun=All&force=true"));
    drop(applier().dry_run_status(&leader, &stored(7, "1"), &settings()).await.unwrap());
    assert_eq!(
        server.arrival().await.uri.to_string(),
        format!("{address}/status?{manager}&dryRun=All&force=true")
    );
}

#[tokio::test]
async fn refusals_are_distinguished_by_predicates() {
    let conflict = refusal_of(Answer::failure(409, "Conflict", "uid mismatch")).await;
    assert!(conflict.is_conflict() && !conflict.is_fenced());
    assert_eq!(
        conflict.to_string(),
        "apply of ConfigMap shop/settings was refused: 409 Conflict: uid mismatch"
    );
    assert!(refusal_of(Answer::failure(404, "NotFound", "")).await.is_not_found());
    assert!(refusal_of(Answer::failure(422, "Invalid", "")).await.is_invalid());
    assert!(refusal_of(Answer::failure(403, "Forbidden", "")).await.is_forbidden());
    let busy = refusal_of(Answer::ReplyWith(429, "retry-after", "3", "slow down".to_owned())).await;
    assert_eq!(busy.retry_after(), Some(Duration::from_secs(3)));
    assert_eq!(
        busy.to_string(),
        "apply of ConfigMap shop/settings was refused: 429 Too Many Requests: slow down"
    );
}

#[tokio::test]
async fn a_response_that_does_not_decode_is_an_undecodable_error() {
    let error = refusal_of(Answer::ok(r#"{"metadata":7}"#)).await;
    assert!(matches!(error, WriteError::Undecodable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_closed_fence_is_a_fenced_error() {
    let server = TestServer::start([]).await;
    let leader = server.authority(Fence::closed());
    let error = applier().apply(&leader, &settings()).await.unwrap_err();
    assert!(error.is_fenced(), "{error:?}");
}

#[tokio::test]
async fn an_unreachable_server_is_an_unanswered_error() {
    let server = TestServer::start([]).await;
    let leader = server.authority(Fence::open());
    drop(server);
    let error = applier().apply(&leader, &settings()).await.unwrap_err();
    assert!(matches!(error, WriteError::Unanswered { .. }), "{error:?}");
}

#[tokio::test]
async fn malformed_objects_are_refused_before_they_are_sent() {
    let mut server = TestServer::start([]).await;
    let leader = server.authority(Fence::open());
    for (object, expected) in [
        (json!(7), "apply of ConfigMap was not sent: it does not serialise to a JSON object"),
        (json!({"kind": "Secret"}), "its kind is \"Secret\", expected ConfigMap"),
        (json!({"metadata": {"namespace": "shop"}}), "its metadata.name is \"\"; it must be set"),
        (json!({"metadata": {"name": "../x", "namespace": "shop"}}), "its metadata.name is \"../x\""),
        (json!({"metadata": {"name": "settings"}}), "settings has no metadata.namespace"),
    ] {
        let error = applier().apply(&leader, &object).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error} should say {expected}");
    }
    assert!(server.nothing_arrived());
}

#[tokio::test]
async fn the_first_ensure_after_a_start_is_always_sent() {
    let created = Answer::Reply(201, version(6, "1").to_string());
    let mut server = TestServer::start([created, reply(&version(6, "1"))]).await;
    let leader = server.authority(Fence::open());
    let effect = applier().ensure(&leader, None::<&Live>, &settings()).await.unwrap();
    assert!(matches!(effect, Effect::Created(_)), "{effect:?}");
    server.arrival().await;

    // Another process makes an apply without effect: the response is the version that it read.
    let effect = applier().ensure(&leader, Some(&stored(6, "1")), &settings()).await.unwrap();
    assert_eq!(effect, Effect::Unchanged);
    server.arrival().await;
}

#[tokio::test]
async fn an_apply_that_still_holds_is_not_sent_again() {
    let (applier, leader, mut server) = applied().await;
    let again = applier.ensure(&leader, Some(&stored(7, "1")), &settings()).await.unwrap();
    assert_eq!(again, Effect::Unchanged);

    // Changes of the status or of managedFields do not cause an apply.
    let mut moved = version(8, "1");
    moved["status"] = json!({"ready": true});
    let clone = applier.clone();
    assert_eq!(clone.ensure(&leader, Some(&live(&moved)), &settings()).await.unwrap(), Effect::Unchanged);

    // The preconditions in a body are not compared.
    let mut guarded = settings();
    guarded["metadata"]["uid"] = json!("u1");
    guarded["metadata"]["resourceVersion"] = json!("8");
    let effect = applier.ensure(&leader, Some(&live(&moved)), &guarded).await.unwrap();
    assert_eq!(effect, Effect::Unchanged);
    assert!(server.nothing_arrived());
}

#[tokio::test]
async fn an_apply_of_an_earlier_term_is_sent_again() {
    let (applier, leader, mut server) = applied().await;
    let leader = TestAuthority { term: 1, ..leader };
    server.answer_next(reply(&version(7, "1")));
    for requests in [1, 0] {
        let effect = applier.ensure(&leader, Some(&stored(7, "1")), &settings()).await.unwrap();
        assert_eq!(effect, Effect::Unchanged);
        for _ in 0..requests {
            server.arrival().await;
        }
        assert!(server.nothing_arrived());
    }
}

#[tokio::test]
async fn changes_of_other_writers_are_overwritten() {
    let (applier, leader, mut server) = applied().await;
    server.answer_next(reply(&version(9, "1")));
    let effect = applier.ensure(&leader, Some(&stored(8, "2")), &settings()).await.unwrap();
    assert!(matches!(effect, Effect::Changed(_)), "{effect:?}");
    server.arrival().await;

    let mut replaced = version(9, "1");
    replaced["metadata"]["uid"] = json!("u2");
    server.answer_next(reply(&replaced));
    let effect = applier.ensure(&leader, Some(&live(&replaced)), &settings()).await.unwrap();
    assert_eq!(effect, Effect::Unchanged, "a request was sent, and it changed no field");
    server.arrival().await;

    server.answer_next(Answer::Reply(201, version(10, "1").to_string()));
    let effect = applier.ensure(&leader, None::<&Live>, &settings()).await.unwrap();
    assert!(matches!(effect, Effect::Created(_)), "{effect:?}");
}

#[tokio::test]
async fn a_field_that_is_no_longer_applied_is_removed() {
    let (applier, leader, mut server) = applied().await;
    let mut without = settings();
    without["data"] = json!({});
    server.answer_next(reply(&version(8, "")));
    let effect = applier.ensure(&leader, Some(&stored(7, "1")), &without).await.unwrap();
    assert!(matches!(effect, Effect::Changed(_)), "{effect:?}");
    let sent: Value = serde_json::from_slice(&server.arrival().await.body).unwrap();
    assert_eq!(sent["data"], json!({}));
}

#[tokio::test]
async fn a_failed_ensure_is_sent_again_though_the_object_looks_unchanged() {
    let (applier, leader, mut server) = applied().await;
    let mut other = settings();
    other["data"]["a"] = json!("2");
    server.answer_next(Answer::failure(500, "InternalError", "lost"));
    applier.ensure(&leader, Some(&stored(7, "1")), &other).await.unwrap_err();
    server.arrival().await;

    server.answer_next(reply(&version(7, "1")));
    let effect = applier.ensure(&leader, Some(&stored(7, "1")), &settings()).await.unwrap();
    assert_eq!(effect, Effect::Unchanged);
    server.arrival().await;
}

#[tokio::test]
async fn an_apply_makes_the_next_ensure_send_a_request() {
    let (applier, leader, mut server) = applied().await;
    server.answer_next(reply(&version(7, "1")));
    applier.apply(&leader, &settings()).await.unwrap();
    server.arrival().await;
    server.answer_next(reply(&version(7, "1")));
    let effect = applier.ensure(&leader, Some(&stored(7, "1")), &settings()).await.unwrap();
    assert_eq!(effect, Effect::Unchanged);
    server.arrival().await;
}

#[tokio::test]
async fn the_status_is_remembered_separately() {
    let (applier, leader, mut server) = applied().await;
    let at = |version_: u64, ready: bool| {
        let mut object = version(version_, "1");
        object["status"] = json!({"ready": ready});
        object
    };
    let body = json!({"metadata": {"name": "settings", "namespace": "shop"}, "status": {"ready": true}});
    server.answer_next(reply(&at(8, true)));
    let effect = applier.ensure_status(&leader, &stored(7, "1"), &body).await.unwrap();
    assert!(matches!(effect, Effect::Changed(_)), "{effect:?}");
    assert!(server.arrival().await.uri.path().ends_with("/status"));

    // Both parts are applied at version 8, and the spec may change without the status.
    for current in [at(8, true), at(9, true)] {
        let current = live(&current);
        assert_eq!(applier.ensure_status(&leader, &current, &body).await.unwrap(), Effect::Unchanged);
        assert_eq!(applier.ensure(&leader, Some(&current), &settings()).await.unwrap(), Effect::Unchanged);
    }
    assert!(server.nothing_arrived());

    server.answer_next(reply(&at(11, true)));
    let effect = applier.ensure_status(&leader, &live(&at(10, false)), &body).await.unwrap();
    assert!(matches!(effect, Effect::Changed(_)), "{effect:?}");
}

#[tokio::test]
async fn a_dry_run_returns_the_effect_of_an_ensure_and_is_not_remembered() {
    let answers = [
        Answer::Reply(201, version(0, "1").to_string()),
        reply(&version(6, "1")),
        reply(&version(6, "1")),
        reply(&version(6, "1")),
    ];
    let mut server = TestServer::start(answers).await;
    let leader = server.authority(Fence::open());
    let applier = applier();
    let effect = applier.dry_run(&leader, None::<&Live>, &settings()).await.unwrap();
    assert!(matches!(effect, Effect::Created(_)), "{effect:?}");
    // The response to a dry run has the old version even if the dry run would change the object.
    let effect = applier.dry_run(&leader, Some(&stored(6, "0")), &settings()).await.unwrap();
    assert!(matches!(effect, Effect::Changed(_)), "{effect:?}");
    let effect = applier.dry_run(&leader, Some(&stored(6, "1")), &settings()).await.unwrap();
    assert_eq!(effect, Effect::Unchanged);
    for _ in 0..3 {
        assert!(server.arrival().await.uri.query().unwrap().contains("&dryRun=All"));
    }
    let effect = applier.ensure(&leader, Some(&stored(6, "1")), &settings()).await.unwrap();
    assert_eq!(effect, Effect::Unchanged);
    assert!(!server.arrival().await.uri.query().unwrap().contains("dryRun"), "the first ensure is sent");
}
