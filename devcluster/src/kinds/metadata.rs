//! Validation of `metadata`, which is the same for all kinds.

use serde_json::{Map, Value};

use super::errors::{FieldError, Reason};
use super::names::{self, NameRule};
use super::path::Path;

/// The largest total size of an object's annotations, in bytes.
const MAX_ANNOTATIONS: usize = 256 << 10;
/// The largest length of a field manager's name, in bytes.
const MAX_MANAGER: usize = 128;
/// The largest length of a subresource's name, in bytes.
const MAX_SUBRESOURCE: usize = 256;

/// The finalizers without a domain that Kubernetes itself uses.
const STANDARD_FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

/// Validates the metadata of a new object, after its name was generated.
pub fn check(
    metadata: &Value,
    namespaced: bool,
    names: NameRule,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let generate_name = text(metadata, "generateName");
    if !generate_name.is_empty() {
        let found = names.errors(generate_name, true);
        errors.extend(found.iter().map(|error| invalid(path, "generateName", generate_name, error)));
    }
    let name = text(metadata, "name");
    if name.is_empty() {
        errors.push(FieldError::required(path.field("name").text(), "name or generateName is required"));
    } else {
        let found = names.errors(name, false);
        errors.extend(found.iter().map(|error| invalid(path, "name", name, error)));
    }
    let namespace = text(metadata, "namespace");
    match (namespaced, namespace) {
        (true, "") => errors.push(FieldError::required(path.field("namespace").text(), "")),
        (true, _) => {
            let found = names::dns1123_label(namespace);
            errors.extend(found.iter().map(|error| invalid(path, "namespace", namespace, error)));
        }
        (false, "") => {}
        (false, _) => {
            errors.push(FieldError::forbidden(path.field("namespace").text(), "not allowed on this type"));
        }
    }
    if let Some(generation) = metadata.get("generation").filter(|value| value.as_i64().is_some_and(|n| n < 0))
    {
        let path = path.field("generation").text();
        errors.push(FieldError::invalid(path, generation, "must be greater than or equal to 0"));
    }
    check_labels(metadata, path, errors);
    check_annotations(metadata, path, errors);
    check_owners(metadata, path, errors);
    check_finalizers(metadata, path, errors);
    check_managed_fields(metadata, path, errors);
}

/// Validates metadata that replaces `old`.
pub fn check_update(metadata: &Value, old: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if old.get("deletionTimestamp").is_some_and(|value| !value.is_null()) {
        check_no_new_finalizers(metadata, old, path, errors);
    }
    if text(metadata, "resourceVersion").is_empty() {
        errors.push(invalid(path, "resourceVersion", "", "must be specified for an update"));
    }
    let generation = |metadata: &Value| metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
    if generation(metadata) < generation(old) {
        let path = path.field("generation").text();
        errors.push(FieldError::invalid(path, &generation(metadata).into(), "must not be decremented"));
    }
    for name in ["name", "namespace", "uid"] {
        if text(metadata, name) != text(old, name) {
            errors.push(invalid(path, name, text(metadata, name), "field is immutable"));
        }
    }
    for name in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let value = |metadata: &Value| metadata.get(name).cloned().unwrap_or_default();
        if metadata.get(name).unwrap_or(&Value::Null) != old.get(name).unwrap_or(&Value::Null) {
            let path = path.field(name).text();
            errors.push(FieldError::invalid(path, &value(metadata), "field is immutable"));
        }
    }
    check_labels(metadata, path, errors);
    check_annotations(metadata, path, errors);
    check_owners(metadata, path, errors);
    check_managed_fields(metadata, path, errors);
}

/// Returns warnings for added finalizers with a name that could collide with other finalizers. `old` is the
/// old metadata; `None` for a new object.
pub fn finalizer_warnings(metadata: &Value, old: Option<&Value>) -> Vec<String> {
    let mut added: Vec<_> = strings(metadata, "finalizers").collect();
    if let Some(old) = old {
        added.retain(|finalizer| !strings(old, "finalizers").any(|known| known == *finalizer));
    }
    added.sort_unstable();
    added.dedup();
    let mut warnings = Vec::new();
    for finalizer in added {
        let quoted = super::quoted(finalizer);
        let mut warn = |text: &str| warnings.push(format!("metadata.finalizers: {quoted}: {text}"));
        for error in names::qualified_name(finalizer) {
            warn(&error);
        }
        if finalizer.contains('/') || STANDARD_FINALIZERS.contains(&finalizer) {
            continue;
        }
        warn(if finalizer.contains('.') {
            "prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts \
             with other finalizer writers"
        } else {
            "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer \
             writers"
        });
    }
    warnings
}

/// Returns an error for each finalizer without a domain; built-in kinds refuse them, custom resources warn.
pub fn unqualified_finalizers(metadata: &Value) -> Vec<FieldError> {
    let unqualified = strings(metadata, "finalizers")
        .enumerate()
        .filter(|(_, finalizer)| !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer));
    let detail = "name is neither a standard finalizer name nor is it fully qualified";
    let error = |(index, finalizer): (usize, &str)| {
        FieldError::invalid(format!("metadata.finalizers[{index}]"), &finalizer.into(), detail)
    };
    unqualified.map(error).collect()
}

/// Checks keys and values of `labels` of a metadata or a template.
pub fn check_labels(metadata: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (key, value) in entries(metadata, "labels") {
        errors.extend(names::qualified_name(key).iter().map(|error| invalid(path, "labels", key, error)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(names::label_value(value).iter().map(|error| invalid(path, "labels", value, error)));
    }
}

/// Checks the annotations of `metadata`.
pub fn check_annotations(metadata: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in entries(metadata, "annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        let found = if key.bytes().any(|byte| byte.is_ascii_uppercase()) {
            names::qualified_name(&key.to_lowercase())
        } else {
            names::qualified_name(key)
        };
        errors.extend(found.iter().map(|error| invalid(path, "annotations", key, error)));
    }
    if size > MAX_ANNOTATIONS {
        errors.push(FieldError::too_long(path.field("annotations").text(), MAX_ANNOTATIONS));
    }
}

fn check_owners(metadata: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(owners) = metadata.get("ownerReferences").filter(|owners| !owners.is_null()) else { return };
    let path = path.field("ownerReferences");
    let mut controller: Option<String> = None;
    for owner in owners.as_array().into_iter().flatten() {
        let api_version = text(owner, "apiVersion");
        if api_version.rsplit('/').next().unwrap_or_default().is_empty()
            || api_version.matches('/').count() > 1
        {
            errors.push(invalid(&path, "apiVersion", api_version, "version must not be empty"));
        }
        for name in ["kind", "name", "uid"] {
            if text(owner, name).is_empty() {
                errors.push(invalid(&path, name, "", "must not be empty"));
            }
        }
        if (api_version, text(owner, "kind")) == ("v1", "Event") {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            let message = format!("Invalid value: {}: {detail}", shown_owner(owner));
            errors.push(FieldError { path: path.text(), reason: Reason::Invalid, message });
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let name = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            match &controller {
                None => controller = Some(name),
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references \
                         for {first} and {name}"
                    );
                    let shown = shown_owners(owners);
                    let message = format!("Invalid value: {shown}: {detail}");
                    errors.push(FieldError { path: path.text(), reason: Reason::Invalid, message });
                }
            }
        }
    }
}

/// Returns owner references as messages quote them: with the fields in the order of the Go type.
fn shown_owners(owners: &Value) -> String {
    let list: Vec<_> = owners.as_array().into_iter().flatten().map(shown_owner).collect();
    format!("[{}]", list.join(","))
}

fn shown_owner(owner: &Value) -> String {
    let mut fields: Vec<_> = ["apiVersion", "kind", "name", "uid"]
        .into_iter()
        .map(|name| format!("\"{name}\":{}", Value::from(text(owner, name))))
        .collect();
    for name in ["controller", "blockOwnerDeletion"] {
        fields.extend(
            owner.get(name).filter(|value| value.is_boolean()).map(|value| format!("\"{name}\":{value}")),
        );
    }
    format!("{{{}}}", fields.join(","))
}

fn check_finalizers(metadata: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut exclusive = 0;
    for finalizer in strings(metadata, "finalizers") {
        let found = names::qualified_name(finalizer);
        errors.extend(found.iter().map(|error| invalid(path, "finalizers", finalizer, error)));
        match finalizer {
            "orphan" => exclusive |= 1,
            "foregroundDeletion" => exclusive |= 2,
            _ => {}
        }
    }
    if let (3, Some(finalizers)) = (exclusive, metadata.get("finalizers")) {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path.field("finalizers").text(), finalizers, detail));
    }
}

fn check_no_new_finalizers(metadata: &Value, old: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let known = |finalizer: &&str| !strings(old, "finalizers").any(|known| known == *finalizer);
    let mut added: Vec<_> = strings(metadata, "finalizers").filter(known).collect();
    added.sort_unstable();
    added.dedup();
    if added.is_empty() {
        return;
    }
    let list: Vec<_> = added.iter().map(|finalizer| super::quoted(finalizer)).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        list.join(", ")
    );
    errors.push(FieldError::forbidden(path.field("finalizers").text(), &detail));
}

fn check_managed_fields(metadata: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list = path.field("managedFields");
    for (index, entry) in
        metadata.get("managedFields").and_then(Value::as_array).into_iter().flatten().enumerate()
    {
        let path = list.index(index);
        if !matches!(text(entry, "operation"), "Apply" | "Update") {
            errors.push(invalid(&path, "operation", text(entry, "operation"), "must be `Apply` or `Update`"));
        }
        if !matches!(text(entry, "fieldsType"), "" | "FieldsV1") {
            errors.push(invalid(&path, "fieldsType", text(entry, "fieldsType"), "must be `FieldsV1`"));
        }
        check_field_manager(text(entry, "manager"), &path.field("manager").text(), errors);
        if text(entry, "subresource").len() > MAX_SUBRESOURCE {
            errors.push(FieldError::too_long(path.field("subresource").text(), MAX_SUBRESOURCE));
        }
    }
}

/// Checks the name of a field manager.
pub fn check_field_manager(manager: &str, path: &str, errors: &mut Vec<FieldError>) {
    if manager.len() > MAX_MANAGER {
        errors.push(FieldError::too_long(path, MAX_MANAGER));
    }
    for (position, c) in manager.char_indices().filter(|(_, c)| c.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(c));
        errors.push(FieldError::invalid(path, &manager.into(), &detail));
    }
}

fn invalid(path: &Path<'_>, field: &str, value: &str, detail: &str) -> FieldError {
    FieldError {
        path: path.field(field).text(),
        reason: Reason::Invalid,
        message: format!("Invalid value: {}: {detail}", super::quoted(value)),
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn strings<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    object.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.get(field).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests;
