//! Pods: scheduling onto the one Node, and the reports of a kubelet that runs no containers.
//!
//! A Pod runs and is ready as soon as it is scheduled. Annotations of the Pod change that:
//!
//! | annotation | value | effect |
//! |---|---|---|
//! | `devcluster.mainstay.dev/never-ready` | any | the Pod is scheduled and stays `Pending` |
//! | `devcluster.mainstay.dev/ready-after` | seconds | the Pod runs, and becomes ready after so long |
//! | `devcluster.mainstay.dev/crash-loop` | any | the containers of the Pod end with an error after each start |
//! | `devcluster.mainstay.dev/stop-after` | seconds | a deleted Pod goes after so long, not at once |
//!
//! A Pod of a Job succeeds as soon as it has run.

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

/// The address of that Node.
const NODE_ADDRESS: &str = "127.0.0.1";

/// First address of Pods, in the range that RFC 2544 reserves for benchmarks; no program listens there.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([198, 18, 0, 1]);

/// Number of addresses before they repeat.
const ADDRESSES: u32 = 65_534;

const NEVER_READY: &str = "devcluster.mainstay.dev/never-ready";
const READY_AFTER: &str = "devcluster.mainstay.dev/ready-after";
const CRASH_LOOP: &str = "devcluster.mainstay.dev/crash-loop";
const STOP_AFTER: &str = "devcluster.mainstay.dev/stop-after";

/// Returns the address of the `number`-th Pod.
pub(super) fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST_ADDRESS + number % ADDRESSES)
}

/// Returns the requests that make the Node, and keep it ready.
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

/// Returns the requests of a Pod. `address` is the one that it gets if it has none; `schedulable` whether the
/// Node takes Pods.
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

/// Removes a deleted Pod once its containers have stopped; with finalizers it stays after that, without a
/// grace period.
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

/// Starts the containers.
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

/// Reports on running containers: their readiness, their next crash, or the end of a Job's Pod.
fn run(pod: &Value, now: Timestamp) -> Decision {
    if pod.controller().is_some_and(|owner| owner["kind"] == "Job") {
        let mut ended = pod.clone();
        let status = &mut ended["status"];
        status["phase"] = "Succeeded".into();
        status["containerStatuses"] = containers::completed(pod, now);
        for kind in ["Ready", "ContainersReady"] {
            set_condition(status, kind, Some(("PodCompleted", String::new())), now);
        }
        return vec![Request::update_status(&resources::pods(), ended)].into();
    }
    report(pod, &mut pod.clone(), now)
}

/// Writes containers and readiness into `reported`, and returns the update if that changes `pod`.
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

/// Sets a condition: true, or false for a reason with a message.
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

/// Returns the seconds that an annotation holds, as `5` or `5s`.
fn annotated_seconds(pod: &Value, annotation: &str) -> Option<i64> {
    pod.annotation(annotation)?.trim_end_matches('s').parse::<u32>().ok().map(i64::from)
}

#[cfg(test)]
mod tests;
