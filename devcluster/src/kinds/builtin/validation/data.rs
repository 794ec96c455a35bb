//! Validation of `ConfigMap`s, Secrets and Events.

use serde_json::Value;

use super::{Checks, entries};
use crate::kinds::FieldError;

/// The largest total size of the values of a `ConfigMap` or Secret, in bytes.
const MAX_SIZE: usize = 1 << 20;

pub(super) fn check_config_map(checks: &mut Checks, object: &Value) {
    let mut size = 0;
    for field in ["data", "binaryData"] {
        for (key, value) in entries(&object[field]) {
            check_key(checks, field, key);
            if field == "data" && object["binaryData"].get(key).is_some() {
                let text = "duplicate of key present in binaryData";
                checks.add(FieldError::invalid(format!("data[{key}]"), &key.as_str().into(), text));
            }
            size += length(value, field == "binaryData");
        }
    }
    if size > MAX_SIZE {
        checks.add(FieldError::too_long("", MAX_SIZE));
    }
}

pub(super) fn check_secret(checks: &mut Checks, object: &Value) {
    let mut size = 0;
    for (key, value) in entries(&object["data"]) {
        check_key(checks, "data", key);
        size += length(value, true);
    }
    if size > MAX_SIZE {
        checks.add(FieldError::too_long("data", MAX_SIZE));
    }
    let needed: &[&str] = match object["type"].as_str().unwrap_or_default() {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        _ => &[],
    };
    for key in needed {
        if object["data"].get(key).is_none() {
            checks.add(FieldError::required(format!("data[{key}]"), ""));
        }
    }
}

/// Returns the size of a value in bytes. Four base64 characters encode three bytes.
fn length(value: &Value, base64: bool) -> usize {
    let text = value.as_str().unwrap_or_default();
    if base64 { text.trim_end_matches('=').len() * 3 / 4 } else { text.len() }
}

fn check_key(checks: &mut Checks, field: &str, key: &str) {
    let path = format!("{field}[{key}]");
    let mut add = |text: &str| checks.add(FieldError::invalid(path.as_str(), &key.into(), text));
    if key.len() > 253 {
        add("must be no more than 253 characters");
    }
    let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(known) {
        add(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
             or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        );
    }
    match key {
        "." => add("must not be '.'"),
        ".." => add("must not be '..'"),
        _ if key.starts_with("..") => add("must not start with '..'"),
        _ => {}
    }
}

/// Checks that the content of an immutable `ConfigMap` or Secret, and the type of every Secret, stay the
/// same.
pub(super) fn check_update(checks: &mut Checks, object: &Value, old: &Value) {
    checks.immutable("type", &object["type"], &old["type"]);
    if old["immutable"] != true {
        return;
    }
    let text = "field is immutable when `immutable` is set";
    if object["immutable"] != true {
        checks.add(FieldError::forbidden("immutable", text));
    }
    for field in ["data", "binaryData"] {
        if object[field] != old[field] {
            checks.add(FieldError::forbidden(field, text));
        }
    }
}

/// Checks the namespace of an Event: that of its object, or `default` for a cluster-scoped object.
pub(super) fn check_event(checks: &mut Checks, object: &Value) {
    check_namespace(checks, object, "involvedObject");
}

pub(super) fn check_new_event(checks: &mut Checks, object: &Value) {
    check_namespace(checks, object, "regarding");
    if object["eventTime"].is_null() {
        // The checks of the older Event type cover the other fields in this case.
        checks.add(FieldError::required("eventTime", ""));
    }
    for field in ["reportingController", "reportingInstance", "action", "reason"] {
        if object["eventTime"].is_string() && object[field].as_str().is_none_or(str::is_empty) {
            checks.add(FieldError::required(field, ""));
        }
    }
    if !matches!(object["type"].as_str(), Some("Normal" | "Warning")) {
        let given = object["type"].as_str().unwrap_or_default();
        checks.add(FieldError::invalid("type", &given.into(), &format!("has invalid value: {given}")));
    }
}

fn check_namespace(checks: &mut Checks, object: &Value, reference: &str) {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let involved = &object[reference]["namespace"];
    match involved.as_str().unwrap_or_default() {
        "" if namespace == "default" || namespace.is_empty() => {}
        involved if involved == namespace => {}
        _ => checks.add(FieldError::invalid(
            "involvedObject.namespace",
            involved,
            "does not match event.namespace",
        )),
    }
}
