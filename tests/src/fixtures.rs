//! Objects for tests: a WaitDeployment without dependencies, over which each test lays its own fields.

use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Returns a WaitDeployment of this name with `changes` laid over it by [`lay_over`], as the requested type;
/// as plain JSON for content that the type would reject.
///
/// It has one container with image number 1 of [`with_image`], and no `replicas`.
///
/// # Panics
/// Panics if the object does not deserialize into that type.
pub fn wait_deployment<K: DeserializeOwned>(name: &str, changes: &Value) -> K {
    let mut object = json!({
        "apiVersion": "apps.mainstay.dev/v1alpha1",
        "kind": "WaitDeployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}},
        },
    });
    lay_over(&mut object, &with_image(1));
    lay_over(&mut object, changes);
    serde_json::from_value(object).unwrap_or_else(|error| panic!("{name} is no WaitDeployment: {error}"))
}

/// Returns a change that gives a WaitDeployment or a Deployment the image of this number: for a new object,
/// or as a merge patch.
pub fn with_image(number: usize) -> Value {
    let containers = json!([{"name": "main", "image": image(number)}]);
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

/// Returns the container image of this number. It is never pulled.
pub fn image(number: usize) -> String {
    format!("example.invalid/main:{number}")
}

/// Returns an entry of `waitFor.dependencies` that probes this address each second.
pub fn tcp(name: &str, address: SocketAddr) -> Value {
    json!({
        "name": name, "tcpSocket": {"host": address.ip(), "port": address.port()}, "periodSeconds": 1,
        "timeoutSeconds": 1,
    })
}

/// Returns a `waitProbe` for this address, the form of the original WaitDeployment.
pub fn wait_probe(address: SocketAddr) -> Value {
    json!({"address": address.to_string(), "timeout": "1s", "periodSeconds": 1})
}

/// Merges the JSON `over` into `under`, mapping by mapping; where both have a value `over` wins, and a list
/// replaces a list.
pub fn lay_over(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                lay_over(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}
