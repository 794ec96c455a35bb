//! The statuses of simulated containers.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::workloads::object::{Object as _, seconds};

/// Delay before the first restart of a crashed container in seconds, as in the kubelet; doubled by each
/// further restart.
const FIRST_BACKOFF: i64 = 10;

/// Longest delay before a restart in seconds, as in the kubelet.
const LAST_BACKOFF: i64 = 300;

fn status(pod: &Value, container: &Value, state: &Value) -> Value {
    let id = format!("devcluster://{}-{}", pod.uid(), container.text("/name"));
    json!({
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "containerID": id,
        "lastState": {},
        "ready": true,
        "started": true,
        "restartCount": 0,
        "state": state,
    })
}

fn terminated(pod: &Value, container: &Value, failed: bool, now: Timestamp) -> Value {
    let started = pod.at("/status/startTime");
    let started = if started.is_null() { seconds(now) } else { started.clone() };
    let (code, reason) = if failed { (1, "Error") } else { (0, "Completed") };
    let state = json!({"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": seconds(now)});
    status(pod, container, &json!({ "terminated": state }))
}

/// Returns the statuses of init containers: sidecars are running, all others have completed.
pub(super) fn initial(pod: &Value, now: Timestamp) -> Value {
    let containers = pod.list("/spec/initContainers").iter();
    containers
        .map(|container| {
            if container["restartPolicy"] == "Always" {
                return status(pod, container, &json!({"running": {"startedAt": seconds(now)}}));
            }
            let mut ended = terminated(pod, container, false, now);
            ended["started"] = false.into();
            ended
        })
        .collect()
}

/// Returns the statuses of containers that have been running since `started`.
pub(super) fn running(pod: &Value, ready: bool, started: Timestamp) -> Vec<Value> {
    let running = |container| {
        let mut running = status(pod, container, &json!({"running": {"startedAt": seconds(started)}}));
        running["ready"] = ready.into();
        running
    };
    pod.list("/spec/containers").iter().map(running).collect()
}

/// Returns the statuses of containers that have ended, with or without an error.
pub(super) fn ended(pod: &Value, failed: bool, now: Timestamp) -> Value {
    let ended = |container| {
        let mut ended = terminated(pod, container, failed, now);
        ended["ready"] = false.into();
        ended["started"] = false.into();
        ended
    };
    pod.list("/spec/containers").iter().map(ended).collect()
}

/// Returns the statuses of containers that crash after each start, first at `started`, and the time of the
/// next start.
pub(super) fn crashing(pod: &Value, started: Timestamp, now: Timestamp) -> (Vec<Value>, Option<Timestamp>) {
    let (mut crashes, mut backoff, mut last, mut next) = (0, FIRST_BACKOFF, started, started);
    while next <= now {
        (last, crashes) = (next, crashes + 1);
        backoff = if crashes == 1 { FIRST_BACKOFF } else { (2 * backoff).min(LAST_BACKOFF) };
        match last.checked_add(SignedDuration::from_secs(backoff)) {
            Ok(at) => next = at,
            Err(_) => break,
        }
    }
    let crash =
        json!({"exitCode": 1, "reason": "Error", "startedAt": seconds(last), "finishedAt": seconds(last)});
    let containers = pod.list("/spec/containers").iter();
    let statuses = containers.map(|container| {
        let message = format!(
            "back-off {} restarting failed container={} pod={}_{}({})",
            duration(backoff),
            container.text("/name"),
            pod.name(),
            pod.namespace(),
            pod.uid()
        );
        let state = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
        let mut loops = status(pod, container, &state);
        loops["lastState"] = json!({ "terminated": crash });
        loops["ready"] = false.into();
        loops["started"] = false.into();
        loops["restartCount"] = (crashes - 1).into();
        loops
    });
    (statuses.collect(), Some(next))
}

/// Returns a number of seconds below one hour in Go's form of a duration, such as `2m40s`.
fn duration(seconds: i64) -> String {
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}
