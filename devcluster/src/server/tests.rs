//! Raw requests to the service. The expected texts are those of kube-apiserver 1.36.3.

mod bad_input;
mod bodies;
mod faults;
mod openapi;
mod tables;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::Service as _;

use super::ApiService;
use crate::EmbeddedOptions;
use crate::api::{Api, User};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const JSON: (&str, &str) = ("content-type", "application/json");

struct Reply {
    code: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Reply {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    fn message(&self) -> String {
        let value = self.json();
        assert_eq!(value["code"], self.code, "{value}");
        value["message"].as_str().unwrap_or_default().to_owned()
    }

    fn header(&self, name: &str) -> String {
        let values = self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.collect::<Vec<_>>().join("\n")
    }
}

/// Returns a service for requests without credentials.
async fn server() -> ApiService {
    let options = EmbeddedOptions::default();
    let api = Api::new(options.api).await;
    ApiService::new(api, [("secret".to_owned(), User { name: "bob".to_owned(), ..User::default() })], 1)
        .as_user(User::admin())
}

/// Returns a service with a `ConfigMap` `c1` and a custom resource `w1`.
async fn filled() -> ApiService {
    let server = server().await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "widgets", "kind": "Widget"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"a": {"type": "integer"}}}}}}}],
        },
    });
    let created = [
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition),
        (CONFIG_MAPS, json!({"metadata": {"name": "c1"}, "data": {"a": "b"}})),
        (WIDGETS, json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w1"}})),
    ];
    for (path, object) in created {
        let reply = send(&server, "POST", path, &[JSON], object.to_string()).await;
        assert_eq!(reply.code, 201, "{}", reply.text());
    }
    server
}

async fn send(
    server: &ApiService,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Reply {
    let mut request =
        http::Request::builder().method(Method::from_bytes(method.as_bytes()).expect("method")).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body.into())).expect("request");
    let (head, body) = server.clone().call(request).await.expect("infallible").into_parts();
    let body = body.collect().await.expect("infallible").to_bytes();
    Reply { code: head.status.as_u16(), headers: head.headers, body }
}

async fn get(server: &ApiService, path: &str) -> Reply {
    send(server, "GET", path, &[], "").await
}

async fn accept(server: &ApiService, path: &str, accept: &str) -> Reply {
    send(server, "GET", path, &[("accept", accept)], "").await
}

#[tokio::test]
async fn answers_have_the_headers_of_the_real_server() {
    let server = filled().await;
    let reply = get(&server, CONFIG_MAPS).await;
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.header("cache-control"), "no-cache, private");
    assert!(!reply.header("audit-id").is_empty());
    let reply = send(&server, "GET", CONFIG_MAPS, &[("audit-id", "mine")], "").await;
    assert_eq!(reply.header("audit-id"), "mine");
}

#[tokio::test]
async fn yaml_and_indented_json_are_served() {
    let server = filled().await;
    let name = format!("{CONFIG_MAPS}/c1");
    let reply = accept(&server, &name, "application/yaml").await;
    assert_eq!(reply.header("content-type"), "application/yaml");
    assert!(
        reply.text().starts_with("apiVersion: v1\ndata:\n  a: b\nkind: ConfigMap\nmetadata:\n"),
        "{}",
        reply.text()
    );
    let list = accept(&server, CONFIG_MAPS, "application/yaml").await.text();
    assert!(list.starts_with("apiVersion: v1\nitems:\n- "), "{list}");
    assert!(
        get(&server, &format!("{name}?pretty=true"))
            .await
            .text()
            .starts_with("{\n  \"apiVersion\": \"v1\",\n")
    );
    assert!(!get(&server, &format!("{name}?pretty=x")).await.text().contains('\n'));
}

#[tokio::test]
async fn unknown_representations_are_refused() {
    let server = filled().await;
    let types = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    let message = async |path: &str, header: &str| {
        let reply = accept(&server, path, header).await;
        assert_eq!((reply.code, reply.json()["reason"].clone()), (406, json!("NotAcceptable")));
        reply.message()
    };
    let (one, widget) = (format!("{CONFIG_MAPS}/c1"), format!("{WIDGETS}/w1"));
    let router = format!("406: Not Acceptable\n\nAvailable representations: {types}");
    assert_eq!(message(&one, "text/html").await, router);
    assert_eq!(message(CONFIG_MAPS, "text/html").await, format!("{router}, {streams}"));
    let plain = format!("only the following media types are accepted: {types}");
    assert_eq!(message(&widget, "text/html").await, plain);
    assert_eq!(message(&one, "application/json;as=Table;v=v1;g=other").await, plain);
    assert_eq!(message(&one, "application/json;stream=foo").await, plain);
    let reply = accept(&server, &format!("{CONFIG_MAPS}?watch=1"), "application/yaml").await;
    assert_eq!(reply.code, 406);
    assert!(reply.text().contains("stream=watch"), "{}", reply.text());
}

#[tokio::test]
async fn metadata_is_served_alone() {
    let server = filled().await;
    let of = |kind: &str| format!("application/json;as={kind};v=v1;g=meta.k8s.io");
    let (partial, list) = (of("PartialObjectMetadata"), of("PartialObjectMetadataList"));
    let (one, widget) = (format!("{CONFIG_MAPS}/c1"), format!("{WIDGETS}/w1"));
    let value = accept(&server, &one, &partial).await.json();
    assert_eq!(
        (&value["kind"], &value["apiVersion"]),
        (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!((&value["metadata"]["name"], value.get("data")), (&json!("c1"), None));
    let value = accept(&server, WIDGETS, &list).await.json();
    assert_eq!(value["kind"], "PartialObjectMetadataList");
    assert_eq!(value["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!(
        value["metadata"].as_object().expect("metadata").keys().collect::<Vec<_>>(),
        ["resourceVersion"]
    );
    let message = async |path: &str, header: &str| accept(&server, path, header).await.message();
    assert_eq!(
        message(CONFIG_MAPS, &partial).await,
        "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)"
    );
    assert_eq!(
        message(WIDGETS, &partial).await,
        "you requested PartialObjectMetadata, but the requested object is a list \
         (*unstructured.UnstructuredList)"
    );
    assert_eq!(
        message(&one, &list).await,
        "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)"
    );
    assert_eq!(message(&widget, &list).await, "content is not a list");
    let watch = accept(&server, &format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1"), &partial).await.text();
    assert!(watch.contains(r#""kind":"PartialObjectMetadata""#) && !watch.contains("\"data\""), "{watch}");
}

#[tokio::test]
async fn unknown_paths_are_not_found() {
    let server = filled().await;
    let pages = ["/nope", "/apis/nope", "/apis/nope/v1", "/apis/nope/v1/x", "//api/v1/", "/openapi"];
    let custom =
        ["/apis/example.com/v1/nope", "/apis/example.com/v2/widgets", "/apis/example.com/v1/widgets/w1"];
    for path in pages.into_iter().chain(custom) {
        let reply = get(&server, path).await;
        let expected = (404, "404 page not found\n".to_owned(), "text/plain; charset=utf-8".to_owned());
        assert_eq!((reply.code, reply.text(), reply.header("content-type")), expected, "{path}");
    }
    let statuses = [
        "/api/v1/nope",
        "/api/v2",
        "/apis/apps/v9",
        "/apis/apps/v1/nope",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/configmaps/c1",
        "/api/v1/namespaces/default/configmaps/c1/nope",
        "/api/v1/namespaces/default/configmaps/c1/status",
        "/api/v1//configmaps",
    ];
    for path in statuses {
        let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "the server could not find the requested resource",
            "reason": "NotFound", "details": {},
            "code": 404});
        assert_eq!(get(&server, path).await.json(), expected, "{path}");
    }
    for path in [format!("{WIDGETS}/w1/nope"), format!("{WIDGETS}/w1/scale")] {
        assert_eq!(get(&server, &path).await.message(), "widgets.example.com \"w1\" not found");
    }
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}/c1/")).await.code, 200);
    assert!(
        get(&server, "/api/v1/watch").await.text().starts_with("Internal Server Error: \"/api/v1/watch\": ")
    );
}

#[tokio::test]
async fn wrong_methods_are_refused() {
    let server = filled().await;
    let (one, widget) = (format!("{CONFIG_MAPS}/c1"), format!("{WIDGETS}/w1"));
    let refused = [
        ("POST", one.as_str()),
        ("PUT", CONFIG_MAPS),
        ("PATCH", CONFIG_MAPS),
        ("OPTIONS", CONFIG_MAPS),
        ("HEAD", &one),
        ("FOO", &one),
        ("DELETE", "/api/v1/namespaces"),
        ("POST", "/api/v1/configmaps"),
        ("POST", "/api/v1/watch/configmaps"),
        ("POST", "/api"),
        ("POST", "/version"),
    ];
    for (method, path) in refused {
        let reply = send(&server, method, path, &[JSON], "{}").await;
        let expected = "the server does not allow this method on the requested resource";
        assert_eq!((reply.code, reply.message().as_str()), (405, expected), "{method} {path}");
    }
    let custom = [("OPTIONS", WIDGETS, ""), ("FOO", &widget, "")];
    let status = format!("{widget}/status");
    let custom =
        custom.into_iter().chain([("DELETE", status.as_str(), "delete"), ("POST", &status, "create")]);
    for (method, path, verb) in custom {
        let reply = send(&server, method, path, &[JSON], "{}").await;
        let expected = format!("{verb} is not supported on resources of kind \"widgets.example.com\"");
        assert_eq!((reply.code, reply.message()), (405, expected), "{method} {path}");
    }
    let put = send(&server, "PUT", WIDGETS, &[JSON], "{}").await;
    assert_eq!(put.message(), "name must be provided");
    assert_eq!(send(&server, "HEAD", &widget, &[], "").await.code, 200);
}

#[tokio::test]
async fn requests_need_credentials() {
    let server = server().await;
    let anonymous = server.without_user();
    for path in [CONFIG_MAPS, "/healthz", "/nope"] {
        let reply = get(&anonymous, path).await;
        let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Unauthorized", "reason": "Unauthorized", "code": 401});
        assert_eq!(reply.json(), expected, "{path}");
    }
    let token = ("authorization", "Bearer secret");
    let reply = send(&anonymous, "GET", CONFIG_MAPS, &[token], "").await;
    let expected = "configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" in \
                    the namespace \"default\"";
    assert_eq!((reply.code, reply.message().as_str()), (403, expected));
    assert_eq!(send(&anonymous, "GET", "/apis/apps/v1", &[token], "").await.code, 200);
    let reply = send(&anonymous, "GET", "/nope", &[token, ("impersonate-user", "alice")], "").await;
    let expected = "forbidden: User \"bob\" cannot impersonate-on:user-info:get path \"/nope\"";
    assert_eq!((reply.code, reply.message().as_str()), (403, expected));
}

#[tokio::test]
async fn health_and_version_are_served() {
    let server = server().await;
    for path in ["/healthz", "/livez", "/readyz", "/livez/ping"] {
        let reply = get(&server, path).await;
        assert_eq!((reply.code, reply.text().as_str()), (200, "ok"), "{path}");
    }
    assert_eq!(
        get(&server, "/livez?verbose&exclude=ping&exclude=foo").await.text(),
        "[+]ping excluded: ok\n[+]log ok\n[+]etcd ok\n\
         warn: some health checks cannot be excluded: no matches for \
         \"foo\"\nlivez check passed\n"
    );
    assert_eq!(get(&server, "/readyz/nope").await.text(), "404 page not found\n");
    let version = get(&server, "/version").await.json();
    assert!(version["gitVersion"].as_str().is_some_and(|version| version.starts_with("v1.")), "{version}");
}

#[tokio::test]
async fn paths_with_the_watch_prefix_open_watches() {
    let server = filled().await;
    for path in ["namespaces/default/configmaps", "namespaces/default/configmaps/c1", "configmaps"] {
        let reply = get(&server, &format!("/api/v1/watch/{path}?timeoutSeconds=1&watch=false")).await;
        assert!(reply.text().starts_with(r#"{"type":"ADDED","object":{"#), "{path}: {}", reply.text());
    }
}
