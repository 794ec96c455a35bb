//! Validation of Jobs and `CronJob`s.

mod status;

use jiff::tz::TimeZone;
use serde_json::{Map, Value};

use super::{Checks, pods, selectors};
use crate::kinds::cron::Schedule;
use crate::kinds::{FieldError, names};

pub(super) use status::check_job_status;

/// The numbers of a Job that must not be negative.
const COUNTS: [&str; 7] = [
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
];
const MAX_MANAGED_BY: usize = 63;
const MAX_INDEXED: i64 = 100_000;
const MAX_CRON_NAME: usize = 52;
/// The longest part of the name of a time zone between slashes, in bytes.
const MAX_ZONE_PART: usize = 14;

/// Checks the `spec` of a Job with its selector.
pub(super) fn check_job(checks: &mut Checks, job: &Value) {
    let spec = &job["spec"];
    check_spec(checks, "spec", spec);
    let selector = &spec["selector"];
    if selector.is_null() && spec["manualSelector"] != true {
        // The server makes one before it validates the Job.
        return;
    }
    if selector.is_null() {
        checks.add(FieldError::required("spec.selector", ""));
    } else {
        selectors::check(checks, "spec.selector", selector);
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if selector.is_null() || selectors::matches(selector, labels) == Some(false) {
        let text = "`selector` does not match template `labels`";
        checks.add(FieldError::invalid("spec.template.metadata.labels", labels, text));
    }
}

/// Checks the labels of a Job that selects its Pods by its uid.
pub(super) fn check_generated(checks: &mut Checks, job: &Value) {
    let (spec, metadata) = (&job["spec"], &job["metadata"]);
    let name = metadata["name"].as_str().unwrap_or_default();
    let last = spec["completions"].as_i64().filter(|count| *count > 0).map(|count| count - 1);
    if spec["completionMode"] == "Indexed"
        && let Some(last) = last
        && !names::dns1123_label(&format!("{name}-{last}")).is_empty()
    {
        let text = format!("will not able to create pod with invalid DNS label: {name}-{last}");
        checks.add(FieldError::invalid("metadata.name", &metadata["name"], &text));
    }
    if spec["manualSelector"] == true || spec["selector"].is_null() {
        return;
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let mut expected = Map::new();
    for (label, value) in [
        ("controller-uid", &metadata["uid"]),
        ("job-name", &metadata["name"]),
        ("batch.kubernetes.io/controller-uid", &metadata["uid"]),
        ("batch.kubernetes.io/job-name", &metadata["name"]),
    ] {
        expected.insert(label.to_owned(), value.clone());
        if labels[label] == *value {
            continue;
        }
        let path = format!("spec.template.metadata.labels[{label}]");
        let text = format!("must be '{}'", value.as_str().unwrap_or_default());
        checks.add(if labels[label].is_null() {
            FieldError::required(path, &text)
        } else {
            FieldError::invalid(path, labels, &text)
        });
    }
    if selectors::matches(&spec["selector"], &expected.into()) == Some(false) {
        checks.add(FieldError::invalid("spec.selector", &spec["selector"], "`selector` not auto-generated"));
    }
}

fn check_spec(checks: &mut Checks, path: &str, spec: &Value) {
    for field in COUNTS {
        checks.not_negative(path, spec, field);
    }
    let at = |field: &str| format!("{path}.{field}");
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        let text = "when maxFailedIndexes is specified";
        checks.add(FieldError::required(at("backoffLimitPerIndex"), text));
    }
    if let Some(manager) = spec["managedBy"].as_str() {
        checks.domain_prefixed_path(&at("managedBy"), &spec["managedBy"]);
        if manager.len() > MAX_MANAGED_BY {
            checks.add(FieldError::too_long(at("managedBy"), MAX_MANAGED_BY));
        }
    }
    if !spec["completionMode"].is_null() {
        checks.one_of(path, spec, "completionMode", &["NonIndexed", "Indexed"]);
    }
    if spec["completionMode"] == "Indexed" {
        check_indexed(checks, path, spec);
    }
    if spec["completionMode"].is_null() || spec["completionMode"] == "NonIndexed" {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if !spec[field].is_null() {
                checks.add(FieldError::invalid(at(field), &spec[field], "requires indexed completion mode"));
            }
        }
    }
    let policies: &[&str] =
        if spec["podFailurePolicy"].is_null() { &["Failed", "TerminatingOrFailed"] } else { &["Failed"] };
    if !spec["podReplacementPolicy"].is_null() {
        checks.one_of(path, spec, "podReplacementPolicy", policies);
    }
    let pod = &spec["template"]["spec"];
    let path = format!("{path}.template.spec");
    pods::check_spec(checks, &path, pod);
    let policy = pod["restartPolicy"].as_str().unwrap_or_default();
    let path = format!("{path}.restartPolicy");
    match policy {
        "OnFailure" if !spec["podFailurePolicy"].is_null() => {
            let text = "only \"Never\" is supported when podFailurePolicy is specified";
            checks.add(FieldError::invalid(path, &pod["restartPolicy"], text));
        }
        "OnFailure" | "Never" => {}
        "" | "Always" => checks.add(FieldError::required(path, "valid values: \"OnFailure\", \"Never\"")),
        _ => checks.add(FieldError::unsupported(path, &pod["restartPolicy"], &["OnFailure", "Never"])),
    }
}

fn check_indexed(checks: &mut Checks, path: &str, spec: &Value) {
    if spec["completions"].is_null() {
        let text = "when completion mode is Indexed";
        checks.add(FieldError::required(format!("{path}.completions"), text));
    }
    let mut at_most = |field: &str, limit: i64, text: &str| {
        if spec[field].as_i64().is_some_and(|count| count > limit) {
            checks.add(FieldError::invalid(format!("{path}.{field}"), &spec[field], text));
        }
    };
    let text = format!("must be less than or equal to {MAX_INDEXED} when completion mode is Indexed");
    at_most("parallelism", MAX_INDEXED, &text);
    let completions = spec["completions"].as_i64().unwrap_or(i64::MAX);
    at_most("maxFailedIndexes", completions, "must be less than or equal to completions");
    at_most("maxFailedIndexes", MAX_INDEXED, &format!("must be less than or equal to {MAX_INDEXED}"));
}

/// Returns the warnings about a new Job.
pub(super) fn warnings(job: &Value) -> Vec<String> {
    let errors = names::dns1123_label(job["metadata"]["name"].as_str().unwrap_or_default());
    if errors.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a \
         DNS label is recommended: [{}]",
        errors.join(" ")
    )]
}

/// Checks a new `CronJob`: the names of its Jobs have eleven characters more than its own.
pub(super) fn check_new_cron_job(checks: &mut Checks, cron_job: &Value) {
    let name = &cron_job["metadata"]["name"];
    if name.as_str().is_some_and(|name| name.len() > MAX_CRON_NAME) {
        let text = format!("must be no more than {MAX_CRON_NAME} characters");
        checks.add(FieldError::invalid("metadata.name", name, &text));
    }
}

/// Checks the `spec` of a `CronJob`; `old` is null for a new one.
pub(super) fn check_cron_job(checks: &mut Checks, spec: &Value, old: &Value) {
    let zone = &spec["timeZone"];
    if checks.required("spec", spec, "schedule") {
        let path = "spec.schedule";
        let schedule = spec["schedule"].as_str().unwrap_or_default();
        let kept = old["schedule"].as_str().is_some_and(|old| old.contains("TZ"));
        let zoned = schedule.strip_prefix("CRON_").unwrap_or(schedule).strip_prefix("TZ=");
        let fields = zoned.and_then(|zoned| zoned.split_once(' ')).map_or(schedule, |(_, fields)| fields);
        if let Err(error) = Schedule::parse(fields.trim()) {
            checks.add(FieldError::invalid(path, &spec["schedule"], &error));
        }
        if schedule.contains("TZ") && !kept {
            let text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            checks.add(FieldError::invalid(path, &spec["schedule"], text));
        } else if schedule.contains("TZ") && !zone.is_null() {
            let text = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
            checks.add(FieldError::invalid(path, &spec["schedule"], text));
        }
    }
    if let Some(name) = zone.as_str().filter(|_| old["timeZone"] != *zone) {
        check_zone(checks, name);
    }
    checks.one_of("spec", spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"]);
    for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        checks.not_negative("spec", spec, field);
    }
    let (path, job) = ("spec.jobTemplate.spec", &spec["jobTemplate"]["spec"]);
    check_spec(checks, path, job);
    if !job["selector"].is_null() {
        let text = "`selector` will be auto-generated";
        checks.add(FieldError::invalid(format!("{path}.selector"), &job["selector"], text));
    }
    if job["manualSelector"] == true {
        let path = format!("{path}.manualSelector");
        checks.add(FieldError::unsupported(path, &job["manualSelector"], &["nil", "false"]));
    }
}

fn check_zone(checks: &mut Checks, name: &str) {
    let mut refuse = |why: &str| checks.add(FieldError::invalid("spec.timeZone", &name.into(), why));
    if name.is_empty() {
        return refuse("timeZone must be nil or non-empty string");
    }
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    let part_is_valid = |part: &str| {
        let sized = (1..=MAX_ZONE_PART).contains(&part.len());
        sized && part != "." && part != ".." && !part.starts_with('-') && part.bytes().all(known)
    };
    if !name.split('/').all(part_is_valid) {
        return refuse(&format!("unknown time zone {name}"));
    }
    if name.eq_ignore_ascii_case("Local") {
        refuse("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    } else if TimeZone::get(name).is_err() {
        refuse(&format!("unknown time zone {name}"));
    }
}

pub(super) fn check_job_update(checks: &mut Checks, object: &Value, old: &Value) {
    let (spec, before) = (&object["spec"], &old["spec"]);
    for field in [
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        checks.immutable(&format!("spec.{field}"), &spec[field], &before[field]);
    }
    let (count, path) = (&spec["completions"], "spec.completions");
    if spec["completionMode"] != "Indexed" {
        checks.immutable(path, count, &before["completions"]);
    } else if *count != before["completions"] && !count.is_null() && *count != spec["parallelism"] {
        let text = "can only be modified in tandem with spec.parallelism";
        checks.add(FieldError::invalid(path, count, text));
    }
    if before["suspend"] == true {
        check_suspended_template(checks, &spec["template"], &before["template"]);
    } else {
        checks.immutable("spec.template", &spec["template"], &before["template"]);
    }
}

/// Checks that an update of a suspended Job changes only the resources and the scheduling of its Pods.
fn check_suspended_template(checks: &mut Checks, template: &Value, old: &Value) {
    let fixed = |template: &Value| {
        let mut spec = template["spec"].clone();
        for list in ["containers", "initContainers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
            for container in containers.filter_map(Value::as_object_mut) {
                container.remove("resources");
            }
        }
        if let Some(spec) = spec.as_object_mut() {
            for field in ["nodeSelector", "tolerations", "schedulingGates"] {
                spec.remove(field);
            }
            let affinity = spec.get_mut("affinity").and_then(Value::as_object_mut);
            let emptied = affinity.is_some_and(|affinity| {
                affinity.remove("nodeAffinity");
                affinity.is_empty()
            });
            if emptied {
                spec.remove("affinity");
            }
        }
        spec
    };
    if fixed(template) != fixed(old) {
        checks.add(FieldError::invalid("spec.template.spec", &template["spec"], "field is immutable"));
    }
}
