//! Autoscalers, and the subresource `scale`.

use serde_json::{Value, json};

use super::view::View;

/// The most metrics that a cell shows.
const SHOWN: usize = 2;

pub(super) fn scale(scale: &View<'_>) -> Value {
    json!([scale.name(), scale.number("/spec/replicas"), scale.number("/status/replicas"), scale.age()])
}

pub(super) fn autoscaler(autoscaler: &View<'_>) -> Value {
    let target = autoscaler.part("/spec/scaleTargetRef");
    json!([
        autoscaler.name(),
        format!("{}/{}", target.text("/kind"), target.text("/name")),
        metrics(autoscaler),
        autoscaler.shown("/spec/minReplicas").unwrap_or_else(|| "<unset>".to_owned()),
        autoscaler.number("/spec/maxReplicas"),
        autoscaler.number("/status/currentReplicas"),
        autoscaler.age(),
    ])
}

fn metrics(autoscaler: &View<'_>) -> String {
    let current: Vec<_> = autoscaler.list("/status/currentMetrics").collect();
    let mut all: Vec<_> = autoscaler
        .list("/spec/metrics")
        .enumerate()
        .map(|(index, spec)| metric(&spec, current.get(index)))
        .collect();
    // Version v1 has one metric, in fields of its own.
    if let Some(target) = autoscaler.shown("/spec/targetCPUUtilizationPercentage") {
        let current = autoscaler.shown("/status/currentCPUUtilizationPercentage");
        let current = current.map_or_else(|| "<unknown>".to_owned(), |current| format!("{current}%"));
        all.push(format!("cpu: {current}/{target}%"));
    }
    if all.is_empty() {
        return "<none>".to_owned();
    }
    let more = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    let shown = all.join(", ");
    if more > 0 { format!("{shown} + {more} more...") } else { shown }
}

fn metric(spec: &View<'_>, status: Option<&View<'_>>) -> String {
    let part = match spec.text("/type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let target = spec.part(&format!("/{part}/target"));
    let current = |field: &str| status.and_then(|it| it.shown(&format!("/{part}/current/{field}")));
    let unknown = || "<unknown>".to_owned();
    let average = target.shown("/averageValue");
    match (part, average) {
        ("external" | "object", Some(average)) => {
            format!("{}/{average} (avg)", current("averageValue").unwrap_or_else(unknown))
        }
        ("external" | "object", None) => {
            let value = target.shown("/value").unwrap_or_else(|| "0".to_owned());
            format!("{}/{value}", current("value").unwrap_or_else(unknown))
        }
        ("pods", average) => {
            let average = average.unwrap_or_else(|| "0".to_owned());
            format!("{}/{average}", current("averageValue").unwrap_or_else(unknown))
        }
        (part, average) => {
            let name = spec.text(&format!("/{part}/name"));
            let (current, target) = if let Some(average) = average {
                (current("averageValue"), average)
            } else {
                let percent = |number: String| format!("{number}%");
                let target = target.shown("/averageUtilization").map(percent);
                (current("averageUtilization").map(percent), target.unwrap_or_else(|| "<auto>".to_owned()))
            };
            format!("{name}: {}/{target}", current.unwrap_or_else(unknown))
        }
    }
}
