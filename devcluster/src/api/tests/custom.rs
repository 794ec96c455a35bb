//! Tests of the life cycle of definitions and their objects.

use super::*;

fn definitions() -> Target {
    Target::new("apiextensions.k8s.io", "v1", "customresourcedefinitions")
}

#[tokio::test]
async fn a_definition_is_established_in_two_steps() {
    let server = Server::start().await;
    let created = server.create(definitions(), definition()).await;
    assert_eq!(created["status"]["conditions"], Value::Null);
    assert_eq!(created["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(created["spec"]["names"]["singular"], "widget");
    let from = revision_of(&created).to_string();
    let mut watch =
        server.watch(Request::new(Verb::Watch, definitions()).with("resourceVersion", from)).await.unwrap();
    let events = watch.next().await.unwrap();
    let conditions = |event: &WatchEvent| -> Vec<String> {
        let WatchEvent::Object(_, object) = event else { panic!("an object") };
        let conditions = object.value()["status"]["conditions"].as_array().unwrap().clone();
        let show = |c: &Value| format!("{} {} {}", c["type"], c["status"], c["reason"]).replace('"', "");
        conditions.iter().map(show).collect()
    };
    assert_eq!(conditions(&events[0]), ["NamesAccepted True NoConflicts", "Established False Installing"]);
    assert_eq!(
        conditions(&events[1]),
        ["NamesAccepted True NoConflicts", "Established True InitialNamesAccepted"]
    );
    assert_eq!(events.len(), 2);
    assert!(server.api.kind("example.com", "v1", "widgets").is_some());
}

#[tokio::test]
async fn a_definition_with_a_kind_in_use_is_not_established() {
    let server = Server::with_widgets().await;
    let mut other = definition();
    other["metadata"]["name"] = json!("gadgets.example.com");
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Widget", "listKind": "GadgetList"});
    server.create(definitions(), other).await;
    let other = server.get(definitions().name("gadgets.example.com")).await;
    let condition = &other["status"]["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("KindConflict")));
    assert_eq!(condition["message"], "\"Widget\" is already in use");
    assert!(server.api.kind("example.com", "v1", "gadgets").is_none());
}

#[tokio::test]
async fn a_deleted_definition_stays_until_its_last_object_is_deleted() {
    let server = Server::with_widgets().await;
    server.create(widgets(), widget("free")).await;
    let mut held = widget("held");
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    server.create(widgets(), held).await;
    let mut watch = server.watch(Request::new(Verb::Watch, widgets())).await.unwrap();
    assert_eq!(watch.next().await.unwrap().len(), 2);
    let deleted = server.object(Request::new(Verb::Delete, definitions().name("widgets.example.com"))).await;
    assert_eq!(deleted["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(shown(&watch.next().await.unwrap()), ["DELETED free", "MODIFIED held"]);
    let status = server.call(Request::new(Verb::Create, widgets()).with_body(widget("w"))).await.unwrap_err();
    let text = "widgets.example.com \"w\" is forbidden: create not allowed while custom resource definition \
                is terminating";
    assert_eq!((status.code(), status.message()), (403, text));
    server.merge(widgets().name("held"), json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert_eq!(shown(&watch.next().await.unwrap()), ["DELETED held"]);
    assert!(watch.next().await.is_none(), "the watch ends with the resource");
    assert!(server.api.kind("example.com", "v1", "widgets").is_none());
    assert_eq!(
        server
            .call(Request::new(Verb::Get, definitions().name("widgets.example.com")))
            .await
            .unwrap_err()
            .code(),
        404
    );
}

#[tokio::test]
async fn reads_in_another_version_convert_stored_objects_and_set_no_defaults() {
    let server = Server::with_widgets().await;
    server.create(widgets(), widget("w")).await;
    let mut changed = server.get(definitions().name("widgets.example.com")).await;
    let mut second = changed["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["mode"]["default"] = json!("b");
    changed["spec"]["versions"].as_array_mut().unwrap().push(second);
    server.update(definitions().name("widgets.example.com"), changed).await.unwrap();
    let target = Target::new("example.com", "v2", "widgets").namespace("default").name("w");
    let shown = server.get(target.clone()).await;
    assert_eq!((&shown["apiVersion"], &shown["spec"]["mode"]), (&json!("example.com/v2"), &Value::Null));
    server.merge(target, json!({"spec": {"replicas": 9}})).await.unwrap();
    let stored = server.get(widgets().name("w")).await;
    assert_eq!((&stored["apiVersion"], &stored["spec"]["replicas"]), (&json!("example.com/v1"), &json!(9)));
}

#[tokio::test]
async fn field_selectors_accept_only_selectable_fields() {
    let server = Server::with_widgets().await;
    for (name, mode) in [("x", "a"), ("y", "b")] {
        let mut object = widget(name);
        object["spec"]["mode"] = json!(mode);
        server.create(widgets(), object).await;
    }
    let list = |selector: &str| Request::new(Verb::List, widgets()).with("fieldSelector", selector);
    for (selector, found) in
        [("spec.mode=a", vec!["x"]), ("spec.mode!=a", vec!["y"]), ("metadata.name==y,spec.mode=b", vec!["y"])]
    {
        assert_eq!(names(&server.list(list(selector)).await.unwrap()), found, "{selector}");
    }
    let status = server.list(list("spec.replicas=1")).await.unwrap_err();
    assert_eq!(status.message(), "field label not supported: spec.replicas");
}
