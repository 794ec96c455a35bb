use http::header::CONTENT_TYPE;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::*;
use crate::client::tests::server::{Answer, Arrived, TestAuthority, TestServer};
use crate::key::Fence;

const OWN: &str = "greeter.example.com/cleanup";
const ADDRESS: &str = "/api/v1/namespaces/shop/configmaps/web";

fn finalizer() -> Finalizer {
    Finalizer::new(OWN).unwrap()
}

fn kind() -> KindId {
    KindId::of::<ConfigMap>()
}

/// An object as read at a version, with these finalizers.
fn at(version: &str, finalizers: &[&str]) -> ObjectMeta {
    ObjectMeta {
        name: Some("web".to_owned()),
        namespace: Some("shop".to_owned()),
        uid: Some("u1".to_owned()),
        resource_version: Some(version.to_owned()),
        finalizers: Some(finalizers.iter().map(|one| (*one).to_owned()).collect()),
        ..ObjectMeta::default()
    }
}

fn deleting(meta: ObjectMeta) -> ObjectMeta {
    ObjectMeta { deletion_timestamp: Some(Time(jiff::Timestamp::UNIX_EPOCH)), ..meta }
}

fn stored(meta: &ObjectMeta) -> Answer {
    Answer::ok(&json!({"metadata": meta}).to_string())
}

fn conflict() -> Answer {
    Answer::failure(409, "Conflict", "the object has been modified")
}

fn leader(server: &TestServer) -> TestAuthority {
    server.authority(Fence::open())
}

/// Returns the finalizers and the resourceVersion in a patch.
fn patched(arrived: &Arrived) -> (Value, Value) {
    assert_eq!((arrived.method.as_str(), arrived.uri.to_string().as_str()), ("PATCH", ADDRESS));
    assert_eq!(arrived.headers[CONTENT_TYPE], "application/merge-patch+json");
    let body: Value = serde_json::from_slice(&arrived.body).unwrap();
    assert_eq!(body["metadata"]["uid"], "u1", "{body}");
    (body["metadata"]["finalizers"].clone(), body["metadata"]["resourceVersion"].clone())
}

#[test]
fn an_invalid_name_is_refused_with_the_reason() {
    for (name, why) in [
        ("", "has no domain"),
        ("orphan", "has no domain"),
        ("/cleanup", "has no valid domain"),
        ("Example.com/cleanup", "has no valid domain"),
        ("example..com/cleanup", "has no valid domain"),
        ("-example.com/cleanup", "has no valid domain"),
        ("example.com/", "has no valid name"),
        ("example.com/a/b", "has no valid name"),
        ("example.com/clean up", "has no valid name"),
        ("example.com/cleanup-", "has no valid name"),
        (&format!("example.com/{}", "a".repeat(64)), "has more than 63 characters"),
        (&format!("{}/cleanup", ["a"; 128].join(".")), "has a domain of more than 253"),
    ] {
        let error = Finalizer::new(name).unwrap_err().to_string();
        assert!(error.starts_with(&format!("finalizer {name:?} {why}")), "{error} should contain: {why}");
    }
    for name in ["a/b", "apps.mainstay.dev/Clean_up.2", "kubernetes.io/pv-protection"] {
        assert_eq!(Finalizer::new(name).unwrap().name(), name);
    }
}

#[test]
fn adding_and_removing_in_memory_report_whether_something_changed() {
    let mut meta = at("1", &["other.example.com/a"]);
    assert!(finalizer().add_to(&mut meta));
    assert!(!finalizer().add_to(&mut meta));
    assert_eq!(meta.finalizers, at("1", &["other.example.com/a", OWN]).finalizers);
    assert!(finalizer().remove_from(&mut meta));
    assert!(!finalizer().remove_from(&mut meta));
    assert_eq!(meta.finalizers, at("1", &["other.example.com/a"]).finalizers);
    assert!(!finalizer().remove_from(&mut ObjectMeta::default()));
}

#[tokio::test]
async fn adding_and_removing_report_whether_something_changed() {
    let other = "other.example.com/a";
    let mut server = TestServer::start([stored(&at("8", &[])), stored(&at("9", &[]))]).await;
    let leader = leader(&server);

    let added = finalizer().add(&leader, &kind(), &at("7", &[other])).await.unwrap();
    assert_eq!(added, Edited::Changed);
    assert_eq!(patched(&server.arrival().await), (json!([other, OWN]), json!("7")));
    let removed = finalizer().remove(&leader, &kind(), &deleting(at("8", &[OWN, other]))).await.unwrap();
    assert!(removed);
    assert_eq!(patched(&server.arrival().await), (json!([other]), json!("8")));

    let added = finalizer().add(&leader, &kind(), &at("7", &[other, OWN])).await.unwrap();
    assert_eq!(added, Edited::Already);
    assert!(!finalizer().remove(&leader, &kind(), &at("8", &[other])).await.unwrap());
    assert!(server.nothing_arrived(), "a list that is as wanted is not written");
}

#[tokio::test]
async fn a_conflict_causes_one_read_and_one_retry() {
    let (early, late) = ("early.example.com/a", "late.example.com/a");
    let script = [conflict(), stored(&at("9", &[late, OWN])), stored(&at("10", &[]))];
    let mut server = TestServer::start(script).await;
    let leader = leader(&server);
    assert!(finalizer().remove(&leader, &kind(), &at("7", &[early, OWN])).await.unwrap());
    assert_eq!(patched(&server.arrival().await).1, "7");
    assert_eq!(server.arrival().await.method, Method::GET);
    // The finalizer that was added meanwhile stays, and the removed one is not restored.
    assert_eq!(patched(&server.arrival().await), (json!([late]), json!("9")));

    for answer in [conflict(), stored(&at("9", &[])), conflict()] {
        server.answer_next(answer);
    }
    let error = finalizer().add(&leader, &kind(), &at("7", &[])).await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
    assert_eq!(
        error.to_string(),
        "add of finalizer greeter.example.com/cleanup at ConfigMap shop/web was refused: 409 Conflict: \
         the object has been modified"
    );
}

#[tokio::test]
async fn after_a_conflict_the_live_object_decides() {
    let elsewhere = ObjectMeta { uid: Some("u2".to_owned()), ..at("9", &[]) };
    for (live, expected) in [
        (stored(&at("9", &[OWN])), Edited::Already),
        (stored(&deleting(at("9", &["other.example.com/a"]))), Edited::TooLate),
        (stored(&elsewhere), Edited::TooLate),
        (Answer::failure(404, "NotFound", ""), Edited::TooLate),
    ] {
        let server = TestServer::start([conflict(), live]).await;
        let added = finalizer().add(&leader(&server), &kind(), &at("7", &[])).await.unwrap();
        assert_eq!(added, expected);
    }
    for live in [stored(&at("9", &[])), stored(&elsewhere), Answer::failure(404, "NotFound", "")] {
        let server = TestServer::start([conflict(), live]).await;
        let object = deleting(at("7", &[OWN]));
        assert!(!finalizer().remove(&leader(&server), &kind(), &object).await.unwrap());
    }
}

#[tokio::test]
async fn a_deleted_object_is_no_error() {
    let gone = || Answer::failure(404, "NotFound", "");
    let server = TestServer::start([gone(), gone()]).await;
    let leader = leader(&server);
    assert_eq!(finalizer().add(&leader, &kind(), &at("7", &[])).await.unwrap(), Edited::TooLate);
    assert!(!finalizer().remove(&leader, &kind(), &at("7", &[OWN])).await.unwrap());
}

#[tokio::test]
async fn without_the_right_to_get_the_first_conflict_is_returned() {
    let server = TestServer::start([conflict(), Answer::failure(403, "Forbidden", "")]).await;
    let error = finalizer().add(&leader(&server), &kind(), &at("7", &[])).await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
}

#[tokio::test]
async fn no_finalizer_is_added_to_an_object_being_deleted() {
    let mut server = TestServer::start([]).await;
    let object = deleting(at("7", &["other.example.com/a"]));
    assert_eq!(finalizer().add(&leader(&server), &kind(), &object).await.unwrap(), Edited::TooLate);
    assert!(server.nothing_arrived());
}

#[tokio::test]
async fn an_object_that_was_not_read_from_a_server_is_refused() {
    let mut server = TestServer::start([]).await;
    let object = ObjectMeta { uid: None, ..at("7", &[]) };
    let error = finalizer().add(&leader(&server), &kind(), &object).await.unwrap_err();
    assert!(matches!(error, WriteError::Malformed { .. }), "{error:?}");
    assert!(error.to_string().contains("has no metadata.uid"), "{error}");
    assert!(server.nothing_arrived());
}
