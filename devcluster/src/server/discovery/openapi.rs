//! `OpenAPI` v3, as far as kubectl needs it to leave validation to the server: the patch of each kind, with
//! the query parameter `fieldValidation`. There are no schemas yet, so `kubectl explain` finds no fields.

use serde_json::{Map, Value, json};

use super::{Catalogue, Version, api_version};
use crate::kinds::Kind;

/// Returns the list of all documents, one for each version of a group.
pub(super) fn index(catalogue: &Catalogue) -> Value {
    let mut paths = Map::new();
    for group in &catalogue.groups {
        for version in &group.versions {
            let path = root(&group.name, &version.name);
            let url = format!("/openapi/v3/{path}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// Returns the document of one version of a group.
pub(super) fn document(version: &Version) -> Value {
    let paths: Map<_, _> = version
        .kinds
        .iter()
        .filter(|kind| kind.has_verb("patch"))
        .map(|kind| (object_path(kind), patch(kind)))
        .collect();
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": crate::kinds::builtin::release()},
        "paths": paths,
    })
}

fn root(group: &str, version: &str) -> String {
    format!("{}/{}", if group.is_empty() { "api" } else { "apis" }, api_version(group, version))
}

fn object_path(kind: &Kind) -> String {
    let namespace = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
    format!("/{}/{namespace}{}/{{name}}", root(&kind.group, &kind.version), kind.plural)
}

fn patch(kind: &Kind) -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let parameters = ["dryRun", "fieldManager", "fieldValidation", "force"].map(parameter);
    json!({"patch": {
        "operationId": format!("patch{}", kind.kind),
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind":
            {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }})
}
