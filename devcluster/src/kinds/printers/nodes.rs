//! Nodes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::text;
use super::view::View;

pub(super) fn node(node: &View<'_>) -> Value {
    let ready = node.list("/status/conditions").rfind(|it| it.text("/type") == "Ready");
    let mut status = match ready.map(|it| it.text("/status")) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if node.flag("/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let info = node.part("/status/nodeInfo");
    let kernel = info.text_or("/kernelVersion", "<unknown>");
    let kernel = match info.text("/architecture") {
        "" => kernel.to_owned(),
        architecture => format!("{kernel} ({architecture})"),
    };
    json!([
        node.name(),
        status,
        text::or_none(roles(node)),
        node.age(),
        info.text("/kubeletVersion"),
        address(node, "InternalIP"),
        address(node, "ExternalIP"),
        info.text_or("/osImage", "<unknown>"),
        kernel,
        info.text_or("/containerRuntimeVersion", "<unknown>"),
    ])
}

fn address<'a>(node: &View<'a>, kind: &str) -> &'a str {
    node.condition("/status/addresses", kind).map_or("<none>", |it| it.text("/address"))
}

fn roles(node: &View<'_>) -> String {
    let labels = node.map("/metadata/labels").into_iter().flatten();
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let roles: BTreeSet<_> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}
