//! The status of a Job, as the controller changes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{End, TRACKING, index};
use crate::workloads::object::{Object as _, seconds};

/// The status of a Job without the numbers of its present Pods.
pub(super) struct Status {
    pub(super) started: Option<Timestamp>,
    pub(super) completed: Option<Timestamp>,
    pub(super) succeeded: usize,
    pub(super) failed: usize,
    pub(super) uncounted: Uncounted,
    /// The completed indexes; `None` unless the Job is in the mode `Indexed`.
    pub(super) indexes: Option<BTreeSet<usize>>,
    conditions: Vec<Value>,
    /// Fields that the controller does not change.
    others: Map<String, Value>,
}

/// The uids of Pods that have ended and are not in the numbers yet.
pub(super) struct Uncounted {
    pub(super) succeeded: Vec<String>,
    pub(super) failed: Vec<String>,
}

// === impl Status ===

impl Status {
    pub(super) fn of(job: &Value) -> Self {
        let count = |path| usize::try_from(job.count(path)).unwrap_or_default();
        let uids = |path| job.list(path).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Self {
            started: job.time("/status/startTime"),
            completed: job.time("/status/completionTime"),
            succeeded: count("/status/succeeded"),
            failed: count("/status/failed"),
            uncounted: Uncounted {
                succeeded: uids("/status/uncountedTerminatedPods/succeeded"),
                failed: uids("/status/uncountedTerminatedPods/failed"),
            },
            indexes: (job["spec"]["completionMode"] == "Indexed")
                .then(|| index::parse(job.text("/status/completedIndexes"), count("/spec/completions"))),
            conditions: job.list("/status/conditions").to_vec(),
            others: job["status"].as_object().cloned().unwrap_or_default(),
        }
    }

    /// Whether a Pod is listed as ended.
    pub(super) fn lists(&self, uid: &str) -> bool {
        let Uncounted { succeeded, failed } = &self.uncounted;
        succeeded.iter().chain(failed).any(|listed| listed == uid)
    }

    /// Counts the listed Pods that have lost their finalizer or are gone. Returns whether there were any.
    pub(super) fn count_released(&mut self, pods: &[&Arc<Value>]) -> bool {
        let held = |uid: &String| pods.iter().any(|pod| pod.uid() == *uid && pod.has_finalizer(TRACKING));
        let before = self.succeeded + self.failed;
        for (number, uids) in [
            (&mut self.succeeded, &mut self.uncounted.succeeded),
            (&mut self.failed, &mut self.uncounted.failed),
        ] {
            let listed = uids.len();
            uids.retain(held);
            *number += listed - uids.len();
        }
        before != self.succeeded + self.failed
    }

    /// Returns the end that a condition announces.
    pub(super) fn announced(&self) -> Option<End> {
        ["SuccessCriteriaMet", "FailureTarget"].into_iter().find_map(|announcement| {
            let is_true = |it: &&Value| it["type"] == announcement && it["status"] == "True";
            let condition = self.conditions.iter().find(is_true)?;
            let text = |field| condition.text(field).to_owned();
            Some(End { announcement, reason: text("/reason"), message: text("/message") })
        })
    }

    /// Sets the condition `Suspended`. A Job that was never suspended has none.
    pub(super) fn suspend(&mut self, suspended: bool, now: Timestamp) {
        let known = self.conditions.iter().any(|it| it["type"] == "Suspended");
        let same = self
            .conditions
            .iter()
            .any(|it| it["type"] == "Suspended" && (it["status"] == "True") == suspended);
        if same || !known && !suspended {
            return;
        }
        let (status, reason, message) = if suspended {
            ("True", "JobSuspended", "Job suspended")
        } else {
            ("False", "JobResumed", "Job resumed")
        };
        self.put(condition("Suspended", status, reason, message, now));
        self.started = (!suspended).then_some(now);
    }

    /// Sets a condition about the end; no effect if it is set.
    pub(super) fn set(&mut self, kind: &str, end: &End, now: Timestamp) {
        if !self.conditions.iter().any(|it| it["type"] == kind && it["status"] == "True") {
            self.put(condition(kind, "True", &end.reason, &end.message, now));
        }
    }

    fn put(&mut self, condition: Value) {
        match self.conditions.iter_mut().find(|former| former["type"] == condition["type"]) {
            Some(former) => *former = condition,
            None => self.conditions.push(condition),
        }
    }

    /// Returns the status with the numbers of Pods.
    pub(super) fn into_value(self, active: usize, ready: usize, terminating: usize) -> Value {
        let mut status = self.others;
        let time = |time: Option<Timestamp>| time.map_or(Value::Null, seconds);
        let count = |count: usize| if count == 0 { Value::Null } else { count.into() };
        let uids = |uids: Vec<String>| if uids.is_empty() { Value::Null } else { uids.into() };
        let mut uncounted = json!({});
        for (field, uids) in
            [("succeeded", uids(self.uncounted.succeeded)), ("failed", uids(self.uncounted.failed))]
        {
            if !uids.is_null() {
                uncounted[field] = uids;
            }
        }
        let indexes = self.indexes.as_ref().map(index::format).unwrap_or_default();
        for (field, value) in [
            ("active", count(active)),
            ("completedIndexes", if indexes.is_empty() { Value::Null } else { indexes.into() }),
            ("completionTime", time(self.completed)),
            ("failed", count(self.failed)),
            ("ready", ready.into()),
            ("startTime", time(self.started)),
            ("succeeded", count(self.succeeded)),
            ("terminating", terminating.into()),
            ("uncountedTerminatedPods", uncounted),
        ] {
            if value.is_null() {
                status.remove(field);
            } else {
                status.insert(field.to_owned(), value);
            }
        }
        if !self.conditions.is_empty() {
            status.insert("conditions".to_owned(), self.conditions.into());
        }
        Value::Object(status)
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({
        "type": kind,
        "status": status,
        "lastProbeTime": seconds(now),
        "lastTransitionTime": seconds(now),
        "reason": reason,
        "message": message,
    })
}
