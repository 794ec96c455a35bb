//! Defaults of whole objects.

use serde_json::{Value, json};

use super::{Object, object, pods, set, text};
use crate::kinds::builtin::typed::base64_text;

/// Sets the defaults that must be set before those of nested structs.
pub(super) fn before(type_name: &str, map: &mut Object) {
    match type_name {
        "batch/v1.Job" => job(map),
        "core/v1.ReplicationController" => replication_controller(map),
        "core/v1.Secret" => secret(map),
        "core/v1.PersistentVolume" => {
            if let Some(spec) = object(map, "spec") {
                set(spec, "persistentVolumeReclaimPolicy", "Retain".into());
                set(spec, "volumeMode", "Filesystem".into());
            }
        }
        "apiextensions/v1.CustomResourceDefinition" => definition(map),
        _ => {}
    }
}

/// Sets the defaults that must be set after those of nested structs.
pub(super) fn after(type_name: &str, map: &mut Object) {
    match type_name {
        "core/v1.Pod" => {
            pods::pod(map);
            pods::addresses(map);
        }
        "core/v1.Namespace" => namespace(map),
        "apps/v1.DaemonSet" => {
            if let Some(annotations) = metadata_map(map, "annotations") {
                annotations.entry("deprecated.daemonset.template.generation").or_insert_with(|| "0".into());
            }
        }
        "apps/v1.StatefulSet" => {
            let spec = object(map, "spec");
            let claims = spec.and_then(|spec| spec.get_mut("volumeClaimTemplates")?.as_array_mut());
            for claim in claims.into_iter().flatten().filter_map(Value::as_object_mut) {
                set(claim, "apiVersion", "v1".into());
                set(claim, "kind", "PersistentVolumeClaim".into());
                let status = claim.entry("status").or_insert_with(|| json!({}));
                if let Value::Object(status) = status {
                    set(status, "phase", "Pending".into());
                }
            }
        }
        _ => {}
    }
}

fn job(map: &mut Object) {
    let labels = map.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels")).cloned();
    adopt_labels(map, labels);
    let Some(spec) = object(map, "spec") else { return };
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        set(spec, "completions", 1.into());
    }
    set(spec, "parallelism", 1.into());
    if spec.contains_key("backoffLimitPerIndex") {
        set(spec, "backoffLimit", i32::MAX.into());
    }
    set(spec, "backoffLimit", 6.into());
    set(spec, "completionMode", "NonIndexed".into());
    set(spec, "suspend", false.into());
    set(spec, "manualSelector", false.into());
    let policy = if spec.contains_key("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    set(spec, "podReplacementPolicy", policy.into());
}

/// Copies the labels of the template to missing labels and a missing selector.
fn replication_controller(map: &mut Object) {
    let labels = map.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels")).cloned();
    adopt_labels(map, labels.clone());
    let Some(spec) = object(map, "spec") else { return };
    let selected = spec.get("selector").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    if let (false, Some(labels)) = (selected, labels) {
        spec.insert("selector".to_owned(), labels);
    }
}

fn adopt_labels(map: &mut Object, labels: Option<Value>) {
    let (Some(labels), Some(metadata)) = (labels, object(map, "metadata")) else { return };
    let labelled = metadata.get("labels").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    if !labelled {
        metadata.insert("labels".to_owned(), labels);
    }
}

/// Moves `stringData`, which is write-only, into `data`. Its values replace values with the same key.
fn secret(map: &mut Object) {
    let Some(Value::Object(texts)) = map.remove("stringData") else { return };
    let data = map.entry("data").or_insert_with(|| json!({}));
    if let Value::Object(data) = data {
        for (key, value) in texts {
            let bytes = value.as_str().unwrap_or_default().as_bytes();
            data.insert(key, base64_text(bytes).into());
        }
    }
}

fn namespace(map: &mut Object) {
    let Some(metadata) = object(map, "metadata") else { return };
    let name = text(metadata, "name").to_owned();
    if let (false, Some(labels)) = (name.is_empty(), metadata_map(map, "labels")) {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
}

fn definition(map: &mut Object) {
    let Some(spec) = object(map, "spec") else { return };
    let Some(names) = object(spec, "names") else { return };
    let kind = text(names, "kind").to_owned();
    if !kind.is_empty() {
        set(names, "singular", kind.to_lowercase().into());
        set(names, "listKind", format!("{kind}List").into());
    }
}

/// Returns the labels or annotations of an object, and adds an empty map if they are missing.
fn metadata_map<'a>(map: &'a mut Object, name: &str) -> Option<&'a mut Object> {
    let metadata = object(map, "metadata")?;
    metadata.entry(name.to_owned()).or_insert_with(|| json!({})).as_object_mut()
}
