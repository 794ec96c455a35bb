//! Workloads: the kinds whose controllers create Pods, their revisions and disruption budgets.

use serde_json::{Value, json};

use super::view::View;
use super::{duration, text};

/// The conditions of a Job that give it a status, in the order in which they count; `None` is the deletion.
const JOB_STATUS: [(Option<&str>, &str); 6] = [
    (Some("Complete"), "Complete"),
    (Some("Failed"), "Failed"),
    (None, "Terminating"),
    (Some("Suspended"), "Suspended"),
    (Some("FailureTarget"), "FailureTarget"),
    (Some("SuccessCriteriaMet"), "SuccessCriteriaMet"),
];

pub(super) fn replication_controller(controller: &View<'_>) -> Value {
    replicas(controller, &text::labels(controller.map("/spec/selector")))
}

pub(super) fn replica_set(set: &View<'_>) -> Value {
    replicas(set, &text::selector_or_none(&set.part("/spec/selector")))
}

fn replicas(set: &View<'_>, selector: &str) -> Value {
    let (names, images) = text::containers(&set.part("/spec/template"));
    json!([
        set.name(),
        set.number("/spec/replicas"),
        set.number("/status/replicas"),
        set.number("/status/readyReplicas"),
        set.age(),
        names,
        images,
        selector,
    ])
}

pub(super) fn deployment(deployment: &View<'_>) -> Value {
    let (names, images) = text::containers(&deployment.part("/spec/template"));
    json!([
        deployment.name(),
        ready(deployment),
        deployment.number("/status/updatedReplicas"),
        deployment.number("/status/availableReplicas"),
        deployment.age(),
        names,
        images,
        text::selector(&deployment.part("/spec/selector")).unwrap_or_default(),
    ])
}

pub(super) fn stateful_set(set: &View<'_>) -> Value {
    let (names, images) = text::containers(&set.part("/spec/template"));
    json!([set.name(), ready(set), set.age(), names, images])
}

fn ready(of: &View<'_>) -> String {
    format!("{}/{}", of.number("/status/readyReplicas"), of.number("/spec/replicas"))
}

pub(super) fn daemon_set(set: &View<'_>) -> Value {
    let (names, images) = text::containers(&set.part("/spec/template"));
    let count = |field: &str| set.number(&format!("/status/{field}"));
    json!([
        set.name(),
        count("desiredNumberScheduled"),
        count("currentNumberScheduled"),
        count("numberReady"),
        count("updatedNumberScheduled"),
        count("numberAvailable"),
        text::labels(set.map("/spec/template/spec/nodeSelector")),
        set.age(),
        names,
        images,
        text::selector_or_none(&set.part("/spec/selector")),
    ])
}

pub(super) fn job(job: &View<'_>) -> Value {
    let succeeded = job.number("/status/succeeded");
    let completions = match (job.get("/spec/completions"), job.number("/spec/parallelism")) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let lasted = match (job.time("/status/startTime"), job.time("/status/completionTime")) {
        (None, _) => String::new(),
        (Some(start), None) => job.ago(start),
        (Some(start), Some(end)) => duration::human(end.duration_since(start)),
    };
    let holds = |condition: Option<&str>| match condition {
        None => job.is_terminating(),
        Some(name) => {
            job.condition("/status/conditions", name).is_some_and(|it| it.text("/status") == "True")
        }
    };
    let status = JOB_STATUS.iter().find(|(condition, _)| holds(*condition));
    let (names, images) = text::containers(&job.part("/spec/template"));
    json!([
        job.name(),
        status.map_or("Running", |(_, status)| status),
        completions,
        lasted,
        job.age(),
        names,
        images,
        text::selector_or_none(&job.part("/spec/selector")),
    ])
}

pub(super) fn cron_job(job: &View<'_>) -> Value {
    let last = if job.has("/status/lastScheduleTime") {
        job.since("/status/lastScheduleTime")
    } else {
        "<none>".to_owned()
    };
    let suspended = match job.get("/spec/suspend").and_then(Value::as_bool) {
        None => "<unset>",
        Some(true) => "True",
        Some(false) => "False",
    };
    let (names, images) = text::containers(&job.part("/spec/jobTemplate/spec/template"));
    json!([
        job.name(),
        job.text("/spec/schedule"),
        job.get("/spec/timeZone").and_then(Value::as_str).unwrap_or("<none>"),
        suspended,
        job.count("/status/active"),
        last,
        job.age(),
        names,
        images,
        text::selector_or_none(&job.part("/spec/jobTemplate/spec/selector")),
    ])
}

pub(super) fn controller_revision(revision: &View<'_>) -> Value {
    let owner = revision.list("/metadata/ownerReferences").find(|owner| owner.flag("/controller"));
    let controller = owner.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let kind = owner.text("/kind").to_lowercase();
            let group = owner.text("/apiVersion").split_once('/').map(|(group, _)| format!(".{group}"));
            format!("{kind}{}/{}", group.unwrap_or_default(), owner.text("/name"))
        },
    );
    json!([revision.name(), controller, revision.number("/revision"), revision.age()])
}

pub(super) fn disruption_budget(budget: &View<'_>) -> Value {
    let limit = |pointer: &str| budget.shown(pointer).unwrap_or_else(|| "N/A".to_owned());
    json!([
        budget.name(),
        limit("/spec/minAvailable"),
        limit("/spec/maxUnavailable"),
        budget.number("/status/disruptionsAllowed"),
        budget.age(),
    ])
}
