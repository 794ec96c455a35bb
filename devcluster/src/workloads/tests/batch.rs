//! Jobs and `CronJob`s with all controllers.

use super::*;

const JOBS: &str = "batch/v1/jobs/default";
const CRON_JOBS: &str = "batch/v1/cronjobs/default";

fn job(spec: &Value, annotations: &Value) -> Value {
    let template = json!({
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.invalid/main:1"}]},
    });
    let mut job = json!({"metadata": {"name": "a"}, "spec": spec});
    if job["spec"]["template"].is_null() {
        job["spec"]["template"] = template;
    }
    job
}

fn ended(jobs: &[Value], condition: &str) -> bool {
    jobs.iter().any(|job| job.has_condition(condition))
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_until_enough_pods_have_succeeded() {
    let cluster = Cluster::start().await;
    let spec = json!({"completions": 3, "parallelism": 2});
    cluster.create(JOBS, job(&spec, &json!({"devcluster.mainstay.dev/complete-after": "5s"}))).await;
    cluster.idle().await;
    let running = cluster.get(&format!("{JOBS}/a")).await;
    assert_eq!((running.count("/status/active"), running.count("/status/ready")), (2, 2), "{running}");

    let jobs = cluster.until(JOBS, |all| ended(all, "Complete")).await;
    let status = &jobs[0]["status"];
    assert_eq!((&status["succeeded"], &status["active"]), (&json!(3), &Value::Null), "{status}");
    assert_eq!((&status["ready"], &status["terminating"]), (&json!(0), &json!(0)));
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert_eq!(status["startTime"], "2026-01-02T03:04:05Z");
    assert_eq!(status["completionTime"], "2026-01-02T03:04:15Z");
    assert_eq!(
        jobs[0].condition("SuccessCriteriaMet").map(|it| it.text("/reason")),
        Some("CompletionsReached")
    );
    let pods = cluster.list(PODS).await;
    assert!(pods.len() == 3 && pods.iter().all(|pod| pod.list("/metadata/finalizers").is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_job_fails_after_too_many_failed_pods_with_growing_pauses() {
    let cluster = Cluster::start().await;
    let started = Instant::now();
    let crash = json!({"devcluster.mainstay.dev/crash-loop": "true"});
    cluster.create(JOBS, job(&json!({"backoffLimit": 2}), &crash)).await;
    let jobs = cluster.until(JOBS, |all| ended(all, "Failed")).await;
    assert_eq!(started.elapsed().as_secs(), 30, "10 s, then 20 s");
    assert_eq!(jobs[0]["status"]["failed"], 3);
    for condition in ["FailureTarget", "Failed"] {
        let reason = jobs[0].condition(condition).map(|it| it.text("/reason"));
        assert_eq!(reason, Some("BackoffLimitExceeded"));
    }
    assert!(cluster.list(PODS).await.iter().all(|pod| pod["status"]["phase"] == "Failed"));
}

#[tokio::test(start_paused = true)]
async fn a_job_ends_at_its_deadline_and_goes_after_its_time_to_live() {
    let cluster = Cluster::start().await;
    let spec = json!({"activeDeadlineSeconds": 20, "ttlSecondsAfterFinished": 60, "parallelism": 2});
    cluster.create(JOBS, job(&spec, &json!({"devcluster.mainstay.dev/never-ready": "true"}))).await;
    let started = Instant::now();
    let jobs = cluster.until(JOBS, |all| ended(all, "Failed")).await;
    assert_eq!(jobs[0].condition("Failed").map(|it| it.text("/reason")), Some("DeadlineExceeded"));
    assert_eq!(jobs[0]["status"]["failed"], 2);
    cluster.until(PODS, <[Value]>::is_empty).await;
    cluster.until(JOBS, <[Value]>::is_empty).await;
    assert!((80..=82).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_indexed_job_has_a_pod_for_each_index() {
    let cluster = Cluster::start().await;
    let spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 3});
    cluster.create(JOBS, job(&spec, &json!({"devcluster.mainstay.dev/complete-after": "5"}))).await;
    let jobs = cluster.until(JOBS, |all| ended(all, "Complete")).await;
    assert_eq!(
        (&jobs[0]["status"]["succeeded"], &jobs[0]["status"]["completedIndexes"]),
        (&json!(4), &json!("0-3"))
    );
    let pods = cluster.list(PODS).await;
    let mut hosts: Vec<_> = pods.iter().map(|pod| pod.text("/spec/hostname")).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["a-0", "a-1", "a-2", "a-3"]);
    assert_eq!(pods[0].text("/spec/containers/0/env/0/name"), "JOB_COMPLETION_INDEX");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_has_no_pods() {
    let cluster = Cluster::start().await;
    let slow = json!({"devcluster.mainstay.dev/complete-after": "60"});
    cluster.create(JOBS, job(&json!({"suspend": true, "completions": 1}), &slow)).await;
    let jobs = cluster.until(JOBS, |all| ended(all, "Suspended")).await;
    assert!(jobs[0]["status"]["startTime"].is_null() && cluster.list(PODS).await.is_empty());

    let path = format!("{JOBS}/a");
    cluster.patch(&path, json!({"spec": {"suspend": false}})).await;
    cluster.until(JOBS, |all| all[0].count("/status/ready") == 1).await;
    cluster.patch(&path, json!({"spec": {"suspend": true}})).await;
    cluster.until(PODS, <[Value]>::is_empty).await;
    let jobs =
        cluster.until(JOBS, |all| ended(all, "Suspended") && all[0].count("/status/active") == 0).await;
    assert_eq!(jobs[0]["status"]["failed"], Value::Null, "deleted Pods do not count");

    cluster.patch(&path, json!({"spec": {"suspend": false}})).await;
    let jobs = cluster.until(JOBS, |all| ended(all, "Complete")).await;
    assert_eq!(jobs[0].condition("Suspended").map(|it| it.text("/reason")), Some("JobResumed"));
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_deleted_job_go_with_it() {
    let cluster = Cluster::start().await;
    for policy in ["Background", "Foreground"] {
        let spec = json!({"completions": 2, "parallelism": 2});
        cluster.create(JOBS, job(&spec, &json!({"devcluster.mainstay.dev/complete-after": "60"}))).await;
        cluster.until(PODS, |all| all.len() == 2).await;
        let options = json!({ "propagationPolicy": policy });
        cluster.call(api::Verb::Delete, &format!("{JOBS}/a"), options).await;
        cluster.until(PODS, <[Value]>::is_empty).await;
        cluster.until(JOBS, <[Value]>::is_empty).await;
    }
}

fn cron_job(spec: &Value, annotations: &Value) -> Value {
    let mut spec = spec.clone();
    spec["jobTemplate"] = json!({
        "metadata": {"labels": {"app": "report"}},
        "spec": job(&json!({}), annotations)["spec"],
    });
    json!({"metadata": {"name": "report"}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_starts_jobs_by_its_schedule_and_keeps_the_newest() {
    let cluster = Cluster::start().await;
    let spec = json!({"schedule": "*/10 * * * *", "successfulJobsHistoryLimit": 2});
    cluster.create(CRON_JOBS, cron_job(&spec, &json!({}))).await;
    tokio::time::sleep(Duration::from_mins(36)).await;
    let jobs = cluster.list(JOBS).await;
    let times: Vec<_> = jobs
        .iter()
        .filter_map(|job| job.annotation("batch.kubernetes.io/cronjob-scheduled-timestamp"))
        .collect();
    assert_eq!(times, ["2026-01-02T03:30:00Z", "2026-01-02T03:40:00Z"]);
    assert!(jobs.iter().all(|job| job.has_condition("Complete") && job.label("app") == Some("report")));
    let report = cluster.get(&format!("{CRON_JOBS}/report")).await;
    assert_eq!(report["status"]["lastScheduleTime"], "2026-01-02T03:40:00Z");
    assert_eq!(report["status"]["lastSuccessfulTime"], "2026-01-02T03:40:00Z");
    assert_eq!(report["status"]["active"], Value::Null);
    assert_eq!(jobs[1].name(), "report-29455420");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_still_runs_stops_or_is_replaced_by_the_next_one() {
    for (policy, expected) in [("Forbid", 1), ("Replace", 1), ("Allow", 3)] {
        let cluster = Cluster::start().await;
        let spec = json!({"schedule": "* * * * *", "concurrencyPolicy": policy});
        let slow = json!({"devcluster.mainstay.dev/complete-after": "1000"});
        cluster.create(CRON_JOBS, cron_job(&spec, &slow)).await;
        tokio::time::sleep(Duration::from_mins(3)).await;
        let jobs = cluster.list(JOBS).await;
        assert_eq!(jobs.len(), expected, "{policy}");
        let report = cluster.get(&format!("{CRON_JOBS}/report")).await;
        assert_eq!(report.list("/status/active").len(), expected, "{policy}: {report}");
        let newest = if policy == "Forbid" { "2026-01-02T03:05:00Z" } else { "2026-01-02T03:07:00Z" };
        assert_eq!(report["status"]["lastScheduleTime"], newest, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_zone_and_a_suspension_apply_to_the_schedule() {
    let cluster = Cluster::start().await;
    let spec = json!({"schedule": "30 4 * * *", "timeZone": "Europe/Berlin", "suspend": true});
    cluster.create(CRON_JOBS, cron_job(&spec, &json!({}))).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(cluster.list(JOBS).await.is_empty());
    cluster.patch(&format!("{CRON_JOBS}/report"), json!({"spec": {"suspend": false}})).await;
    let jobs = cluster.until(JOBS, |all| !all.is_empty()).await;
    let time = jobs[0].annotation("batch.kubernetes.io/cronjob-scheduled-timestamp");
    assert_eq!(time, Some("2026-01-02T04:30:00+01:00"), "the time that was missed meanwhile");
}
