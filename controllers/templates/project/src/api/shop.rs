//! The kind Shop: a web server with an image and a number of replicas.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// The desired state.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize)]
#[kube(group = "shop.example.com", version = "v1alpha1", kind = "Shop")]
#[kube(namespaced, status = "ShopStatus")]
#[kube(doc = "A web server with an image and a number of replicas.")]
#[kube(printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"))]
#[kube(printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"))]
#[serde(rename_all = "camelCase")]
pub struct ShopSpec {
    /// The image of the containers, with its version.
    #[x_kube(validation = Rule::new("self.contains(':') && !self.endsWith(':latest')").message("name a version, as in nginx:1.29"))]
    pub image: String,
    /// The number of Pods.
    #[serde(default = "one")]
    #[x_kube(validation = Rule::new("self >= 0").message("no negative number"))]
    pub replicas: i32,
}

/// The observed state, written by the controller.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShopStatus {
    /// The number of Pods that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// `Ready` is true once all Pods are ready.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

fn one() -> i32 {
    1
}
