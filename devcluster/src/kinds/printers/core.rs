//! Kinds of the core group that hold data or describe the cluster, and Events.

use serde_json::{Value, json};

use super::view::View;

pub(super) fn config_map(map: &View<'_>) -> Value {
    json!([map.name(), map.count("/data") + map.count("/binaryData"), map.age()])
}

pub(super) fn secret(secret: &View<'_>) -> Value {
    json!([secret.name(), secret.text("/type"), secret.count("/data"), secret.age()])
}

pub(super) fn service_account(account: &View<'_>) -> Value {
    json!([account.name(), account.age()])
}

pub(super) fn namespace(namespace: &View<'_>) -> Value {
    json!([namespace.name(), namespace.text("/status/phase"), namespace.age()])
}

pub(super) fn resource_quota(quota: &View<'_>) -> Value {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let used = quota.map("/status/used");
    for (resource, hard) in quota.map("/status/hard").into_iter().flatten() {
        let used = used.and_then(|used| used.get(resource)).and_then(Value::as_str).unwrap_or("0");
        let to = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        to.push(format!("{resource}: {used}/{}", hard.as_str().unwrap_or("0")));
    }
    json!([quota.name(), requests.join(", "), limits.join(", "), quota.age()])
}

pub(super) fn component_status(component: &View<'_>) -> Value {
    let Some(condition) = component.condition("/conditions", "Healthy") else {
        return json!([component.name(), "Unknown", "", ""]);
    };
    let status = if condition.text("/status") == "True" { "Healthy" } else { "Unhealthy" };
    json!([component.name(), status, condition.text("/message"), condition.text("/error")])
}

/// Returns the cells of an Event of either group, whose fields have different names.
pub(super) fn event(event: &View<'_>) -> Value {
    let newer = event.text("/apiVersion").starts_with("events.k8s.io/");
    let either = |newer_name: &'static str, core: &'static str| if newer { newer_name } else { core };
    let object = event.part(either("/regarding", "/involvedObject"));
    let source = event.part(either("/deprecatedSource", "/source"));
    let since = |pointer: &str| event.time(pointer).map(|time| event.ago(time));
    let unknown = || "<unknown>".to_owned();
    let first = since(either("/deprecatedFirstTimestamp", "/firstTimestamp"));
    let first = first.or_else(|| since("/eventTime")).unwrap_or_else(unknown);
    let mut last =
        since(either("/deprecatedLastTimestamp", "/lastTimestamp")).unwrap_or_else(|| first.clone());
    let mut count = event.number(either("/deprecatedCount", "/count")).max(0);
    if event.has("/series") {
        last = since("/series/lastObservedTime").unwrap_or_else(unknown);
        count = event.number("/series/count");
    } else if count == 0 {
        count = 1;
    }
    let target = match (object.text("/kind").to_lowercase(), object.text("/name")) {
        (kind, "") => kind,
        (kind, name) => format!("{kind}/{name}"),
    };
    let controller =
        event.text_or(either("/reportingController", "/reportingComponent"), source.text("/component"));
    let instance = event.text("/reportingInstance");
    let component = source.text_or("/component", controller);
    let source = match source.text_or("/host", instance) {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    };
    json!([
        last,
        event.text("/type"),
        event.text("/reason"),
        target,
        object.text("/fieldPath"),
        source,
        event.text(either("/note", "/message")).trim(),
        first,
        count,
        event.name(),
    ])
}
