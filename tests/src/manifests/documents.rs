//! The YAML documents of `deploy`, and the changes with which a test installs them.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

/// The kinds of the documents that tests apply, for the identity and the rights of the manager; tests do not
/// apply the rest of a base (definitions, Deployment).
const KINDS: [&str; 5] = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];

/// Returns the documents of a Role with these rules, and of its binding to the manager.
pub(super) fn role(name: &str, rules: &Value) -> [Value; 2] {
    let metadata = json!({"name": name, "namespace": "mainstay-system"});
    let api_version = "rbac.authorization.k8s.io/v1";
    [
        json!({"apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "mainstay", "namespace": "mainstay-system"}],
        }),
    ]
}

/// Returns every YAML document that `deploy/base` ships, in the order of the files' names.
pub fn documents_of_base() -> Vec<Value> {
    documents_of("base")
}

/// Returns every YAML document of a folder of `deploy`, in the order of the files' names.
pub fn documents_of(folder: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(folder);
    let fail = |error: &dyn Display| -> ! { panic!("{} cannot be read: {error}", folder.display()) };
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| fail(&error));
    let files: BTreeSet<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    let mut documents = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| fail(&error));
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap_or_else(|error| fail(&error));
        documents.extend(read);
    }
    documents
}

/// Returns the ServiceAccounts, roles and bindings among the documents, moved to `namespace`; its name is
/// appended to the names of cluster-scoped ones.
pub(super) fn in_namespace(documents: &[Value], namespace: &str) -> Vec<Value> {
    let kept = documents.iter().filter(|document| KINDS.iter().any(|kind| document["kind"] == *kind));
    let mut kept: Vec<Value> = kept.cloned().collect();
    let of_cluster = |kind: &Value| kind.as_str().is_some_and(|kind| kind.starts_with("Cluster"));
    let cluster_roles: BTreeSet<String> = kept
        .iter()
        .filter(|document| document["kind"] == "ClusterRole")
        .map(|document| name_of(document).to_owned())
        .collect();
    for document in &mut kept {
        if of_cluster(&document["kind"]) {
            document["metadata"]["name"] = format!("{}-{namespace}", name_of(document)).into();
        } else {
            document["metadata"]["namespace"] = namespace.into();
        }
        for subject in document.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            if subject["kind"] == "ServiceAccount" {
                subject["namespace"] = namespace.into();
            }
        }
        if let Some(role) = document.get_mut("roleRef")
            && role["kind"] == "ClusterRole"
            && let Some(name) = role["name"].as_str().filter(|name| cluster_roles.contains(*name))
        {
            role["name"] = format!("{name}-{namespace}").into();
        }
    }
    kept
}

/// Returns the first rule of each role binding, with its namespace: once that rule is in force, so is the
/// binding.
pub(super) fn rules(documents: &[Value]) -> Vec<(Option<String>, PolicyRule)> {
    let bindings = documents.iter().filter(|document| document.get("roleRef").is_some());
    let rule = |binding: &Value| {
        let role = documents.iter().find(|role| {
            role["kind"] == binding["roleRef"]["kind"]
                && role["metadata"]["name"] == binding["roleRef"]["name"]
        })?;
        let first = serde_json::from_value(role["rules"][0].clone()).ok()?;
        Some((binding["metadata"]["namespace"].as_str().map(ToOwned::to_owned), first))
    };
    bindings.filter_map(rule).collect()
}

pub(super) fn name_of(document: &Value) -> &str {
    document["metadata"]["name"].as_str().unwrap_or_else(|| panic!("a document has no name: {document}"))
}
