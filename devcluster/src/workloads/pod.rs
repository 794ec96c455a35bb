//! Pods: binds them to the only Node, and reports their status as a kubelet would. No containers run.
//!
//! A Pod is running and ready as soon as it is scheduled. Annotations of the Pod change this:
//!
//! | annotation | value | effect |
//! |---|---|---|
//! | `devcluster.mainstay.dev/never-ready` | any | the Pod is scheduled but stays `Pending` |
//! | `devcluster.mainstay.dev/ready-after` | seconds | the Pod becomes ready this long after its start |
//! | `devcluster.mainstay.dev/crash-loop` | any | the containers of the Pod fail after each start |
//! | `devcluster.mainstay.dev/stop-after` | seconds | a deleted Pod is removed after this time |
//! | `devcluster.mainstay.dev/complete-after` | seconds | the Pod of a Job ends this long after its start |
//!
//! A Pod of a Job succeeds immediately after its start, unless these annotations say otherwise. With
//! `crash-loop` it fails if its restart policy is `Never`.

mod containers;

use std::net::Ipv4Addr;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Decision;
use super::client::Request;
use super::object::{Object as _, differ, has_ended, seconds};
use super::resources;

/// The name of the Node that all Pods run on.
pub const NODE: &str = "devcluster";

/// The address of the Node [`NODE`].
const NODE_ADDRESS: &str = "127.0.0.1";

/// First address of Pods, in the range that RFC 2544 reserves for benchmarks, where no program listens.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([198, 18, 0, 1]);

/// Number of addresses before they repeat.
const ADDRESSES: u32 = 65_534;

const NEVER_READY: &str = "devcluster.mainstay.dev/never-ready";
const READY_AFTER: &str = "devcluster.mainstay.dev/ready-after";
const CRASH_LOOP: &str = "devcluster.mainstay.dev/crash-loop";
const STOP_AFTER: &str = "devcluster.mainstay.dev/stop-after";
const COMPLETE_AFTER: &str = "devcluster.mainstay.dev/complete-after";

/// Returns the address of the `number`-th started Pod, counted from 0.
pub(super) fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST_ADDRESS + number % ADDRESSES)
}

/// Returns the requests that create the Node and make it ready; `node` is `None` before its creation.
pub(super) fn decide_node(node: Option<&Value>, now: Timestamp) -> Vec<Request> {
    let resource = resources::nodes();
    let Some(node) = node else {
        let labels = json!({
            "kubernetes.io/hostname": NODE,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        });
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}});
        return vec![Request::create(&resource, node)];
    };
    if node.has_condition("Ready") || node.is_deleting() {
        return Vec::new();
    }
    let mut node = node.clone();
    let room = json!({"cpu": "1k", "memory": "1Ti", "pods": "1M"});
    node["status"] = json!({
        "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "the embedded kubelet runs no containers",
            "lastHeartbeatTime": seconds(now),
            "lastTransitionTime": seconds(now),
        }],
        "addresses": [
            {"type": "InternalIP", "address": NODE_ADDRESS},
            {"type": "Hostname", "address": NODE},
        ],
        "allocatable": room,
        "capacity": room,
    });
    vec![Request::update_status(&resource, node)]
}

/// Returns the requests of a Pod. `address` is assigned when the Pod starts; `schedulable` is whether the
/// Node accepts Pods.
pub(super) fn decide(pod: &Value, address: Ipv4Addr, schedulable: bool, now: Timestamp) -> Decision {
    let node = pod.text("/spec/nodeName");
    if node.is_empty() {
        let waits = pod.is_deleting() || has_ended(pod) || !pod.list("/spec/schedulingGates").is_empty();
        let ours = matches!(pod.text("/spec/schedulerName"), "" | "default-scheduler");
        return if schedulable && ours && !waits { vec![bind(pod)].into() } else { Decision::default() };
    }
    if node != NODE {
        return Decision::default();
    }
    if pod.is_deleting() {
        return stop(pod, now);
    }
    match pod.text("/status/phase") {
        "Pending" | "" if pod.annotation(NEVER_READY).is_none() => start(pod, address, now),
        "Running" => run(pod, now),
        _ => Decision::default(),
    }
}

fn bind(pod: &Value) -> Request {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name(), "namespace": pod.namespace(), "uid": pod.uid()},
        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
    });
    Request { subresource: "binding", ..Request::create(&resources::pods(), binding) }
}

/// Removes a deleted Pod when its containers have stopped. A Pod with finalizers remains, with a grace period
/// of zero.
fn stop(pod: &Value, now: Timestamp) -> Decision {
    let grace = pod.count("/metadata/deletionGracePeriodSeconds");
    if grace == 0 {
        return Decision::default();
    }
    let deleted = pod.time("/metadata/deletionTimestamp").unwrap_or(now);
    let left = annotated_seconds(pod, STOP_AFTER).map_or(grace, |stop| (grace - stop).max(0));
    match deleted.checked_sub(SignedDuration::from_secs(left)) {
        Ok(stopped) if stopped > now => Decision { again_at: Some(stopped), ..Decision::default() },
        _ => vec![Request::delete(&resources::pods(), pod, json!({"gracePeriodSeconds": 0}))].into(),
    }
}

/// Sets the Pod to running, with its addresses, conditions and container statuses.
fn start(pod: &Value, address: Ipv4Addr, now: Timestamp) -> Decision {
    let mut started = pod.clone();
    let address =
        if pod["spec"]["hostNetwork"] == true { NODE_ADDRESS.to_owned() } else { address.to_string() };
    let status = &mut started["status"];
    status["phase"] = "Running".into();
    status["startTime"] = seconds(now);
    status["hostIP"] = NODE_ADDRESS.into();
    status["hostIPs"] = json!([{"ip": NODE_ADDRESS}]);
    status["podIP"] = address.as_str().into();
    status["podIPs"] = json!([{"ip": address}]);
    let gates = pod.list("/spec/readinessGates").iter().map(|gate| gate.text("/conditionType"));
    let own = ["PodReadyToStartContainers", "Initialized", "PodScheduled"];
    for kind in own.into_iter().chain(gates) {
        set_condition(status, kind, None, now);
    }
    if !pod.list("/spec/initContainers").is_empty() {
        status["initContainerStatuses"] = containers::initial(pod, now);
    }
    report(pod, &mut started, now)
}

/// Updates the status of a running Pod: readiness, crashes, or the end of a Job's Pod.
fn run(pod: &Value, now: Timestamp) -> Decision {
    let crashes = pod.annotation(CRASH_LOOP).is_some();
    let restarts = crashes && pod.text("/spec/restartPolicy") != "Never";
    if restarts || pod.controller().is_none_or(|owner| owner["kind"] != "Job") {
        return report(pod, &mut pod.clone(), now);
    }
    let started = pod.time("/status/startTime").unwrap_or(now);
    let length = SignedDuration::from_secs(annotated_seconds(pod, COMPLETE_AFTER).unwrap_or_default());
    let end = started.checked_add(length).unwrap_or(started);
    if end > now {
        let running = report(pod, &mut pod.clone(), now);
        let again_at = running.again_at.map_or(end, |at| at.min(end));
        return Decision { again_at: Some(again_at), ..running };
    }
    let mut ended = pod.clone();
    let status = &mut ended["status"];
    let (phase, reason) = if crashes { ("Failed", "PodFailed") } else { ("Succeeded", "PodCompleted") };
    status["phase"] = phase.into();
    status["containerStatuses"] = containers::ended(pod, crashes, now);
    for kind in ["Ready", "ContainersReady"] {
        set_condition(status, kind, Some((reason, String::new())), now);
    }
    vec![Request::update_status(&resources::pods(), ended)].into()
}

/// Sets container statuses and readiness in `reported`; returns the update if the result differs from `pod`.
fn report(pod: &Value, reported: &mut Value, now: Timestamp) -> Decision {
    let started = reported.time("/status/startTime").unwrap_or(now);
    let (statuses, again_at) = if pod.annotation(CRASH_LOOP).is_some() {
        containers::crashing(pod, started, now)
    } else {
        let delay = SignedDuration::from_secs(annotated_seconds(pod, READY_AFTER).unwrap_or_default());
        let ready_at = started.checked_add(delay).unwrap_or(started);
        let ready = ready_at <= now;
        (containers::running(pod, ready, started), (!ready).then_some(ready_at))
    };
    let unready: Vec<_> = statuses
        .iter()
        .filter(|status| status["ready"] == false)
        .map(|status| status.text("/name"))
        .collect();
    let reason = (!unready.is_empty())
        .then(|| ("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" "))));
    let status = &mut reported["status"];
    for kind in ["Ready", "ContainersReady"] {
        set_condition(status, kind, reason.clone(), now);
    }
    status["containerStatuses"] = statuses.into();
    let requests = if differ(reported, pod) {
        vec![Request::update_status(&resources::pods(), reported.clone())]
    } else {
        Vec::new()
    };
    Decision { requests, again_at }
}

/// Sets a condition to true, or to false with the reason and the message of `failure`.
fn set_condition(status: &mut Value, kind: &str, failure: Option<(&str, String)>, now: Timestamp) {
    let mut condition = json!({
        "type": kind,
        "status": if failure.is_none() { "True" } else { "False" },
        "lastProbeTime": null,
        "lastTransitionTime": seconds(now),
    });
    if let Some((reason, message)) = failure {
        condition["reason"] = reason.into();
        if !message.is_empty() {
            condition["message"] = message.into();
        }
    }
    let mut conditions = status.list("/conditions").to_vec();
    match conditions.iter_mut().find(|former| former["type"] == kind) {
        Some(former) => {
            if former["status"] == condition["status"] {
                condition["lastTransitionTime"] = former["lastTransitionTime"].clone();
            }
            condition["lastProbeTime"] = former["lastProbeTime"].clone();
            *former = condition;
        }
        None => conditions.push(condition),
    }
    status["conditions"] = conditions.into();
}

/// Returns the number of seconds in an annotation such as `5` or `5s`; `None` for any other text.
fn annotated_seconds(pod: &Value, annotation: &str) -> Option<i64> {
    pod.annotation(annotation)?.trim_end_matches('s').parse::<u32>().ok().map(i64::from)
}

#[cfg(test)]
mod tests;
