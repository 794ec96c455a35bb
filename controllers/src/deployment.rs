//! The Deployment of a WaitDeployment: what it should be, and what of the live one matters.
//!
//! Written by server-side apply as JSON. Defaults filled in by the API server need no diffing then, fields dropped
//! from the spec disappear, and what others wrote survives, such as the annotation of `kubectl rollout restart`.
//!
//! # Invariants
//! 1. `spec` is passed on verbatim; `replicas` is written only where the WaitDeployment sets it.
//! 2. No label or annotation by which a tool tracks what it applied is passed on: tools prune what carries their
//!    mark and is not in their source.
//! 3. Equal [`Fingerprint`]s mean that one more apply would change nothing that is ours.

pub mod ownership;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference, Time};
use kube::Resource;
use mainstay_api::WaitDeployment;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Who owns the Deployment's fields, and those of the status that the gate writes.
pub const FIELD_MANAGER: &str = "waitdeployment-gate";
/// Who owns the conditions of a WaitDeployment that is too large to be decoded: its status is not known then, so that all
/// else in it stays the gate's, which takes these back with its next report.
pub const FIELD_MANAGER_OF_SIZES: &str = "waitdeployment-size";
/// On the Deployment: the generation of the WaitDeployment that it was last written for. Writing it does not raise
/// the Deployment's own generation.
pub const GENERATION_ANNOTATION: &str = "apps.mainstay.dev/generation";
/// On the Deployment: stands for the template that was last let through, so that a new one is known as such.
pub const TEMPLATE_ANNOTATION: &str = "apps.mainstay.dev/template";

/// Which share of `cache.maxObjectBytes` is decoded of a WaitDeployment or Deployment. Templates are carried as JSON values,
/// which take up to 100 times the memory of their text, twice or three times in each worker at once; the memory limit in
/// `deploy/base` is for this share of the size that it sets.
pub(crate) const DECODED_SHARE: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// Keys that are never passed on, exactly.
const TRACKING_KEYS: [&str; 5] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    // The tracking label of Argo CD before 2.2, and where it was configured so since.
    "app.kubernetes.io/instance",
    // Helm refuses to touch what does not carry its value, and takes over what does.
    "app.kubernetes.io/managed-by",
    "meta.helm.sh/release-name",
    "meta.helm.sh/release-namespace",
];

/// Domains whose keys are never passed on: tracking marks, hooks, and what controllers write for themselves.
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

/// What the controllers read of a live Deployment; everything else in it stays undecoded.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct LiveDeployment {
    /// Identity, generation, marks.
    pub metadata: LiveMeta,
    /// The few fields of the spec that the gate judges by.
    #[serde(default)]
    pub spec: LiveSpec,
    /// The whole status as JSON, so that a field newer than this version is at hand.
    #[serde(default)]
    pub status: Map<String, Value>,
}

/// The part of the metadata that matters here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LiveMeta {
    /// Name of the Deployment.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// Its generation, counted by its own spec.
    pub generation: i64,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// All owners.
    pub owner_references: Vec<OwnerReference>,
    /// Set once it is being deleted.
    pub deletion_timestamp: Option<Time>,
}

/// The part of the spec that matters here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LiveSpec {
    /// Desired Pods; the API server always fills it in.
    pub replicas: Option<i64>,
    /// Whether the rollout is paused.
    pub paused: bool,
    /// Which Pods are its own.
    pub selector: LabelSelector,
}

/// The one part of a live Deployment that is large, decoded only where it is needed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct LiveTemplate {
    /// The spec, but for all else.
    #[serde(default)]
    pub spec: TemplateSpec,
}

/// See [`LiveTemplate`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TemplateSpec {
    /// The Pods to create, defaults filled in.
    pub template: Value,
}

/// Stands for a desired Deployment and the live state it was last seen written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    desired: u64,
    live: u64,
}

/// Returns the Deployment to apply. It gets none of the labels and annotations with one of the keys in `not_passed_on`,
/// where `DOMAIN/*` is every key of that domain.
pub fn desired(object: &WaitDeployment, not_passed_on: &[String]) -> Value {
    let meta = &object.metadata;
    let passed_on = |marks| passed_on(marks, not_passed_on);
    let mut annotations = passed_on(meta.annotations.as_ref());
    annotations.insert(GENERATION_ANNOTATION.to_owned(), object.generation().to_string().into());
    annotations.insert(TEMPLATE_ANNOTATION.to_owned(), template_mark(object).into());
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
    let labels = passed_on(meta.labels.as_ref());
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

/// Returns `desired` with the template that runs in place of a new one, which is not let through yet: all else is up to
/// date, and the marks say so. `template` is that of `live`.
pub fn with_template_held(desired: &Value, live: &LiveDeployment, template: &Value) -> Value {
    let mut held = desired.clone();
    held["spec"]["template"] = template_only(template);
    keep_marks(&mut held, Some(live), &[GENERATION_ANNOTATION, TEMPLATE_ANNOTATION]);
    held
}

/// Returns a live template without the creation time that some servers write into it, always null.
pub fn template_only(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
    }
    template
}

/// Returns `desired` without replicas, which are not let through yet: all else is up to date, and the mark says so.
pub fn with_replicas_held(desired: &Value, live: Option<&LiveDeployment>) -> Value {
    let mut held = with_no_replicas(desired);
    keep_marks(&mut held, live, &[GENERATION_ANNOTATION]);
    held
}

/// Returns `desired` with 0 replicas, whatever it asks for.
pub fn with_no_replicas(desired: &Value) -> Value {
    let mut none = desired.clone();
    none["spec"]["replicas"] = 0.into();
    none
}

/// Returns what stands for the object's template, in sixteen hexadecimal digits: equal for equal templates, in every
/// version of this program (FNV-1a, 64 bits, of the JSON with sorted keys).
pub fn template_mark(object: &WaitDeployment) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    // Text at once: one more tree of values would take up to 128 times as much memory.
    let json = serde_json::to_string(&object.spec.template).unwrap_or_default();
    for byte in json.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// A Deployment to apply with a precondition. The spec, which may be large, is not copied.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Guarded<'a> {
    api_version: &'a Value,
    kind: &'a Value,
    metadata: Value,
    spec: &'a Value,
}

/// Returns `desired` with a precondition: create only, if the cache shows no Deployment, else change only the one it
/// shows.
///
/// On create, the server ignores a resourceVersion; on an object that exists after all, one that no object ever
/// had is a 409. A uid is a 409 where no object of that name exists, and a 422 about `metadata.uid` for another.
pub fn guarded<'a>(desired: &'a Value, live: Option<&LiveDeployment>) -> Guarded<'a> {
    let mut metadata = desired["metadata"].clone();
    match live {
        Some(live) => metadata["uid"] = live.metadata.uid.clone().into(),
        None => metadata["resourceVersion"] = "1".into(),
    }
    Guarded { api_version: &desired["apiVersion"], kind: &desired["kind"], metadata, spec: &desired["spec"] }
}

/// Returns `desired` with a precondition: change only this very version.
pub fn guarded_version<'a>(desired: &'a Value, live: &LiveDeployment, version: &str) -> Guarded<'a> {
    let mut guarded = guarded(desired, Some(live));
    guarded.metadata["resourceVersion"] = version.into();
    guarded
}

// === impl LiveDeployment ===

impl LiveDeployment {
    /// Returns whether `object` is the controller of this Deployment: by uid, since a name may have been used before.
    pub fn is_controlled_by(&self, object: &WaitDeployment) -> bool {
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        !uid.is_empty() && self.controller().is_some_and(|owner| owner.uid == uid)
    }

    /// Returns the owner that controls this Deployment.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.metadata.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    /// Returns whether it is on its way out.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns the generation of the WaitDeployment it was last written for.
    pub fn written_for(&self) -> Option<i64> {
        self.metadata.annotations.get(GENERATION_ANNOTATION)?.parse().ok()
    }

    /// Returns what stands for the template it was last written with; see [`template_mark`].
    pub fn template_mark(&self) -> Option<&str> {
        self.metadata.annotations.get(TEMPLATE_ANNOTATION).map(String::as_str)
    }

    /// Returns whether the Deployment controller has seen the current spec.
    pub fn is_observed(&self) -> bool {
        self.count("observedGeneration") >= self.metadata.generation
    }

    /// Returns an integer of the status; 0 where it is absent, as Deployments leave zeros out.
    pub fn count(&self, field: &str) -> i64 {
        self.status.get(field).and_then(Value::as_i64).unwrap_or_default()
    }

    /// Returns the condition of the given type.
    pub fn condition(&self, type_: &str) -> Option<&Map<String, Value>> {
        let conditions = self.status.get("conditions")?.as_array()?;
        conditions.iter().filter_map(Value::as_object).find(|condition| text(condition, "type") == type_)
    }
}

/// Returns a string of a JSON object; empty where it is absent or something else.
pub(crate) fn text<'a>(object: &'a Map<String, Value>, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

// === impl Fingerprint ===

impl Fingerprint {
    /// Takes the fingerprint of `desired` (from [`desired`]) and the live Deployment it meets or has become.
    pub fn of(desired: &Value, live: Option<&LiveDeployment>) -> Self {
        Self { desired: hash_of(desired), live: live.map_or(0, |live| hash_of(&ours(desired, live))) }
    }
}

// === private ===

/// What is held back has not been written: these marks stay those of what was.
fn keep_marks(held: &mut Value, live: Option<&LiveDeployment>, marks: &[&str]) {
    let Some(annotations) = held["metadata"]["annotations"].as_object_mut() else { return };
    for mark in marks {
        match live.and_then(|live| live.metadata.annotations.get(*mark)) {
            Some(value) => annotations.insert((*mark).to_owned(), value.clone().into()),
            None => annotations.remove(*mark),
        };
    }
}

/// Returns the labels or annotations that may be passed on.
fn passed_on(marks: Option<&BTreeMap<String, String>>, except: &[String]) -> Map<String, Value> {
    let all = marks.into_iter().flatten();
    let passed = all.filter(|(key, _)| !is_tracking(key) && !except.iter().any(|one| stands_for(one, key)));
    passed.map(|(key, value)| (key.clone(), value.clone().into())).collect()
}

/// `DOMAIN/*` stands for every key of the domain, anything else for itself.
fn stands_for(written: &str, key: &str) -> bool {
    written.strip_suffix('*').map_or(written == key, |domain| key.starts_with(domain))
}

fn is_tracking(key: &str) -> bool {
    let domain = key.split_once('/').map(|(domain, _)| domain);
    TRACKING_KEYS.contains(&key) || domain.is_some_and(|domain| TRACKING_DOMAINS.contains(&domain))
}

/// What could tell that a field of ours was changed by others: any change of the spec raises the generation, and
/// of the metadata the keys we write are compared. What others added is none of our business.
fn ours(desired: &Value, live: &LiveDeployment) -> Value {
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

/// Stable within one process, which is as long as a fingerprint lives.
fn hash_of(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}
