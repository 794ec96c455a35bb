//! Pods and pod templates.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::text;
use super::view::View;

/// The summary of the statuses of all containers.
struct Summary {
    reason: String,
    ready: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    /// Whether an init container has not ended yet.
    initializing: bool,
}

/// The restarts of containers.
#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

pub(super) fn pod(pod: &View<'_>) -> Value {
    let sidecars = pod.list("/spec/initContainers").filter(is_sidecar).count();
    let total = pod.count("/spec/containers") + sidecars;
    let Summary { reason, ready, restarts, last_restart, .. } = summary(pod);
    let restarts = match last_restart {
        Some(time) if restarts != 0 => format!("{restarts} ({} ago)", pod.ago(time)),
        _ => restarts.to_string(),
    };
    json!([
        pod.name(),
        format!("{ready}/{total}"),
        reason,
        restarts,
        pod.age(),
        pod.text_or("/status/podIPs/0/ip", "<none>"),
        pod.text_or("/spec/nodeName", "<none>"),
        pod.text_or("/status/nominatedNodeName", "<none>"),
        readiness_gates(pod),
    ])
}

/// Returns the condition of the row of a Pod that has ended; `None` for other objects.
pub(super) fn completed(object: &View<'_>) -> Option<Value> {
    let is_pod = object.text("/kind") == "Pod" && object.text("/apiVersion") == "v1";
    let phase = Some(object.text("/status/phase")).filter(|_| is_pod)?;
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": phase, "message": message}))
}

pub(super) fn template(template: &View<'_>) -> Value {
    let (names, images) = text::containers(&template.part("/template"));
    json!([template.name(), names, images, text::labels(template.map("/template/metadata/labels"))])
}

fn summary(pod: &View<'_>) -> Summary {
    let mut summary = init_summary(pod);
    let initialized = pod.condition("/status/conditions", "Initialized");
    if !summary.initializing || initialized.is_some_and(|it| it.text("/status") == "True") {
        add_containers(pod, &mut summary);
    }
    let phase = pod.text("/status/phase");
    if pod.is_terminating() {
        if pod.text("/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut summary.reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut summary.reason);
        }
    }
    summary
}

/// Returns the state of the init containers, up to the first that has not ended.
fn init_summary(pod: &View<'_>) -> Summary {
    let mut reason = pod.text_or("/status/reason", pod.text("/status/phase")).to_owned();
    let gated = |it: View<'_>| it.text("/type") == "PodScheduled" && it.text("/reason") == "SchedulingGated";
    if pod.list("/status/conditions").any(gated) {
        "SchedulingGated".clone_into(&mut reason);
    }
    let total = pod.count("/spec/initContainers");
    let (mut ready, mut all, mut of_sidecars) = (0, Restarts::default(), Restarts::default());
    let mut initializing = false;
    for (index, container) in pod.list("/status/initContainerStatuses").enumerate() {
        all.add(&container);
        let named = |it: &View<'_>| it.text("/name") == container.text("/name");
        let sidecar = pod.list("/spec/initContainers").rfind(named).is_some_and(|it| is_sidecar(&it));
        if sidecar {
            of_sidecars.add(&container);
        }
        let terminated = container.has("/state/terminated");
        if terminated && container.number("/state/terminated/exitCode") == 0 {
            continue;
        }
        if sidecar && container.flag("/started") {
            ready += usize::from(container.flag("/ready"));
            continue;
        }
        let waiting = container.text("/state/waiting/reason");
        reason = if terminated {
            format!("Init:{}", ended(&container))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{total}")
        };
        initializing = true;
        break;
    }
    let restarts = if initializing { &all } else { &of_sidecars };
    let mut summary =
        Summary { reason, ready, restarts: restarts.count, last_restart: restarts.last, initializing };
    let initialized = pod.condition("/status/conditions", "Initialized");
    if initializing && initialized.is_some_and(|it| it.text("/status") == "True") {
        (summary.restarts, summary.last_restart) = (of_sidecars.count, of_sidecars.last);
    }
    summary
}

/// Adds the state of the containers, of which the first in the list counts most.
fn add_containers(pod: &View<'_>, summary: &mut Summary) {
    let mut restarts = Restarts { count: summary.restarts, last: summary.last_restart };
    let (mut running, mut error) = (false, None);
    for container in pod.list("/status/containerStatuses").rev() {
        restarts.add(&container);
        let waiting = container.text("/state/waiting/reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.reason);
        } else if container.has("/state/terminated") {
            summary.reason = ended(&container);
            if container.number("/state/terminated/exitCode") != 0 {
                error = Some(summary.reason.clone());
            }
        } else if container.flag("/ready") && container.has("/state/running") {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" {
        let ready = |it: View<'_>| it.text("/type") == "Ready" && it.text("/status") == "True";
        if running && pod.list("/status/conditions").any(ready) {
            "Running".clone_into(&mut summary.reason);
        } else if let Some(error) = error {
            summary.reason = error;
        } else if running {
            "NotReady".clone_into(&mut summary.reason);
        }
    }
    (summary.restarts, summary.last_restart) = (restarts.count, restarts.last);
}

/// Returns why a container has ended.
fn ended(container: &View<'_>) -> String {
    let state = container.part("/state/terminated");
    match (state.text("/reason"), state.number("/signal")) {
        ("", 0) => format!("ExitCode:{}", state.number("/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_sidecar(container: &View<'_>) -> bool {
    container.text("/restartPolicy") == "Always"
}

fn readiness_gates(pod: &View<'_>) -> String {
    let holds = |gate: &View<'_>| {
        let condition = pod.condition("/status/conditions", gate.text("/conditionType"));
        condition.is_some_and(|it| it.text("/status") == "True")
    };
    match pod.count("/spec/readinessGates") {
        0 => "<none>".to_owned(),
        all => format!("{}/{all}", pod.list("/spec/readinessGates").filter(holds).count()),
    }
}

// === impl Restarts ===

impl Restarts {
    fn add(&mut self, container: &View<'_>) {
        self.count += container.number("/restartCount");
        self.last = self.last.max(container.time("/lastState/terminated/finishedAt"));
    }
}
