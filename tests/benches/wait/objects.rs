//! What is created: objects that wait for a port or a Service, and what they wait for.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::{tcp, wait_deployment};
use serde_json::{Value, from_value, json};

use crate::Form;

/// Waits for a port on loopback.
pub(crate) fn on_target(name: &str, address: SocketAddr, form: Form) -> WaitDeployment {
    let mut dependency = tcp("it", address);
    dependency["periodSeconds"] = json!(form.period.as_secs());
    dependency["timeoutSeconds"] = json!(form.period.as_secs().min(3));
    waiting(name, &dependency)
}

/// Waits for an endpoint of the Service of its own name.
pub(crate) fn on_service(name: &str) -> WaitDeployment {
    waiting(name, &json!({"name": "it", "service": {"name": name, "port": 80}}))
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

/// The Pods are no business of this bench.
fn waiting(name: &str, dependency: &Value) -> WaitDeployment {
    wait_deployment(name, &json!({"spec": {"replicas": 0, "waitFor": {"dependencies": [dependency]}}}))
}
