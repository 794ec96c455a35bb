//! The scenarios of kubebuilder's `CronJob` tutorial. The test sets the operator's clock, and its Jobs are
//! suspended, so that they are active until the test ends them.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use mainstay_operators::cron_job::{self, CronJob};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;

const SAMPLE: &str = include_str!("../../../../operators/samples/cron-job/cron-job.yaml");

/// A clock that goes on from the time to which it was set.
#[derive(Clone)]
struct Clock(Arc<Mutex<Setting>>);

struct Setting {
    time: Timestamp,
    at: Instant,
    /// How often the clock has been read since it was set.
    reads: usize,
}

/// The `CronJob` of a test, with its Jobs and the clock of the operator.
struct Bench {
    cron_jobs: Objects<CronJob>,
    jobs: Objects<Job>,
    clock: Clock,
    name: &'static str,
    uid: String,
    /// The first full hour after the creation.
    start: Timestamp,
}

/// Returns a template of Jobs that stay active until their status says that they have ended.
fn template() -> Value {
    let pod = json!({
        "restartPolicy": "OnFailure",
        "containers": [{"name": "main", "image": "example.invalid/main:1"}],
    });
    json!({
        "metadata": {"labels": {"team": "blue"}, "annotations": {"note": "kept"}},
        "spec": {"suspend": true, "template": {"spec": pod}},
    })
}

fn ended(object: &Value) -> bool {
    object["status"]["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["type"] == "Complete"))
}

// === impl Clock ===

impl Clock {
    fn new(time: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(Setting { time, at: Instant::now(), reads: 0 })))
    }

    fn set(&self, time: Timestamp) {
        *self.0.lock() = Setting { time, at: Instant::now(), reads: 0 };
    }

    fn read(&self) -> Timestamp {
        let mut setting = self.0.lock();
        setting.reads += 1;
        setting.time + SignedDuration::try_from(setting.at.elapsed()).unwrap_or_default()
    }
}

// === impl Bench ===

impl Bench {
    /// Creates a `CronJob` that is due each full hour.
    async fn new(cluster: &TestCluster, clock: &Clock, name: &'static str) -> Result<Self, BoxError> {
        let (cron_jobs, jobs) = (Objects::<CronJob>::of(cluster), Objects::of(cluster));
        let spec = json!({"schedule": "0 * * * *", "jobTemplate": template()});
        let made = cron_jobs.create(json!({"metadata": {"name": name}, "spec": spec})).await?;
        let created = made.metadata.creation_timestamp.ok_or("no creation timestamp")?.0;
        let hour = created.as_second() / 3600;
        let (clock, start) = (clock.clone(), Timestamp::from_second((hour + 1) * 3600)?);
        Ok(Self { cron_jobs, jobs, clock, name, uid: made.metadata.uid.ok_or("no uid")?, start })
    }

    /// Returns the time of the run of this number.
    fn run(&self, number: i64) -> Timestamp {
        self.start + SignedDuration::from_hours(number)
    }

    fn job_name(&self, number: i64) -> String {
        format!("{}-{}", self.name, self.run(number).as_second())
    }

    /// Patches the spec, then sets the clock to a time after a run, and waits until a reconcile with both has
    /// ended.
    async fn at(&self, number: i64, late: SignedDuration, spec: Value) -> Result<(), BoxError> {
        let patched = self.cron_jobs.patch(self.name, json!({ "spec": spec })).await?;
        let generation = json!(patched.metadata.generation);
        let seen =
            move |object: &Value| generation == object["status"]["conditions"][0]["observedGeneration"];
        self.cron_jobs.until(self.name, "is reconciled", seen).await?;
        self.clock.set(self.run(number) + late);
        // The second read is that of a reconcile after the first one has ended.
        for reads in 1..=2 {
            let annotations = json!({"mainstay.dev/reconcile-at": format!("{number} {late} {reads}")});
            self.cron_jobs.patch(self.name, json!({"metadata": {"annotations": annotations}})).await?;
            let read = async || match self.clock.0.lock().reads {
                found if found >= reads => Ok(()),
                found => Err(format!("the clock was read {found} times")),
            };
            eventually(Duration::from_secs(30), read).await?;
        }
        Ok(())
    }

    /// Waits until the `CronJob` lists exactly the Jobs of these runs as active, and returns it.
    async fn active(&self, runs: &[i64]) -> Result<Value, BoxError> {
        let names: Vec<String> = runs.iter().map(|run| self.job_name(*run)).collect();
        let expected = format!("has the active Jobs {names:?}");
        let listed = move |object: &Value| {
            let active = object["status"]["active"].as_array().map_or(&[][..], Vec::as_slice);
            active.iter().map(|job| job["name"].as_str().unwrap_or_default()).eq(&names)
        };
        self.cron_jobs.until(self.name, &expected, listed).await
    }

    /// Waits until the condition of this type has this status and reason.
    async fn condition(&self, type_: &'static str, status: &str, reason: &str) -> Result<Value, BoxError> {
        let wanted = (status.to_owned(), reason.to_owned());
        let holds =
            move |object: &Value| condition(object, type_) == Some((wanted.0.as_str(), wanted.1.as_str()));
        self.cron_jobs.until(self.name, &format!("is {type_} {status}, {reason}"), holds).await
    }

    /// Creates a Job that the `CronJob` owns, as the test of the tutorial does.
    async fn own(&self, name: &str) -> Result<(), BoxError> {
        let owner = json!({
            "apiVersion": "batch.tutorial.kubebuilder.io/v1", "kind": "CronJob", "name": self.name,
            "uid": self.uid, "controller": true,
        });
        let metadata = json!({"name": name, "ownerReferences": [owner]});
        let job = json!({"metadata": metadata, "spec": template()["spec"]});
        self.jobs.create(job).await.map(drop)
    }

    /// Writes the status of a Job that has ended, and started this number of minutes ago.
    async fn end(&self, name: &str, end: &str, minutes: i64) -> Result<(), BoxError> {
        let start = Timestamp::now() - SignedDuration::from_mins(minutes);
        let start = start.strftime("%FT%TZ").to_string();
        let before = if end == "Failed" { "FailureTarget" } else { "SuccessCriteriaMet" };
        let conditions = [before, end].map(|type_| json!({"type": type_, "status": "True"}));
        let mut status = json!({"startTime": start, "conditions": conditions});
        if end == "Complete" {
            status["completionTime"] = start.into();
        }
        self.jobs.patch_status(name, status).await.map(drop)
    }
}

/// The test of the tutorial: the status follows a Job that becomes active, and old Jobs are deleted.
async fn tutorial(cluster: &TestCluster, clock: &Clock) -> Result<(), BoxError> {
    let bench = Bench::new(cluster, clock, "tutorial").await?;
    let idle = bench.condition("Available", "True", "AllJobsCompleted").await?;
    assert_eq!(idle["status"]["active"], Value::Null);
    assert_eq!(condition(&idle, "Degraded"), Some(("False", "AsScheduled")));
    let limits = [&idle["spec"]["successfulJobsHistoryLimit"], &idle["spec"]["failedJobsHistoryLimit"]];
    assert_eq!((limits, &idle["spec"]["concurrencyPolicy"]), ([&json!(3), &json!(1)], &json!("Allow")));

    bench.own("test-job").await?;
    let active = bench.condition("Available", "True", "JobsActive").await?;
    assert_eq!(active["status"]["active"][0]["name"], "test-job");
    assert_eq!(active["status"]["active"].as_array().map(Vec::len), Some(1));
    assert_eq!(condition(&active, "Progressing"), Some(("True", "JobsActive")));

    bench.cron_jobs.patch("tutorial", json!({"spec": {"successfulJobsHistoryLimit": 1}})).await?;
    for (name, end, minutes) in [
        ("failed-old", "Failed", 2),
        ("failed-new", "Failed", 1),
        ("complete-old", "Complete", 2),
        ("complete-new", "Complete", 1),
    ] {
        bench.own(name).await?;
        bench.end(name, end, minutes).await?;
    }
    bench.jobs.gone("failed-old").await?;
    bench.jobs.gone("complete-old").await?;
    bench.condition("Degraded", "True", "JobsFailed").await?;
    bench.condition("Available", "False", "JobsFailed").await?;
    for kept in ["failed-new", "complete-new", "test-job"] {
        bench.jobs.0.get(kept).await?;
    }

    // The Jobs are deleted with their owner.
    bench.cron_jobs.delete("tutorial").await?;
    bench.jobs.gone("test-job").await
}

/// Runs start by the schedule and the concurrency policy.
async fn schedule(bench: &Bench) -> Result<(), BoxError> {
    let (at_once, none) = (SignedDuration::ZERO, json!({}));
    // The clock passes the time of the run by itself.
    bench.at(0, SignedDuration::from_millis(-300), none.clone()).await?;
    let first = bench.active(&[0]).await?;
    assert_eq!(first["status"]["lastScheduleTime"], bench.run(0).to_string());
    let job = json!(bench.jobs.0.get(&bench.job_name(0)).await?)["metadata"].clone();
    let scheduled = &job["annotations"]["batch.tutorial.kubebuilder.io/scheduled-at"];
    assert_eq!((scheduled, &job["annotations"]["note"]), (&json!(bench.run(0).to_string()), &json!("kept")));
    assert_eq!(
        (&job["labels"]["team"], &job["ownerReferences"][0]["name"]),
        (&json!("blue"), &json!("hourly"))
    );

    // Of several missed runs only the newest starts, beside the active one.
    bench.at(3, SignedDuration::from_mins(10), none.clone()).await?;
    bench.active(&[0, 3]).await?;

    // Forbid waits until no Job is active, and starts the run late.
    bench.at(4, at_once, json!({"concurrencyPolicy": "Forbid"})).await?;
    bench.active(&[0, 3]).await?;
    bench.end(&bench.job_name(0), "Complete", 2).await?;
    bench.active(&[3]).await?;
    bench.end(&bench.job_name(3), "Complete", 1).await?;
    bench.active(&[4]).await?;

    // Replace deletes active Jobs.
    bench.at(5, at_once, json!({"concurrencyPolicy": "Replace"})).await?;
    bench.active(&[5]).await?;
    bench.jobs.gone(&bench.job_name(4)).await?;

    // Nothing starts while the object is suspended; then the run starts late.
    bench.at(6, at_once, json!({"suspend": true})).await?;
    bench.condition("Available", "False", "Suspended").await?;
    bench.active(&[5]).await?;
    bench.at(6, at_once, json!({"suspend": false})).await?;
    bench.active(&[6]).await.map(drop)
}

/// Runs that are too late, too many or impossible are reported, and nothing starts.
async fn problems(bench: &Bench) -> Result<(), BoxError> {
    let (at_once, late) = (SignedDuration::ZERO, SignedDuration::from_mins(10));
    bench.at(7, late, json!({"startingDeadlineSeconds": 60})).await?;
    bench.condition("Degraded", "True", "MissedRun").await?;
    bench.active(&[6]).await?;
    bench.at(8, SignedDuration::from_secs(30), json!({"startingDeadlineSeconds": 120})).await?;
    bench.active(&[8]).await?;
    bench.condition("Degraded", "False", "AsScheduled").await?;

    bench.at(110, at_once, json!({"startingDeadlineSeconds": null})).await?;
    bench.condition("Degraded", "True", "TooManyMissedRuns").await?;
    bench.active(&[8]).await?;

    bench.at(110, at_once, json!({"schedule": "61 * * * *", "startingDeadlineSeconds": 60})).await?;
    let invalid = bench.condition("Degraded", "True", "InvalidSchedule").await?;
    let message = invalid["status"]["conditions"][2]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("schedule \"61 * * * *\": "), "{message}");

    let pod = |policy: &str| json!({"template": {"spec": {"restartPolicy": policy}}});
    let wrong = json!({"schedule": "0 * * * *", "jobTemplate": {"spec": pod("Always")}});
    bench.at(111, at_once, wrong).await?;
    bench.condition("Degraded", "True", "JobCreationFailed").await?;
    bench.at(111, at_once, json!({"jobTemplate": {"spec": pod("Never")}})).await?;
    bench.active(&[111]).await?;

    // A run is not repeated after its Job has been deleted.
    bench.at(111, late, json!({"successfulJobsHistoryLimit": 0, "startingDeadlineSeconds": null})).await?;
    bench.end(&bench.job_name(111), "Complete", 1).await?;
    bench.jobs.gone(&bench.job_name(111)).await?;
    let idle = bench.active(&[]).await?;
    assert_eq!(idle["status"]["lastScheduleTime"], bench.run(111).to_string());
    bench.condition("Degraded", "False", "AsScheduled").await.map(drop)
}

async fn scenarios(cluster: &TestCluster, clock: &Clock) -> Result<(), BoxError> {
    tutorial(cluster, clock).await?;
    let bench = Bench::new(cluster, clock, "hourly").await?;
    schedule(&bench).await?;
    problems(&bench).await?;

    // The Job of the sample runs to its end. The sample is due each minute, so it is created in the past.
    clock.set(Timestamp::now() - SignedDuration::from_hours(1));
    let sample: Value = serde_saphyr::from_str(SAMPLE)?;
    let created = bench.cron_jobs.create(sample).await?.metadata.creation_timestamp.ok_or("no time")?.0;
    let minute = Timestamp::from_second((created.as_second() / 60 + 1) * 60)?;
    clock.set(minute);
    let wake = json!({"metadata": {"annotations": {"mainstay.dev/reconcile-at": minute.to_string()}}});
    bench.cron_jobs.patch("cronjob-sample", wake).await?;
    bench.jobs.until(&format!("cronjob-sample-{}", minute.as_second()), "is complete", ended).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_job_starts_its_jobs_by_schedule_and_policy() {
    let Some(cluster) = TestCluster::shared().await else { return };
    // Behind the clock of the API server: no run is due before the test sets the clock.
    let clock = Clock::new(Timestamp::now() - SignedDuration::from_hours(1));
    let (program, read) = (cron_job::program(), clock.clone());
    let setup = |manager: &Manager| cron_job::setup(manager, move || read.read());
    run::<CronJob>(&cluster, &program, setup, async || Box::pin(scenarios(&cluster, &clock)).await).await;
    cluster.stop().await;
}
