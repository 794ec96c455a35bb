use http::header::CONTENT_TYPE;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;
use crate::client::tests::server::{Answer, TestAuthority, TestServer};
use crate::client::{Live, is_conflict};
use crate::key::Fence;

const ADDRESS: &str = "/api/v1/namespaces/shop/configmaps";

fn leader(server: &TestServer) -> TestAuthority {
    server.authority(Fence::open())
}

fn patcher() -> Patcher<ConfigMap> {
    Patcher::new(KindId::of::<ConfigMap>(), "mainstay-test")
}

fn name() -> NamespacedName {
    NamespacedName::namespaced("shop", "settings")
}

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

fn stored(at: u64, a: &str) -> Live {
    Live::read(version(at, a).to_string().into()).unwrap()
}

fn reply(object: &Value) -> Answer {
    Answer::ok(&object.to_string())
}

#[tokio::test]
async fn a_response_that_is_not_an_object_is_an_error() {
    let server = TestServer::start(["[]", "7"].map(Answer::ok)).await;
    for _ in 0..2 {
        let answer = patcher().dry_run(&leader(&server), &name(), Some(&stored(7, "1")), set("2")).await;
        assert!(matches!(answer, Err(WriteError::Undecodable { .. })), "{answer:?}");
    }
}

/// Returns an edit that sets `a`.
fn set(a: &str) -> impl FnOnce(&mut ConfigMap) -> EditResult {
    move |map| {
        map.data.get_or_insert_default().insert("a".to_owned(), a.to_owned());
        Ok(())
    }
}

#[tokio::test]
async fn an_existing_object_is_patched_at_its_version_and_a_missing_one_created() {
    let mut server =
        TestServer::start([reply(&version(8, "2")), Answer::Reply(201, version(5, "1").to_string())]).await;
    let leader = leader(&server);
    let effect = patcher().ensure(&leader, &name(), Some(&stored(7, "1")), set("2")).await.unwrap();
    let Effect::Changed(map) = effect else { panic!("{effect:?}") };
    assert_eq!(map.metadata.resource_version.as_deref(), Some("8"));
    let arrived = server.arrival().await;
    assert_eq!(arrived.method, Method::PATCH);
    assert_eq!(arrived.uri.to_string(), format!("{ADDRESS}/settings?fieldManager=mainstay-test"));
    assert_eq!(arrived.headers[CONTENT_TYPE], "application/merge-patch+json");
    let body: Value = serde_json::from_slice(&arrived.body).unwrap();
    assert_eq!(body, json!({"metadata": {"uid": "u1", "resourceVersion": "7"}, "data": {"a": "2"}}));

    let effect = patcher().ensure(&leader, &name(), None::<&Live>, set("1")).await.unwrap();
    assert!(matches!(effect, Effect::Created(_)), "{effect:?}");
    let arrived = server.arrival().await;
    assert_eq!(arrived.method, Method::POST);
    assert_eq!(arrived.uri.to_string(), format!("{ADDRESS}?fieldManager=mainstay-test"));
    let body: Value = serde_json::from_slice(&arrived.body).unwrap();
    let metadata = json!({"name": "settings", "namespace": "shop"});
    assert_eq!(
        body,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}})
    );
}

#[tokio::test]
async fn no_request_is_sent_if_the_edit_changes_no_field_fails_or_renames() {
    let mut server = TestServer::start([]).await;
    let (leader, current) = (leader(&server), stored(7, "1"));
    for dry_run in [false, true] {
        let patcher = patcher();
        let effect = if dry_run {
            patcher.dry_run(&leader, &name(), Some(&current), set("1")).await
        } else {
            patcher.ensure(&leader, &name(), Some(&current), set("1")).await
        };
        assert_eq!(effect.unwrap(), Effect::Unchanged);
    }
    let failing = |_: &mut ConfigMap| Err("no idea".into());
    let error = patcher().ensure(&leader, &name(), Some(&current), failing).await.unwrap_err();
    let expected = "patch of ConfigMap shop/settings was not sent: the function that edits it failed";
    assert_eq!(error.to_string(), expected);
    let error = patcher().ensure(&leader, &name(), None::<&Live>, failing).await.unwrap_err();
    assert!(matches!(error, WriteError::Abandoned { .. }), "{error}");
    let renaming = |map: &mut ConfigMap| {
        map.metadata.name = Some("other".to_owned());
        Ok(())
    };
    let error = patcher().ensure(&leader, &name(), Some(&current), renaming).await.unwrap_err();
    assert!(matches!(error, WriteError::Malformed { .. }), "{error}");
    assert!(server.nothing_arrived());
}

#[tokio::test]
async fn a_patch_without_effect_at_the_server_is_unchanged() {
    let server = TestServer::start([reply(&version(7, "1"))]).await;
    let effect =
        patcher().ensure(&leader(&server), &name(), Some(&stored(7, "1")), set("1.0")).await.unwrap();
    assert_eq!(effect, Effect::Unchanged);
}

#[tokio::test]
async fn an_edit_of_an_older_version_and_a_create_of_an_existing_object_are_conflicts() {
    let answers = [
        Answer::failure(409, "Conflict", "the object has been modified"),
        Answer::failure(409, "AlreadyExists", "configmaps \"settings\" already exists"),
        Answer::failure(404, "NotFound", "configmaps \"settings\" not found"),
    ];
    let server = TestServer::start(answers).await;
    let leader = leader(&server);
    let error = patcher().ensure(&leader, &name(), Some(&stored(6, "1")), set("2")).await.unwrap_err();
    assert!(is_conflict(&error) && !error.is_already_exists(), "{error}");
    let error = patcher().ensure(&leader, &name(), None::<&Live>, set("2")).await.unwrap_err();
    assert!(is_conflict(&error) && error.is_already_exists(), "{error}");
    assert_eq!(
        error.to_string(),
        "create of ConfigMap shop/settings was refused: 409 AlreadyExists: \
         configmaps \"settings\" already exists"
    );
    let error = patcher().ensure(&leader, &name(), Some(&stored(6, "1")), set("2")).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
}

#[tokio::test]
async fn status_and_dry_runs_go_to_their_own_addresses() {
    let ready = |version: u64, ready: bool| {
        let mut object = self::version(version, "1");
        object["status"] = json!({"ready": ready});
        object
    };
    let edit = |object: &mut Value| {
        object["status"]["ready"] = json!(true);
        Ok(())
    };
    let current = Live::read(ready(7, false).to_string().into()).unwrap();
    let answers =
        [reply(&ready(8, true)), reply(&ready(7, true)), Answer::Reply(201, version(0, "1").to_string())];
    let mut server = TestServer::start(answers).await;
    let leader = leader(&server);
    let patcher = Patcher::<Value>::new(KindId::of::<ConfigMap>(), "mainstay-test");
    let effect = patcher.ensure_status(&leader, &name(), &current, edit).await.unwrap();
    assert!(matches!(effect, Effect::Changed(_)), "{effect:?}");
    let expected = format!("{ADDRESS}/settings/status?fieldManager=mainstay-test");
    assert_eq!(server.arrival().await.uri.to_string(), expected);
    // The response to a dry run has the old version even if the dry run would change the object.
    let effect = patcher.dry_run_status(&leader, &name(), &current, edit).await.unwrap();
    assert!(matches!(effect, Effect::Changed(_)), "{effect:?}");
    assert_eq!(server.arrival().await.uri.to_string(), format!("{expected}&dryRun=All"));
    let effect = self::patcher().dry_run(&leader, &name(), None::<&Live>, set("1")).await.unwrap();
    assert!(matches!(effect, Effect::Created(_)), "{effect:?}");
    let arrived = server.arrival().await;
    assert_eq!(arrived.uri.to_string(), format!("{ADDRESS}?fieldManager=mainstay-test&dryRun=All"));
}

#[tokio::test]
async fn a_dry_run_without_effect_is_unchanged() {
    let mut defaulted = version(7, "1");
    defaulted["metadata"]["managedFields"] = json!([{"manager": "mainstay-test"}]);
    let server = TestServer::start([reply(&defaulted)]).await;
    let effect =
        patcher().dry_run(&leader(&server), &name(), Some(&stored(7, "1")), set("1.0")).await.unwrap();
    assert_eq!(effect, Effect::Unchanged);
}

#[tokio::test]
async fn ensure_live_reads_from_the_server_first() {
    let gone = Answer::failure(404, "NotFound", "");
    let created = Answer::Reply(201, version(5, "1").to_string());
    let mut server = TestServer::start([gone, created, reply(&version(5, "1"))]).await;
    let leader = leader(&server);
    let effect = patcher().ensure_live(&leader, &name(), set("1")).await.unwrap();
    assert!(matches!(effect, Effect::Created(_)), "{effect:?}");
    let effect = patcher().ensure_live(&leader, &name(), set("1")).await.unwrap();
    assert_eq!(effect, Effect::Unchanged);
    let mut methods = Vec::new();
    for _ in 0..3 {
        methods.push(server.arrival().await.method);
    }
    assert_eq!(methods, [Method::GET, Method::POST, Method::GET]);
}

#[tokio::test]
async fn a_closed_fence_stops_a_patch() {
    let server = TestServer::start([]).await;
    let leader = server.authority(Fence::closed());
    let error = patcher().ensure(&leader, &name(), Some(&stored(7, "1")), set("2")).await.unwrap_err();
    assert!(error.is_fenced(), "{error:?}");
}
