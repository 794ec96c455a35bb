//! The kind Shop: a text that is kept in a `ConfigMap`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// The desired state.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize)]
#[kube(group = "shop.example.com", version = "v1alpha1", kind = "Shop")]
#[kube(namespaced, status = "ShopStatus")]
#[kube(doc = "A text that is kept in a `ConfigMap`.")]
#[kube(printcolumn(
    name = "Ready",
    type_ = "string",
    json_path = r#".status.conditions[?(@.type=="Ready")].status"#
))]
#[kube(printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"))]
#[serde(rename_all = "camelCase")]
pub struct ShopSpec {
    /// The text.
    #[x_kube(validation = Rule::new("self != ''").message("a text is needed"))]
    pub text: String,
}

/// The observed state, written by the controller.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShopStatus {
    /// `Ready` is true once the `ConfigMap` has the text.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
