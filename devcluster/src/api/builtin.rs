//! Rules of built-in kinds for writes: defaults, validation and server-set fields.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object;
use super::services::{self, Reservation};
use super::{Api, Status, definitions};
use crate::kinds::builtin::{autoscaling, defaults, typed, validation};
use crate::kinds::custom::definition;
use crate::kinds::names::NameRule;
use crate::kinds::{FieldError, Kind, Path, metadata};

/// Converts an object to the form of its Go type and sets defaults. Returns the paths of unknown fields.
pub(super) fn admit(kind: &Kind, value: &mut Value) -> Result<Vec<String>, String> {
    let Some(of) = typed::type_of(kind) else { return Ok(Vec::new()) };
    // A patch that empties the list of managers removes them all.
    let emptied = object::meta_value(value, "managedFields") == Some(&json!([]));
    let converted = typed::convert(of, std::mem::take(value)).map_err(|error| error.0)?;
    *value = converted.value;
    if emptied {
        object::set_meta(value, "managedFields", json!([]));
    }
    defaults::apply(kind, value);
    if of.is_older_autoscaler() {
        // As in the real server: its internal form has the fields of the newer version.
        autoscaling::to_v2(value);
        autoscaling::to_v1(value);
    }
    Ok(converted.unknown)
}

/// Returns an empty object of a kind, with the fields that the Go encoder always writes.
pub(super) fn empty(kind: &Kind) -> Value {
    let converted = typed::type_of(kind).and_then(|of| typed::convert(of, json!({})).ok());
    converted.map_or_else(|| json!({}), |converted| converted.value)
}

/// Validates a new object. Definitions have their own rules.
pub(super) fn check_create(kind: &Kind, value: &Value) -> Vec<FieldError> {
    if is_definition(kind) {
        return definition::check_create(value);
    }
    let mut errors = Vec::new();
    let meta = value.get("metadata").unwrap_or(&Value::Null);
    metadata::check(meta, kind.namespaced, name_rule(kind), &Path::Root("metadata"), &mut errors);
    errors.extend(metadata::unqualified_finalizers(meta));
    errors.extend(validation::check(kind, value));
    errors
}

/// Validates a changed object against the old one. `subresource` is empty for the object itself.
pub(super) fn check_update(kind: &Kind, value: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
    if is_definition(kind) && subresource.is_empty() {
        return definition::check_update(value, old);
    }
    let mut errors = Vec::new();
    let meta = |value| Value::get(value, "metadata").unwrap_or(&Value::Null);
    metadata::check_update(meta(value), meta(old), &Path::Root("metadata"), &mut errors);
    match subresource {
        "" => errors.extend(validation::check_update(kind, value, old)),
        "status" => errors.extend(validation::check_status(kind, value, old)),
        _ => {}
    }
    errors
}

/// Returns the warnings about an object; `old` is `None` for a creation.
pub(super) fn warnings(kind: &Kind, value: &Value, old: Option<&Value>) -> Vec<String> {
    if is_definition(kind) {
        return definition::warnings(value, old);
    }
    validation::warnings(kind, value, old)
}

/// Returns the rule for object names of a kind.
fn name_rule(kind: &Kind) -> NameRule {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace" | "Service") => NameRule::Label,
        ("networking.k8s.io", "IPAddress") => NameRule::Address,
        ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
        _ => NameRule::Subdomain,
    }
}

// === impl Api ===

impl Api {
    /// Sets the fields that the server controls in a new object.
    pub(super) fn prepare_create(&self, kind: &Kind, value: &mut Value) -> Result<Reservation, Status> {
        match (kind.group.as_str(), kind.kind.as_str()) {
            ("", "Namespace") => {
                let name = object::meta(value, "name").to_owned();
                if let Some(metadata) = object::metadata(value) {
                    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
                    if let Some(labels) = labels.as_object_mut() {
                        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
                    }
                }
                set_missing(value, "spec", json!({}));
                if let Some(finalizers) = value.get_mut("spec").and_then(Value::as_object_mut) {
                    finalizers.insert("finalizers".to_owned(), json!(["kubernetes"]));
                }
                set(value, "status", json!({"phase": "Active"}));
            }
            ("", "Pod") => {
                let class = quality(value);
                set(value, "status", json!({"phase": "Pending", "qosClass": class}));
            }
            ("batch", "Job") => select_pods_of_job(value),
            ("", "Service") => return services::prepare(self, kind, value, None),
            ("", "PersistentVolumeClaim") => {
                set(value, "status", json!({"phase": "Pending"}));
                protect(value, "kubernetes.io/pvc-protection");
            }
            ("", "PersistentVolume") => {
                set(value, "status", json!({"phase": "Pending"}));
                protect(value, "kubernetes.io/pv-protection");
            }
            ("storage.k8s.io", "VolumeAttributesClass") => protect(value, "kubernetes.io/vac-protection"),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => definition::prepare_create(value),
            ("apps", "DaemonSet") => set_template_generation(value, 1),
            _ => {}
        }
        Ok(Reservation::default())
    }

    /// Completes a changed object before its validation.
    pub(super) fn prepare_change(
        &self,
        kind: &Kind,
        value: &mut Value,
        old: &Value,
        subresource: &str,
    ) -> Result<Reservation, Status> {
        match (kind.group.as_str(), kind.kind.as_str(), subresource) {
            ("", "Service", "") => services::prepare(self, kind, value, Some(old)),
            _ => Ok(Reservation::default()),
        }
    }
}

/// Adds the fields of a bookmark's object that the server's internal form always has.
pub(super) fn complete_bookmark(kind: &Kind, value: &mut Value) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps", "DaemonSet") => set_template_generation(value, 0),
        ("apps", _) => {
            if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("replicas".to_owned(), json!(0));
            }
        }
        _ => {}
    }
}

/// The annotation with the number of changes of a `DaemonSet`'s template.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(value: &Value) -> i64 {
    let number = object::meta_value(value, "annotations").and_then(|all| all.get(TEMPLATE_GENERATION));
    number.and_then(|number| number.as_str()?.parse().ok()).unwrap_or(0)
}

/// Sets the annotation, if it is less than `least`.
fn set_template_generation(value: &mut Value, least: i64) {
    let number = template_generation(value).max(least);
    let annotations = object::metadata(value).map(|metadata| metadata.entry("annotations"));
    if let Some(Value::Object(annotations)) = annotations.map(|all| all.or_insert_with(|| json!({}))) {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), number.to_string().into());
    }
}

/// Restores the fields that an update of this endpoint must not change.
pub(super) fn prepare_update(kind: &Kind, value: &mut Value, old: &Value, subresource: &str) {
    match (kind.group.as_str(), kind.kind.as_str(), subresource) {
        ("", "Namespace", "finalize") => object::copy_field(old, value, "status"),
        ("", "Namespace", _) => {
            let finalizers = old.pointer("/spec/finalizers").cloned();
            set_missing(value, "spec", json!({}));
            if let (Some(spec), Some(finalizers)) =
                (value.get_mut("spec").and_then(Value::as_object_mut), finalizers)
            {
                spec.insert("finalizers".to_owned(), finalizers);
            }
        }
        ("apps", "DaemonSet", "") => {
            let changed = value.pointer("/spec/template") != old.pointer("/spec/template");
            let annotations = object::metadata(value).and_then(|metadata| metadata.get_mut("annotations"));
            annotations.and_then(|all| all.as_object_mut()?.remove(TEMPLATE_GENERATION));
            set_template_generation(value, template_generation(old) + i64::from(changed));
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition", "") => definition::prepare_update(value, old),
        ("storage.k8s.io", "CSIDriver", "") => {
            // The other fields of a driver are not part of its generation.
            let fields =
                ["tokenRequests", "requiresRepublish", "seLinuxMount", "serviceAccountTokenInSecrets"];
            if fields.iter().any(|field| value["spec"][field] != old["spec"][field]) {
                object::set_meta(value, "generation", object::generation(old) + 1);
            }
        }
        ("autoscaling", _, "" | "status") if kind.version == "v1" => {
            autoscaling::keep_annotations(value, old, subresource == "status");
        }
        _ => {}
    }
}

/// Starts the deletion of a Namespace or definition, which stays until its content is deleted. Returns
/// whether this call started the deletion; false for all other kinds.
pub(super) fn start_deletion(kind: &Kind, value: &mut Value, now: Timestamp) -> bool {
    if object::is_terminating(value) {
        return false;
    }
    if kind.group.is_empty() && kind.kind == "Namespace" {
        set_missing(value, "status", json!({}));
        if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
            status.insert("phase".to_owned(), "Terminating".into());
        }
    } else if is_definition(kind) {
        definitions::start_deletion(value, now);
    } else {
        return false;
    }
    object::set_meta(value, "deletionTimestamp", object::time(now));
    true
}

/// Returns whether an object is a Namespace with finalizers in its spec, which stays until they are removed.
pub(super) fn waits_for_content(kind: &Kind, value: &Value) -> bool {
    let finalizers = || value.pointer("/spec/finalizers").and_then(Value::as_array);
    kind.group.is_empty() && kind.kind == "Namespace" && finalizers().is_some_and(|list| !list.is_empty())
}

/// Returns whether a kind is CustomResourceDefinition.
pub(super) fn is_definition(kind: &Kind) -> bool {
    kind.group == "apiextensions.k8s.io" && kind.kind == "CustomResourceDefinition"
}

/// Makes a new Job select its Pods by its uid, unless it has a selector of its own. Labels that a client has
/// set stay; validation refuses wrong ones.
fn select_pods_of_job(job: &mut Value) {
    const BY_UID: &str = "batch.kubernetes.io/controller-uid";
    let (name, uid) = (object::meta(job, "name").to_owned(), object::meta(job, "uid").to_owned());
    let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let selector = spec.entry("selector").or_insert_with(|| json!({}));
    if selector["matchLabels"].get(BY_UID).is_none() {
        selector["matchLabels"][BY_UID] = uid.as_str().into();
    }
    let Some(template) = spec.get_mut("template") else { return };
    let Some(labels) = object::metadata(template).map(|metadata| metadata.entry("labels")) else { return };
    let Some(labels) = labels.or_insert_with(|| json!({})).as_object_mut() else { return };
    for (label, value) in [
        (BY_UID, &uid),
        ("controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("job-name", &name),
    ] {
        labels.entry(label).or_insert_with(|| value.as_str().into());
    }
    let labels = labels.clone();
    if let Some(metadata) = object::metadata(job) {
        metadata.entry("labels").or_insert(Value::Object(labels));
    }
}

/// Adds the finalizer of objects in use.
fn protect(value: &mut Value, finalizer: &str) {
    let mut finalizers: Vec<_> = object::finalizers(value).map(str::to_owned).collect();
    if !finalizers.iter().any(|present| present == finalizer) {
        finalizers.push(finalizer.to_owned());
    }
    object::set_finalizers(value, &finalizers);
}

fn set(value: &mut Value, field: &str, content: Value) {
    if let Some(value) = value.as_object_mut() {
        value.insert(field.to_owned(), content);
    }
}

fn set_missing(value: &mut Value, field: &str, content: Value) {
    if value.get(field).is_none_or(Value::is_null) {
        set(value, field, content);
    }
}

/// Returns the quality of service class of a Pod. `Guaranteed`: every container limits CPU and memory, and
/// its requests are missing or equal. `BestEffort`: no container has requests or limits.
fn quality(pod: &Value) -> &'static str {
    const RESOURCES: [&str; 2] = ["cpu", "memory"];
    let all = ["/spec/initContainers", "/spec/containers"];
    let containers: Vec<&Value> =
        all.into_iter().filter_map(|path| pod.pointer(path)?.as_array()).flatten().collect();
    let amount = |container: &&Value, of: &str, what: &str| {
        container.pointer(&format!("/resources/{of}/{what}")).map(ToString::to_string)
    };
    let none = containers.iter().all(|container| {
        RESOURCES
            .iter()
            .all(|what| amount(container, "requests", what).or(amount(container, "limits", what)).is_none())
    });
    let equal = containers.iter().all(|container| {
        RESOURCES.iter().all(|what| {
            let limit = amount(container, "limits", what);
            limit.is_some()
                && amount(container, "requests", what).is_none_or(|request| Some(request) == limit)
        })
    });
    match (none, equal) {
        (true, _) => "BestEffort",
        (_, true) => "Guaranteed",
        _ => "Burstable",
    }
}
