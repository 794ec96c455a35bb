//! Validation of the status of Jobs.

use serde_json::Value;

use super::super::internal;
use super::Checks;
use crate::kinds::{FieldError, Reason};

/// Checks the status of a Job. Most rules apply only to changed fields.
pub(in super::super) fn check_job_status(checks: &mut Checks, job: &Value, old: &Value) {
    let (status, before) = (&job["status"], &old["status"]);
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        checks.not_negative("status", status, field);
    }
    check_conditions(checks, status, before);
    check_times(checks, job, old);
    check_finished(checks, status, before);
    let number = |of: &Value, field: &str| of[field].as_i64().unwrap_or_default();
    for field in ["failed", "succeeded"] {
        let elastic = field == "succeeded"
            && job["spec"]["completionMode"] == "Indexed"
            && job["spec"]["completions"] == job["spec"]["parallelism"];
        if number(status, field) < number(before, field) && !elastic {
            let text = format!("cannot decrease the {field} counter");
            checks.add(FieldError::invalid(format!("status.{field}"), &number(status, field).into(), &text));
        }
    }
    let changed = differ(status, before, &["ready", "active"]);
    if changed && number(status, "ready") > number(status, "active") {
        let text = "cannot set more ready pods than active";
        checks.add(FieldError::invalid("status.ready", &status["ready"], text));
    }
}

/// Whether one of the fields differs.
fn differ(status: &Value, old: &Value, fields: &[&str]) -> bool {
    fields.iter().any(|field| status[field] != old[field])
}

fn is_true(status: &Value, condition: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == condition && it["status"] == "True")
}

fn is_finished(status: &Value) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}

/// Adds an error about the list of conditions, which does not show it.
fn refuse(checks: &mut Checks, why: &str) {
    let message = format!("Invalid value: {why}");
    checks.add(FieldError { path: "status.conditions".to_owned(), reason: Reason::Invalid, message });
}

fn check_conditions(checks: &mut Checks, status: &Value, old: &Value) {
    let changed = |condition| is_true(status, condition) != is_true(old, condition);
    let both = |one, other| is_true(status, one) && is_true(status, other);
    let without = |one, other| is_true(status, one) && !is_true(status, other);
    let rules = [
        (
            (changed("Complete") || changed("Failed")) && both("Complete", "Failed"),
            "cannot set Complete=True and Failed=true conditions",
        ),
        (
            (changed("Complete") || changed("FailureTarget")) && both("Complete", "FailureTarget"),
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            changed("Failed") && without("Failed", "FailureTarget"),
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            (changed("Complete") || changed("SuccessCriteriaMet"))
                && without("Complete", "SuccessCriteriaMet"),
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (
            both("SuccessCriteriaMet", "Failed"),
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        ),
        (
            both("SuccessCriteriaMet", "FailureTarget"),
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        (
            is_true(old, "SuccessCriteriaMet") && !is_true(status, "SuccessCriteriaMet"),
            "cannot disable the SuccessCriteriaMet=True condition",
        ),
        (
            is_true(old, "Complete") && changed("SuccessCriteriaMet") && !is_true(old, "SuccessCriteriaMet"),
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        ),
    ];
    for (broken, why) in rules {
        if broken {
            refuse(checks, why);
        }
    }
    for condition in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, condition) && !is_true(status, condition) {
            refuse(checks, &format!("cannot disable the terminal {condition}=True condition"));
        }
    }
}

fn check_times(checks: &mut Checks, job: &Value, old: &Value) {
    let (status, before) = (&job["status"], &old["status"]);
    let (start, end) = (&status["startTime"], &status["completionTime"]);
    let complete = is_true(status, "Complete");
    if differ(status, before, &["completionTime"]) || complete != is_true(before, "Complete") {
        let path = "status.completionTime";
        if !end.is_null() && !complete {
            let text = "cannot set completionTime when there is no Complete=True condition";
            checks.add(FieldError::invalid(path, end, text));
        }
        if end.is_null() && complete {
            checks.add(FieldError::required(path, "completionTime is required for Complete jobs"));
        }
    }
    let changed = differ(status, before, &["startTime", "completionTime"]);
    if changed && end.as_str().zip(start.as_str()).is_some_and(|(end, start)| end < start) {
        let text = "must be equal to or after `startTime`";
        checks.add(FieldError::invalid("status.completionTime", end, text));
    }
    if !end.is_null() && !before["completionTime"].is_null() {
        checks.immutable("status.completionTime", end, &before["completionTime"]);
    }
    let resumes = is_true(before, "Suspended") && !is_true(status, "Suspended");
    let fixed = !before["startTime"].is_null() && job["spec"]["suspend"] != true && !resumes;
    if fixed && *start != before["startTime"] {
        let text = "field is immutable for unsuspended job once set";
        checks.add(FieldError::invalid("status.startTime", start, text));
    }
}

/// Checks that a finished Job has a start and no Pods left.
fn check_finished(checks: &mut Checks, status: &Value, old: &Value) {
    if !is_finished(status) {
        return;
    }
    let newly = !is_finished(old);
    let positive = |field: &str| status[field].as_i64().is_some_and(|count| count > 0);
    for field in ["active", "terminating"] {
        if (newly || differ(status, old, &[field])) && positive(field) {
            let text = format!("{field}>0 is invalid for finished job");
            checks.add(FieldError::invalid(format!("status.{field}"), &status[field], &text));
        }
    }
    if (newly || differ(status, old, &["startTime"])) && status["startTime"].is_null() {
        checks.add(FieldError::required("status.startTime", "startTime is required for finished job"));
    }
    let uncounted = &status["uncountedTerminatedPods"];
    let counted =
        ["succeeded", "failed"].iter().all(|field| uncounted[field].as_array().is_none_or(Vec::is_empty));
    if (newly || differ(status, old, &["uncountedTerminatedPods"])) && !counted {
        let text = "must be empty for finished job";
        let fields = [("Succeeded", "succeeded"), ("Failed", "failed")];
        let shown = internal(uncounted, &fields, &Value::Null);
        checks.add(FieldError::invalid_shown("status.uncountedTerminatedPods", &shown, text));
    }
}
