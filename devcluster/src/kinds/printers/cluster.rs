//! Leases, classes, devices and registered API services.

use serde_json::{Value, json};

use super::view::View;

pub(super) fn api_service(service: &View<'_>) -> Value {
    let backend = service.part("/spec/service");
    let place = if service.has("/spec/service") {
        format!("{}/{}", backend.text("/namespace"), backend.text("/name"))
    } else {
        "Local".to_owned()
    };
    let available = service.condition("/status/conditions", "Available");
    let status = available.map_or_else(
        || "Unknown".to_owned(),
        |it| match (it.text("/status"), it.text("/reason")) {
            (status @ "True", _) | (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
    );
    json!([service.name(), place, status, service.age()])
}

pub(super) fn lease(lease: &View<'_>) -> Value {
    json!([lease.name(), lease.text("/spec/holderIdentity"), lease.age()])
}

pub(super) fn runtime_class(class: &View<'_>) -> Value {
    json!([class.name(), class.text("/handler"), class.age()])
}

pub(super) fn priority_class(class: &View<'_>) -> Value {
    json!([
        class.name(),
        class.number("/value"),
        class.flag("/globalDefault"),
        class.age(),
        class.text("/preemptionPolicy"),
    ])
}

pub(super) fn named(object: &View<'_>) -> Value {
    json!([object.name(), object.age()])
}

pub(super) fn resource_claim(claim: &View<'_>) -> Value {
    let mut states = Vec::new();
    if claim.is_terminating() {
        states.push("deleted");
    }
    if claim.has("/status/allocation") {
        states.push("allocated");
        if claim.count("/status/reservedFor") > 0 {
            states.push("reserved");
        }
    } else if !claim.is_terminating() {
        states.push("pending");
    }
    json!([claim.name(), states.join(","), claim.age()])
}

pub(super) fn resource_slice(slice: &View<'_>) -> Value {
    json!([
        slice.name(),
        slice.text("/spec/nodeName"),
        slice.text("/spec/driver"),
        slice.text("/spec/pool/name"),
        slice.age(),
    ])
}
