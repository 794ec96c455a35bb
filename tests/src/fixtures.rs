//! What tests begin with: a WaitDeployment that waits for nothing, over which each lays what it is about.

use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Returns a WaitDeployment of this name with `changes` laid over it: as the type that is asked for, or as plain JSON
/// where it is to hold what no type takes. `changes` wins, as [`lay_over`] says.
///
/// Its one container has the image that [`with_image`] calls 1, and its number of replicas is left open.
///
/// # Panics
/// Panics if that type does not take it.
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

/// Returns what gives a WaitDeployment or a Deployment the image of this number: a change of a new object, or a merge
/// patch.
pub fn with_image(number: usize) -> Value {
    let containers = json!([{"name": "main", "image": image(number)}]);
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

/// Returns the image of this number. Nobody ever pulls it.
pub fn image(number: usize) -> String {
    format!("example.invalid/main:{number}")
}

/// Returns an entry of `waitFor.dependencies` that asks this address each second.
pub fn tcp(name: &str, address: SocketAddr) -> Value {
    json!({
        "name": name, "tcpSocket": {"host": address.ip(), "port": address.port()}, "periodSeconds": 1,
        "timeoutSeconds": 1,
    })
}

/// Returns the same in the form of the original, for `waitProbe`.
pub fn wait_probe(address: SocketAddr) -> Value {
    json!({"address": address.to_string(), "timeout": "1s", "periodSeconds": 1})
}

/// Lays `over` over `under`, mapping by mapping; a list takes the place of a list.
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
