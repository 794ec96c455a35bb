//! Tests of the API without HTTP.

#[cfg(feature = "http")]
mod admission;
mod classes;
mod creation;
mod custom;
mod deletion;
mod import;
mod lists;
mod subresources;
mod updates;
mod watches;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

/// A server with a fixed clock, random seed and initial objects.
struct Server {
    api: Api,
}

fn pods() -> Target {
    Target::new("", "v1", "pods").namespace("default")
}

fn maps() -> Target {
    Target::new("", "v1", "configmaps").namespace("default")
}

fn widgets() -> Target {
    Target::new("example.com", "v1", "widgets").namespace("default")
}

/// Returns a definition of Widgets with status and scale subresources.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "selectableFields": [{"jsonPath": ".spec.mode"}],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "properties": {
                            "replicas": {"type": "integer", "minimum": 0},
                            "mode": {"type": "string", "enum": ["a", "b"]},
                            "size": {"type": "integer", "default": 3},
                        }},
                        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                    },
                }},
            }],
        },
    })
}

impl Server {
    async fn start() -> Self {
        Self::with_window(Window::default()).await
    }

    async fn with_window(window: Window) -> Self {
        let clock: Clock = Arc::new(|| Timestamp::from_second(1_700_000_000).unwrap());
        let options = ApiOptions { seed: 7, window, ..ApiOptions::new(clock) };
        Self { api: Api::new(options).await }
    }

    async fn with_widgets() -> Self {
        let server = Self::start().await;
        let target = Target::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        server.create(target, definition()).await;
        server
    }

    async fn call(&self, request: Request) -> Result<Response, Status> {
        self.api.call(request).await
    }

    /// Returns the object in the response to a successful request.
    async fn object(&self, request: Request) -> Value {
        match self.call(request).await.unwrap().content {
            Content::Object(object) => object.value().clone(),
            other => panic!("an object, not {other:?}"),
        }
    }

    async fn create(&self, target: Target, object: Value) -> Value {
        self.object(Request::new(Verb::Create, target).with_body(object)).await
    }

    async fn get(&self, target: Target) -> Value {
        self.object(Request::new(Verb::Get, target)).await
    }

    async fn update(&self, target: Target, object: Value) -> Result<Value, Status> {
        let response = self.call(Request::new(Verb::Update, target).with_body(object)).await?;
        let Content::Object(object) = response.content else { panic!("an object") };
        Ok(object.value().clone())
    }

    async fn merge(&self, target: Target, patch: Value) -> Result<Value, Status> {
        let request = Request::new(Verb::Patch(PatchType::Merge), target).with_body(patch);
        let Content::Object(object) = self.call(request).await?.content else { panic!("an object") };
        Ok(object.value().clone())
    }

    async fn list(&self, request: Request) -> Result<List, Status> {
        match self.call(request).await?.content {
            Content::List(list) => Ok(list),
            other => panic!("a list, not {other:?}"),
        }
    }

    async fn watch(&self, request: Request) -> Result<Watch, Status> {
        match self.call(request).await?.content {
            Content::Watch(watch) => Ok(watch),
            other => panic!("a watch, not {other:?}"),
        }
    }
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

fn widget(name: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"replicas": 1},
    })
}

fn revision_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn names(list: &List) -> Vec<&str> {
    list.items.iter().map(|item| item.value()["metadata"]["name"].as_str().unwrap()).collect()
}

/// Formats events as `TYPE name`.
fn shown(events: &[WatchEvent]) -> Vec<String> {
    let show = |event: &WatchEvent| {
        let object = match event {
            WatchEvent::Object(_, object) => object.value().clone(),
            WatchEvent::Bookmark(object) => Value::clone(object),
            WatchEvent::Error(status) => status.to_value(),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or("").to_owned();
        format!("{} {name}", event.event_type())
    };
    events.iter().map(show).collect()
}
