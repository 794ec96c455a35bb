//! `CronJob`s: creates a Job at each time of the schedule, lists the running ones in the status, and deletes
//! finished ones beyond the limits of the history.

use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::Decision;
use super::client::Request;
use super::job::is_finished;
use super::object::{Object as _, controller_reference, differ, seconds};
use super::resources;
use crate::kinds::cron::Schedule;

/// The annotation of a Job with the time of the schedule that it stands for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Longest number of missed times that is searched one by one.
const MOST_MISSED: usize = 100;

/// Returns the requests of a `CronJob`; `jobs` are the Jobs of its namespace.
pub(super) fn decide<'a>(
    cron_job: &Value,
    jobs: impl IntoIterator<Item = &'a Arc<Value>>,
    now: Timestamp,
) -> Decision {
    let jobs: Vec<&Value> =
        jobs.into_iter().filter(|job| job.is_controlled_by(cron_job.uid())).map(|job| &**job).collect();
    let mut status = cron_job["status"].as_object().cloned().unwrap_or_default();
    let mut active = cron_job.list("/status/active").to_vec();
    let running = |uid: &str| jobs.iter().any(|job| job.uid() == uid && !is_finished(job));
    active.retain(|entry| running(entry.text("/uid")));
    let succeeded = jobs.iter().filter(|job| job.has_condition("Complete"));
    let last_success = succeeded.filter_map(|job| job.time("/status/completionTime")).max();
    if let Some(time) = last_success.max(cron_job.time("/status/lastSuccessfulTime")) {
        status.insert("lastSuccessfulTime".to_owned(), seconds(time));
    }

    let mut requests = surplus(cron_job, &jobs);
    let mut last_schedule = cron_job.time("/status/lastScheduleTime");
    let zone = cron_job.at("/spec/timeZone").as_str().map_or(Ok(TimeZone::UTC), TimeZone::get);
    let schedule = Schedule::parse(cron_job.text("/spec/schedule"));
    let mut again_at = None;
    if let (Ok(schedule), Ok(zone), false, false) =
        (schedule, zone, cron_job.is_deleting(), cron_job["spec"]["suspend"] == true)
    {
        let due = due(cron_job, &schedule, &zone, now).filter(|time| {
            let name = job_name(cron_job, *time);
            last_schedule != Some(*time) && !jobs.iter().any(|job| job.name() == name)
        });
        if let Some(time) = due {
            let policy = cron_job.text("/spec/concurrencyPolicy");
            if policy == "Replace" {
                let replaced = jobs.iter().filter(|job| active.iter().any(|it| it.text("/uid") == job.uid()));
                requests.extend(replaced.map(|job| deletion(job)));
            }
            if policy != "Forbid" || active.is_empty() {
                requests.push(Request::create(&resources::jobs(), job(cron_job, time, &zone)));
            }
        }
        again_at = schedule.next(now, &zone);
    }
    // A Job enters the status at the event of its creation, because only then it has a uid.
    for job in &jobs {
        let time = job.annotation(SCHEDULED).and_then(|time| time.parse::<Timestamp>().ok());
        if time.is_none() {
            continue;
        }
        last_schedule = last_schedule.max(time);
        let listed = active.iter().any(|entry| entry.text("/uid") == job.uid());
        if !listed && !is_finished(job) && !job.is_deleting() {
            active.push(reference(job));
        }
    }
    if let Some(time) = last_schedule {
        status.insert("lastScheduleTime".to_owned(), seconds(time));
    }
    if active.is_empty() {
        status.remove("active");
    } else {
        status.insert("active".to_owned(), active.into());
    }
    let status = Value::Object(status);
    if differ(&cron_job["status"], &status) {
        let mut cron_job = cron_job.clone();
        cron_job["status"] = status;
        requests.push(Request::update_status(&resources::cron_jobs(), cron_job));
    }
    Decision { requests, again_at }
}

/// Returns the newest time of the schedule up to now that has not started a Job, unless it is too late for
/// it. It is searched only near now, as in kube-controller-manager.
fn due(cron_job: &Value, schedule: &Schedule, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
    let created = cron_job.time("/metadata/creationTimestamp")?;
    let mut earliest = cron_job.time("/status/lastScheduleTime").unwrap_or(created);
    let limit = cron_job.int("/spec/startingDeadlineSeconds").map(SignedDuration::from_secs);
    if let Some(start) = limit.and_then(|limit| now.checked_sub(limit).ok()) {
        earliest = earliest.max(start);
    }
    let first = schedule.next(earliest, zone).filter(|first| *first <= now)?;
    let second = schedule.next(first, zone)?;
    if second > now {
        return Some(first);
    }
    // The schedule may be years behind: skips most of the missed times by the distance of the first two.
    let distance = second.as_second() - first.as_second();
    let missed = (now.as_second() - first.as_second()) / distance.max(1);
    let skipped = SignedDuration::from_secs(distance.saturating_mul((missed - 1).max(0)));
    let start = first.checked_add(skipped).unwrap_or(first);
    let times = std::iter::successors(schedule.next(start, zone), |time| schedule.next(*time, zone));
    times.take_while(|time| *time <= now).take(MOST_MISSED).last()
}

/// Returns the deletions of the oldest finished Jobs beyond the limits of the history.
fn surplus(cron_job: &Value, jobs: &[&Value]) -> Vec<Request> {
    let mut requests = Vec::new();
    for (field, end) in [("successfulJobsHistoryLimit", "Complete"), ("failedJobsHistoryLimit", "Failed")] {
        let Some(limit) = cron_job.int(&format!("/spec/{field}")) else { continue };
        let mut ended: Vec<_> =
            jobs.iter().filter(|job| job.has_condition(end) && !job.is_deleting()).collect();
        ended.sort_by_key(|job| (job.time("/status/startTime"), job.name().to_owned()));
        let count = ended.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        requests.extend(ended.into_iter().take(count).map(|job| deletion(job)));
    }
    requests
}

fn deletion(job: &Value) -> Request {
    Request::delete(&resources::jobs(), job, json!({"propagationPolicy": "Background"}))
}

fn job_name(cron_job: &Value, time: Timestamp) -> String {
    format!("{}-{}", cron_job.name(), time.as_second() / 60)
}

fn reference(job: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job.name(),
        "namespace": job.namespace(),
        "resourceVersion": job["metadata"]["resourceVersion"],
        "uid": job.uid(),
    })
}

/// Returns the Job for a time of the schedule.
fn job(cron_job: &Value, time: Timestamp, zone: &TimeZone) -> Value {
    let template = cron_job.at("/spec/jobTemplate");
    let mut annotations = template["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let local = time.to_zoned(zone.clone());
    let offset = if local.offset().is_zero() { "Z" } else { "%:z" };
    let text = local.strftime(&format!("%Y-%m-%dT%H:%M:%S{offset}")).to_string();
    annotations.insert(SCHEDULED.to_owned(), text.into());
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), job_name(cron_job, time).into());
    metadata.insert("namespace".to_owned(), cron_job.namespace().into());
    if !template["metadata"]["labels"].is_null() {
        metadata.insert("labels".to_owned(), template["metadata"]["labels"].clone());
    }
    metadata.insert("annotations".to_owned(), annotations.into());
    metadata
        .insert("ownerReferences".to_owned(), json!([controller_reference(cron_job, "batch/v1", "CronJob")]));
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due_at(spec: &Value, now: &str) -> Option<String> {
        let cron_job = json!({
            "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec,
        });
        let schedule = Schedule::parse(cron_job.text("/spec/schedule")).expect("a schedule");
        let now = now.parse().expect("a time");
        due(&cron_job, &schedule, &TimeZone::UTC, now).map(|time| time.to_string())
    }

    #[test]
    fn of_several_missed_times_the_newest_is_due() {
        let hourly = json!({"schedule": "0 * * * *"});
        assert_eq!(due_at(&hourly, "2026-01-01T00:59:59Z"), None);
        assert_eq!(due_at(&hourly, "2026-01-01T01:00:00Z").as_deref(), Some("2026-01-01T01:00:00Z"));
        assert_eq!(due_at(&hourly, "2028-03-04T05:06:07Z").as_deref(), Some("2028-03-04T05:00:00Z"));
        let weekdays = json!({"schedule": "30 6-16/4 * * 1-5"});
        assert_eq!(due_at(&weekdays, "2026-02-27T15:00:00Z").as_deref(), Some("2026-02-27T14:30:00Z"));
        // As in kube-controller-manager: after a long gap in the schedule, the time before it is not found.
        assert_eq!(due_at(&weekdays, "2026-03-01T12:00:00Z"), None);
    }

    #[test]
    fn a_time_before_the_starting_deadline_is_not_due() {
        let strict = json!({"schedule": "0 * * * *", "startingDeadlineSeconds": 10});
        assert_eq!(due_at(&strict, "2026-01-01T01:00:09Z").as_deref(), Some("2026-01-01T01:00:00Z"));
        assert_eq!(due_at(&strict, "2026-01-01T01:00:11Z"), None);
    }
}
