//! The order in which a ReplicaSet deletes Pods: the least useful first.

use std::cmp::{Ordering, Reverse};

use jiff::Timestamp;
use serde_json::Value;

use crate::workloads::object::Object as _;

/// Compares two Pods; the lesser is deleted first. The rules are those of kube-controller-manager without the
/// number of Pods on the same Node, because there is only one Node.
pub(in crate::workloads) fn compare(a: &Value, b: &Value, now: Timestamp) -> Ordering {
    rank(a)
        .cmp(&rank(b))
        .then_with(|| by_age(ready_since(a), ready_since(b), now))
        .then_with(|| Reverse(restarts(a)).cmp(&Reverse(restarts(b))))
        .then_with(|| {
            by_age(a.time("/metadata/creationTimestamp"), b.time("/metadata/creationTimestamp"), now)
        })
        .then_with(|| a.uid().cmp(b.uid()))
}

/// Returns the first sort key: unscheduled before scheduled, pending before running, unready before ready,
/// low before high deletion cost.
fn rank(pod: &Value) -> (bool, u8, bool, i64) {
    let phase = match pod.text("/status/phase") {
        "Pending" => 0,
        "Running" => 2,
        _ => 1,
    };
    let cost = pod.annotation("controller.kubernetes.io/pod-deletion-cost");
    let cost = cost.and_then(|cost| cost.parse().ok()).unwrap_or_default();
    (!pod.text("/spec/nodeName").is_empty(), phase, pod.has_condition("Ready"), cost)
}

fn ready_since(pod: &Value) -> Option<Timestamp> {
    pod.condition("Ready").filter(|ready| ready["status"] == "True")?.time("/lastTransitionTime")
}

fn restarts(pod: &Value) -> i64 {
    pod.list("/status/containerStatuses")
        .iter()
        .map(|status| status.count("/restartCount"))
        .max()
        .unwrap_or_default()
}

/// Compares ages by their binary logarithm, so that Pods of similar age count as equal; `None` is the lesser.
fn by_age(a: Option<Timestamp>, b: Option<Timestamp>, now: Timestamp) -> Ordering {
    let magnitude = |since: Timestamp| {
        let age = u128::try_from(now.duration_since(since).as_nanos()).unwrap_or_default();
        age.checked_ilog2()
    };
    match (a, b) {
        (Some(a), Some(b)) => magnitude(a).cmp(&magnitude(b)),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}
