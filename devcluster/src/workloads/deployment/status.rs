//! The status of a Deployment: counts, and the conditions Available, Progressing and `ReplicaFailure`.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::size;
use crate::workloads::object::{Object as _, seconds};

/// `spec.progressDeadlineSeconds` of a Deployment without a deadline.
const NO_DEADLINE: i64 = i32::MAX as i64;

/// Reason of Progressing when the newest ReplicaSet is available: the rollout is over.
const COMPLETE: &str = "NewReplicaSetAvailable";

/// Reason of Progressing after the deadline.
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// A condition to set.
pub(super) struct Condition<'a> {
    pub(super) kind: &'static str,
    pub(super) status: &'static str,
    pub(super) reason: &'a str,
    pub(super) message: String,
}

/// Returns the deadline of progress in seconds.
pub(super) fn deadline(deployment: &Value) -> Option<i64> {
    deployment.int("/spec/progressDeadlineSeconds").filter(|seconds| *seconds != NO_DEADLINE)
}

/// Sets a condition of a status, unless it has this status and reason already.
pub(super) fn set_condition(status: &mut Value, condition: Condition<'_>, now: Timestamp) {
    let Condition { kind, status: value, reason, message } = condition;
    let mut conditions = status.list("/conditions").to_vec();
    let former = conditions.iter().find(|condition| condition["type"] == kind);
    let same = former.filter(|former| former["status"] == value);
    if same.is_some_and(|former| former["reason"] == reason) {
        return;
    }
    let since = same.map_or_else(|| seconds(now), |former| former["lastTransitionTime"].clone());
    conditions.retain(|condition| condition["type"] != kind);
    conditions.push(json!({
        "type": kind,
        "status": value,
        "lastUpdateTime": seconds(now),
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }));
    status["conditions"] = conditions.into();
}

fn remove_condition(status: &mut Value, kind: &str) {
    let mut conditions = status.list("/conditions").to_vec();
    conditions.retain(|condition| condition["type"] != kind);
    if conditions.is_empty() {
        status.as_object_mut().map(|status| status.remove("conditions"));
    } else {
        status["conditions"] = conditions.into();
    }
}

/// Returns the status without an estimate of progress: the counts, and Available.
pub(super) fn counted(deployment: &Value, newest: Option<&Value>, old: &[Value], now: Timestamp) -> Value {
    let sum = |pointer: &str| old.iter().chain(newest).map(|set| set.count(pointer)).sum::<i64>();
    let replicas = deployment.count("/spec/replicas");
    let available = sum("/status/availableReplicas");
    let mut status = Map::new();
    let counts = [
        ("observedGeneration", deployment.count("/metadata/generation")),
        ("replicas", sum("/status/replicas")),
        ("updatedReplicas", newest.map(|set| set.count("/status/replicas")).unwrap_or_default()),
        ("readyReplicas", sum("/status/readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", sum("/spec/replicas") - available),
    ];
    for (field, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        status.insert(field.to_owned(), count.into());
    }
    // A ReplicaSet whose controller has seen it reports the number.
    let reports = |set: &Value| {
        set.int("/status/terminatingReplicas").is_some() || set.count("/status/observedGeneration") == 0
    };
    if old.iter().chain(newest).all(reports) {
        status.insert("terminatingReplicas".to_owned(), sum("/status/terminatingReplicas").into());
    }
    for kept in ["collisionCount", "conditions"] {
        let value = &deployment["status"][kept];
        if !value.is_null() {
            status.insert(kept.to_owned(), value.clone());
        }
    }
    let mut status = Value::Object(status);
    let enough = available >= replicas - size::limits(deployment).unavailable;
    let (value, reason, message) = if enough {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    let message = message.to_owned();
    set_condition(&mut status, Condition { kind: "Available", status: value, reason, message }, now);
    status
}

/// Returns the status during or after a rollout, with Progressing and `ReplicaFailure`.
pub(super) fn of_rollout(deployment: &Value, newest: Option<&Value>, old: &[Value], now: Timestamp) -> Value {
    let mut status = counted(deployment, newest, old, now);
    match deadline(deployment) {
        None => remove_condition(&mut status, "Progressing"),
        Some(deadline) => estimate(deployment, newest, deadline, &mut status, now),
    }
    let failures = newest.into_iter().chain(old).find_map(|set| set.condition("ReplicaFailure"));
    match failures {
        Some(failure) => {
            let since = failure["lastTransitionTime"].clone();
            let mut failure = failure.clone();
            failure["lastUpdateTime"] = since;
            let same = deployment.condition("ReplicaFailure").is_some_and(|former| {
                former["status"] == failure["status"] && former["reason"] == failure["reason"]
            });
            if !same {
                remove_condition(&mut status, "ReplicaFailure");
                let mut conditions = status.list("/conditions").to_vec();
                conditions.push(failure);
                status["conditions"] = conditions.into();
            }
        }
        None => remove_condition(&mut status, "ReplicaFailure"),
    }
    status
}

/// Sets Progressing: complete, moving, or stuck for longer than the deadline.
fn estimate(deployment: &Value, newest: Option<&Value>, deadline: i64, status: &mut Value, now: Timestamp) {
    let former = deployment.condition("Progressing");
    let reason = former.map(|former| former.text("/reason")).unwrap_or_default();
    if status.count("/replicas") == status.count("/updatedReplicas") && reason == COMPLETE {
        return;
    }
    let subject = newest.map_or_else(
        || format!("Deployment {:?}", deployment.name()),
        |newest| format!("ReplicaSet {:?}", newest.name()),
    );
    let kind = "Progressing";
    if is_complete(deployment, status) {
        let message = format!("{subject} has successfully progressed.");
        set_condition(status, Condition { kind, status: "True", reason: COMPLETE, message }, now);
    } else if has_moved(deployment, status) {
        // The same reason again renews the time of the update, which the deadline counts from.
        let mut since = seconds(now);
        if let Some(former) = former.filter(|former| former["status"] == "True") {
            since = former["lastTransitionTime"].clone();
        }
        remove_condition(status, kind);
        let message = format!("{subject} is progressing.");
        set_condition(status, Condition { kind, status: "True", reason: "ReplicaSetUpdated", message }, now);
        if let Some(condition) =
            status["conditions"].as_array_mut().and_then(|conditions| conditions.last_mut())
        {
            condition["lastTransitionTime"] = since;
        }
    } else if has_timed_out(former, deadline, now) {
        let message = format!("{subject} has timed out progressing.");
        set_condition(status, Condition { kind, status: "False", reason: TIMED_OUT, message }, now);
    }
}

/// Whether all Pods of a Deployment with this status are new and available, and no others exist.
pub(super) fn is_complete(deployment: &Value, status: &Value) -> bool {
    let replicas = deployment.count("/spec/replicas");
    ["/updatedReplicas", "/replicas", "/availableReplicas"]
        .iter()
        .all(|count| status.count(count) == replicas)
        && status.count("/observedGeneration") >= deployment.count("/metadata/generation")
}

/// Whether there are more new, ready or available Pods, or fewer old ones, than the Deployment has noted.
fn has_moved(deployment: &Value, status: &Value) -> bool {
    let former = &deployment["status"];
    let old = |status: &Value| status.count("/replicas") - status.count("/updatedReplicas");
    let grew = |count: &str| status.count(count) > former.count(count);
    grew("/updatedReplicas")
        || old(status) < old(former)
        || grew("/readyReplicas")
        || grew("/availableReplicas")
}

fn has_timed_out(condition: Option<&Value>, deadline: i64, now: Timestamp) -> bool {
    let Some(condition) = condition else { return false };
    match condition.text("/reason") {
        COMPLETE => false,
        TIMED_OUT => true,
        _ => expiry(condition, deadline).is_some_and(|expiry| expiry < now),
    }
}

fn expiry(condition: &Value, deadline: i64) -> Option<Timestamp> {
    condition.time("/lastUpdateTime")?.checked_add(SignedDuration::from_secs(deadline)).ok()
}

/// Returns when a Deployment that stays as it is will have passed its deadline.
pub(super) fn next_check(deployment: &Value) -> Option<Timestamp> {
    let condition = deployment.condition("Progressing")?;
    if is_complete(deployment, &deployment["status"]) || condition.text("/reason") == TIMED_OUT {
        return None;
    }
    // A second more, because the time of the update was rounded down.
    expiry(condition, deadline(deployment)?)?.checked_add(SignedDuration::from_secs(1)).ok()
}
