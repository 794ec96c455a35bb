//! Validation of built-in kinds beyond types and metadata. Covers the errors that clients commonly meet.
//!
//! Objects are in typed form and have their defaults.

use serde_json::{Map, Value};

use crate::kinds::kind::Kind;
use crate::kinds::{FieldError, names};

mod batch;
mod data;
mod pods;
mod selectors;
mod services;
mod workloads;

/// Returns the errors of a new object, without those of its metadata.
pub fn check(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let mut checks = Checks::default();
    let Some(type_name) = kind.type_name.as_deref() else { return checks.errors };
    match type_name {
        "apps/v1.Deployment"
        | "apps/v1.ReplicaSet"
        | "apps/v1.StatefulSet"
        | "apps/v1.DaemonSet"
        | "core/v1.ReplicationController" => workloads::check(&mut checks, type_name, object),
        "core/v1.Pod" => pods::check_spec(&mut checks, "spec", &object["spec"]),
        "core/v1.PodTemplate" => pods::check_spec(&mut checks, "template.spec", &object["template"]["spec"]),
        "batch/v1.Job" => batch::check_job(&mut checks, "spec", &object["spec"]),
        "batch/v1.CronJob" => batch::check_cron_job(&mut checks, &object["spec"]),
        "core/v1.Service" => services::check(&mut checks, &object["spec"]),
        "core/v1.ConfigMap" => data::check_config_map(&mut checks, object),
        "core/v1.Secret" => data::check_secret(&mut checks, object),
        "coordination/v1.Lease" => lease(&mut checks, &object["spec"]),
        "discovery/v1.EndpointSlice" if object["addressType"].as_str().is_none_or(str::is_empty) => {
            checks.add(FieldError::required("addressType", ""));
        }
        "rbac/v1.Role" | "rbac/v1.ClusterRole" => {
            let rules = object["rules"].as_array().into_iter().flatten().enumerate();
            for (index, _) in rules.filter(|(_, rule)| rule["verbs"].as_array().is_none_or(Vec::is_empty)) {
                let path = format!("rules[{index}].verbs");
                checks.add(FieldError::required(path, "verbs must contain at least one value"));
            }
        }
        "core/v1.Event" => data::check_event(&mut checks, object),
        "events/v1.Event" => data::check_new_event(&mut checks, object),
        _ => {}
    }
    checks.errors
}

/// Returns the errors of an object that replaces `old`, without those of its metadata.
pub fn check_update(kind: &Kind, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut checks = Checks::default();
    match kind.type_name.as_deref().unwrap_or_default() {
        "apps/v1.Deployment" | "apps/v1.ReplicaSet" | "apps/v1.DaemonSet" => {
            checks.immutable("spec.selector", &object["spec"]["selector"], &old["spec"]["selector"]);
        }
        "apps/v1.StatefulSet" => workloads::check_stateful_set_update(&mut checks, object, old),
        "batch/v1.Job" => batch::check_job_update(&mut checks, object, old),
        "core/v1.Service" => services::check_update(&mut checks, object, old),
        "core/v1.Pod" => pods::check_update(&mut checks, object, old),
        "core/v1.ConfigMap" | "core/v1.Secret" => data::check_update(&mut checks, object, old),
        "rbac/v1.RoleBinding" | "rbac/v1.ClusterRoleBinding" if object["roleRef"] != old["roleRef"] => {
            // The server quotes its internal form, which has names in upper case.
            let role = &object["roleRef"];
            let shown = serde_json::json!({
                "APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"],
            });
            checks.add(FieldError::invalid("roleRef", &shown, "cannot change roleRef"));
        }
        "storage/v1.StorageClass" => {
            for field in ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"] {
                if object[field] != old[field] {
                    checks.add(FieldError::forbidden(field, &format!("updates to {field} are forbidden.")));
                }
            }
        }
        _ => {}
    }
    checks.errors.extend(check(kind, object));
    checks.errors
}

fn lease(checks: &mut Checks, spec: &Value) {
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|seconds| *seconds <= 0) {
        let path = "spec.leaseDurationSeconds";
        checks.add(FieldError::invalid(path, &seconds.into(), "must be greater than 0"));
    }
    checks.not_negative("spec", spec, "leaseTransitions");
}

/// The errors found so far, and checks that add to them.
#[derive(Default)]
struct Checks {
    errors: Vec<FieldError>,
}

impl Checks {
    fn add(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// Checks that a string is not empty. Returns whether it is present.
    fn required(&mut self, path: &str, of: &Value, field: &str) -> bool {
        let present = of[field].as_str().is_some_and(|text| !text.is_empty());
        if !present {
            self.add(FieldError::required(format!("{path}.{field}"), ""));
        }
        present
    }

    fn not_negative(&mut self, path: &str, of: &Value, field: &str) {
        if of[field].as_i64().is_some_and(|number| number < 0) {
            let path = format!("{path}.{field}");
            self.add(FieldError::invalid(path, &of[field], "must be greater than or equal to 0"));
        }
    }

    /// Checks a port number.
    fn port(&mut self, path: &str, number: &Value) {
        if !number.as_i64().is_some_and(|number| (1..=65535).contains(&number)) {
            self.add(FieldError::invalid(path, number, "must be between 1 and 65535, inclusive"));
        }
    }

    fn port_name(&mut self, path: &str, name: &Value) {
        for error in port_name(name.as_str().unwrap_or_default()) {
            self.add(FieldError::invalid(path, name, error));
        }
    }

    /// Checks a port: a number or a name.
    fn port_or_name(&mut self, path: &str, port: &Value) {
        if port.is_string() { self.port_name(path, port) } else { self.port(path, port) }
    }

    /// Checks a lower-case DNS label.
    fn label(&mut self, path: &str, name: &Value) {
        for error in names::dns1123_label(name.as_str().unwrap_or_default()) {
            self.add(FieldError::invalid(path, name, &error));
        }
    }

    /// Checks that a field has one of the supported values.
    fn one_of(&mut self, path: &str, of: &Value, field: &str, supported: &[&str]) {
        let value = &of[field];
        if !value.as_str().is_some_and(|text| supported.contains(&text)) {
            self.add(FieldError::unsupported(format!("{path}.{field}"), value, supported));
        }
    }

    fn immutable(&mut self, path: &str, value: &Value, old: &Value) {
        if value != old {
            self.add(FieldError::invalid(path, value, "field is immutable"));
        }
    }
}

fn port_name(name: &str) -> Vec<&'static str> {
    let mut errors = Vec::new();
    if name.len() > 15 {
        errors.push("must be no more than 15 characters");
    }
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') || name.is_empty() {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        errors.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        errors.push("must not begin or end with a hyphen");
    }
    errors
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().map(Map::iter).into_iter().flatten()
}
