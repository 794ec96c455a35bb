//! Conversion of single metrics by tables of their fields.

use serde_json::{Value, json};

use super::ordered;

/// A field of a metric: its name in `v1`, its path in `v2`, and whether `v1` always has it.
type Field = (&'static str, &'static str, bool);

/// A kind of metric, and its fields in `v1` in their order there.
pub(super) type Source = (&'static str, &'static [Field]);

/// The metrics of the spec.
pub(super) const SPEC: [Source; 5] = [
    (
        "object",
        &[
            ("target", "/describedObject", false),
            ("metricName", "/metric/name", false),
            ("targetValue", "/target/value", true),
            ("selector", "/metric/selector", false),
            ("averageValue", "/target/averageValue", false),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "/metric/name", false),
            ("targetAverageValue", "/target/averageValue", true),
            ("selector", "/metric/selector", false),
        ],
    ),
    (
        "resource",
        &[
            ("name", "/name", false),
            ("targetAverageUtilization", "/target/averageUtilization", false),
            ("targetAverageValue", "/target/averageValue", false),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "/name", false),
            ("targetAverageUtilization", "/target/averageUtilization", false),
            ("targetAverageValue", "/target/averageValue", false),
            ("container", "/container", false),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "/metric/name", false),
            ("metricSelector", "/metric/selector", false),
            ("targetValue", "/target/value", false),
            ("targetAverageValue", "/target/averageValue", false),
        ],
    ),
];

/// As [`SPEC`], for the metrics of the status.
pub(super) const STATUS: [Source; 5] = [
    (
        "object",
        &[
            ("target", "/describedObject", false),
            ("metricName", "/metric/name", false),
            ("currentValue", "/current/value", true),
            ("selector", "/metric/selector", false),
            ("averageValue", "/current/averageValue", false),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "/metric/name", false),
            ("currentAverageValue", "/current/averageValue", true),
            ("selector", "/metric/selector", false),
        ],
    ),
    (
        "resource",
        &[
            ("name", "/name", false),
            ("currentAverageUtilization", "/current/averageUtilization", false),
            ("currentAverageValue", "/current/averageValue", true),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "/name", false),
            ("currentAverageUtilization", "/current/averageUtilization", false),
            ("currentAverageValue", "/current/averageValue", true),
            ("container", "/container", false),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "/metric/name", false),
            ("metricSelector", "/metric/selector", false),
            ("currentValue", "/current/value", true),
            ("currentAverageValue", "/current/averageValue", false),
        ],
    ),
];

/// Returns the JSON of a metric in `v1`.
pub(super) fn metric_to_v1(metric: &Value, kinds: &[Source]) -> String {
    let source = |(kind, fields): &Source| {
        let of = metric.get(kind).filter(|of| of.is_object())?;
        let field = |(name, path, always): &Field| {
            let text = match of.pointer(path) {
                Some(target) if *name == "target" => {
                    ordered(&["kind", "name", "apiVersion"].map(|name| (name, target[name].to_string())))
                }
                Some(Value::Null) | None if *always => "\"0\"".to_owned(),
                Some(Value::Null) | None => return None,
                Some(value) => value.to_string(),
            };
            Some(format!("\"{name}\":{text}"))
        };
        let fields: Vec<_> = fields.iter().filter_map(field).collect();
        Some(format!(",\"{kind}\":{{{}}}", fields.join(",")))
    };
    let sources: String = kinds.iter().filter_map(source).collect();
    format!("{{\"type\":{}{sources}}}", metric["type"])
}

/// Returns a metric of `v1` in the form of `v2`.
pub(super) fn metric_to_v2(metric: &Value, kinds: &[Source]) -> Value {
    let mut converted = json!({"type": metric["type"]});
    for (kind, fields) in kinds {
        let Some(from) = metric.get(kind).filter(|of| of.is_object()) else { continue };
        let mut to = json!({});
        for (name, path, always) in *fields {
            let value = match &from[name] {
                // `v1` writes 0 for a missing value of a resource.
                zero if *zero == "0" && *name == "currentAverageValue" => continue,
                Value::Null if *always => "0".into(),
                Value::Null => continue,
                value => value.clone(),
            };
            let mut place = &mut to;
            for part in path.split('/').skip(1) {
                place = &mut place[part];
            }
            *place = value;
        }
        let (value, average) = (!from["targetValue"].is_null(), !from["averageValue"].is_null());
        let utilization = !from["targetAverageUtilization"].is_null();
        let target = match *kind {
            _ if fields.iter().all(|(_, path, _)| !path.starts_with("/target")) => None,
            "object" if average && to["target"]["value"] == "0" => {
                to["target"]["value"] = Value::Null;
                Some("AverageValue")
            }
            "object" if !average => Some("Value"),
            "external" if value => Some("Value"),
            "resource" | "containerResource" if utilization => Some("Utilization"),
            _ => Some("AverageValue"),
        };
        if let Some(target) = target {
            to["target"]["type"] = target.into();
        }
        converted[kind] = to;
    }
    converted
}
