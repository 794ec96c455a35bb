//! The objects that are written.

use serde_json::{Map, Value, json};

/// Returns a `ConfigMap` of 1 KB.
pub(crate) fn config_map(name: &str) -> Value {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(20);
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}})
}

/// Returns the definition of a custom resource whose spec has thirty fields, each with a rule.
pub(crate) fn definition() -> Value {
    let mut fields = Map::new();
    for number in 0..6 {
        for (name, schema) in [
            (
                "text",
                json!({"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z][a-z0-9-]*$"}),
            ),
            ("mode", json!({"type": "string", "enum": ["Always", "Never", "OnFailure"]})),
            ("count", json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 1000})),
            ("items", json!({"type": "array", "maxItems": 8, "items": {"type": "string", "maxLength": 63}})),
            (
                "limits",
                json!({
                    "type": "object",
                    "required": ["cpu"],
                    "properties": {"cpu": {"type": "string"}, "on": {"type": "boolean", "default": true}},
                }),
            ),
        ] {
            fields.insert(format!("{name}{number}"), schema);
        }
    }
    let required: Vec<_> = (0..6).map(|number| format!("text{number}")).collect();
    let spec = json!({"type": "object", "required": required, "properties": fields});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.bench.example.com"},
        "spec": {
            "group": "bench.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    })
}

/// Returns an object with all thirty fields.
pub(crate) fn widget(name: &str) -> Value {
    let mut spec = Map::new();
    for number in 0..6 {
        spec.insert(format!("text{number}"), format!("value-{number}").into());
        spec.insert(format!("mode{number}"), "OnFailure".into());
        spec.insert(format!("count{number}"), (number * 100).into());
        spec.insert(format!("items{number}"), json!(["one", "two", "three"]));
        spec.insert(format!("limits{number}"), json!({"cpu": "100m"}));
    }
    json!({"apiVersion": "bench.example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// Returns the apply configuration of a Deployment of 1.5 KB, which `turn` changes in one field.
pub(crate) fn deployment(name: &str, turn: usize) -> Value {
    let labels = json!({"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "bench", "tier": "web"});
    let variables: Vec<Value> = (0..6)
        .map(|number| json!({"name": format!("SETTING_{number}"), "value": format!("the value {number}")}))
        .collect();
    let probe = |path| json!({"httpGet": {"path": path, "port": "http"}, "periodSeconds": 5});
    let container = |container: &str| {
        json!({
            "name": container,
            "image": format!("registry.example.com/shop/{container}:1.{turn}"),
            "args": ["--listen=:8080", "--log-format=json"],
            "ports": [{"name": "http", "containerPort": 8080}],
            "env": variables,
            "resources": {
                "requests": {"cpu": "100m", "memory": "64Mi"},
                "limits": {"cpu": "1", "memory": "256Mi"},
            },
            "livenessProbe": probe("/healthz"),
            "readinessProbe": probe("/readyz"),
            "volumeMounts": [{"name": "settings", "mountPath": "/etc/settings", "readOnly": true}],
        })
    };
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": "shop",
                    "containers": [container("server"), container("helper")],
                    "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
                },
            },
        },
    })
}
