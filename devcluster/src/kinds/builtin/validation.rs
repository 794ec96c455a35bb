//! Validation of built-in kinds beyond types and metadata. Covers the errors that clients commonly meet.
//!
//! Objects are in typed form and have their defaults.

use serde_json::{Map, Value};

use crate::kinds::FieldError;
use crate::kinds::kind::Kind;
use crate::kinds::names::{self, NameRule};

mod addresses;
mod admission;
mod autoscaling;
mod batch;
mod data;
mod discovery;
mod events;
mod networking;
mod pods;
mod policy;
mod rbac;
mod scheduling;
mod selectors;
mod services;
mod storage;
mod workloads;

pub(in crate::kinds) use addresses::ip_error;
pub use admission::{client_errors, review_version_errors};
pub use scheduling::SYSTEM_CLASSES;
pub use selectors::{is_empty as selects_all, matches as selects};
pub use services::{FAMILY_POLICY, check_addresses};

/// Returns the errors of a new object, without those of its metadata.
pub fn check(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let mut checks = Checks::default();
    match kind.type_name.as_deref().unwrap_or_default() {
        "events/v1.Event" => events::check(&mut checks, object),
        "discovery/v1.EndpointSlice" => discovery::check(&mut checks, object),
        "autoscaling/v1.HorizontalPodAutoscaler" | "autoscaling/v2.HorizontalPodAutoscaler" => {
            autoscaling::check(&mut checks, &autoscaler(object)["spec"], &Value::Null);
        }
        "batch/v1.CronJob" => {
            batch::check_new_cron_job(&mut checks, object);
            batch::check_cron_job(&mut checks, &object["spec"], &Value::Null);
        }
        "networking/v1.Ingress" => networking::check_new_ingress(&mut checks, object),
        "networking/v1.NetworkPolicy" => {
            networking::check_policy(&mut checks, &object["spec"], &Value::Null);
        }
        "networking/v1.IPAddress" => networking::check_ip_address(&mut checks, &object["spec"]),
        "networking/v1.ServiceCIDR" => networking::check_service_cidr(&mut checks, &object["spec"]),
        "node/v1.RuntimeClass" => scheduling::check_runtime(&mut checks, object),
        "scheduling/v1.PriorityClass" => scheduling::check_priority(&mut checks, object),
        "storage/v1.CSIStorageCapacity" => storage::check_capacity(&mut checks, object),
        "storage/v1.StorageClass" => storage::check_class(&mut checks, object),
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
        "batch/v1.Job" => {
            batch::check_job(&mut checks, object);
            batch::check_generated(&mut checks, object);
        }
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
        "networking/v1.Ingress" => networking::check_ingress(&mut checks, &object["spec"]),
        "networking/v1.IngressClass" => networking::check_class(&mut checks, &object["spec"]),
        "storage/v1.CSIDriver" => storage::check_driver(&mut checks, &object["spec"]),
        "storage/v1.CSINode" => storage::check_node(&mut checks, &object["spec"]),
        "storage/v1.VolumeAttachment" => storage::check_attachment(&mut checks, &object["spec"]),
        "storage/v1.VolumeAttributesClass" => storage::check_attributes_class(&mut checks, object),
        _ if kind.group == "admissionregistration.k8s.io" => {
            admission::check(&mut checks, &kind.kind, object);
        }
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
        "batch/v1.CronJob" => batch::check_cron_job(&mut checks, &object["spec"], &old["spec"]),
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
        "autoscaling/v1.HorizontalPodAutoscaler" | "autoscaling/v2.HorizontalPodAutoscaler" => {
            autoscaling::check(&mut checks, &autoscaler(object)["spec"], &autoscaler(old)["spec"]);
        }
        "networking/v1.IngressClass" => {
            let controller = |class: &Value| class["spec"]["controller"].clone();
            checks.immutable("spec.controller", &controller(object), &controller(old));
        }
        "networking/v1.IPAddress" => {
            let parent = |address: &Value| address["spec"]["parentRef"].clone();
            checks.immutable("spec.parentRef", &parent(object), &parent(old));
        }
        "networking/v1.NetworkPolicy" => {
            networking::check_policy(&mut checks, &object["spec"], &old["spec"]);
        }
        "networking/v1.ServiceCIDR" => {
            networking::check_service_cidr_update(&mut checks, &object["spec"], &old["spec"]);
        }
        "node/v1.RuntimeClass" => checks.immutable("handler", &object["handler"], &old["handler"]),
        "scheduling/v1.PriorityClass" => scheduling::check_priority_update(&mut checks, object, old),
        "storage/v1.CSIDriver" => {
            storage::check_driver_update(&mut checks, &object["spec"], &old["spec"]);
        }
        "storage/v1.CSIStorageCapacity" => storage::check_capacity_update(&mut checks, object, old),
        "storage/v1.StorageClass" => storage::check_class_update(&mut checks, object, old),
        "storage/v1.VolumeAttachment" => storage::check_attachment_update(&mut checks, object, old),
        "storage/v1.VolumeAttributesClass" => {
            storage::check_attributes_class_update(&mut checks, object, old);
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
    match type_name {
        "autoscaling/v1.HorizontalPodAutoscaler" | "autoscaling/v2.HorizontalPodAutoscaler" => {
            autoscaling::check_status(&mut checks, &object["status"]);
        }
        "batch/v1.Job" => batch::check_job_status(&mut checks, object, old),
        "networking/v1.Ingress" => {
            networking::check_ingress_status(&mut checks, &object["status"], &old["status"]);
        }
        _ => workloads::check_status(&mut checks, type_name, &object["status"], &old["status"]),
    }
    checks.errors
}

/// Returns the warnings about an object that is accepted.
pub fn warnings(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<String> {
    match kind.type_name.as_deref() {
        Some("core/v1.Service") => services::warnings(&object["spec"]),
        Some("storage/v1.CSIDriver") => storage::warnings(&object["spec"], old.map(|old| &old["spec"])),
        Some("batch/v1.Job") if old.is_none() => batch::warnings(object),
        _ => Vec::new(),
    }
}

/// Returns an autoscaler in the form of `v2`.
fn autoscaler(object: &Value) -> Value {
    let mut autoscaler = object.clone();
    if autoscaler["apiVersion"] == "autoscaling/v1" {
        super::autoscaling::to_v2(&mut autoscaler);
    }
    autoscaler
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

    /// Checks that a string is present and can be a part of a URL path.
    fn path_segment(&mut self, path: &str, of: &Value, field: &str) {
        if self.required(path, of, field) {
            for error in NameRule::PathSegment.errors(of[field].as_str().unwrap_or_default(), false) {
                self.add(FieldError::invalid(format!("{path}.{field}"), &of[field], &error));
            }
        }
    }

    /// Checks a path with a domain in front, such as `example.com/controller`.
    fn domain_prefixed_path(&mut self, path: &str, value: &Value) {
        let text = value.as_str().unwrap_or_default();
        if text.is_empty() {
            self.add(FieldError::required(path, ""));
            return;
        }
        let Some((domain, rest)) =
            text.split_once('/').filter(|(domain, rest)| !domain.is_empty() && !rest.is_empty())
        else {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            self.add(FieldError::invalid(path, value, detail));
            return;
        };
        for error in names::dns1123_subdomain(domain) {
            self.add(FieldError::invalid(path, &domain.into(), &error));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
        if !rest.bytes().all(allowed) {
            let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
            self.add(FieldError::invalid(path, &rest.into(), detail));
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
