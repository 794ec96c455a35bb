//! Defaults and validation of CustomResourceDefinitions.
//!
//! Error paths follow the real server: parts that all versions share are checked once, under
//! `spec.validation` and similar paths, as if they stood at the top of `spec`.

mod defaults;
mod schema;
mod spec;
mod structural;

use serde_json::{Value, json};

use super::text;
use crate::kinds::errors::{FieldError, quoted};
use crate::kinds::metadata;
use crate::kinds::names::NameRule;
use crate::kinds::path::Path;

/// Sets the defaults of a definition: singular name, list kind and conversion.
pub fn set_defaults(definition: &mut Value) {
    let Some(Value::Object(spec)) = definition.get_mut("spec") else { return };
    if let Some(Value::Object(names)) = spec.get_mut("names") {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let missing = |value: Option<&Value>| value.and_then(Value::as_str).is_none_or(str::is_empty);
        if missing(names.get("singular")) && !kind.is_empty() {
            names.insert("singular".to_owned(), kind.to_lowercase().into());
        }
        if missing(names.get("listKind")) && !kind.is_empty() {
            names.insert("listKind".to_owned(), format!("{kind}List").into());
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
    if let Some(Value::Object(service)) =
        spec.get_mut("conversion").and_then(|of| of.pointer_mut("/webhook/clientConfig/service"))
    {
        service.entry("port").or_insert(443.into());
    }
}

/// Resets the status of a new definition, as the server does before validation.
pub fn prepare_create(definition: &mut Value) {
    let stored: Vec<Value> = storage_version(definition).map(Value::from).into_iter().collect();
    definition["status"] = json!({
        "conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored,
    });
}

/// Restores the status of the old definition, and adds the storage version to the stored versions.
pub fn prepare_update(definition: &mut Value, old: &Value) {
    let mut status = old.get("status").cloned().unwrap_or_default();
    if let (Some(version), Some(Value::Array(stored))) =
        (storage_version(definition).map(Value::from), status.get_mut("storedVersions"))
        && !stored.contains(&version)
    {
        stored.push(version);
    }
    definition["status"] = status;
}

fn storage_version(definition: &Value) -> Option<String> {
    let versions = definition.pointer("/spec/versions")?.as_array()?;
    versions.iter().find(|version| version["storage"] == true).map(|version| text(version, "name"))
}

/// Validates a new definition, after [`set_defaults`] and [`prepare_create`].
pub fn check_create(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let metadata = definition.get("metadata").unwrap_or(&Value::Null);
    metadata::check(metadata, false, NameRule::Subdomain, &Path::Root("metadata"), &mut errors);
    let spec = definition.get("spec").unwrap_or(&Value::Null);
    let names = spec.get("names").unwrap_or(&Value::Null);
    for field in ["name", "generateName"] {
        let value = text(metadata, field);
        if !value.is_empty() && value != format!("{}.{}", text(names, "plural"), text(spec, "group")) {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            errors.push(FieldError::invalid(format!("metadata.{field}"), &value.into(), detail));
        }
    }
    spec::check(spec, &mut errors);
    check_stored_versions(definition, &mut errors);
    check_approval(spec, metadata, &mut errors);
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(true)) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &true.into(), detail));
    }
    errors
}

/// Validates a definition that replaces `old`, after [`set_defaults`] and [`prepare_update`].
pub fn check_update(definition: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let part = |of: &Value, name: &str| of.get(name).cloned().unwrap_or_default();
    let path = Path::Root("metadata");
    metadata::check_update(&part(definition, "metadata"), &part(old, "metadata"), &path, &mut errors);
    let (spec, old_spec) = (part(definition, "spec"), part(old, "spec"));
    spec::check(&spec, &mut errors);
    let mut fixed = vec!["/group", "/names/plural"];
    if super::status::is_established(old) {
        fixed.extend(["/scope", "/names/kind"]);
    }
    for pointer in fixed {
        let value =
            |spec: &Value| spec.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        if value(&spec) != value(&old_spec) {
            let path = format!("spec{}", pointer.replace('/', "."));
            errors.push(FieldError::invalid(path, &value(&spec).into(), "field is immutable"));
        }
    }
    check_stored_versions(definition, &mut errors);
    errors
}

fn check_stored_versions(definition: &Value, errors: &mut Vec<FieldError>) {
    let path = "status.storedVersions";
    let stored = definition.pointer("/status/storedVersions").cloned().unwrap_or_default();
    let Some(list) = stored.as_array().filter(|list| !list.is_empty()) else {
        errors.push(FieldError::invalid(path, &Value::Null, "must have at least one stored version"));
        return;
    };
    let versions: Vec<&Value> =
        definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten().collect();
    for version in &versions {
        if version["storage"] == true && !list.contains(&version["name"]) {
            let detail = format!("must have the storage version {}", text(version, "name"));
            errors.push(FieldError::invalid(path, &stored, &detail));
        }
    }
    for (index, name) in list.iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == *name) {
            let shown = name.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {shown} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {shown} and \
                 removes {shown} from status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("{path}[{index}]"), name, &detail));
        }
    }
}

/// Checks that a definition in a group of the Kubernetes community has the approval annotation.
fn check_approval(spec: &Value, metadata: &Value, errors: &mut Vec<FieldError>) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    let group = text(spec, "group");
    let protected = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    if !protected("k8s.io") && !protected("kubernetes.io") {
        return;
    }
    let path = format!("metadata.annotations[{ANNOTATION}]");
    let value = metadata.get("annotations").and_then(|annotations| annotations.get(ANNOTATION));
    match value.and_then(Value::as_str).unwrap_or_default() {
        "" => errors.push(FieldError::required(
            path,
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
             https://github.com/kubernetes/enhancements/pull/1111",
        )),
        value if value.starts_with("unapproved") || value.contains("://") => {}
        value => {
            let detail = format!(
                "protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a \
                 reason starting with \"unapproved\", see \
                 https://github.com/kubernetes/enhancements/pull/1111"
            );
            errors.push(FieldError {
                path,
                reason: crate::kinds::Reason::Invalid,
                message: format!("Invalid value: {}: {detail}", quoted(value)),
            });
        }
    }
}

/// Returns a warning for each format that the server does not recognize and that the old definition does not
/// have.
pub fn warnings(definition: &Value, old: Option<&Value>) -> Vec<String> {
    let formats = |definition: &Value| {
        let mut found = Vec::new();
        for version in definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten() {
            if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
                schema::unknown_formats(schema, &mut found);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    };
    let known = old.map(formats).unwrap_or_default();
    let new = formats(definition).into_iter().filter(|format| !known.contains(format));
    new.map(|format| format!("unrecognized format {}", quoted(&format))).collect()
}

#[cfg(test)]
mod tests;
