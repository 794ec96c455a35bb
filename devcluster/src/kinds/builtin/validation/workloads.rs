//! Validation of Deployments and the other kinds that keep Pods running.

use serde_json::Value;

use super::{Checks, entries, internal, pods, selectors};
use crate::kinds::FieldError;

pub(super) fn check(checks: &mut Checks, type_name: &str, object: &Value) {
    let spec = &object["spec"];
    checks.not_negative("spec", spec, "replicas");
    let matches = if type_name == "core/v1.ReplicationController" {
        controller_selector(checks, spec)
    } else {
        selector(checks, type_name, spec)
    };
    if matches {
        let template = &spec["template"];
        pods::check_spec(checks, "spec.template.spec", &template["spec"]);
        if template["spec"]["restartPolicy"] != "Always" {
            checks.add(FieldError::unsupported(
                "spec.template.spec.restartPolicy",
                &template["spec"]["restartPolicy"],
                &["Always"],
            ));
        }
    }
    match type_name {
        "apps/v1.Deployment" => strategy(checks, &spec["strategy"]),
        "apps/v1.StatefulSet" => {
            checks.one_of("spec", spec, "podManagementPolicy", &["OrderedReady", "Parallel"]);
        }
        _ => {}
    }
    checks.not_negative("spec", spec, "minReadySeconds");
    checks.not_negative("spec", spec, "revisionHistoryLimit");
    let deadline = &spec["progressDeadlineSeconds"];
    if let Some(seconds) = deadline.as_i64() {
        checks.not_negative("spec", spec, "progressDeadlineSeconds");
        if seconds <= spec["minReadySeconds"].as_i64().unwrap_or_default() {
            let text = "must be greater than minReadySeconds";
            checks.add(FieldError::invalid("spec.progressDeadlineSeconds", deadline, text));
        }
    }
}

/// Checks the selector. Returns whether the labels of the template match it.
fn selector(checks: &mut Checks, type_name: &str, spec: &Value) -> bool {
    let selector = &spec["selector"];
    if selector.is_null() {
        checks.add(FieldError::required("spec.selector", ""));
    } else {
        selectors::check(checks, "spec.selector", selector);
        if selectors::is_empty(selector) {
            let kind = match type_name {
                "apps/v1.StatefulSet" => "statefulset",
                "apps/v1.DaemonSet" => "daemonset",
                _ => "deployment",
            };
            let text = format!("empty selector is invalid for {kind}");
            checks.add(FieldError::invalid("spec.selector", selector, &text));
        }
    }
    let labels = &spec["template"]["metadata"]["labels"];
    match selectors::matches(selector, labels) {
        None => {
            checks.add(FieldError::invalid("spec.selector", selector, "invalid label selector"));
            return false;
        }
        // A missing selector does not match; an empty one has its own error.
        Some(matches) if selector.is_null() || !matches => {
            let text = "`selector` does not match template `labels`";
            checks.add(FieldError::invalid("spec.template.metadata.labels", labels, text));
        }
        Some(_) => {}
    }
    true
}

fn controller_selector(checks: &mut Checks, spec: &Value) -> bool {
    if entries(&spec["selector"]).next().is_none() {
        checks.add(FieldError::required("spec.selector", ""));
    }
    if spec["template"].is_null() {
        checks.add(FieldError::required("spec.template", ""));
        return false;
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if entries(&spec["selector"]).any(|(key, value)| labels.get(key) != Some(value)) {
        let text = "`selector` does not match template `labels`";
        checks.add(FieldError::invalid("spec.template.metadata.labels", labels, text));
    }
    true
}

fn strategy(checks: &mut Checks, strategy: &Value) {
    let rolling = &strategy["rollingUpdate"];
    match strategy["type"].as_str().unwrap_or_default() {
        "Recreate" if !rolling.is_null() => checks.add(FieldError::forbidden(
            "spec.strategy.rollingUpdate",
            "may not be specified when strategy `type` is 'Recreate'",
        )),
        "Recreate" => {}
        "RollingUpdate" if rolling.is_null() => checks.add(FieldError::required(
            "spec.strategy.rollingUpdate",
            "this should be defaulted and never be nil",
        )),
        "RollingUpdate" => {
            let path = "spec.strategy.rollingUpdate";
            share(checks, &format!("{path}.maxUnavailable"), &rolling["maxUnavailable"]);
            share(checks, &format!("{path}.maxSurge"), &rolling["maxSurge"]);
            if is_zero(&rolling["maxUnavailable"]) && is_zero(&rolling["maxSurge"]) {
                let text = "may not be 0 when `maxSurge` is 0";
                let path = format!("{path}.maxUnavailable");
                checks.add(FieldError::invalid(path, &rolling["maxUnavailable"], text));
            }
        }
        kind => {
            let fields = [("MaxUnavailable", "maxUnavailable"), ("MaxSurge", "maxSurge")];
            let rolling = match rolling {
                Value::Null => "null".to_owned(),
                rolling => internal(rolling, &fields, &0.into()),
            };
            let shown = format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", Value::from(kind));
            let mut error =
                FieldError::unsupported("spec.strategy", &kind.into(), &["Recreate", "RollingUpdate"]);
            error.message = error.message.replacen(&Value::from(kind).to_string(), &shown, 1);
            checks.add(error);
        }
    }
}

/// Checks a number that must not be negative, or a percentage.
pub(super) fn share(checks: &mut Checks, path: &str, value: &Value) {
    match value {
        Value::String(text) => {
            let number = text.strip_suffix('%').filter(|digits| !digits.is_empty());
            if !number.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit())) {
                let text = "a valid percent string must be a numeric string followed by an ending '%' (e.g. \
                            '1%',  or '93%', regex used for validation is '[0-9]+%')";
                checks.add(FieldError::invalid(path, value, text));
            }
        }
        number if number.as_i64().is_some_and(|number| number < 0) => {
            checks.add(FieldError::invalid(path, number, "must be greater than or equal to 0"));
        }
        _ => {}
    }
}

/// Checks that a percentage is not above 100%.
pub(super) fn at_most_all(checks: &mut Checks, path: &str, value: &Value) {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<u64>().ok());
    if percent.is_some_and(|percent| percent > 100) {
        checks.add(FieldError::invalid(path, value, "must not be greater than 100%"));
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.trim_end_matches('%').parse() == Ok(0),
        value => value.as_i64().unwrap_or_default() == 0,
    }
}

pub(super) fn check_stateful_set_update(checks: &mut Checks, object: &Value, old: &Value) {
    const MUTABLE: [&str; 8] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
        "status",
    ];
    let fixed = |object: &Value| {
        let mut spec = object["spec"].clone();
        let claims = spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut);
        for claim in claims.into_iter().flatten().filter_map(Value::as_object_mut) {
            claim.remove("status");
        }
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|field, _| !MUTABLE.contains(&field.as_str()));
        }
        spec
    };
    if fixed(object) != fixed(old) {
        checks.add(FieldError::forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
             'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
             'minReadySeconds' are forbidden",
        ));
    }
}

/// Checks the numbers in a status: none is negative, and no part is greater than the whole.
pub(super) fn check_status(checks: &mut Checks, type_name: &str, status: &Value, old: &Value) {
    // The numbers besides the common ones that are at most `replicas`, and those without a limit.
    let (parts, others): (&[&str], &[&str]) = match type_name {
        "apps/v1.Deployment" => (&["updatedReplicas"], &["unavailableReplicas", "terminatingReplicas"]),
        "apps/v1.ReplicaSet" => (&["fullyLabeledReplicas"], &["terminatingReplicas"]),
        "core/v1.ReplicationController" => (&["fullyLabeledReplicas"], &[]),
        "apps/v1.StatefulSet" => (&["currentReplicas", "updatedReplicas"], &[]),
        _ => return,
    };
    for field in parts.iter().chain(others).chain(&[
        "observedGeneration",
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "collisionCount",
    ]) {
        checks.not_negative("status", status, field);
    }
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let mut at_most = |field: &str, limit: &str, text: &str| {
        if number(field) > number(limit) {
            let detail = format!("cannot be greater than {text}");
            checks.add(FieldError::invalid(format!("status.{field}"), &number(field).into(), &detail));
        }
    };
    for field in parts.iter().chain(&["readyReplicas", "availableReplicas"]) {
        at_most(field, "replicas", "status.replicas");
    }
    let ready = if type_name == "apps/v1.StatefulSet" { "status.readyReplicas" } else { "readyReplicas" };
    at_most("availableReplicas", "readyReplicas", ready);
    let collisions = |status: &Value| status["collisionCount"].as_i64();
    if type_name == "apps/v1.Deployment"
        && let Some(before) = collisions(old)
        && collisions(status).is_none_or(|now| now < before)
    {
        let value = collisions(status).unwrap_or(0).into();
        checks.add(FieldError::invalid("status.collisionCount", &value, "cannot be decremented"));
    }
}
