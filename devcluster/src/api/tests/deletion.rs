//! Tests of the deletion of objects and collections.

use super::*;

fn delete(target: Target) -> Request {
    Request::new(Verb::Delete, target)
}

#[tokio::test]
async fn a_plain_delete_returns_a_status_and_removes_the_object() {
    let server = Server::with_widgets().await;
    let created = server.create(widgets(), widget("w")).await;
    let status = server.object(delete(widgets().name("w"))).await;
    let expected = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {
            "name": "w",
            "group": "example.com",
            "kind": "widgets",
            "uid": created["metadata"]["uid"],
        },
    });
    assert_eq!(status, expected);
    assert_eq!(server.call(delete(widgets().name("w"))).await.unwrap_err().code(), 404);
}

#[tokio::test]
async fn finalizers_keep_an_object_until_the_last_is_removed() {
    let server = Server::with_widgets().await;
    let mut object = widget("w");
    object["metadata"]["finalizers"] = json!(["example.com/f"]);
    server.create(widgets(), object).await;
    let marked = server.object(delete(widgets().name("w"))).await;
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2023-11-14T22:13:20Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(marked["metadata"]["generation"], 2);
    let again = server.object(delete(widgets().name("w"))).await;
    assert_eq!(again, marked, "a second delete changes nothing");
    let status = server
        .merge(widgets().name("w"), json!({"metadata": {"finalizers": ["example.com/f", "example.com/g"]}}))
        .await
        .unwrap_err();
    let text = "no new finalizers can be added if the object is being deleted, found new finalizers \
                []string{\"example.com/g\"}";
    assert!(status.code() == 422 && status.message().contains(text), "{status}");
    let status = server.call(Request::new(Verb::Create, widgets()).with_body(widget("w"))).await.unwrap_err();
    assert_eq!(status.message(), "object is being deleted: widgets.example.com \"w\" already exists");
    let last = server.merge(widgets().name("w"), json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert_eq!(last["metadata"]["resourceVersion"], marked["metadata"]["resourceVersion"]);
    assert_eq!(server.call(delete(widgets().name("w"))).await.unwrap_err().code(), 404);
}

#[tokio::test]
async fn deletes_check_preconditions_and_add_the_finalizer_of_their_policy() {
    let server = Server::with_widgets().await;
    server.create(widgets(), widget("w")).await;
    let request = delete(widgets().name("w")).with_body(json!({"preconditions": {"uid": "other"}}));
    let status = server.call(request).await.unwrap_err();
    assert!(
        status.message().contains("the UID in the precondition (other) does not match the UID in record")
    );
    assert_eq!(status.failure().details.as_ref().unwrap().kind, "Widget");
    let request = delete(widgets().name("w")).with("propagationPolicy", "Sideways");
    let text = "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \
                \"Sideways\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
    assert_eq!(server.call(request).await.unwrap_err().message(), text);
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        let marked = server.object(delete(widgets().name("w")).with("propagationPolicy", policy)).await;
        assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]));
    }
}

#[tokio::test]
async fn only_scheduled_pods_have_a_grace_period() {
    let server = Server::start().await;
    let pod = |name: &str, node: Value| {
        let spec = json!({
            "containers": [{"name": "c", "image": "i"}],
            "terminationGracePeriodSeconds": 30,
            "nodeName": node,
        });
        json!({"metadata": {"name": name}, "spec": spec})
    };
    server.create(pods(), pod("free", Value::Null)).await;
    server.object(delete(pods().name("free"))).await;
    assert_eq!(server.call(delete(pods().name("free"))).await.unwrap_err().code(), 404);
    server.create(pods(), pod("bound", json!("n"))).await;
    let marked = server.object(delete(pods().name("bound"))).await;
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2023-11-14T22:13:50Z");
    let shorter =
        server.object(delete(pods().name("bound")).with_body(json!({"gracePeriodSeconds": 5}))).await;
    assert_eq!(shorter["metadata"]["deletionTimestamp"], "2023-11-14T22:13:25Z");
    server.object(delete(pods().name("bound")).with_body(json!({"gracePeriodSeconds": 0}))).await;
    assert_eq!(server.call(Request::new(Verb::Get, pods().name("bound"))).await.unwrap_err().code(), 404);
}

#[tokio::test]
async fn a_collection_delete_removes_only_matching_objects() {
    let server = Server::with_widgets().await;
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut object = widget(name);
        object["metadata"]["labels"] = json!({"l": label});
        server.create(widgets(), object).await;
    }
    let request = Request::new(Verb::DeleteCollection, widgets()).with("labelSelector", "l=x");
    assert_eq!(names(&server.list(request).await.unwrap()), ["a", "c"]);
    assert_eq!(names(&server.list(Request::new(Verb::List, widgets())).await.unwrap()), ["b"]);
}
