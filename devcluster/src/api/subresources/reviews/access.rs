//! Access reviews: whether a user may do something.

use serde_json::{Value, json};

use super::super::super::call::Call;
use super::super::super::object;
use super::super::super::rbac::{Access, Action};
use super::super::super::request::User;
use super::super::super::selector::LabelSelector;
use super::super::super::{Api, Status};
use super::with_status;
use crate::kinds::FieldError;

/// The group of access reviews.
const GROUP: &str = "authorization.k8s.io";

// === impl Api ===

impl Api {
    /// Answers an access review of any of the three kinds.
    pub(super) fn review_access(&self, kind: &str, call: &Call, review: Value) -> Result<Value, Status> {
        let errors = check(kind, &review);
        if !errors.is_empty() {
            // The real server no longer knows the kind and the name here.
            return Err(Status::invalid_kind(GROUP, "", "", &errors));
        }
        let spec = review.get("spec").unwrap_or(&Value::Null);
        let user = if kind == "SelfSubjectAccessReview" { call.user.clone() } else { subject(spec) };
        let mut evaluation = Vec::new();
        let decision = if let Some(of) = present(spec, "resourceAttributes") {
            evaluation.extend(selector_errors(of));
            let text = |field| object::text(of, field);
            let access = Access {
                verb: text("verb"),
                group: text("group"),
                resource: text("resource"),
                subresource: text("subresource"),
                namespace: text("namespace"),
                name: text("name"),
            };
            self.decide(&user, &Action::Resource(access))
        } else {
            let of = spec.get("nonResourceAttributes").unwrap_or(&Value::Null);
            let (verb, path) = (object::text(of, "verb"), object::text(of, "path"));
            self.decide(&user, &Action::Path { verb, path })
        };
        let mut status = json!({"allowed": decision.is_allowed()});
        for (field, text) in [("reason", decision.reason()), ("evaluationError", evaluation.join("; "))] {
            if !text.is_empty() {
                object::set_text(&mut status, field, &text);
            }
        }
        Ok(with_status(review, status))
    }
}

/// Returns the user of a review of another user.
fn subject(spec: &Value) -> User {
    let texts = |value: Option<&Value>| {
        let values = value.and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let extra = spec.get("extra").and_then(Value::as_object).into_iter().flatten();
    User {
        name: object::text(spec, "user").to_owned(),
        uid: object::text(spec, "uid").to_owned(),
        groups: texts(spec.get("groups")),
        extra: extra.map(|(key, values)| (key.clone(), texts(Some(values)))).collect(),
    }
}

fn check(kind: &str, review: &Value) -> Vec<FieldError> {
    let spec = review.get("spec").unwrap_or(&Value::Null);
    let mut errors = Vec::new();
    let shown = |path: Option<&Value>| match path {
        None => "null".to_owned(),
        Some(of) => {
            let text = |field| Value::from(object::text(of, field));
            format!("{{\"Path\":{},\"Verb\":{}}}", text("path"), text("verb"))
        }
    };
    let (resource, path) = (present(spec, "resourceAttributes"), present(spec, "nonResourceAttributes"));
    let mut refuse = |field: &str, shown: &str, why: &str| {
        errors.push(FieldError::invalid_shown(field, shown, why));
    };
    match (resource, path) {
        (Some(_), Some(_)) => {
            let why = "cannot be specified in combination with resourceAttributes";
            refuse("spec.nonResourceAttributes", &shown(path), why);
        }
        (None, None) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            refuse("spec.resourceAttributes", &shown(path), why);
        }
        _ => {}
    }
    let is_empty = |field| spec.get(field).is_none_or(|value| value.is_null() || object::is_empty(value));
    if kind != "SelfSubjectAccessReview" && object::text(spec, "user").is_empty() && is_empty("groups") {
        refuse("spec.user", "\"\"", "at least one of user or group must be specified");
    }
    if let Some(resource) = resource {
        errors.extend(check_selectors(resource));
    }
    let local = kind == "LocalSubjectAccessReview";
    let namespace = object::meta(review, "namespace");
    let metadata = review.get("metadata").cloned().unwrap_or_default();
    let is_set = |(field, value): (&String, &Value)| {
        let allowed = field == "managedFields" || (local && field == "namespace");
        !allowed && !value.is_null() && value != ""
    };
    if metadata.as_object().is_some_and(|metadata| metadata.iter().any(is_set)) {
        let why = if local { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid("metadata", &metadata, why));
    }
    if let Some(of) = resource.filter(|of| local && object::text(of, "namespace") != namespace) {
        let sent = Value::from(object::text(of, "namespace"));
        errors.push(FieldError::invalid(
            "spec.resourceAttributes.namespace",
            &sent,
            "must match metadata.namespace",
        ));
    }
    if path.is_some() && local {
        let why = "disallowed on this kind of request";
        errors.push(FieldError::invalid_shown("spec.nonResourceAttributes", &shown(path), why));
    }
    errors
}

fn check_selectors(resource: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["fieldSelector", "labelSelector"] {
        let Some(selector) = present(resource, field) else { continue };
        let path = format!("spec.resourceAttributes.{field}");
        let raw = object::text(selector, "rawSelector");
        let listed =
            selector.get("requirements").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        if !raw.is_empty() && listed {
            let why = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(format!("{path}.rawSelector"), &raw.into(), why));
        }
        if raw.is_empty() && !listed {
            let why = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(format!("{path}.requirements"), &why));
        }
    }
    errors
}

/// Returns the remarks about selectors that cannot be read. Rules do not depend on selectors.
fn selector_errors(resource: &Value) -> Vec<String> {
    let raw = |field| present(resource, field).map_or("", |selector| object::text(selector, "rawSelector"));
    let unreadable_field = |part: &str| !part.is_empty() && !part.contains('=');
    let mut errors = Vec::new();
    if raw("fieldSelector").split(',').any(unreadable_field) {
        errors.push("fieldSelector");
    }
    if LabelSelector::parse(raw("labelSelector")).is_err() {
        errors.push("labelSelector");
    }
    let remark = |field| format!("spec.resourceAttributes.{field} ignored due to parse error");
    errors.into_iter().map(remark).collect()
}

fn present<'a>(value: &'a Value, field: &str) -> Option<&'a Value> {
    value.get(field).filter(|value| !value.is_null())
}
