//! Validation of `ConfigMap`s and Secrets.

use serde_json::Value;

use super::{Checks, entries};
use crate::kinds::FieldError;

/// The largest total size of the values of a `ConfigMap` or Secret, in bytes.
const MAX_SIZE: usize = 1 << 20;
const BASIC_AUTH: [&str; 2] = ["password", "username"];

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
        // One of the two is enough.
        "kubernetes.io/basic-auth" if !BASIC_AUTH.iter().any(|key| object["data"].get(key).is_some()) => {
            &BASIC_AUTH
        }
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        _ => &[],
    };
    if object["type"] == "kubernetes.io/service-account-token" {
        const ACCOUNT: &str = "kubernetes.io/service-account.name";
        if object["metadata"]["annotations"][ACCOUNT].as_str().is_none_or(str::is_empty) {
            checks.add(FieldError::required(format!("metadata.annotations[{ACCOUNT}]"), ""));
        }
    }
    for key in needed {
        let value = &object["data"][key];
        if value.is_null() || value == "" && *key == "ssh-privatekey" {
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
