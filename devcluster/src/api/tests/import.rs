//! Tests of imported objects.

use super::*;

#[tokio::test]
async fn an_imported_object_keeps_its_metadata_and_status_and_gets_defaults() {
    let server = Server::with_widgets().await;
    let mut watch = server.watch(Request::new(Verb::Watch, widgets())).await.unwrap();
    let metadata = json!({"name": "w", "namespace": "default", "uid": "u", "resourceVersion": "500"});
    let object = json!({"metadata": metadata, "status": {"replicas": 2}, "spec": {}});
    server.api.import(&widgets(), object).unwrap();
    let stored = server.get(widgets().name("w")).await;
    assert_eq!((&stored["metadata"], &stored["status"]["replicas"]), (&metadata, &json!(2)));
    assert_eq!((&stored["kind"], &stored["spec"]["size"]), (&json!("Widget"), &json!(3)));

    let same = server.update(widgets().name("w"), stored.clone()).await.unwrap();
    assert_eq!(revision_of(&same), 500, "it is unchanged");
    assert!(watch.ready().is_empty());
    let changed = server.merge(widgets().name("w"), json!({"spec": {"size": 4}})).await.unwrap();
    assert_eq!(revision_of(&changed), 501);
    assert_eq!(shown(&watch.ready()), ["MODIFIED w"]);
}

#[tokio::test]
async fn an_imported_object_may_be_invalid_but_has_a_resource_and_a_revision() {
    let server = Server::start().await;
    let odd = |version| {
        let metadata = json!({"name": "m", "namespace": "default", "resourceVersion": version});
        json!({"metadata": metadata, "data": 7})
    };
    server.api.import(&maps(), odd("5")).unwrap();
    assert_eq!(server.get(maps().name("m")).await["data"], 7);
    for version in ["", "0", "x", "18446744073709551615"] {
        assert_eq!(server.api.import(&maps(), odd(version)).unwrap_err().code(), 400, "{version}");
    }
    assert_eq!(server.api.import(&widgets(), odd("5")).unwrap_err().code(), 404);
}
