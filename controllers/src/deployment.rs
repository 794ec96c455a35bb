//! The Deployment of a WaitDeployment: the desired one, and the decoded part of the live one.
//!
//! The Deployment is written as JSON by server-side apply. Defaults filled in by the API server need no diff
//! then, fields removed from the spec disappear, and fields of other writers stay, such as the annotation of
//! `kubectl rollout restart`.
//!
//! # Invariants
//! 1. `spec` is copied unchanged; `replicas` is written only if the WaitDeployment sets it.
//! 2. No label or annotation by which a tool tracks its objects is copied: such a tool deletes objects that
//!    carry its label and are not in its source.
//! 3. Equal [`Fingerprint`]s mean that one more apply would change no field of the gate.

pub mod managed_fields;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::num::NonZeroUsize;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference, Time};
use kube::Resource;
use mainstay_api::WaitDeployment;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Field manager for server-side apply of the Deployment, and of the gate's part of the WaitDeployment's
/// status.
pub const FIELD_MANAGER: &str = "waitdeployment-gate";
/// Field manager of the conditions of a WaitDeployment that is too large to be decoded. The gate keeps all
/// other fields of the status, which are unknown then, and takes these conditions over with its next report.
pub const SIZE_FIELD_MANAGER: &str = "waitdeployment-size";
/// Annotation of the Deployment: the generation of the WaitDeployment that it was last written for. A change
/// of it does not raise the Deployment's own generation.
pub const GENERATION_ANNOTATION: &str = "apps.mainstay.dev/generation";
/// Annotation of the Deployment: the [`template_hash`] of the last template that the gate did not hold back.
pub const TEMPLATE_ANNOTATION: &str = "apps.mainstay.dev/template";

/// Divisor of `cache.maxObjectBytes`: a WaitDeployment or Deployment longer than the quotient is not decoded.
/// Templates are kept as JSON values, which take up to 100 times the memory of their text, two or three times
/// at once in each worker; the memory limit in `deploy/base` is computed for this share of its
/// `cache.maxObjectBytes`.
pub(crate) const DECODED_SHARE: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// Keys of labels and annotations that are never copied to the Deployment, because tools track their objects
/// by them.
const TRACKING_KEYS: [&str; 5] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    // The tracking label of Argo CD before 2.2, and later if configured so.
    "app.kubernetes.io/instance",
    // Helm adopts objects that carry its value here, and refuses to change others.
    "app.kubernetes.io/managed-by",
    "meta.helm.sh/release-name",
    "meta.helm.sh/release-namespace",
];

/// Domains of label and annotation keys that are never copied to the Deployment: keys for tracking, for
/// hooks, and for the use of controllers.
const TRACKING_DOMAINS: [&str; 8] = [
    "argocd.argoproj.io",
    "kustomize.toolkit.fluxcd.io",
    "helm.toolkit.fluxcd.io",
    "reconcile.fluxcd.io",
    "helm.sh",
    "deployment.kubernetes.io",
    "mainstay.dev",
    "apps.mainstay.dev",
];

/// The part of a live Deployment that the controllers read; the rest is not decoded.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct LiveDeployment {
    /// Identity, generation, labels, annotations and owners of the Deployment.
    pub metadata: LiveMeta,
    /// The few fields of the Deployment's spec that the gate needs.
    #[serde(default)]
    pub spec: LiveSpec,
    /// The whole status of the Deployment as JSON, so that no value in it can fail to decode.
    #[serde(default)]
    pub status: Map<String, Value>,
}

/// The decoded part of a Deployment's metadata.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LiveMeta {
    /// Name of the Deployment.
    pub name: String,
    /// Uid of the Deployment.
    pub uid: String,
    /// resourceVersion of the Deployment.
    pub resource_version: String,
    /// Generation of the Deployment, which every change of its spec raises.
    pub generation: i64,
    /// All labels of the Deployment.
    pub labels: BTreeMap<String, String>,
    /// All annotations of the Deployment.
    pub annotations: BTreeMap<String, String>,
    /// All owner references of the Deployment.
    pub owner_references: Vec<OwnerReference>,
    /// Time at which the deletion of the Deployment was requested; `None` while it is not being deleted.
    pub deletion_timestamp: Option<Time>,
}

/// The decoded part of a Deployment's spec.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LiveSpec {
    /// Desired number of Pods of the Deployment; the API server always fills it in.
    pub replicas: Option<i64>,
    /// Whether the rollout of the Deployment is paused.
    pub paused: bool,
    /// Selector of the Pods of the Deployment.
    pub selector: LabelSelector,
}

/// A live Deployment of which only the Pod template is decoded. It is large, so it is decoded only where
/// needed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct LiveTemplate {
    /// The spec of the Deployment, of which only the Pod template is decoded.
    #[serde(default)]
    pub spec: TemplateSpec,
}

/// The part of a Deployment's spec that is decoded in a [`LiveTemplate`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TemplateSpec {
    /// The Pod template of the live Deployment with all defaults.
    pub template: Value,
}

/// Hashes of a desired Deployment and of the live Deployment that it was compared with, to find out whether
/// an apply would change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    desired: u64,
    live: u64,
}

/// Returns the Deployment to apply for a WaitDeployment, as JSON. Labels and annotations of the
/// WaitDeployment are copied, except for keys in `not_passed_on`, where `DOMAIN/*` means every key of that
/// domain.
pub fn desired(object: &WaitDeployment, not_passed_on: &[String]) -> Value {
    let meta = &object.metadata;
    let mut annotations = passed_on(meta.annotations.as_ref(), not_passed_on);
    annotations.insert(GENERATION_ANNOTATION.to_owned(), object.generation().to_string().into());
    annotations.insert(TEMPLATE_ANNOTATION.to_owned(), template_hash(object).into());
    let mut metadata = json!({
        "name": meta.name,
        "namespace": meta.namespace,
        "annotations": annotations,
        "ownerReferences": [{
            "apiVersion": WaitDeployment::api_version(&()),
            "kind": WaitDeployment::kind(&()),
            "name": meta.name,
            "uid": meta.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    });
    let labels = passed_on(meta.labels.as_ref(), not_passed_on);
    if !labels.is_empty() {
        metadata["labels"] = labels.into();
    }
    let mut spec = json!(object.spec);
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("waitFor");
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": spec,
    })
}

/// Returns the Deployment `desired` with the live `template` in place of a new one that is held back. All
/// other fields are up to date; the annotations for generation and template stay those of `live`.
pub fn with_template_held(mut desired: Value, live: &LiveDeployment, template: &Value) -> Value {
    desired["spec"]["template"] = template_only(template);
    keep_annotations(&mut desired, Some(live), &[GENERATION_ANNOTATION, TEMPLATE_ANNOTATION]);
    desired
}

/// Returns the Pod template of a live Deployment without `creationTimestamp: null`, which some API servers
/// write into it.
pub fn template_only(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
    }
    template
}

/// Returns the Deployment `desired` with 0 replicas while more are held back. All other fields are up to
/// date; the annotation for the generation stays that of `live`.
pub fn with_replicas_held(desired: Value, live: Option<&LiveDeployment>) -> Value {
    let mut held = with_no_replicas(desired);
    keep_annotations(&mut held, live, &[GENERATION_ANNOTATION]);
    held
}

/// Returns the Deployment `desired` with 0 replicas.
pub fn with_no_replicas(mut desired: Value) -> Value {
    desired["spec"]["replicas"] = 0.into();
    desired
}

/// Returns a hash of the WaitDeployment's Pod template as sixteen hexadecimal digits. Every version of
/// mainstay computes the same hash: FNV-1a with 64 bits, of the JSON with sorted keys.
pub fn template_hash(object: &WaitDeployment) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    // Directly to text: a tree of JSON values would take up to 128 times the memory.
    let json = serde_json::to_string(&object.spec.template).unwrap_or_default();
    for byte in json.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// A Deployment to apply, with a precondition in its metadata. The spec is borrowed, because it may be large.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Guarded<'a> {
    api_version: &'a Value,
    kind: &'a Value,
    metadata: Value,
    spec: &'a Value,
}

/// Returns the Deployment `desired` with a precondition: only create if the cache shows no Deployment,
/// otherwise only change the Deployment `live`, and that only while its resourceVersion is `version`, if
/// there is one.
///
/// A create ignores the resourceVersion; if the object exists after all, the invalid resourceVersion 1 gives
/// a 409. A uid gives a 409 if no object of the name exists, and a 422 about `metadata.uid` if its uid is
/// another one.
pub fn guarded<'a>(
    desired: &'a Value,
    live: Option<&LiveDeployment>,
    version: Option<String>,
) -> Guarded<'a> {
    let mut metadata = desired["metadata"].clone();
    match live {
        Some(live) => metadata["uid"] = live.metadata.uid.clone().into(),
        None => metadata["resourceVersion"] = "1".into(),
    }
    if let Some(version) = version {
        metadata["resourceVersion"] = version.into();
    }
    Guarded { api_version: &desired["apiVersion"], kind: &desired["kind"], metadata, spec: &desired["spec"] }
}

// === impl LiveDeployment ===

impl LiveDeployment {
    /// Returns whether the WaitDeployment `object` controls this Deployment, by uid: an earlier object may
    /// have had the same name.
    pub fn is_controlled_by(&self, object: &WaitDeployment) -> bool {
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        !uid.is_empty() && self.controller().is_some_and(|owner| owner.uid == uid)
    }

    /// Returns the owner that controls this Deployment; `None` if it has no controller.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.metadata.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    /// Returns whether the Deployment is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns the generation of the WaitDeployment that this Deployment was last written for; `None` without
    /// the annotation.
    pub fn written_for(&self) -> Option<i64> {
        self.metadata.annotations.get(GENERATION_ANNOTATION)?.parse().ok()
    }

    /// Returns the [`template_hash`] of the Pod template that this Deployment was last written with; `None`
    /// without the annotation.
    pub fn template_hash(&self) -> Option<&str> {
        self.metadata.annotations.get(TEMPLATE_ANNOTATION).map(String::as_str)
    }

    /// Returns whether the Deployment controller has observed the current spec of this Deployment.
    pub fn is_observed(&self) -> bool {
        self.count("observedGeneration") >= self.metadata.generation
    }

    /// Returns an integer field of the Deployment's status; 0 if it is absent, because the status of a
    /// Deployment omits zeros.
    pub fn count(&self, field: &str) -> i64 {
        self.status.get(field).and_then(Value::as_i64).unwrap_or_default()
    }

    /// Returns the condition of this type in the Deployment's status, as JSON.
    pub fn condition(&self, type_: &str) -> Option<&Map<String, Value>> {
        let conditions = self.status.get("conditions")?.as_array()?;
        conditions.iter().filter_map(Value::as_object).find(|condition| text(condition, "type") == type_)
    }
}

/// Returns a string field of a JSON object; empty if it is absent or not a string.
pub(crate) fn text<'a>(object: &'a Map<String, Value>, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

// === impl Fingerprint ===

impl Fingerprint {
    /// Hashes the Deployment `desired` (from [`desired`]) and the live Deployment before or after its apply.
    pub fn of(desired: &Value, live: Option<&LiveDeployment>) -> Self {
        Self {
            desired: hash_of(desired),
            live: live.map_or(0, |live| hash_of(&compared_fields(desired, live))),
        }
    }
}

// === private ===

/// Replaces these annotations of the Deployment `held` by those of `live`, because they describe the part of
/// the spec that is not written.
fn keep_annotations(held: &mut Value, live: Option<&LiveDeployment>, keys: &[&str]) {
    let Some(annotations) = held["metadata"]["annotations"].as_object_mut() else { return };
    for key in keys {
        match live.and_then(|live| live.metadata.annotations.get(*key)) {
            Some(value) => annotations.insert((*key).to_owned(), value.clone().into()),
            None => annotations.remove(*key),
        };
    }
}

/// Returns the labels or annotations of a WaitDeployment that are copied to its Deployment.
fn passed_on(all: Option<&BTreeMap<String, String>>, except: &[String]) -> Map<String, Value> {
    let is_excepted = |key: &str| except.iter().any(|pattern| matches(pattern, key));
    let passed = all.into_iter().flatten().filter(|(key, _)| !is_tracking(key) && !is_excepted(key));
    passed.map(|(key, value)| (key.clone(), value.clone().into())).collect()
}

/// Returns whether a pattern matches the key of a label or annotation: `DOMAIN/*` matches every key of the
/// domain, any other pattern only itself.
fn matches(pattern: &str, key: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == key, |domain| key.starts_with(domain))
}

fn is_tracking(key: &str) -> bool {
    let domain = key.split_once('/').map(|(domain, _)| domain);
    TRACKING_KEYS.contains(&key) || domain.is_some_and(|domain| TRACKING_DOMAINS.contains(&domain))
}

/// Returns the fields of a live Deployment that change if another writer changed a field of the gate: the
/// generation, which every change of the spec raises, and the values of the keys in the metadata that the
/// gate writes. Keys added by others are left out.
fn compared_fields(desired: &Value, live: &LiveDeployment) -> Value {
    let written = |field: &str, live: &BTreeMap<String, String>| -> Value {
        let keys = desired["metadata"][field].as_object();
        keys.into_iter().flatten().map(|(key, _)| (key.clone(), json!(live.get(key)))).collect()
    };
    let meta = &live.metadata;
    json!({
        "uid": meta.uid,
        "generation": meta.generation,
        "labels": written("labels", &meta.labels),
        "annotations": written("annotations", &meta.annotations),
        "controller": live.controller(),
        "deleting": live.is_deleting(),
    })
}

/// Returns a hash of a JSON value that is stable only within this process, like all fingerprints.
fn hash_of(value: &Value) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}
