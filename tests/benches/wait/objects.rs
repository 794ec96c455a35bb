//! The objects under measurement: WaitDeployments for a port or a Service, and the Services and endpoints.

use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::{tcp, wait_deployment};
use serde_json::{Value, from_value, json};

use crate::Form;

/// Returns a WaitDeployment that waits for a port on loopback.
pub(crate) fn on_target(name: &str, address: SocketAddr, form: Form) -> WaitDeployment {
    let mut dependency = tcp("it", address);
    dependency["periodSeconds"] = json!(form.period.as_secs());
    dependency["timeoutSeconds"] = json!(form.period.as_secs().min(3));
    waiting(name, &dependency)
}

/// Returns a WaitDeployment that waits for an endpoint of the Service with the same name.
pub(crate) fn on_service(name: &str) -> WaitDeployment {
    waiting(name, &json!({"name": "it", "service": {"name": name, "port": 80}}))
}

/// Returns a Service without a selector, so that its endpoints are created by hand.
pub(crate) fn service(name: &str) -> serde_json::Result<Service> {
    from_value(json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}))
}

/// Returns a ready endpoint of the Service with this name. No probe connects to its address.
pub(crate) fn endpoint(name: &str) -> serde_json::Result<EndpointSlice> {
    from_value(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"port": 80, "protocol": "TCP", "name": ""}],
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": true}}],
    }))
}

/// Returns a WaitDeployment with this dependency and without Pods, which this bench does not need.
fn waiting(name: &str, dependency: &Value) -> WaitDeployment {
    wait_deployment(name, &json!({"spec": {"replicas": 0, "waitFor": {"dependencies": [dependency]}}}))
}
