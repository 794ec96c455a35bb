//! The life of a namespace: what it gets when it appears, and its emptying when it is deleted.
//!
//! Differs from the controller of Kubernetes in one point: a namespace is looked at again whenever an object
//! in it changes, not after an estimated time.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::client::Request;
use super::object::{Object as _, seconds};
use super::resources;
use crate::store::GroupResource;

/// The name of the `ConfigMap` with the certificate of the API server.
pub(super) const ROOT_CA: &str = "kube-root-ca.crt";

/// The annotation of that `ConfigMap`, as the publisher of Kubernetes writes it.
const ROOT_CA_DESCRIPTION: &str = concat!(
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as ",
    "the internal service IP or kubernetes.default.svc. ",
    "No other usage is guaranteed across distributions of Kubernetes clusters."
);

/// The conditions of a namespace that is being deleted: type, then reason and message while nothing is wrong.
const CONDITIONS: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// Returns the requests that a namespace needs to have its default ServiceAccount and the certificate.
pub(super) fn decide_defaults(
    namespace: &Value,
    account: Option<&Arc<Value>>,
    config: Option<&Arc<Value>>,
    root_ca: &str,
) -> Vec<Request> {
    let mut requests = Vec::new();
    if namespace.is_deleting() {
        return requests;
    }
    if account.is_none() {
        let account = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": namespace.name()},
        });
        requests.push(Request::create(&resources::service_accounts(), account));
    }
    let data = json!({"ca.crt": root_ca});
    let annotation = "kubernetes.io/description";
    match config {
        None => {
            let config = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": ROOT_CA,
                    "namespace": namespace.name(),
                    "annotations": {annotation: ROOT_CA_DESCRIPTION},
                },
                "data": data,
            });
            requests.push(Request::create(&resources::config_maps(), config));
        }
        Some(config) if config["data"] != data || config.annotation(annotation).is_none_or(str::is_empty) => {
            let mut config = Value::clone(config);
            config["data"] = data;
            config["metadata"]["annotations"][annotation] = ROOT_CA_DESCRIPTION.into();
            requests.push(Request::update(&resources::config_maps(), config));
        }
        Some(_) => {}
    }
    requests
}

/// Returns the next requests of the deletion of a namespace with this content: first the Pods go, then all
/// else, and once nothing is left the finalizer.
pub(super) fn decide_deletion(
    namespace: &Value,
    content: &BTreeMap<&GroupResource, Vec<&Arc<Value>>>,
    now: Timestamp,
) -> Vec<Request> {
    let resource = resources::namespaces();
    if !namespace.is_deleting() || namespace.list("/spec/finalizers").is_empty() {
        return Vec::new();
    }
    if namespace.text("/status/phase") != "Terminating" {
        let mut namespace = namespace.clone();
        namespace["status"]["phase"] = "Terminating".into();
        return vec![Request::update_status(&resource, namespace)];
    }
    let pods = resources::pods();
    let with_pods = content.contains_key(&pods);
    let deletions: Vec<_> = content
        .iter()
        .filter(|(resource, objects)| {
            (!with_pods || **resource == &pods) && objects.iter().any(|object| !object.is_deleting())
        })
        .map(|(resource, _)| Request::delete_collection(resource, namespace.name()))
        .collect();
    if !deletions.is_empty() {
        return deletions;
    }
    // While Pods remain the rest is not counted, so the conditions do not mention remains.
    let none = BTreeMap::new();
    let conditions = conditions(namespace, if with_pods { &none } else { content }, now);
    if namespace.list("/status/conditions") != conditions {
        let mut namespace = namespace.clone();
        namespace["status"]["conditions"] = Value::Array(conditions);
        return vec![Request::update_status(&resource, namespace)];
    }
    if !content.is_empty() {
        return Vec::new();
    }
    let mut finalized = namespace.clone();
    if let Some(finalizers) = finalized["spec"]["finalizers"].as_array_mut() {
        finalizers.retain(|finalizer| finalizer != "kubernetes");
    }
    vec![Request { subresource: "finalize", ..Request::update(&resource, finalized) }]
}

/// Returns the conditions of a namespace with this content left.
fn conditions(
    namespace: &Value,
    content: &BTreeMap<&GroupResource, Vec<&Arc<Value>>>,
    now: Timestamp,
) -> Vec<Value> {
    let remains = content.iter().map(|(resource, objects)| {
        format!("{}.{} has {} resource instances", resource.resource, resource.group, objects.len())
    });
    let mut finalizers = BTreeMap::<&str, usize>::new();
    for object in content.values().flatten() {
        for finalizer in object.list("/metadata/finalizers").iter().filter_map(Value::as_str) {
            *finalizers.entry(finalizer).or_default() += 1;
        }
    }
    let held = finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances"));
    let (remains, held) = (sorted(remains), sorted(held));

    let mut conditions = namespace.list("/status/conditions").to_vec();
    for (kind, reason, message) in CONDITIONS {
        let (status, reason, message) = match kind {
            "NamespaceContentRemaining" if !remains.is_empty() => {
                ("True", "SomeResourcesRemain", format!("Some resources are remaining: {remains}"))
            }
            "NamespaceFinalizersRemaining" if !held.is_empty() => (
                "True",
                "SomeFinalizersRemain",
                format!("Some content in the namespace has finalizers remaining: {held}"),
            ),
            _ => ("False", reason, message.to_owned()),
        };
        let former = conditions.iter_mut().find(|condition| condition["type"] == kind);
        let since = match &former {
            Some(former) if former["status"] == status => former["lastTransitionTime"].clone(),
            _ => seconds(now),
        };
        let condition = json!({
            "type": kind,
            "status": status,
            "lastTransitionTime": since,
            "reason": reason,
            "message": message,
        });
        match former {
            Some(former) => *former = condition,
            None => conditions.push(condition),
        }
    }
    conditions
}

fn sorted(texts: impl Iterator<Item = String>) -> String {
    let mut texts: Vec<_> = texts.collect();
    texts.sort();
    texts.join(", ")
}

#[cfg(test)]
mod tests;
