//! Tests of creations: server-set fields, validation and namespaces.

use super::*;

#[tokio::test]
async fn the_server_sets_its_fields_and_drops_those_of_the_client() {
    let server = Server::with_widgets().await;
    let mut sent = widget("w");
    sent["metadata"]["uid"] = json!("mine");
    sent["metadata"]["generation"] = json!(7);
    sent["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    sent["status"] = json!({"replicas": 9});
    let created = server.create(widgets(), sent).await;
    let metadata = &created["metadata"];
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["generation"], 1);
    assert_eq!(metadata["creationTimestamp"], "2023-11-14T22:13:20Z");
    let uid = metadata["uid"].as_str().unwrap();
    assert_eq!((uid.len(), uid.get(14..15)), (36, Some("4")), "{uid} is a uid of version 4");
    assert_eq!(metadata["managedFields"][0]["operation"], "Update");
    assert_eq!(created["spec"]["size"], 3, "the default of the schema");
    assert!(created.get("status").is_none(), "only the subresource sets the status");
    assert_eq!(server.get(widgets().name("w")).await, created);
}

#[tokio::test]
async fn refused_creates_have_the_texts_of_the_server() {
    let server = Server::with_widgets().await;
    server.create(widgets(), widget("taken")).await;
    let wrong = |change: &dyn Fn(&mut Value)| {
        let mut object = widget("w");
        change(&mut object);
        object
    };
    let cases = [
        (widget("taken"), 409, "AlreadyExists", "widgets.example.com \"taken\" already exists"),
        (
            wrong(&|w| w["metadata"]["resourceVersion"] = json!("5")),
            500,
            "",
            "resourceVersion should not be set on objects to be created",
        ),
        (
            wrong(&|w| w["metadata"]["namespace"] = json!("other")),
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            wrong(&|w| w["apiVersion"] = json!("example.com/v2")),
            400,
            "BadRequest",
            "the API version in the data (example.com/v2) does not match the expected API version \
             (example.com/v1)",
        ),
        (
            wrong(&|w| w["kind"] = json!("Foo")),
            422,
            "Invalid",
            "Foo.example.com \"w\" is invalid: kind: Invalid value: \"Foo\": must be Widget",
        ),
        (
            wrong(&|w| w["metadata"] = json!({})),
            422,
            "Invalid",
            "Widget.example.com \"\" is invalid: metadata.name: Required value: name or generateName is \
             required",
        ),
        (
            wrong(&|w| w["spec"]["mode"] = json!("z")),
            422,
            "Invalid",
            "Widget.example.com \"w\" is invalid: spec.mode: Unsupported value: \"z\": supported values: \
             \"a\", \"b\"",
        ),
    ];
    for (object, code, reason, message) in cases {
        let status = server.call(Request::new(Verb::Create, widgets()).with_body(object)).await.unwrap_err();
        assert_eq!((status.code(), status.reason(), status.message()), (code, reason, message));
    }
}

#[tokio::test]
async fn a_generated_name_has_63_bytes_and_a_suffix_from_the_server_alphabet() {
    let server = Server::start().await;
    let base = "x".repeat(70);
    let created = server.create(maps(), json!({"metadata": {"generateName": base}})).await;
    let name = created["metadata"]["name"].as_str().unwrap();
    assert_eq!(name.len(), 63);
    assert!(name.bytes().skip(58).all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte)), "{name}");
    assert_eq!(created["metadata"]["generateName"], json!(base));
}

#[tokio::test]
async fn a_dry_run_returns_the_object_without_storing_it() {
    let server = Server::start().await;
    let before = server.api.store().revision();
    let request = Request::new(Verb::Create, maps()).with_body(map("m")).with("dryRun", "All");
    let response = server.call(request).await.unwrap();
    let Content::Object(object) = response.content else { panic!("an object") };
    assert_eq!(response.code, 201);
    assert!(object.value()["metadata"]["uid"].is_string());
    assert!(object.value()["metadata"].get("resourceVersion").is_none());
    assert_eq!(server.api.store().revision(), before);
}

#[tokio::test]
async fn invalid_create_options_are_refused() {
    let server = Server::start().await;
    let cases = [
        ("dryRun", "Some", "dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""),
        (
            "fieldValidation",
            "Maybe",
            "fieldValidation: Unsupported value: \"Maybe\": supported values: \"\", \"Ignore\", \"Strict\", \
             \"Warn\"",
        ),
    ];
    for (option, value, error) in cases {
        let request = Request::new(Verb::Create, maps()).with_body(map("m")).with(option, value);
        let status = server.call(request).await.unwrap_err();
        assert_eq!(status.message(), format!("CreateOptions.meta.k8s.io \"\" is invalid: {error}"));
    }
}

#[tokio::test]
async fn unknown_fields_are_dropped_with_a_warning_or_refused() {
    let server = Server::with_widgets().await;
    let mut object = widget("w");
    object["spec"]["bogus"] = json!(1);
    let request = Request::new(Verb::Create, widgets()).with_body(object);
    let status = server.call(request.clone().with("fieldValidation", "Strict")).await.unwrap_err();
    let text = "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \
                \"spec.bogus\"";
    assert_eq!((status.code(), status.message()), (400, text));
    let response = server.call(request.clone()).await.unwrap();
    assert_eq!(response.warnings, ["unknown field \"spec.bogus\""]);
    let Content::Object(object) = response.content else { panic!("an object") };
    assert!(object.value()["spec"].get("bogus").is_none());
}

#[tokio::test]
async fn objects_need_a_namespace_that_is_not_terminating() {
    let server = Server::start().await;
    let create =
        |namespace: &str| Request::new(Verb::Create, maps().namespace(namespace)).with_body(map("m"));
    let status = server.call(create("absent")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (404, "namespaces \"absent\" not found"));
    let namespaces = Target::new("", "v1", "namespaces");
    let created = server.create(namespaces.clone(), json!({"metadata": {"name": "n"}})).await;
    assert_eq!(created["metadata"]["labels"]["kubernetes.io/metadata.name"], "n");
    assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(created["status"]["phase"], "Active");
    let deleted = server.object(Request::new(Verb::Delete, namespaces.clone().name("n"))).await;
    assert_eq!(deleted["status"]["phase"], "Terminating");
    let status = server.call(create("n")).await.unwrap_err();
    let text = "configmaps \"m\" is forbidden: unable to create new content in namespace n because it is \
                being terminated";
    assert_eq!((status.code(), status.message()), (403, text));
    let finalized = namespaces.clone().name("n").subresource("finalize");
    let mut namespace = deleted;
    namespace["spec"]["finalizers"] = json!([]);
    server.update(finalized, namespace).await.unwrap();
    assert_eq!(
        server.call(Request::new(Verb::Get, namespaces.clone().name("n"))).await.unwrap_err().code(),
        404
    );
    let status = server.call(Request::new(Verb::Delete, namespaces.name("default"))).await.unwrap_err();
    let text = "namespaces \"default\" is forbidden: this namespace may not be deleted";
    assert_eq!((status.code(), status.message()), (403, text));
}

#[tokio::test]
async fn a_new_cluster_has_namespaces_and_services_get_addresses_and_ports() {
    let server = Server::start().await;
    let list = server.list(Request::new(Verb::List, Target::new("", "v1", "namespaces"))).await.unwrap();
    assert_eq!(names(&list), ["default", "kube-node-lease", "kube-public", "kube-system"]);
    let service = server.get(Target::new("", "v1", "services").namespace("default").name("kubernetes")).await;
    assert_eq!(service["spec"]["clusterIP"], "10.0.0.1");
    let slices =
        Target::new("discovery.k8s.io", "v1", "endpointslices").namespace("default").name("kubernetes");
    assert_eq!(server.get(slices).await["endpoints"][0]["addresses"][0], "127.0.0.1");
    let other = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let created = server.create(Target::new("", "v1", "services").namespace("default"), other).await;
    assert!(created["spec"]["clusterIP"].as_str().unwrap().starts_with("10.0."));
    assert!(created["spec"]["ports"][0]["nodePort"].as_u64().unwrap() >= 30_000);
}
