//! What is created: objects that wait for a port or a Service, and what they wait for.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use mainstay_api::WaitDeployment;
use serde_json::{Value, from_value, json};

use crate::Form;

/// Waits for a port on loopback.
pub(crate) fn on_target(name: &str, address: SocketAddr, form: Form) -> serde_json::Result<WaitDeployment> {
    waiting(
        name,
        &json!({"tcpSocket": {"host": address.ip(), "port": address.port()},
        "periodSeconds": form.period.as_secs(), "timeoutSeconds": form.period.as_secs().min(3)}),
    )
}

/// Waits for an endpoint of the Service of its own name.
pub(crate) fn on_service(name: &str) -> serde_json::Result<WaitDeployment> {
    waiting(name, &json!({"service": {"name": name, "port": 80}}))
}

/// A Service whose endpoints are made by hand.
pub(crate) fn service(name: &str) -> serde_json::Result<Service> {
    from_value(json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}))
}

/// A ready endpoint of it. Nobody connects to its address.
pub(crate) fn endpoint(name: &str) -> serde_json::Result<EndpointSlice> {
    from_value(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"port": 80, "protocol": "TCP", "name": ""}],
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": true}}],
    }))
}

fn waiting(name: &str, check: &Value) -> serde_json::Result<WaitDeployment> {
    let mut dependency = check.clone();
    dependency["name"] = json!("it");
    from_value(json!({
        "metadata": {"name": name},
        "spec": {
            // The Pods are no business of this bench.
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "example.invalid/main:1"}]},
            },
            "waitFor": {"dependencies": [dependency]},
        },
    }))
}
