//! Validation of roles and their bindings.

use serde_json::Value;

use super::{Checks, items, selectors};
use crate::kinds::names::NameRule;
use crate::kinds::{FieldError, names};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Checks the rules of a Role or `ClusterRole`.
pub(super) fn check_role(checks: &mut Checks, role: &Value, type_name: &str) {
    check_rules(checks, role, type_name);
    let aggregation = &role["aggregationRule"];
    if aggregation.is_null() {
        return;
    }
    let path = "aggregationRule.clusterRoleSelectors";
    let selected = items(&aggregation["clusterRoleSelectors"]);
    if selected.is_empty() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        checks.add(FieldError::required(path, why));
    }
    for (index, selector) in selected.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let before = checks.errors.len();
        selectors::check(checks, &path, selector);
        if checks.errors.len() > before {
            checks.add(FieldError::invalid_shown(path, "null", "invalid label selector."));
        }
    }
}

fn check_rules(checks: &mut Checks, role: &Value, type_name: &str) {
    for (index, rule) in items(&role["rules"]).iter().enumerate() {
        let path = format!("rules[{index}]");
        let empty = |field: &str| items(&rule[field]).is_empty();
        if empty("verbs") {
            let path = format!("{path}.verbs");
            checks.add(FieldError::required(path, "verbs must contain at least one value"));
        }
        if !empty("nonResourceURLs") {
            let mut refuse = |text: &str| {
                let path = format!("{path}.nonResourceURLs");
                checks.add(FieldError::invalid(path, &rule["nonResourceURLs"], text));
            };
            if type_name == "rbac/v1.Role" {
                refuse("namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"].into_iter().any(|field| !empty(field)) {
                refuse("rules cannot apply to both regular resources and non-resource URLs");
            }
            continue;
        }
        for (field, what) in [("apiGroups", "api group"), ("resources", "resource")] {
            if empty(field) {
                let text = format!("resource rules must supply at least one {what}");
                checks.add(FieldError::required(format!("{path}.{field}"), &text));
            }
        }
    }
}

/// Checks the role and the subjects of a `RoleBinding` or `ClusterRoleBinding`.
pub(super) fn check_binding(checks: &mut Checks, binding: &Value, type_name: &str) {
    let role = &binding["roleRef"];
    checks.one_of("roleRef", role, "apiGroup", &[GROUP]);
    let kinds: &[&str] =
        if type_name == "rbac/v1.RoleBinding" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    checks.one_of("roleRef", role, "kind", kinds);
    if checks.required("roleRef", role, "name") {
        for error in NameRule::PathSegment.errors(role["name"].as_str().unwrap_or_default(), false) {
            checks.add(FieldError::invalid("roleRef.name", &role["name"], &error));
        }
    }
    for (index, subject) in items(&binding["subjects"]).iter().enumerate() {
        let path = format!("subjects[{index}]");
        let named = checks.required(&path, subject, "name");
        match subject["kind"].as_str().unwrap_or_default() {
            "ServiceAccount" => {
                let name = subject["name"].as_str().unwrap_or_default();
                for error in names::dns1123_subdomain(name).into_iter().filter(|_| named) {
                    checks.add(FieldError::invalid(format!("{path}.name"), &subject["name"], &error));
                }
                if !subject["apiGroup"].is_null() {
                    checks.one_of(&path, subject, "apiGroup", &[""]);
                }
                if type_name == "rbac/v1.ClusterRoleBinding" {
                    checks.required(&path, subject, "namespace");
                }
            }
            "User" | "Group" => checks.one_of(&path, subject, "apiGroup", &[GROUP]),
            _ => checks.one_of(&path, subject, "kind", &["ServiceAccount", "User", "Group"]),
        }
    }
}
