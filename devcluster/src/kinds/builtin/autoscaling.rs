//! Conversion of `HorizontalPodAutoscaler`s between `v2`, the stored version, and `v1`.
//!
//! `v1` has fields only for the average CPU utilization. Other metrics, the behavior, and parts of the status
//! are JSON texts in annotations, as the real server writes them.

mod metrics;

use serde_json::{Map, Value, json};

use self::metrics::{SPEC, STATUS, Source, metric_to_v1, metric_to_v2};
use super::typed;
use super::types::find_type;

type Object = Map<String, Value>;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// All annotations that a conversion makes or reads; the last two are only removed.
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// The target of an autoscaler without metrics, in percent.
const DEFAULT_UTILIZATION: u64 = 80;

/// The names of the fields of scaling rules and policies, in JSON and in the annotation.
const RULES: [(&str, &str); 4] = [
    ("stabilizationWindowSeconds", "StabilizationWindowSeconds"),
    ("selectPolicy", "SelectPolicy"),
    ("policies", "Policies"),
    ("tolerance", "Tolerance"),
];
const POLICY: [(&str, &str); 3] = [("type", "Type"), ("value", "Value"), ("periodSeconds", "PeriodSeconds")];

/// Converts an autoscaler of another version to `api_version`.
pub fn convert(autoscaler: &mut Value, api_version: &str) {
    if api_version == "autoscaling/v1" { to_v1(autoscaler) } else { to_v2(autoscaler) }
}

/// Converts an autoscaler of `v1` to `v2`.
pub fn to_v2(autoscaler: &mut Value) {
    let annotated = |name: &str| -> Option<Value> {
        serde_json::from_str(autoscaler["metadata"]["annotations"].get(name)?.as_str()?).ok()
    };
    let listed = |name: &str, fields: &[Source]| {
        let list = annotated(name)?;
        Some(list.as_array()?.iter().map(|metric| metric_to_v2(metric, fields)).collect::<Vec<_>>())
    };
    let mut metrics = listed(METRICS, &SPEC).unwrap_or_default();
    let mut current = listed(CURRENT_METRICS, &STATUS);
    let (behavior, conditions) = (annotated(BEHAVIOR), annotated(CONDITIONS));
    let cpu = |target: &str, percent: &Value| {
        json!({"type": "Resource", "resource": {"name": "cpu", target: {
            "type": "Utilization", "averageUtilization": percent,
        }}})
    };
    if let Some(spec) = autoscaler.get_mut("spec").and_then(Value::as_object_mut) {
        if let Some(percent) = taken(spec, "targetCPUUtilizationPercentage") {
            metrics.push(cpu("target", &percent));
        }
        if metrics.is_empty() {
            metrics.push(cpu("target", &DEFAULT_UTILIZATION.into()));
        }
        spec.insert("metrics".to_owned(), metrics.into());
        if let Some(behavior) = behavior.and_then(|behavior| behavior_to_v2(&behavior)) {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    if let Some(status) = autoscaler.get_mut("status").and_then(Value::as_object_mut) {
        if let Some(percent) = taken(status, "currentCPUUtilizationPercentage") {
            let mut metric = cpu("current", &percent);
            metric["resource"]["current"].as_object_mut().and_then(|current| current.remove("type"));
            current.get_or_insert_with(|| vec![metric]);
        }
        if let Some(current) = current {
            status.insert("currentMetrics".to_owned(), current.into());
        }
        if let Some(conditions) = conditions.filter(Value::is_array) {
            status.insert("conditions".to_owned(), conditions);
        }
    }
    finish(autoscaler, "autoscaling/v2", Vec::new());
}

/// Converts an autoscaler of `v2` to `v1`.
pub fn to_v1(autoscaler: &mut Value) {
    let mut annotations = Vec::new();
    if let Some(spec) = autoscaler.get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = taken(spec, "metrics");
        let metrics = metrics.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let percent = |metric: &Value| {
            let of_cpu = metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
            let percent = &metric["resource"]["target"]["averageUtilization"];
            (of_cpu && !percent.is_null()).then(|| percent.clone())
        };
        if let Some(percent) = metrics.iter().find_map(percent) {
            spec.insert("targetCPUUtilizationPercentage".to_owned(), percent);
        }
        let others = metrics.iter().filter(|metric| percent(metric).is_none());
        let others: Vec<_> = others.map(|metric| metric_to_v1(metric, &SPEC)).collect();
        if !others.is_empty() {
            annotations.push((METRICS, format!("[{}]", others.join(","))));
        }
        if let Some(behavior) = taken(spec, "behavior") {
            let rules = |name: &str| rules_to_v1(&behavior[name]);
            let text = format!("{{\"ScaleUp\":{},\"ScaleDown\":{}}}", rules("scaleUp"), rules("scaleDown"));
            annotations.push((BEHAVIOR, text));
        }
    }
    if let Some(status) = autoscaler.get_mut("status").and_then(Value::as_object_mut) {
        let metrics = taken(status, "currentMetrics");
        let metrics = metrics.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for metric in metrics {
            let percent = &metric["resource"]["current"]["averageUtilization"];
            if metric["type"] == "Resource" && metric["resource"]["name"] == "cpu" && !percent.is_null() {
                status.insert("currentCPUUtilizationPercentage".to_owned(), percent.clone());
            }
        }
        if !metrics.is_empty() {
            let texts: Vec<_> = metrics.iter().map(|metric| metric_to_v1(metric, &STATUS)).collect();
            annotations.push((CURRENT_METRICS, format!("[{}]", texts.join(","))));
        }
        if let Some(conditions) = taken(status, "conditions") {
            let names = ["type", "status", "lastTransitionTime", "reason", "message"];
            let text = |condition: &Value| ordered(&names.map(|name| (name, condition[name].to_string())));
            let texts: Vec<_> = conditions.as_array().into_iter().flatten().map(text).collect();
            if !texts.is_empty() {
                annotations.push((CONDITIONS, format!("[{}]", texts.join(","))));
            }
        }
    }
    finish(autoscaler, "autoscaling/v1", annotations);
}

/// Restores in a changed autoscaler of `v1` the annotations that stand for the part that an update must not
/// change: the status, or with `of_status` the rest.
pub fn keep_annotations(autoscaler: &mut Value, old: &Value, of_status: bool) {
    let kept = if of_status { [METRICS, BEHAVIOR] } else { [CURRENT_METRICS, CONDITIONS] };
    for name in kept {
        let former = old["metadata"]["annotations"].get(name);
        let Some(metadata) = autoscaler.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        let Some(annotations) = annotations.as_object_mut() else { continue };
        match former {
            Some(text) => _ = annotations.insert(name.to_owned(), text.clone()),
            None => _ = annotations.remove(name),
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

/// Replaces the annotations of conversions, and brings the object into the form of its new type.
fn finish(autoscaler: &mut Value, api_version: &str, annotations: Vec<(&str, String)>) {
    autoscaler["apiVersion"] = api_version.into();
    if let Some(metadata) = autoscaler.get_mut("metadata").and_then(Value::as_object_mut) {
        let all = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(all) = all.as_object_mut() {
            all.retain(|name, _| !ANNOTATIONS.contains(&name.as_str()));
            all.extend(annotations.into_iter().map(|(name, text)| (name.to_owned(), text.into())));
        }
        if metadata.get("annotations").and_then(Value::as_object).is_none_or(Map::is_empty) {
            metadata.remove("annotations");
        }
    }
    let of = find_type(&format!("{api_version}.HorizontalPodAutoscaler"));
    if let Some(converted) = of.and_then(|of| typed::convert(of, autoscaler.clone()).ok()) {
        *autoscaler = converted.value;
    }
}

fn taken(fields: &mut Object, name: &str) -> Option<Value> {
    fields.remove(name).filter(|value| !value.is_null())
}

/// Returns the JSON of fields in this order; null fields are left out.
fn ordered<const N: usize>(fields: &[(&str, String); N]) -> String {
    let present = fields.iter().filter(|(_, text)| text != "null");
    let texts: Vec<_> = present.map(|(name, text)| format!("\"{name}\":{text}")).collect();
    format!("{{{}}}", texts.join(","))
}

fn rules_to_v1(rules: &Value) -> String {
    if rules.is_null() {
        return "null".to_owned();
    }
    let policy = |policy: &Value| {
        let fields = POLICY.map(|(name, internal)| format!("\"{internal}\":{}", policy[name]));
        format!("{{{}}}", fields.join(","))
    };
    let field = |(name, internal): (&str, &str)| {
        let text = match &rules[name] {
            Value::Array(policies) => {
                format!("[{}]", policies.iter().map(policy).collect::<Vec<_>>().join(","))
            }
            value => value.to_string(),
        };
        format!("\"{internal}\":{text}")
    };
    format!("{{{}}}", RULES.map(field).join(","))
}

fn behavior_to_v2(behavior: &Value) -> Option<Value> {
    let renamed = |of: &Value, names: &[(&str, &str)]| -> Object {
        let field = |(name, internal): &(&str, &str)| Some(((*name).to_owned(), of.get(internal)?.clone()));
        names.iter().filter_map(field).filter(|(_, value)| !value.is_null()).collect()
    };
    let mut converted = Map::new();
    for (name, internal) in [("scaleUp", "ScaleUp"), ("scaleDown", "ScaleDown")] {
        let Some(rules) = behavior.get(internal).filter(|rules| rules.is_object()) else { continue };
        let mut rules = renamed(rules, &RULES);
        for policy in rules.get_mut("policies").and_then(Value::as_array_mut).into_iter().flatten() {
            *policy = Value::Object(renamed(policy, &POLICY));
        }
        converted.insert(name.to_owned(), Value::Object(rules));
    }
    (!converted.is_empty()).then_some(Value::Object(converted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_autoscaler_survives_the_way_to_v1_and_back() {
        let given = json!({
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 1,
                "maxReplicas": 5,
                "metrics": [
                    {"type": "Pods", "pods": {
                        "metric": {"name": "requests"},
                        "target": {"type": "AverageValue", "averageValue": "10"},
                    }},
                    {"type": "Object", "object": {
                        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
                        "metric": {"name": "hits"},
                        "target": {"type": "Value", "value": "2k"},
                    }},
                    {"type": "Resource", "resource": {
                        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60},
                    }},
                ],
                "behavior": {"scaleUp": {
                    "stabilizationWindowSeconds": 0,
                    "selectPolicy": "Max",
                    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
                }},
            },
            "status": {
                "currentReplicas": 1,
                "desiredReplicas": 2,
                "currentMetrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "current": {"averageValue": "1", "averageUtilization": 50},
                }}],
                "conditions": [{
                    "type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z",
                }],
            },
        });
        let mut converted = given.clone();
        to_v1(&mut converted);
        assert_eq!(converted["spec"]["targetCPUUtilizationPercentage"], 60);
        assert_eq!(converted["status"]["currentCPUUtilizationPercentage"], 50);
        assert_eq!(
            converted["metadata"]["annotations"][METRICS],
            "[{\"type\":\"Pods\",\"pods\":{\"metricName\":\"requests\",\"targetAverageValue\":\"10\"}},\
             {\"type\":\"Object\",\"object\":{\"target\":{\"kind\":\"Service\",\"name\":\"web\",\
             \"apiVersion\":\"v1\"},\"metricName\":\"hits\",\"targetValue\":\"2k\"}}]"
        );
        to_v2(&mut converted);
        assert_eq!(converted, given);
    }

    #[test]
    fn an_autoscaler_without_metrics_gets_the_default_target() {
        let mut autoscaler = json!({"metadata": {}, "spec": {"maxReplicas": 3}});
        to_v2(&mut autoscaler);
        assert_eq!(autoscaler["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        to_v1(&mut autoscaler);
        assert_eq!(autoscaler["spec"]["targetCPUUtilizationPercentage"], 80);
    }
}
