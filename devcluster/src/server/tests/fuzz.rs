//! Fuzz targets: every request is answered with a known status, and the answers agree with each other.

#![expect(clippy::missing_panics_doc, clippy::expect_used, reason = "a finding is a panic")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tower::Service as _;

use super::ApiService;
use crate::api::{Api, ApiOptions, User};
use crate::store::{GroupResource, Key, Window};

#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;

/// The collections that targets write to: built-in kinds of different shapes, and a custom resource.
const COLLECTIONS: [(&str, &str); 6] = [
    ("/api/v1/namespaces/default/", "configmaps"),
    ("/apis/apps/v1/namespaces/default/", "deployments"),
    ("/apis/example.com/v1/namespaces/default/", "widgets"),
    ("/api/v1/namespaces/default/", "services"),
    ("/apis/apiextensions.k8s.io/v1/", "customresourcedefinitions"),
    ("/api/v1/namespaces/default/", "pods"),
];

const MEDIA_TYPES: [&str; 3] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

const PATCH_TYPES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Most bytes of an answer besides a small multiple of the request: the defaults of an object, or one page.
const LONGEST_ANSWER: usize = 64 * 1024;

thread_local! {
    static SERVER: Server = Server::new();
}

struct Server {
    runtime: Runtime,
    api: Api,
    service: ApiService,
}

struct Answer {
    code: u16,
    value: Value,
}

/// Creates an object from the bytes behind the first one, which chooses the kind and the media type.
///
/// A stored object reads back equal, and an update that sends it back does not change it.
pub fn bodies(data: &[u8]) {
    let [first, body @ ..] = data else { return };
    let media_type = MEDIA_TYPES[usize::from(first / 8) % MEDIA_TYPES.len()];
    SERVER.with(|server| {
        let (folder, plural) = collection(*first);
        let collection = format!("{folder}{plural}");
        let created = server.send("POST", &collection, media_type, body);
        if created.code != 201 {
            return;
        }
        let name = created.value.pointer("/metadata/name").and_then(Value::as_str).expect("a name");
        let path = format!("{collection}/{}", escaped(name.as_bytes()));
        let read = server.send("GET", &path, "", &[]);
        // A new definition gets its conditions while it is created.
        if plural != "customresourcedefinitions" {
            assert_eq!(read.value, created.value, "the answer is the stored object");
        }
        let sent = read.value.to_string();
        let updated = server.send("PUT", &path, MEDIA_TYPES[0], sent.as_bytes());
        assert_eq!((updated.code, &updated.value), (200, &read.value), "the object is unchanged");
        server.remove(*first, name);
    });
}

/// Patches an object with the bytes behind the first one, which chooses the kind and the type of the patch.
///
/// The patched object reads back equal. A merge patch or an apply that is repeated changes nothing.
pub fn patches(data: &[u8]) {
    let [first, patch @ ..] = data else { return };
    let kind = first % 4;
    let patch_type = PATCH_TYPES[usize::from(first / 4) % PATCH_TYPES.len()];
    SERVER.with(|server| {
        let (folder, plural) = collection(kind);
        let created = server.send("POST", &format!("{folder}{plural}"), MEDIA_TYPES[0], &subject(kind));
        assert_eq!(created.code, 201, "{}", created.value);
        let subject_path = format!("{folder}{plural}/subject");
        let full = format!("{subject_path}?fieldManager=fuzz&fieldValidation=Ignore");
        let patched = server.send("PATCH", &full, patch_type, patch);
        let read = server.send("GET", &subject_path, "", &[]);
        if patched.code == 200 {
            assert_eq!(read.value, patched.value, "the answer is the stored object");
            let again = server.send("PATCH", &full, patch_type, patch);
            let repeatable = patch_type == PATCH_TYPES[1] || patch_type == PATCH_TYPES[3];
            if repeatable && again.code == 200 {
                assert_eq!(again.value, patched.value, "the repeated patch changes nothing");
            }
        } else {
            assert_eq!(read.value, created.value, "a refused patch changes nothing");
        }
        server.remove(kind, "subject");
    });
}

/// Lists and watches with an option from the bytes behind the first one, which chooses the option and the
/// kind.
///
/// A watch starts with the objects of the list. No continue token leaves the namespace.
pub fn selectors(data: &[u8]) {
    let [first, value @ ..] = data else { return };
    let option = ["labelSelector", "fieldSelector", "continue"][usize::from(first / 4) % 3];
    SERVER.with(|server| {
        let kind = first % 4;
        let (folder, plural) = collection(kind);
        let created = server.send("POST", &format!("{folder}{plural}"), MEDIA_TYPES[0], &subject(kind));
        assert_eq!(created.code, 201, "{}", created.value);
        let path = format!("{folder}{plural}?{option}={}", escaped(value));
        let listed = server.send("GET", &path, "", &[]);
        if listed.code == 200 {
            let items = listed.value["items"].as_array().expect("items");
            assert!(items.iter().all(|item| item["metadata"]["namespace"] == "default"), "{items:?}");
            let names: Vec<_> = items.iter().map(|item| item["metadata"]["name"].clone()).collect();
            if option != "continue" {
                assert_eq!(server.initial_events(&path), names, "a watch starts with the list");
            }
        }
        server.remove(kind, "subject");
    });
}

fn collection(choice: u8) -> (&'static str, &'static str) {
    COLLECTIONS[usize::from(choice % 8) % COLLECTIONS.len()]
}

/// Returns an object for patches and selectors, of one of the first four collections.
fn subject(kind: u8) -> Vec<u8> {
    let metadata = json!({
        "name": "subject",
        "labels": {"app": "web", "tier": "1"},
        "annotations": {"example.com/note": "old"},
    });
    let mut object = match kind {
        0 => json!({"data": {"a": "1", "b": "2"}}),
        1 => json!({"spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                {"name": "a", "image": "a:1", "ports": [{"containerPort": 80}],
                    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
                {"name": "b", "image": "b:1"},
            ]}},
        }}),
        2 => json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "spec": {"size": 3, "tags": ["x"], "ports": [{"name": "p", "port": 1}], "free": {"a": [1, {}]}}}),
        _ => json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}], "selector": {"app": "web"}}}),
    };
    object["metadata"] = metadata;
    object.to_string().into_bytes()
}

fn escaped(bytes: &[u8]) -> String {
    percent_encode(bytes, NON_ALPHANUMERIC).to_string()
}

// === impl Server ===

impl Server {
    fn new() -> Self {
        // Paused time passes while all tasks wait, so no request waits for real.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        let clock = || Timestamp::from_second(1_700_000_000).expect("a time");
        let window = Window { min_changes: 4, max_changes: 16, watch_buffer: 16, ..Window::default() };
        let options = ApiOptions { seed: 1, window, ..ApiOptions::new(Arc::new(clock)) };
        let api = runtime.block_on(Api::new(options));
        let service = ApiService::new(api.clone(), [], 1).as_user(User::admin());
        let server = Self { runtime, api, service };
        let created = server.send("POST", &definitions(), MEDIA_TYPES[0], &definition());
        assert_eq!(created.code, 201, "{}", created.value);
        server
    }

    /// Sends a request and checks the form of the answer.
    fn send(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> Answer {
        let Ok(request) = http::Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, content_type)
            .body(Full::new(Bytes::copy_from_slice(body)))
        else {
            // Longer than a URI may be.
            return Answer { code: 414, value: Value::Null };
        };
        let (head, answer) = self.runtime.block_on(async {
            let (head, answer) = self.service.clone().call(request).await.expect("infallible").into_parts();
            (head, answer.collect().await.expect("infallible").to_bytes())
        });
        let code = head.status.as_u16();
        // Up to a hundred errors of a rule in CEL repeat the rule, in the message and in a cause.
        let most = LONGEST_ANSWER + 512 * (body.len() + path.len());
        assert!(answer.len() <= most, "{code} with {} bytes", answer.len());
        let value: Value = serde_json::from_slice(&answer).expect("the answer is JSON");
        if code >= 400 {
            assert_eq!((&value["kind"], &value["code"]), (&json!("Status"), &json!(code)), "{value}");
            assert!(value["message"].as_str().is_some_and(|message| !message.is_empty()), "{value}");
        }
        Answer { code, value }
    }

    /// Returns the names in the initial events of a watch with the options of a list.
    fn initial_events(&self, path: &str) -> Vec<Value> {
        let path = format!("{path}&watch=1&allowWatchBookmarks=1&timeoutSeconds=1&sendInitialEvents=1");
        let path = format!("{path}&resourceVersionMatch=NotOlderThan");
        let request = http::Request::get(path).body(Full::<Bytes>::default()).expect("a request");
        let events = self.runtime.block_on(async {
            let watch = self.service.clone().call(request).await.expect("infallible").into_body();
            tokio::time::timeout(Duration::from_mins(1), watch.collect()).await
        });
        let events = events.expect("the watch ends").expect("infallible").to_bytes();
        let lines = events.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let events = lines.map(|line| serde_json::from_slice::<Value>(line).expect("a line of JSON"));
        let objects = events.filter(|event| event["type"] == "ADDED");
        objects.map(|event| event["object"]["metadata"]["name"].clone()).collect()
    }

    /// Removes an object from the store, also one with finalizers.
    fn remove(&self, choice: u8, name: &str) {
        let (folder, plural) = collection(choice);
        let group = folder.strip_prefix("/apis/").and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let namespace = if folder.contains("/namespaces/") { "default" } else { "" };
        let (resource, key) = (GroupResource::new(group, plural), Key::new(namespace, name));
        if plural == "customresourcedefinitions" {
            // Its objects are no longer served after that.
            self.send("DELETE", &format!("{folder}{plural}/{}", escaped(name.as_bytes())), "", &[]);
        }
        if let Some(version) = self.api.store().get(&resource, &key) {
            drop(self.api.store().delete(&resource, &key, version.revision()));
        }
    }
}

fn definitions() -> String {
    let (folder, plural) = COLLECTIONS[4];
    format!("{folder}{plural}")
}

fn definition() -> Vec<u8> {
    let spec = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.size >= 0"}],
    "properties": {
        "size": {"type": "integer", "default": 1, "maximum": 100},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "pattern": "^[a-z]+$"},
                "port": {"type": "integer", "minimum": 1}}}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "any": {"x-kubernetes-int-or-string": true},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "null": {"type": "string", "nullable": true},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}],
        },
    })
    .to_string()
    .into_bytes()
}

#[test]
fn no_input_of_the_corpora_is_a_finding() {
    replay::replay("bodies", bodies);
    replay::replay("patches", patches);
    replay::replay("selectors", selectors);
}
