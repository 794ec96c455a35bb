//! Updates, patches, apply and the subresources status and scale.

use super::*;

#[tokio::test]
async fn an_update_needs_the_current_revision() {
    let server = Server::with_widgets().await;
    let created = server.create(widgets(), widget("w")).await;
    let mut changed = created.clone();
    changed["spec"]["replicas"] = json!(2);
    let updated = server.update(widgets().name("w"), changed.clone()).await.unwrap();
    assert_eq!(updated["metadata"]["generation"], 2);
    let status = server.update(widgets().name("w"), changed.clone()).await.unwrap_err();
    let text = "Operation cannot be fulfilled on widgets.example.com \"w\": the object has been modified; please apply \
                your changes to the latest version and try again";
    assert_eq!((status.code(), status.reason(), status.message()), (409, "Conflict", text));
    changed["metadata"]["resourceVersion"] = Value::Null;
    let status = server.update(widgets().name("w"), changed.clone()).await.unwrap_err();
    let text = "widgets.example.com \"w\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for \
                an update";
    assert_eq!((status.code(), status.message()), (422, text));
    changed["metadata"]["resourceVersion"] = json!("x");
    assert_eq!(server.update(widgets().name("w"), changed.clone()).await.unwrap_err().code(), 500);
    changed["metadata"] = json!({"name": "other", "resourceVersion": "1"});
    let status = server.update(widgets().name("w"), changed).await.unwrap_err();
    assert_eq!(status.message(), "the name of the object (other) does not match the name on the URL (w)");
}

#[tokio::test]
async fn built_in_kinds_may_be_updated_without_a_revision_and_leases_created() {
    let server = Server::start().await;
    server.create(maps(), map("m")).await;
    let mut changed = map("m");
    changed["data"]["k"] = json!("w");
    assert_eq!(server.update(maps().name("m"), changed).await.unwrap()["data"]["k"], "w");
    let status = server.update(maps().name("absent"), map("absent")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (404, "configmaps \"absent\" not found"));
    let leases = Target::new("coordination.k8s.io", "v1", "leases").namespace("default");
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    let request = Request::new(Verb::Update, leases.name("l")).with_body(lease);
    assert_eq!(server.call(request).await.unwrap().code, 201);
}

#[tokio::test]
async fn an_update_that_changes_nothing_takes_no_revision() {
    let server = Server::with_widgets().await;
    let created = server.create(widgets(), widget("w")).await;
    assert_eq!(server.update(widgets().name("w"), created.clone()).await.unwrap(), created);
    assert_eq!(server.merge(widgets().name("w"), json!({"spec": {"replicas": 1}})).await.unwrap(), created);
    assert_eq!(server.api.store().revision(), revision_of(&created));
}

#[tokio::test]
async fn a_uid_in_the_body_is_a_precondition() {
    let server = Server::with_widgets().await;
    let mut object = server.create(widgets(), widget("w")).await;
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    object["metadata"]["uid"] = json!("other");
    let status = server.update(widgets().name("w"), object).await.unwrap_err();
    let end = format!("Precondition failed: UID in precondition: other, UID in object meta: {uid}");
    assert!(status.code() == 409 && status.message().ends_with(&end), "{status}");
    let status = server.merge(widgets().name("w"), json!({"metadata": {"uid": "other"}})).await.unwrap_err();
    assert!(
        status.code() == 422
            && status.message().contains("metadata.uid: Invalid value: \"other\": field is immutable")
    );
}

#[tokio::test]
async fn status_and_the_rest_change_at_their_own_endpoints() {
    let server = Server::with_widgets().await;
    server.create(widgets(), widget("w")).await;
    let both =
        json!({"spec": {"replicas": 5}, "status": {"replicas": 4}, "metadata": {"labels": {"a": "b"}}});
    let main = server.merge(widgets().name("w"), both.clone()).await.unwrap();
    assert_eq!((&main["spec"]["replicas"], main.get("status")), (&json!(5), None));
    let both =
        json!({"spec": {"replicas": 6}, "status": {"replicas": 4}, "metadata": {"labels": {"a": "c"}}});
    let status = server.merge(widgets().name("w").subresource("status"), both).await.unwrap();
    assert_eq!((&status["spec"]["replicas"], &status["status"]["replicas"]), (&json!(5), &json!(4)));
    assert_eq!(status["metadata"]["labels"]["a"], "b");
    assert_eq!(status["metadata"]["generation"], 2, "only the change of the spec counts");
    let request = Request::new(Verb::Delete, widgets().name("w").subresource("status"));
    assert_eq!(server.call(request).await.unwrap_err().code(), 405);
    let request = Request::new(Verb::Get, widgets().name("w").subresource("other"));
    assert_eq!(server.call(request).await.unwrap_err().message(), "widgets.example.com \"w\" not found");
}

#[tokio::test]
async fn scale_shows_and_sets_the_replicas() {
    let server = Server::with_widgets().await;
    let created = server.create(widgets(), widget("w")).await;
    let target = widgets().name("w").subresource("scale");
    let mut scale = server.get(target.clone()).await;
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(1)));
    assert_eq!(scale["metadata"]["uid"], created["metadata"]["uid"]);
    scale["spec"]["replicas"] = json!(4);
    scale["metadata"]["resourceVersion"] = Value::Null;
    assert_eq!(server.update(target.clone(), scale).await.unwrap()["spec"]["replicas"], 4);
    server.merge(target, json!({"spec": {"replicas": 2}})).await.unwrap();
    let widget = server.get(widgets().name("w")).await;
    assert_eq!((&widget["spec"]["replicas"], &widget["metadata"]["generation"]), (&json!(2), &json!(3)));
}

#[tokio::test]
async fn patches_are_refused_with_the_texts_of_the_server() {
    let server = Server::with_widgets().await;
    server.create(widgets(), widget("w")).await;
    let cases = [
        (PatchType::Json, json!([{"op": "test", "path": "/spec/replicas", "value": 7}]), 422),
        (PatchType::Json, json!({}), 400),
        (PatchType::Merge, json!([]), 400),
        (PatchType::Strategic, json!({}), 415),
        (PatchType::Merge, json!({"metadata": {"resourceVersion": "1"}}), 409),
    ];
    for (patch_type, patch, code) in cases {
        let request = Request::new(Verb::Patch(patch_type), widgets().name("w")).with_body(patch.clone());
        assert_eq!(server.call(request).await.unwrap_err().code(), code, "{patch_type:?} {patch}");
    }
    let request = Request::new(Verb::Patch(PatchType::Merge), widgets().name("absent")).with_body(json!({}));
    assert_eq!(server.call(request).await.unwrap_err().code(), 404);
}

#[tokio::test]
async fn applies_create_conflict_and_take_over() {
    let server = Server::with_widgets().await;
    let apply = |manager: &str, replicas: i64| {
        let mut object = widget("w");
        object["spec"]["replicas"] = json!(replicas);
        Request::new(Verb::Patch(PatchType::Apply), widgets().name("w"))
            .with_body(object)
            .with("fieldManager", manager)
    };
    let response = server.call(apply("m1", 1)).await.unwrap();
    assert_eq!(response.code, 201);
    let first = server.get(widgets().name("w")).await;
    assert_eq!(first["spec"]["size"], 3, "defaults come after the apply");
    assert_eq!(server.object(apply("m1", 1)).await, first, "the same again changes nothing");
    let status = server.call(apply("m2", 2)).await.unwrap_err();
    let text = "Apply failed with 1 conflict: conflict with \"m1\": .spec.replicas";
    assert_eq!((status.code(), status.message()), (409, text));
    assert_eq!(status.failure().details.as_ref().unwrap().causes[0].field, ".spec.replicas");
    let taken = server.object(apply("m2", 2).with("force", "true")).await;
    assert_eq!(taken["spec"]["replicas"], 2);
    let request = Request::new(Verb::Patch(PatchType::Apply), widgets().name("w")).with_body(widget("w"));
    let text =
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    assert_eq!(server.call(request).await.unwrap_err().message(), text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_without_revision_never_conflict() {
    let server = Server::start().await;
    server.create(maps(), map("m")).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let api = server.api.clone();
        writers.spawn(async move {
            for number in 0..10 {
                let patch = json!({"data": {format!("{writer}-{number}"): "x"}});
                let request = Request::new(Verb::Patch(PatchType::Merge), maps().name("m")).with_body(patch);
                api.call(request).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let written = server.get(maps().name("m")).await;
    assert_eq!(written["data"].as_object().map(serde_json::Map::len), Some(41));
}
