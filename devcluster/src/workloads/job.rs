//! Jobs: creates Pods until enough of them have succeeded or too many have failed, counts them in the status,
//! and deletes finished Jobs after their time to live.
//!
//! Each Pod has a finalizer until it is counted. A Pod that has ended is first listed by its uid in
//! `uncountedTerminatedPods`, then loses the finalizer, and is then counted; a reconciliation does one of
//! these steps, so a restart counts no Pod twice.
//!
//! Differs from kube-controller-manager: Jobs with a `podFailurePolicy`, a `successPolicy` or a
//! `backoffLimitPerIndex` get no Pods, and Pods without an owner are not adopted.

mod index;
mod status;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use self::status::Status;
use super::Decision;
use super::client::Request;
use super::object::{Object as _, controller_reference, differ, has_ended, is_active};
use super::replica_set::victims;
use super::resources;

/// The finalizer of Pods that are not counted yet.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// Most Pods that one reconciliation creates or deletes, as in kube-controller-manager.
const BURST: usize = 500;

/// Delay before the Pod after the first failed one, doubled by each further failure.
const FIRST_BACKOFF: SignedDuration = SignedDuration::from_secs(10);

/// Longest delay after a failed Pod.
const LAST_BACKOFF: SignedDuration = SignedDuration::from_mins(10);

/// The Pods of a Job.
struct Pods<'a> {
    all: Vec<&'a Arc<Value>>,
    active: Vec<&'a Arc<Value>>,
    /// Number of Pods that are being deleted and have not ended.
    terminating: usize,
    /// Whether a Pod that is being deleted counts as failed only once it has ended.
    until_ended: bool,
}

/// The end of a Job.
struct End {
    /// The type of the condition that announces the end.
    announcement: &'static str,
    reason: String,
    message: String,
}

/// The numbers of Pods that have ended and are not in the status yet.
struct Fresh {
    succeeded: usize,
    failed: usize,
}

// === impl Pods ===

impl<'a> Pods<'a> {
    fn of(job: &Value, all: Vec<&'a Arc<Value>>) -> Self {
        let active = all.iter().copied().filter(|pod| is_active(pod)).collect();
        let terminating = all.iter().filter(|pod| pod.is_deleting() && !has_ended(pod)).count();
        let until_ended = job["spec"]["podReplacementPolicy"] == "Failed";
        Self { all, active, terminating, until_ended }
    }

    /// Counts the ended Pods that are neither counted nor listed in the status.
    fn fresh(&self, status: &Status) -> Fresh {
        let fresh = |pod: &&&Arc<Value>| pod.has_finalizer(TRACKING) && !status.lists(pod.uid());
        let fresh: Vec<_> = self.all.iter().filter(fresh).collect();
        let count = |has: &dyn Fn(&Value) -> bool| fresh.iter().filter(|pod| has(pod)).count();
        Fresh { succeeded: count(&has_succeeded), failed: count(&|pod| self.has_failed(pod)) }
    }

    /// Whether a Pod counts as failed. A Pod that is being deleted may never reach the phase.
    fn has_failed(&self, pod: &Value) -> bool {
        pod.text("/status/phase") == "Failed" || pod.is_deleting() && !self.until_ended && !has_succeeded(pod)
    }

    /// Lists the ended Pods in the status, and returns the removals of their finalizers.
    fn release(&self, job: &Value, end: Option<&End>, status: &mut Status) -> Vec<Request> {
        let failed = end.is_some_and(|end| end.announcement == "FailureTarget");
        let mut released = Vec::new();
        for pod in self.all.iter().filter(|pod| pod.has_finalizer(TRACKING)) {
            let ended = has_succeeded(pod) || self.has_failed(pod);
            if !ended && end.is_none() && !job.is_deleting() {
                continue;
            }
            if !status.lists(pod.uid()) {
                if has_succeeded(pod) && status.indexes.is_some() {
                    // The index is in the status instead.
                } else if has_succeeded(pod) {
                    status.uncounted.succeeded.push(pod.uid().to_owned());
                } else if self.has_failed(pod) || failed {
                    status.uncounted.failed.push(pod.uid().to_owned());
                }
            }
            released.extend(without_finalizer(pod));
        }
        released
    }

    /// Returns up to `count` new Pods. With the completed `indexes` of the Job, they have the first ones that
    /// neither are completed nor have an active Pod.
    fn missing(&self, job: &Value, indexes: Option<&BTreeSet<usize>>, count: usize) -> Vec<Value> {
        let Some(done) = indexes else { return (0..count).map(|_| pod(job)).collect() };
        let taken: BTreeSet<_> = self.active.iter().filter_map(|pod| index::of(pod)).collect();
        let free = (0..completions(job)).filter(|index| !done.contains(index) && !taken.contains(index));
        let new = free.take(count).map(|index| {
            let mut pod = pod(job);
            index::set(&mut pod, job.name(), index);
            pod
        });
        new.collect()
    }

    /// Returns the sum of the restarts of all containers, if the Pods restart them after failures.
    fn restarts(&self, job: &Value) -> usize {
        if job.text("/spec/template/spec/restartPolicy") != "OnFailure" {
            return 0;
        }
        let running = self.all.iter().filter(|pod| !has_ended(pod));
        let statuses = running.flat_map(|pod| {
            ["/status/initContainerStatuses", "/status/containerStatuses"].map(|it| pod.list(it))
        });
        let count: i64 = statuses.flatten().map(|status| status.count("/restartCount")).sum();
        usize::try_from(count).unwrap_or_default()
    }

    /// Returns the time before which no Pod is created, because the last ones have failed.
    fn backoff(&self) -> Option<Timestamp> {
        let succeeded = self.all.iter().filter(|pod| has_succeeded(pod));
        let success = succeeded.filter_map(|pod| ended(pod)).max();
        let failed = self.all.iter().filter(|pod| self.has_failed(pod)).filter_map(|pod| ended(pod));
        let failures: Vec<_> = failed.filter(|end| success.is_none_or(|success| *end > success)).collect();
        let exponent = u32::try_from(failures.len().checked_sub(1)?).unwrap_or(u32::MAX).min(10);
        let delay = FIRST_BACKOFF.checked_mul(1 << exponent).unwrap_or(LAST_BACKOFF).min(LAST_BACKOFF);
        failures.into_iter().max()?.checked_add(delay).ok()
    }
}

/// Returns the requests of the Job with this name; `job` is `None` if it does not exist, and `pods` are the
/// Pods of its namespace.
pub(super) fn decide<'a>(
    name: &str,
    job: Option<&'a Arc<Value>>,
    pods: impl IntoIterator<Item = &'a Arc<Value>>,
    now: Timestamp,
) -> Decision {
    let uid = job.map_or("", |job| job.uid());
    let of_job = |pod: &&Arc<Value>| match pod.controller() {
        Some(owner) => owner["kind"] == "Job" && owner["name"] == name,
        None => pod.label("batch.kubernetes.io/job-name") == Some(name),
    };
    let (own, lost): (Vec<_>, Vec<_>) =
        pods.into_iter().filter(of_job).partition(|pod| !uid.is_empty() && pod.is_controlled_by(uid));
    let mut requests: Vec<_> = lost.into_iter().filter_map(|pod| without_finalizer(pod)).collect();
    let Some(job) = job else { return requests.into() };
    let managed = matches!(job.text("/spec/managedBy"), "" | "kubernetes.io/job-controller");
    let policies = ["podFailurePolicy", "successPolicy", "backoffLimitPerIndex"];
    let simple = policies.iter().all(|policy| job["spec"][policy].is_null());
    if !managed {
        return requests.into();
    }
    if is_finished(job) {
        requests.extend(own.into_iter().filter_map(|pod| without_finalizer(pod)));
        let mut decision = expire(job, now);
        requests.append(&mut decision.requests);
        return Decision { requests, ..decision };
    }
    if !simple {
        return requests.into();
    }
    let mut decision = reconcile(job, &Pods::of(job, own), now);
    requests.append(&mut decision.requests);
    Decision { requests, ..decision }
}

/// Whether a Job has the condition `Complete` or `Failed`.
pub(super) fn is_finished(job: &Value) -> bool {
    job.has_condition("Complete") || job.has_condition("Failed")
}

/// Deletes a finished Job after its time to live.
fn expire(job: &Value, now: Timestamp) -> Decision {
    let ended = ["Complete", "Failed"].into_iter().find_map(|end| {
        job.condition(end).filter(|end| end["status"] == "True")?.time("/lastTransitionTime")
    });
    let ttl = job.int("/spec/ttlSecondsAfterFinished").map(SignedDuration::from_secs);
    let Some(at) = ended.zip(ttl).and_then(|(ended, ttl)| ended.checked_add(ttl).ok()) else {
        return Decision::default();
    };
    if job.is_deleting() {
        return Decision::default();
    }
    if at > now {
        return Decision { again_at: Some(at), ..Decision::default() };
    }
    vec![Request::delete(&resources::jobs(), job, json!({"propagationPolicy": "Foreground"}))].into()
}

/// Returns the removal of the finalizer of a Pod; `None` if it has none.
fn without_finalizer(pod: &Value) -> Option<Request> {
    if !pod.has_finalizer(TRACKING) {
        return None;
    }
    let kept: Vec<_> = pod.list("/metadata/finalizers").iter().filter(|it| *it != TRACKING).collect();
    Some(Request::patch_metadata(&resources::pods(), pod, json!({ "finalizers": kept })))
}

/// Reconciles a Job that is not finished.
fn reconcile(job: &Value, pods: &Pods<'_>, now: Timestamp) -> Decision {
    let mut status = Status::of(job);
    let suspended = job["spec"]["suspend"] == true;
    let counted = status.count_released(&pods.all);
    if status.started.is_none() && !suspended {
        status.started = Some(now);
    }
    let fresh = pods.fresh(&status);
    let succeeded = if let Some(indexes) = &mut status.indexes {
        let done = pods.all.iter().filter(|pod| has_succeeded(pod) && pod.has_finalizer(TRACKING));
        indexes.extend(done.filter_map(|pod| index::of(pod)).filter(|index| *index < completions(job)));
        status.succeeded = indexes.len();
        status.succeeded
    } else {
        status.succeeded + fresh.succeeded + status.uncounted.succeeded.len()
    };
    let failed = status.failed + fresh.failed + status.uncounted.failed.len();
    let mut again_at = None;
    let mut end = status.announced();
    if end.is_none() {
        end = failure(job, pods, failed, status.started, now);
        again_at = deadline(job, status.started).filter(|_| end.is_none());
    }

    let mut requests = Vec::new();
    let (mut active, mut terminating) = (pods.active.len(), pods.terminating);
    let mut deleted: Vec<&Value> = Vec::new();
    if end.is_some() {
        deleted = pods.active.iter().map(|pod| &***pod).collect();
    } else if !job.is_deleting() {
        let wanted = wanted(job, succeeded, active);
        if suspended || active > wanted {
            deleted = surplus(&pods.active, if suspended { 0 } else { wanted }, now);
            // The Pods are deleted on purpose, so they do not count as failed.
            requests.extend(deleted.iter().filter_map(|pod| without_finalizer(pod)));
        } else if let Some(at) = pods.backoff().filter(|at| *at > now && active < wanted) {
            again_at = again_at.map_or(Some(at), |other| Some(at.min(other)));
        } else {
            let replaced = if pods.until_ended { terminating } else { 0 };
            let missing = wanted.saturating_sub(active + replaced).min(BURST);
            let new = pods.missing(job, status.indexes.as_ref(), missing);
            active += new.len();
            requests.extend(new.into_iter().map(|pod| Request::create(&resources::pods(), pod)));
        }
    }
    requests.extend(deleted.iter().map(|pod| Request::delete(&resources::pods(), pod, json!({}))));
    active -= deleted.len();
    terminating += deleted.len();
    let ready = pods.active.iter().filter(|pod| pod.has_condition("Ready"));
    let ready = ready.filter(|pod| !deleted.iter().any(|gone| gone.uid() == pod.uid())).count();

    if end.is_none() && active == 0 && is_complete(job, succeeded) {
        end = Some(End {
            announcement: "SuccessCriteriaMet",
            reason: "CompletionsReached".to_owned(),
            message: "Reached expected number of succeeded pods".to_owned(),
        });
    }
    let released = pods.release(job, end.as_ref(), &mut status);
    if end.is_none() && !job.is_deleting() {
        status.suspend(suspended, now);
    }
    if let Some(end) = &end {
        // The end is announced before the finalizers are removed, and reached after them.
        let announced = status.announced().is_some();
        status.set(end.announcement, end, now);
        if announced && pods.all.iter().all(|pod| !pod.has_finalizer(TRACKING)) && terminating == 0 {
            let success = end.announcement == "SuccessCriteriaMet";
            status.set(if success { "Complete" } else { "Failed" }, end, now);
            status.completed = success.then_some(now);
        }
    }
    let new = status.into_value(active, ready, terminating);
    if counted || differ(&job["status"], &new) {
        let mut job = job.clone();
        job["status"] = new;
        requests.push(Request::update_status(&resources::jobs(), job));
    } else {
        requests.extend(released);
    }
    Decision { requests, again_at }
}

/// Returns the end of a Job that has failed; `None` if it goes on.
fn failure(
    job: &Value,
    pods: &Pods<'_>,
    failed: usize,
    started: Option<Timestamp>,
    now: Timestamp,
) -> Option<End> {
    let limit = usize::try_from(job.count("/spec/backoffLimit")).unwrap_or_default();
    let end = |reason: &str, message: &str| {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        Some(End { announcement: "FailureTarget", reason, message })
    };
    if failed > limit || pods.restarts(job) >= limit.max(1) {
        end("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    } else if deadline(job, started).is_some_and(|deadline| deadline <= now) {
        end("DeadlineExceeded", "Job was active longer than specified deadline")
    } else {
        None
    }
}

/// Returns the time at which a Job fails; `None` without a limit, or while it is suspended.
fn deadline(job: &Value, started: Option<Timestamp>) -> Option<Timestamp> {
    let limit = job.int("/spec/activeDeadlineSeconds").filter(|_| job["spec"]["suspend"] != true)?;
    // The status has whole seconds.
    let started = Timestamp::from_second(started?.as_second()).ok()?;
    started.checked_add(SignedDuration::from_secs(limit)).ok()
}

/// Returns the number of Pods that should be active.
fn wanted(job: &Value, succeeded: usize, active: usize) -> usize {
    let parallelism = usize::try_from(job.count("/spec/parallelism")).unwrap_or_default();
    match job.int("/spec/completions").map(|count| usize::try_from(count).unwrap_or_default()) {
        // A Job without a number of completions starts no Pod after the first success.
        None if succeeded > 0 => active,
        None => parallelism,
        Some(completions) => completions.saturating_sub(succeeded).min(parallelism),
    }
}

fn completions(job: &Value) -> usize {
    usize::try_from(job.count("/spec/completions")).unwrap_or_default()
}

fn is_complete(job: &Value, succeeded: usize) -> bool {
    match job.int("/spec/completions") {
        None => succeeded > 0,
        Some(completions) => usize::try_from(completions).is_ok_and(|count| succeeded >= count),
    }
}

/// Returns the Pods to delete so that only `wanted` are left: the least useful ones.
fn surplus<'a>(active: &[&'a Arc<Value>], wanted: usize, now: Timestamp) -> Vec<&'a Value> {
    let mut sorted = active.to_vec();
    sorted.sort_by(|a, b| victims::compare(a, b, now));
    let count = active.len().saturating_sub(wanted).min(BURST);
    sorted.into_iter().take(count).map(|pod| &**pod).collect()
}

/// Returns a new Pod of a Job.
fn pod(job: &Value) -> Value {
    let template = job.at("/spec/template");
    let mut metadata = Map::new();
    metadata.insert("generateName".to_owned(), format!("{}-", job.name()).into());
    metadata.insert("namespace".to_owned(), job.namespace().into());
    for field in ["labels", "annotations"] {
        let value = &template["metadata"][field];
        if !value.is_null() {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let mut finalizers = template.list("/metadata/finalizers").to_vec();
    if !finalizers.iter().any(|it| it == TRACKING) {
        finalizers.push(TRACKING.into());
    }
    metadata.insert("finalizers".to_owned(), finalizers.into());
    metadata.insert("ownerReferences".to_owned(), json!([controller_reference(job, "batch/v1", "Job")]));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

fn has_succeeded(pod: &Value) -> bool {
    pod.text("/status/phase") == "Succeeded"
}

/// Returns the end of a Pod: that of its last container, else the time at which it stopped being ready.
fn ended(pod: &Value) -> Option<Timestamp> {
    let containers = pod.list("/status/containerStatuses").iter();
    let last = containers.filter_map(|status| status.time("/state/terminated/finishedAt")).max();
    last.or_else(|| pod.condition("Ready")?.time("/lastTransitionTime"))
        .or_else(|| pod.time("/metadata/deletionTimestamp"))
        .or_else(|| pod.time("/metadata/creationTimestamp"))
}
