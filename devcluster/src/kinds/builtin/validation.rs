//! Validation of built-in kinds beyond types and metadata. Covers the errors that clients commonly meet.
//!
//! Objects are in typed form and have their defaults.

use serde_json::{Map, Value};

use crate::kinds::kind::Kind;
use crate::kinds::{FieldError, names};

mod batch;
mod data;
mod discovery;
mod events;
mod pods;
mod policy;
mod rbac;
mod selectors;
mod services;
mod workloads;

pub use services::{FAMILY_POLICY, check_addresses};

/// Returns the errors of a new object, without those of its metadata.
pub fn check(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let mut checks = Checks::default();
    match kind.type_name.as_deref().unwrap_or_default() {
        "events/v1.Event" => events::check(&mut checks, object),
        "discovery/v1.EndpointSlice" => discovery::check(&mut checks, object),
        _ => {}
    }
    checks.errors.extend(check_always(kind, object));
    checks.errors
}

/// Returns the errors that both a new object and a changed one are refused for.
fn check_always(kind: &Kind, object: &Value) -> Vec<FieldError> {
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
        "rbac/v1.Role" | "rbac/v1.ClusterRole" => rbac::check_role(&mut checks, object, type_name),
        "rbac/v1.RoleBinding" | "rbac/v1.ClusterRoleBinding" => {
            rbac::check_binding(&mut checks, object, type_name);
        }
        "policy/v1.PodDisruptionBudget" => policy::check_budget(&mut checks, &object["spec"]),
        "core/v1.Event" => events::check_older(&mut checks, object),
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
        "events/v1.Event" => events::check_update(&mut checks, object, old),
        "discovery/v1.EndpointSlice" => discovery::check_update(&mut checks, object, old),
        "rbac/v1.RoleBinding" | "rbac/v1.ClusterRoleBinding" if object["roleRef"] != old["roleRef"] => {
            let fields = [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")];
            let shown = internal(&object["roleRef"], &fields, &"".into());
            checks.add(FieldError::invalid_shown("roleRef", &shown, "cannot change roleRef"));
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
    checks.errors.extend(check_always(kind, object));
    checks.errors
}

/// Returns the errors of the status of an object, after a write to its status endpoint.
pub fn check_status(kind: &Kind, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut checks = Checks::default();
    let type_name = kind.type_name.as_deref().unwrap_or_default();
    workloads::check_status(&mut checks, type_name, &object["status"], &old["status"]);
    checks.errors
}

/// Returns the warnings about an object that is accepted.
pub fn warnings(kind: &Kind, object: &Value) -> Vec<String> {
    match kind.type_name.as_deref() {
        Some("core/v1.Service") => services::warnings(&object["spec"]),
        _ => Vec::new(),
    }
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
        let value = of[field].as_str().unwrap_or_default();
        if !supported.contains(&value) {
            self.add(FieldError::unsupported(format!("{path}.{field}"), &value.into(), supported));
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

/// Returns the text of a struct's internal Go form, which some messages quote: the names of its fields in Go
/// and in JSON are given, and `missing` stands for missing fields.
fn internal(value: &Value, fields: &[(&str, &str)], missing: &Value) -> String {
    let field = |(go, json): &(&str, &str)| {
        format!("\"{go}\":{}", value.get(json).filter(|value| !value.is_null()).unwrap_or(missing))
    };
    format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().map(Map::iter).into_iter().flatten()
}
