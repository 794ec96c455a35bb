//! The initial objects of a cluster: namespaces, priority classes, and the Service `kubernetes` with its
//! endpoints.

use serde_json::{Value, json};

use super::request::{Request, Target, Verb};
use super::{Api, Response, Status};
use crate::kinds::builtin::validation::SYSTEM_CLASSES;

/// The namespaces of a new cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// The address of the Service `kubernetes`.
const ADDRESS: &str = "10.0.0.1";
/// The field manager of the initial objects.
const MANAGER: &str = "kube-apiserver";

// === impl Api ===

impl Api {
    /// Creates the namespaces, the priority classes, and the Service `kubernetes` with the endpoint
    /// `127.0.0.1:6443`; a server that listens elsewhere replaces it by [`Api::publish_endpoint`].
    pub(super) async fn create_first_objects(&self) {
        for name in NAMESPACES {
            self.create_first(Target::new("", "v1", "namespaces"), json!({"metadata": {"name": name}})).await;
        }
        for (name, value) in SYSTEM_CLASSES {
            let class = json!({"metadata": {"name": name}, "value": value, "description": description(name)});
            self.create_first(Target::new("scheduling.k8s.io", "v1", "priorityclasses"), class).await;
        }
        let labels = json!({"component": "apiserver", "provider": "kubernetes"});
        let service = json!({
            "metadata": {"name": "kubernetes", "labels": labels},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": ADDRESS,
                "clusterIPs": [ADDRESS],
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "sessionAffinity": "None",
                "internalTrafficPolicy": "Cluster",
                "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
            },
        });
        self.create_first(Target::new("", "v1", "services").namespace("default"), service).await;
        self.publish_endpoint("127.0.0.1", 6443).await;
    }

    /// Publishes the address of the server in the EndpointSlice and the Endpoints of the
    /// Service `kubernetes`.
    pub async fn publish_endpoint(&self, address: &str, port: u16) {
        let slice = json!({
            "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": if address.contains(':') { "IPv6" } else { "IPv4" },
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        });
        let slices = Target::new("discovery.k8s.io", "v1", "endpointslices").namespace("default");
        self.replace_first(slices, slice).await;
        let endpoints = json!({
            "metadata": {"name": "kubernetes", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{
                "addresses": [{"ip": address}],
                "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            }],
        });
        self.replace_first(Target::new("", "v1", "endpoints").namespace("default"), endpoints).await;
    }

    /// Updates the object `kubernetes`, or creates it if the update fails.
    async fn replace_first(&self, target: Target, object: Value) {
        let update = first(Verb::Update, target.clone().name("kubernetes"), object.clone());
        if self.call_first(update).await.is_err() {
            self.create_first(target, object).await;
        }
    }

    async fn call_first(&self, request: Request) -> Result<Response, Status> {
        self.call_with(request, |call| call.unchecked = true).await
    }

    /// Creates an initial object; logs a failure.
    async fn create_first(&self, target: Target, object: Value) {
        let created: Result<Response, Status> = self.call_first(first(Verb::Create, target, object)).await;
        if let Err(status) = created {
            tracing::warn!(%status, "an object of every cluster was refused");
        }
    }
}

/// Returns the description of a priority class of the system.
fn description(class: &str) -> &'static str {
    match class {
        "system-node-critical" => {
            "Used for system critical pods that must not be moved from their current node."
        }
        _ => {
            "Used for system critical pods that must run in the cluster, but can be moved to another node if \
             necessary."
        }
    }
}

fn first(verb: Verb, target: Target, object: Value) -> Request {
    Request::new(verb, target).with_body(object).with("fieldManager", MANAGER)
}
