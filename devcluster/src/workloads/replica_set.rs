//! ReplicaSets: creates or deletes Pods until their number is right, and counts them in the status.

pub(super) mod victims;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::Decision;
use super::claim::claim;
use super::client::Request;
use super::object::{
    Object as _, controller_reference, differ, has_ended, is_active, is_subset, seconds, selects,
};
use super::resources;

/// Most Pods that one reconciliation creates or deletes, as in kube-controller-manager.
const BURST: usize = 500;

/// Returns the requests of a ReplicaSet; `pods` are the Pods of its namespace. `failure` is the error message
/// of a create or delete in this reconciliation; with it only the status is written.
pub(super) fn decide<'a>(
    set: &Value,
    pods: impl IntoIterator<Item = &'a Arc<Value>>,
    failure: Option<&str>,
    now: Timestamp,
) -> Decision {
    let (living, terminating): (Vec<_>, Vec<_>) =
        pods.into_iter().filter(|pod| !has_ended(pod)).partition(|pod| is_active(pod));
    let claim = claim(set, "ReplicaSet", &resources::pods(), living);
    if !claim.requests.is_empty() {
        return claim.requests.into();
    }
    let mut active = claim.owned;
    let wanted = usize::try_from(set.count("/spec/replicas")).unwrap_or_default();
    let terminating = terminating
        .iter()
        .filter(|pod| pod.is_controlled_by(set.uid()))
        .filter(|pod| selects(set.at("/spec/selector"), pod.at("/metadata/labels")))
        .count();
    let status = status(set, &active, terminating, wanted, failure, now);

    let mut requests = Vec::new();
    if !set.is_deleting() && failure.is_none() {
        let missing = wanted.saturating_sub(active.len()).min(BURST);
        requests.extend((0..missing).map(|_| Request::create(&resources::pods(), pod(set))));
        let surplus = active.len().saturating_sub(wanted).min(BURST);
        if surplus > 0 && surplus < active.len() {
            active.sort_by(|a, b| victims::compare(a, b, now));
        }
        let victims = active.iter().take(surplus);
        requests.extend(victims.map(|pod| Request::delete(&resources::pods(), pod, json!({}))));
    }
    let again_at = next_available(set, &active, now);
    if differ(&set["status"], &status) {
        let mut set = set.clone();
        set["status"] = status;
        requests.push(Request::update_status(&resources::replica_sets(), set));
    }
    Decision { requests, again_at }
}

/// Whether a Pod has been ready for at least `seconds`.
fn is_available(pod: &Value, seconds: i64, now: Timestamp) -> bool {
    available_at(pod, seconds).is_some_and(|at| at <= now)
}

/// Returns when a ready Pod becomes available; `None` if it is not ready.
fn available_at(pod: &Value, seconds: i64) -> Option<Timestamp> {
    let ready = pod.condition("Ready").filter(|ready| ready["status"] == "True")?;
    if seconds == 0 {
        return Some(Timestamp::MIN);
    }
    ready.time("/lastTransitionTime")?.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Returns the next time at which one of the Pods becomes available; `None` if there is none.
fn next_available(set: &Value, active: &[&Arc<Value>], now: Timestamp) -> Option<Timestamp> {
    let seconds = set.count("/spec/minReadySeconds");
    active.iter().filter_map(|pod| available_at(pod, seconds)).filter(|at| *at > now).min()
}

fn status(
    set: &Value,
    active: &[&Arc<Value>],
    terminating: usize,
    wanted: usize,
    failure: Option<&str>,
    now: Timestamp,
) -> Value {
    let count = |counts: &dyn Fn(&Value) -> bool| active.iter().filter(|pod| counts(pod)).count();
    let labels = set.at("/spec/template/metadata/labels");
    let min_ready = set.count("/spec/minReadySeconds");
    let mut status = Map::new();
    status.insert("replicas".to_owned(), active.len().into());
    let counts = [
        ("fullyLabeledReplicas", count(&|pod| is_subset(labels, pod.at("/metadata/labels")))),
        ("readyReplicas", count(&|pod| pod.has_condition("Ready"))),
        ("availableReplicas", count(&|pod| is_available(pod, min_ready, now))),
    ];
    for (field, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        status.insert(field.to_owned(), count.into());
    }
    status.insert("terminatingReplicas".to_owned(), terminating.into());
    status.insert("observedGeneration".to_owned(), set.at("/metadata/generation").clone());

    let mut conditions = set.list("/status/conditions").to_vec();
    match failure {
        Some(_) if conditions.iter().any(|condition| condition["type"] == "ReplicaFailure") => {}
        Some(message) => conditions.push(json!({
            "type": "ReplicaFailure",
            "status": "True",
            "lastTransitionTime": seconds(now),
            "reason": if active.len() < wanted { "FailedCreate" } else { "FailedDelete" },
            "message": message,
        })),
        None => conditions.retain(|condition| condition["type"] != "ReplicaFailure"),
    }
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), conditions.into());
    }
    Value::Object(status)
}

/// Returns a new Pod of a ReplicaSet.
fn pod(set: &Value) -> Value {
    let template = set.at("/spec/template");
    let mut metadata = Map::new();
    metadata.insert("generateName".to_owned(), format!("{}-", set.name()).into());
    metadata.insert("namespace".to_owned(), set.namespace().into());
    for field in ["labels", "annotations", "finalizers"] {
        let value = &template["metadata"][field];
        if !value.is_null() {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    metadata
        .insert("ownerReferences".to_owned(), json!([controller_reference(set, "apps/v1", "ReplicaSet")]));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

#[cfg(test)]
mod tests;
