//! Validation of `HorizontalPodAutoscaler`s, in the form of `v2`.

use std::cmp::Ordering;

use serde_json::Value;

use super::{Checks, items};
use crate::kinds::FieldError;
use crate::kinds::builtin::typed::compare;

const MAX_WINDOW: i64 = 3600;
const MAX_PERIOD: i64 = 1800;
const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
/// The fields of a metric, in the order of the checks; the first one that is set is checked.
const SOURCES: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];

/// Checks an autoscaler; `old` is null for a new one.
pub(super) fn check(checks: &mut Checks, spec: &Value, old: &Value) {
    let least = i64::from(old["minReplicas"] != 0);
    let (min, max) = (&spec["minReplicas"], &spec["maxReplicas"]);
    if min.as_i64().is_some_and(|min| min < least) {
        let text = format!("must be greater than or equal to {least}");
        checks.add(FieldError::invalid("spec.minReplicas", min, &text));
    }
    let most = max.as_i64().unwrap_or_default();
    if most == 0 {
        checks.add(FieldError::required("spec.maxReplicas", "must be set and greater than 0"));
    } else if most < 0 {
        checks.add(FieldError::invalid("spec.maxReplicas", max, "must be greater than or equal to 1"));
    }
    if min.as_i64().is_some_and(|min| most < min) {
        let shown = if max.is_null() { &Value::from(0) } else { max };
        let text = "must be greater than or equal to `minReplicas`";
        checks.add(FieldError::invalid("spec.maxReplicas", shown, text));
    }
    let (target, former) = (&spec["scaleTargetRef"], &old["scaleTargetRef"]);
    let same = !old.is_null() && ["apiVersion", "kind"].iter().all(|field| target[field] == former[field]);
    let version = match target["kind"].as_str() {
        _ if same => Version::Any,
        Some("ReplicationController") => Version::Core,
        _ => Version::Grouped,
    };
    check_reference(checks, "spec.scaleTargetRef", target, version);
    let metrics = items(&spec["metrics"]);
    for (i, metric) in metrics.iter().enumerate() {
        check_metric(checks, &format!("spec.metrics[{i}]"), metric);
    }
    let outside = |metric: &Value| metric["type"] == "Object" || metric["type"] == "External";
    if *min == 0 && !metrics.iter().any(outside) {
        let text = "must specify at least one Object or External metric to support scaling to zero replicas";
        checks.add(FieldError::forbidden("spec.metrics", text));
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = &spec["behavior"][direction];
        if !rules.is_null() {
            check_rules(checks, &format!("spec.behavior.{direction}"), rules);
        }
    }
}

/// Checks the status of an autoscaler.
pub(super) fn check_status(checks: &mut Checks, status: &Value) {
    for field in ["currentReplicas", "desiredReplicas"] {
        checks.not_negative("status", status, field);
    }
}

/// The API versions that a reference accepts.
#[derive(Clone, Copy, PartialEq)]
enum Version {
    Any,
    /// Also one without a group.
    Core,
    Grouped,
}

fn check_reference(checks: &mut Checks, path: &str, reference: &Value, version: Version) {
    for field in ["kind", "name"] {
        checks.path_segment(path, reference, field);
    }
    let api_version = reference["apiVersion"].as_str().unwrap_or_default();
    let error = match api_version.matches('/').count() {
        _ if version == Version::Any => return,
        0 if version == Version::Core => return,
        0 => "apiVersion must specify API group".to_owned(),
        1 if version == Version::Grouped && api_version.starts_with('/') => {
            "apiVersion must specify API group".to_owned()
        }
        1 => return,
        _ => format!("unexpected GroupVersion string: {api_version}"),
    };
    let value = Value::from(api_version);
    checks.add(FieldError::invalid(format!("{path}.apiVersion"), &value, &error));
}

fn check_metric(checks: &mut Checks, path: &str, metric: &Value) {
    let kind = metric["type"].as_str().unwrap_or_default();
    if kind.is_empty() {
        checks.add(FieldError::required(format!("{path}.type"), "must specify a metric source type"));
    }
    if !TYPES.contains(&kind) {
        checks.add(FieldError::unsupported(format!("{path}.type"), &kind.into(), &TYPES));
    }
    let present: Vec<_> = SOURCES.iter().filter(|source| !metric[**source].is_null()).collect();
    if let Some(source) = present.first() {
        check_source(checks, &format!("{path}.{source}"), source, &metric[**source]);
    }
    let mut letters = kind.chars();
    let expected: String =
        letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect();
    if TYPES.contains(&kind) && metric[&expected].is_null() {
        let text = "must populate information for the given metric source";
        checks.add(FieldError::required(format!("{path}.{expected}"), text));
    }
    if present.len() != 1 {
        for source in present.into_iter().filter(|source| **source != expected) {
            let text = "must populate the given metric source only";
            checks.add(FieldError::forbidden(format!("{path}.{source}"), text));
        }
    }
}

fn check_source(checks: &mut Checks, path: &str, source: &str, of: &Value) {
    let target = &of["target"];
    let named = |checks: &mut Checks, of: &Value, path: &str, detail: &str| {
        let present = of["name"].as_str().is_some_and(|name| !name.is_empty());
        if !present {
            checks.add(FieldError::required(format!("{path}.name"), detail));
        }
        present
    };
    match source {
        "object" => {
            check_reference(
                checks,
                &format!("{path}.describedObject"),
                &of["describedObject"],
                Version::Core,
            );
        }
        "containerResource" if of["container"].as_str().is_none_or(str::is_empty) => {
            checks.add(FieldError::required(format!("{path}.container"), "must specify a container"));
        }
        "containerResource" => checks.label(&format!("{path}.container"), &of["container"]),
        _ => {}
    }
    if matches!(source, "resource" | "containerResource") {
        named(checks, of, path, "must specify a resource name");
    } else {
        let path = format!("{path}.metric");
        if named(checks, &of["metric"], &path, "must specify a metric name") {
            checks.path_segment(&path, &of["metric"], "name");
        }
    }
    let path = format!("{path}.target");
    check_target(checks, &path, target);
    let has = |field: &str| !target[field].is_null();
    let at = |field: &str| format!("{path}.{field}");
    match source {
        "object" if !has("value") && !has("averageValue") => {
            let text = "must set either a target value or averageValue";
            checks.add(FieldError::required(at("averageValue"), text));
        }
        "external" if !has("value") && !has("averageValue") => {
            let text = "must set either a target value for metric or a per-pod target";
            checks.add(FieldError::required(at("averageValue"), text));
        }
        "external" if has("value") && has("averageValue") => {
            let text = "may not set both a target value for metric and a per-pod target";
            checks.add(FieldError::forbidden(at("value"), text));
        }
        "pods" if !has("averageValue") => {
            let text = "must specify a positive target averageValue";
            checks.add(FieldError::required(at("averageValue"), text));
        }
        "resource" | "containerResource" => match (has("averageUtilization"), has("averageValue")) {
            (false, false) => {
                let text = "must set either a target raw value or a target utilization";
                checks.add(FieldError::required(at("averageUtilization"), text));
            }
            (true, true) => {
                let text = "may not set both a target raw value and a target utilization";
                checks.add(FieldError::forbidden(at("averageValue"), text));
            }
            _ => {}
        },
        _ => {}
    }
}

fn check_target(checks: &mut Checks, path: &str, target: &Value) {
    let kind = target["type"].as_str().unwrap_or_default();
    if kind.is_empty() {
        checks.add(FieldError::required(format!("{path}.type"), "must specify a metric target type"));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let text = "must be either Utilization, Value, or AverageValue";
        checks.add(FieldError::invalid(format!("{path}.type"), &kind.into(), text));
    }
    for field in ["value", "averageValue"] {
        let quantity = target[field].as_str();
        if quantity.and_then(|quantity| compare(quantity, "0")).is_some_and(Ordering::is_le) {
            checks.add(FieldError::invalid(format!("{path}.{field}"), &target[field], "must be positive"));
        }
    }
    let utilization = &target["averageUtilization"];
    if utilization.as_i64().is_some_and(|percent| percent < 1) {
        let path = format!("{path}.averageUtilization");
        checks.add(FieldError::invalid(path, utilization, "must be greater than 0"));
    }
}

fn check_rules(checks: &mut Checks, path: &str, rules: &Value) {
    let window = &rules["stabilizationWindowSeconds"];
    let seconds = window.as_i64().unwrap_or_default();
    let window_path = format!("{path}.stabilizationWindowSeconds");
    if seconds < 0 {
        checks.add(FieldError::invalid(window_path, window, "must be greater than or equal to zero"));
    } else if seconds > MAX_WINDOW {
        let text = format!("must be less than or equal to {MAX_WINDOW}");
        checks.add(FieldError::invalid(window_path, window, &text));
    }
    if !rules["selectPolicy"].is_null() {
        checks.one_of(path, rules, "selectPolicy", &["Disabled", "Max", "Min"]);
    }
    let policies = items(&rules["policies"]);
    if policies.is_empty() {
        checks.add(FieldError::required(format!("{path}.policies"), "must specify at least one Policy"));
    }
    for (i, policy) in policies.iter().enumerate() {
        let path = format!("{path}.policies[{i}]");
        checks.one_of(&path, policy, "type", &["Percent", "Pods"]);
        for field in ["value", "periodSeconds"] {
            let number = policy[field].as_i64().unwrap_or_default();
            let path = format!("{path}.{field}");
            if number <= 0 {
                checks.add(FieldError::invalid(path, &number.into(), "must be greater than zero"));
            } else if field == "periodSeconds" && number > MAX_PERIOD {
                let text = format!("must be less than or equal to {MAX_PERIOD}");
                checks.add(FieldError::invalid(path, &policy[field], &text));
            }
        }
    }
    let tolerance = rules["tolerance"].as_str();
    if tolerance.and_then(|tolerance| compare(tolerance, "0")).is_some_and(Ordering::is_lt) {
        let path = format!("{path}.tolerance");
        checks.add(FieldError::invalid(path, &rules["tolerance"], "must be greater than or equal to 0"));
    }
}
