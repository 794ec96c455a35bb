//! Validation of Jobs and `CronJob`s.

use serde_json::Value;

use super::{Checks, pods};
use crate::kinds::FieldError;

pub(super) fn check_job(checks: &mut Checks, path: &str, spec: &Value) {
    for field in
        ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]
    {
        checks.not_negative(path, spec, field);
    }
    if !spec["completionMode"].is_null() {
        checks.one_of(path, spec, "completionMode", &["NonIndexed", "Indexed"]);
        if spec["completionMode"] == "Indexed" && spec["completions"].is_null() {
            let text = "when completion mode is Indexed";
            checks.add(FieldError::required(format!("{path}.completions"), text));
        }
    }
    let pod = &spec["template"]["spec"];
    let path = format!("{path}.template.spec");
    pods::check_spec(checks, &path, pod);
    let policy = pod["restartPolicy"].as_str().unwrap_or_default();
    let path = format!("{path}.restartPolicy");
    match policy {
        "OnFailure" | "Never" => {}
        "" | "Always" => checks.add(FieldError::required(path, "valid values: \"OnFailure\", \"Never\"")),
        _ => checks.add(FieldError::unsupported(path, &pod["restartPolicy"], &["OnFailure", "Never"])),
    }
}

pub(super) fn check_cron_job(checks: &mut Checks, spec: &Value) {
    if checks.required("spec", spec, "schedule") {
        let schedule = spec["schedule"].as_str().unwrap_or_default();
        let fields: Vec<_> = schedule.split_whitespace().collect();
        if fields.len() != 5 && !schedule.starts_with('@') {
            let text = format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" "));
            checks.add(FieldError::invalid("spec.schedule", &spec["schedule"], &text));
        }
    }
    checks.one_of("spec", spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"]);
    for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        checks.not_negative("spec", spec, field);
    }
    check_job(checks, "spec.jobTemplate.spec", &spec["jobTemplate"]["spec"]);
}

pub(super) fn check_job_update(checks: &mut Checks, object: &Value, old: &Value) {
    let (spec, before) = (&object["spec"], &old["spec"]);
    for field in ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "successPolicy"] {
        checks.immutable(&format!("spec.{field}"), &spec[field], &before[field]);
    }
    // In an indexed Job, completions may change together with parallelism.
    let elastic = spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    if !elastic {
        checks.immutable("spec.completions", &spec["completions"], &before["completions"]);
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
