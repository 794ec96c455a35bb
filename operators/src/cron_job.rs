//! The [`CronJob`] of kubebuilder's [tutorial]: starts Jobs by a schedule.
//!
//! The schema has the defaults that the tutorial puts into a webhook. Unlike in the tutorial, a run is not
//! repeated after its Job has been deleted, and `Degraded` ends with its cause.
//!
//! [tutorial]: https://book.kubebuilder.io/cronjob-tutorial/cronjob-tutorial

mod schedule;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobTemplateSpec};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, CustomResource, CustomResourceExt as _, Resource as _, ResourceExt as _};
use mainstay::cache::{Entry, ReadError};
use mainstay::prelude::*;
use mainstay::rbac::Access;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use self::schedule::{Problem, Runs, runs};
use crate::conditions::conditions;

/// The annotation of a Job with the time of its run.
const SCHEDULED_AT: &str = "batch.tutorial.kubebuilder.io/scheduled-at";

/// The Jobs that a `CronJob` starts, and when.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "batch.tutorial.kubebuilder.io",
    version = "v1",
    kind = "CronJob",
    namespaced,
    status = "CronJobStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct CronJobSpec {
    /// Five fields of crontab, in UTC unless a time zone follows them.
    pub schedule: String,
    /// The number of seconds that a run may start late. Without it, any number.
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,
    /// The rule for a run that is due while Jobs of earlier runs are active.
    #[serde(default)]
    pub concurrency_policy: ConcurrencyPolicy,
    /// Whether no run is started.
    #[serde(default)]
    pub suspend: bool,
    /// The Job of each run.
    #[schemars(transform = without_descriptions)]
    pub job_template: JobTemplateSpec,
    /// The number of complete Jobs that are kept.
    #[serde(default = "three")]
    #[schemars(range(min = 0))]
    pub successful_jobs_history_limit: i32,
    /// The number of failed Jobs that are kept.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub failed_jobs_history_limit: i32,
}

/// The rule for a run that is due while Jobs of earlier runs are active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrencyPolicy {
    /// The run starts beside them.
    #[default]
    Allow,
    /// The run waits until they have ended.
    Forbid,
    /// They are deleted, and the run starts.
    Replace,
}

/// The state of a `CronJob`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronJobStatus {
    /// The Jobs that have not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<ObjectReference>,
    /// The time of the last run.
    pub last_schedule_time: Option<Time>,
    /// `Available`: it starts Jobs, and none has failed. `Progressing`: a Job is active. `Degraded`: a Job
    /// has failed, was not started, or cannot be started.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

struct CronJobs<C> {
    jobs: Store<Job>,
    now: C,
}

fn three() -> i32 {
    3
}

fn one() -> i32 {
    1
}

/// Removes the descriptions of all fields: with them the definition is too long for `kubectl apply`.
fn without_descriptions(schema: &mut Schema) {
    schema.remove("description");
    transform_subschemas(&mut without_descriptions, schema);
}

// === impl CronJobs ===

impl<C: Fn() -> Timestamp + Send + Sync + 'static> ObjectReconciler<CronJob> for CronJobs<C> {
    async fn reconcile(&self, cron_job: Arc<CronJob>, cx: &Context) -> Outcome {
        let (spec, now) = (&cron_job.spec, (self.now)());
        let jobs = self.jobs_of(&cron_job)?;
        let complete = surplus(&jobs, "Complete", spec.successful_jobs_history_limit);
        for job in complete.chain(surplus(&jobs, "Failed", spec.failed_jobs_history_limit)) {
            delete(cx, job).await?;
        }

        let last = last_run(&cron_job, &jobs).or_else(|| cron_job.creation_timestamp());
        let planned = match last {
            Some(Time(last)) if !spec.suspend => {
                runs(&spec.schedule, last, spec.starting_deadline_seconds, now)
            }
            _ => Ok(Runs::default()),
        };
        let (runs, mut problem) = match planned {
            Ok(runs) => (runs, runs.missed.map(|at| ("MissedRun", format!("the run of {at} was too late")))),
            Err(problem) => (Runs::default(), Some(problem)),
        };
        let mut started = Ok(());
        if let Some(time) = runs.due {
            started = start(&cron_job, &jobs, time, cx).await;
        }
        if let Err(error) = &started {
            problem = Some(("JobCreationFailed", error.to_string()));
        }

        // With the Jobs that this run has started and deleted: own writes are read back at once.
        let status = status_of(&cron_job, &self.jobs_of(&cron_job)?, problem, now);
        cx.apply_status(&*cron_job, &status).await?;
        started?;
        let wait = runs.next.map(|next| next.duration_since(now).unsigned_abs());
        Ok(wait.map_or(Action::Done, Action::RequeueAfter))
    }
}

impl<C> CronJobs<C> {
    /// Returns the Jobs of a `CronJob` that are not being deleted, in the order of their names.
    fn jobs_of(&self, cron_job: &CronJob) -> Result<Vec<Arc<Job>>, ReadError> {
        let uid = cron_job.uid().unwrap_or_default();
        let entries = self.jobs.list(&Select::owned_by(&*uid))?;
        let kept = entries.iter().filter(|entry| !entry.meta().deleting);
        let mut jobs = kept.map(Entry::decode).collect::<Result<Vec<_>, _>>()?;
        jobs.sort_by_key(|job| job.name_any());
        Ok(jobs)
    }
}

/// Starts the run of this time, unless it has to wait for active Jobs.
async fn start(
    cron_job: &CronJob,
    jobs: &[Arc<Job>],
    time: Timestamp,
    cx: &Context,
) -> Result<(), ReconcileError> {
    let mut active = jobs.iter().filter(|job| end_of(job).is_none());
    match cron_job.spec.concurrency_policy {
        ConcurrencyPolicy::Forbid if active.next().is_some() => return Ok(()),
        ConcurrencyPolicy::Replace => {
            for job in active {
                delete(cx, job).await?;
            }
        }
        _ => {}
    }
    let job = job_of(cron_job, time);
    if cx.apply(cron_job, &job).await?.is_change() {
        let note = format!("Job {} is the run of {time}", job.name_any());
        cx.events().event(&cron_job.object_ref(&()), EventType::Normal, "JobCreated", "Start", &note);
    }
    Ok(())
}

async fn delete(cx: &Context, job: &Job) -> Result<(), ReconcileError> {
    let api: Api<Job> = Api::namespaced(cx.client().clone(), &job.namespace().unwrap_or_default());
    let same = Preconditions { uid: job.uid(), resource_version: None };
    match api.delete(&job.name_any(), &DeleteParams::background().preconditions(same)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => Ok(deleted.map(drop)?),
    }
}

/// Returns how a Job has ended, `Complete` or `Failed`; `None` while it is active.
fn end_of(job: &Job) -> Option<&str> {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut held = conditions.filter(|one| one.status == "True").map(|one| &*one.type_);
    held.find(|type_| ["Complete", "Failed"].contains(type_))
}

/// Returns the Jobs with this end beyond the newest ones that are kept.
fn surplus<'a>(jobs: &'a [Arc<Job>], end: &str, limit: i32) -> impl Iterator<Item = &'a Arc<Job>> {
    let mut ended: Vec<_> = jobs.iter().filter(|job| end_of(job) == Some(end)).collect();
    ended.sort_by_key(|job| job.status.as_ref().and_then(|status| status.start_time.clone()));
    ended.into_iter().rev().skip(usize::try_from(limit).unwrap_or_default())
}

/// Returns the time of the last run: of its Job, or of the status if the Job has been deleted.
fn last_run(cron_job: &CronJob, jobs: &[Arc<Job>]) -> Option<Time> {
    let known = cron_job.status.as_ref().and_then(|status| status.last_schedule_time.clone());
    let times = jobs.iter().filter_map(|job| job.annotations().get(SCHEDULED_AT)?.parse().ok());
    times.map(Time).chain(known).max()
}

fn job_of(cron_job: &CronJob, time: Timestamp) -> Job {
    let template = cron_job.spec.job_template.clone();
    let given = template.metadata.unwrap_or_default();
    let mut metadata = ObjectMeta {
        // One name for one run, so that no run starts twice.
        name: Some(format!("{}-{}", cron_job.name_any(), time.as_second())),
        labels: given.labels,
        annotations: given.annotations,
        ..ObjectMeta::default()
    };
    metadata.annotations.get_or_insert_default().insert(SCHEDULED_AT.into(), time.to_string());
    Job { metadata, spec: template.spec, ..Job::default() }
}

fn status_of(
    cron_job: &CronJob,
    jobs: &[Arc<Job>],
    problem: Option<Problem>,
    now: Timestamp,
) -> CronJobStatus {
    let active = jobs.iter().filter(|job| end_of(job).is_none());
    // Without the version, which would change the status with each change of the Job.
    let active: Vec<_> =
        active.map(|job| ObjectReference { resource_version: None, ..job.object_ref(&()) }).collect();
    let failed = jobs.iter().filter(|job| end_of(job) == Some("Failed")).count();
    let failure = (failed > 0).then(|| ("JobsFailed", format!("failed Jobs: {failed}")));
    let activity = format!("active Jobs: {}", active.len());
    let (is_available, (reason, message)) = match &failure {
        _ if cron_job.spec.suspend => (false, ("Suspended", "no run is started".into())),
        Some(failure) => (false, failure.clone()),
        None if active.is_empty() => (true, ("AllJobsCompleted", "no Job has failed".into())),
        None => (true, ("JobsActive", activity.clone())),
    };
    let available = ("Available", is_available, reason, message);
    let progress = if active.is_empty() { "NoJobsActive" } else { "JobsActive" };
    let progressing = ("Progressing", !active.is_empty(), progress, activity);
    let problem = problem.or(failure);
    let is_degraded = problem.is_some();
    let (reason, message) = problem.unwrap_or_else(|| ("AsScheduled", "every run was started".into()));
    let known = cron_job.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let wanted = [available, progressing, ("Degraded", is_degraded, reason, message)];
    CronJobStatus {
        active,
        last_schedule_time: last_run(cron_job, jobs),
        conditions: conditions(&cron_job.metadata, known, wanted, now),
    }
}

/// Registers the controller of `CronJob`s with a manager; `now` is its clock.
///
/// # Errors
/// Fails if a controller of this name is registered.
pub fn setup(manager: &Manager, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Result<(), BoxError> {
    let cron_jobs = manager.store(Scope::all());
    let jobs = manager.store(Scope::all());
    let controller = Controller::new("cronjob")
        .reconciles(&cron_jobs)
        .owns(&jobs)
        .writes_status::<CronJob>()
        .needs(Access::to::<Job>(["delete"]).because("deletes old Jobs, and replaces active ones"))
        .reconciler(without_finalizer(&cron_jobs, CronJobs { jobs, now }));
    manager.register(controller)?;
    Ok(())
}

/// Returns the program of this operator.
pub fn program() -> Program {
    Program::new("cronjob-operator", env!("CARGO_PKG_VERSION"), "Starts Jobs by the schedules of CronJobs")
        .crds([CronJob::crd()])
        .controllers(["cronjob"])
        .setup(|manager| setup(manager, Timestamp::now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_fits_the_annotation_of_kubectl_apply() {
        let length = serde_json::to_string(&CronJob::crd()).unwrap().len();
        assert!(length < 256 * 1024, "{length} bytes");
    }
}
