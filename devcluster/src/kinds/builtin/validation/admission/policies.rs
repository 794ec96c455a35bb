//! Validation of admission policies and their bindings.

use serde_json::Value;

use super::super::{Checks, items, selectors};
use super::{FAILURE_POLICIES, REINVOCATION_POLICIES, check_conditions, check_rule, supported};
use crate::kinds::custom::{Environment, Output, RESERVED};
use crate::kinds::{FieldError, names};

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
/// The largest number of audit annotations.
const MAX_ANNOTATIONS: usize = 20;
/// The largest size of the expression of an audit annotation, in bytes.
const MAX_ANNOTATION: usize = 5 << 10;

pub(super) fn check(checks: &mut Checks, kind: &str, object: &Value) {
    let spec = &object["spec"];
    match kind {
        "ValidatingAdmissionPolicy" => {
            let environment = check_policy(checks, spec);
            check_validations(checks, spec, &environment);
            check_annotations(checks, object, &environment);
        }
        "MutatingAdmissionPolicy" => {
            check_policy(checks, spec);
            check_operations(checks, "spec.matchConstraints", &spec["matchConstraints"]);
            check_mutations(checks, spec);
            if checks.required("spec", spec, "reinvocationPolicy") {
                checks.one_of("spec", spec, "reinvocationPolicy", &REINVOCATION_POLICIES);
            }
        }
        "ValidatingAdmissionPolicyBinding" => {
            check_binding(checks, spec);
            check_actions(checks, &spec["validationActions"]);
        }
        "MutatingAdmissionPolicyBinding" => {
            check_binding(checks, spec);
            check_operations(checks, "spec.matchResources", &spec["matchResources"]);
        }
        _ => {}
    }
}

/// Checks the parts that both kinds of policies have. Returns the variables of further expressions.
fn check_policy(checks: &mut Checks, spec: &Value) -> Environment {
    supported(checks, "spec", spec, "failurePolicy", &FAILURE_POLICIES);
    let params = !spec["paramKind"].is_null();
    if params {
        check_param_kind(checks, &spec["paramKind"]);
    }
    let constraints = &spec["matchConstraints"];
    if constraints.is_null() {
        checks.add(FieldError::required("spec.matchConstraints", ""));
    } else {
        check_match(checks, "spec.matchConstraints", constraints);
        if items(&constraints["resourceRules"]).is_empty() {
            checks.add(FieldError::required("spec.matchConstraints.resourceRules", ""));
        }
    }
    let mut environment = Environment::new(params, true);
    check_conditions(checks, "spec.matchConditions", &spec["matchConditions"], &environment);
    if !items(&spec["variables"]).is_empty() {
        environment = environment.with_variables();
    }
    for (index, variable) in items(&spec["variables"]).iter().enumerate() {
        let path = format!("spec.variables[{index}]");
        let text = |field: &str| variable[field].as_str().unwrap_or_default();
        let (name, expression) = (text("name"), text("expression"));
        if name.trim().is_empty() {
            checks.add(FieldError::required(format!("{path}.name"), "name is not specified"));
        } else if !is_identifier(name) {
            let detail = "must be a valid CEL identifier";
            checks.add(FieldError::invalid(format!("{path}.name"), &name.into(), detail));
        }
        let path = format!("{path}.expression");
        if expression.trim().is_empty() {
            checks.add(FieldError::required(path, "expression is not specified"));
        } else if let Err(error) = environment.declare(name, expression) {
            checks.add(FieldError::invalid(path, &expression.into(), &error));
        }
    }
    environment
}

fn is_identifier(name: &str) -> bool {
    let word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    word && !name.starts_with(|c: char| c.is_ascii_digit()) && !RESERVED.contains(&name)
}

fn check_param_kind(checks: &mut Checks, kind: &Value) {
    let path = "spec.paramKind";
    if checks.required(path, kind, "apiVersion") {
        let (place, of) = (format!("{path}.apiVersion"), &kind["apiVersion"]);
        let text = of.as_str().unwrap_or_default();
        let mut refuse = |value: &str, detail: &str| {
            checks.add(FieldError::invalid(place.as_str(), &value.into(), detail));
        };
        match text.split('/').collect::<Vec<_>>().as_slice() {
            [version] => check_version(&mut refuse, text, version),
            [group, version] => {
                let errors = names::dns1123_subdomain(group);
                if !group.is_empty() && !errors.is_empty() {
                    refuse(group, &errors.join(","));
                }
                check_version(&mut refuse, text, version);
            }
            _ => refuse(text, &format!("unexpected GroupVersion string: {text}")),
        }
    }
    if checks.required(path, kind, "kind") {
        let of = &kind["kind"];
        let errors = names::dns1035_label(&of.as_str().unwrap_or_default().to_lowercase());
        if !errors.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", errors.join(","));
            checks.add(FieldError::invalid(format!("{path}.kind"), of, &detail));
        }
    }
}

fn check_version(refuse: &mut impl FnMut(&str, &str), api_version: &str, version: &str) {
    let errors = names::dns1035_label(version);
    if version.is_empty() {
        refuse(api_version, "version must be specified");
    } else if !errors.is_empty() {
        refuse(version, &errors.join(","));
    }
}

fn check_match(checks: &mut Checks, path: &str, resources: &Value) {
    supported(checks, path, resources, "matchPolicy", &["Equivalent", "Exact"]);
    for selector in ["namespaceSelector", "objectSelector"] {
        selectors::check(checks, &format!("{path}.{selector}"), &resources[selector]);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in items(&resources[field]).iter().enumerate() {
            let path = format!("{path}.{field}[{index}]");
            let names = items(&rule["resourceNames"]);
            for (index, name) in names.iter().enumerate() {
                let path = format!("{path}.resourceNames[{index}]");
                for error in names::NameRule::PathSegment.errors(name.as_str().unwrap_or_default(), false) {
                    checks.add(FieldError::invalid(path.as_str(), name, &error));
                }
                if names.iter().take(index).any(|other| other == name) {
                    checks.add(FieldError::duplicate(path, name));
                }
            }
            check_rule(checks, &path, rule);
        }
    }
}

/// Checks that the rules of a mutating policy name no deletions.
fn check_operations(checks: &mut Checks, path: &str, resources: &Value) {
    let rules = items(&resources["resourceRules"]).iter();
    for operation in rules.flat_map(|rule| items(&rule["operations"])) {
        if !MUTATING_OPERATIONS.iter().any(|known| operation == known) {
            let path = format!("{path}.resourceRules.operations");
            checks.add(FieldError::unsupported(path, operation, &MUTATING_OPERATIONS));
        }
    }
}

fn check_validations(checks: &mut Checks, spec: &Value, environment: &Environment) {
    let validations = items(&spec["validations"]);
    if validations.is_empty() && items(&spec["auditAnnotations"]).is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        checks.add(FieldError::required("spec.validations", detail));
        checks.add(FieldError::required("spec.auditAnnotations", detail));
    }
    let of_message = environment.without_authorizer();
    for (index, validation) in validations.iter().enumerate() {
        let path = format!("spec.validations[{index}]");
        let text = |field: &str| validation[field].as_str().unwrap_or_default();
        let (expression, message) = (text("expression"), text("message"));
        let place = format!("{path}.expression");
        if expression.trim().is_empty() {
            checks.add(FieldError::required(place, "expression is not specified"));
        } else if let Err(error) = environment.compile(expression, Output::Bool) {
            checks.add(FieldError::invalid(place, &expression.into(), &error));
        }
        let (place, expression) = (format!("{path}.messageExpression"), text("messageExpression"));
        if !expression.is_empty() && expression.trim().is_empty() {
            checks.add(FieldError::invalid(place, &expression.into(), "must be non-empty if specified"));
        } else if !expression.is_empty()
            && let Err(error) = of_message.compile(expression, Output::String)
        {
            checks.add(FieldError::invalid(place, &expression.into(), &error));
        }
        let place = format!("{path}.message");
        if !message.is_empty() && message.trim().is_empty() {
            checks.add(FieldError::invalid(place, &message.into(), "must be non-empty if specified"));
        } else if message.trim().contains(['\n', '\r']) {
            checks.add(FieldError::invalid(place, &message.into(), "must not contain line breaks"));
        }
        supported(checks, &path, validation, "reason", &REASONS);
    }
}

fn check_annotations(checks: &mut Checks, object: &Value, environment: &Environment) {
    let path = "spec.auditAnnotations";
    let annotations = items(&object["spec"]["auditAnnotations"]);
    if annotations.len() > MAX_ANNOTATIONS {
        let detail = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        checks.add(FieldError::invalid(path, &object["spec"]["auditAnnotations"], &detail));
    }
    for (index, annotation) in annotations.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let (key, policy) = (&annotation["key"], object["metadata"]["name"].as_str().unwrap_or_default());
        let place = format!("{path}.key");
        let full = format!("{policy}/{}", key.as_str().unwrap_or_default());
        if policy.is_empty() {
            checks.add(FieldError::invalid(place.as_str(), key, "requires metadata.name be non-empty"));
        } else {
            for error in names::qualified_name(&full) {
                checks.add(FieldError::invalid(place.as_str(), &full.as_str().into(), &error));
            }
        }
        if annotations.iter().take(index).any(|other| other["key"] == *key) {
            checks.add(FieldError::duplicate(place, key));
        }
        let text = annotation["valueExpression"].as_str().unwrap_or_default();
        let place = format!("{path}.valueExpression");
        if text.trim().is_empty() {
            checks.add(FieldError::required(place, "valueExpression is not specified"));
        } else if text.trim().len() > MAX_ANNOTATION {
            let detail = format!("must not exceed {MAX_ANNOTATION} bytes in length");
            checks.add(FieldError::required(place, &detail));
        } else if let Err(error) = environment.compile(text.trim(), Output::StringOrNull) {
            checks.add(FieldError::invalid(place, &text.into(), &error));
        }
    }
}

fn check_mutations(checks: &mut Checks, spec: &Value) {
    let mutations = items(&spec["mutations"]);
    if mutations.is_empty() {
        checks.add(FieldError::required("spec.mutations", "mutations must contain at least one item"));
    }
    for (index, mutation) in mutations.iter().enumerate() {
        let path = format!("spec.mutations[{index}]");
        let (own, other) = match mutation["patchType"].as_str().unwrap_or_default() {
            "" => {
                checks.add(FieldError::required(format!("{path}.patchType"), ""));
                continue;
            }
            "JSONPatch" => ("jsonPatch", "applyConfiguration"),
            "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
            _ => {
                checks.one_of(&path, mutation, "patchType", &["ApplyConfiguration", "JSONPatch"]);
                continue;
            }
        };
        let patch_type = mutation["patchType"].as_str().unwrap_or_default();
        if mutation[own].is_null() {
            let detail = format!("must be specified when patchType is {patch_type}");
            checks.add(FieldError::required(format!("{path}.{own}"), &detail));
        } else if mutation[own]["expression"].as_str().unwrap_or_default().trim().is_empty() {
            checks.add(FieldError::required(format!("{path}.{own}.expression"), ""));
        }
        if !mutation[other].is_null() {
            let detail = format!("must not be specified when patchType is {patch_type}");
            let shown = format!("{{{other}}}");
            checks.add(FieldError::invalid(format!("{path}.{other}"), &shown.into(), &detail));
        }
    }
}

fn check_binding(checks: &mut Checks, spec: &Value) {
    if checks.required("spec", spec, "policyName") {
        for error in names::dns1123_subdomain(spec["policyName"].as_str().unwrap_or_default()) {
            checks.add(FieldError::invalid("spec.policyName", &spec["policyName"], &error));
        }
    }
    let params = &spec["paramRef"];
    if !params.is_null() {
        check_param_ref(checks, params);
    }
    check_match(checks, "spec.matchResources", &spec["matchResources"]);
}

fn check_param_ref(checks: &mut Checks, params: &Value) {
    let path = "spec.paramRef";
    let name = params["name"].as_str().unwrap_or_default();
    let exclusive = "name and selector are mutually exclusive";
    if !name.is_empty() {
        for error in names::NameRule::PathSegment.errors(name, false) {
            checks.add(FieldError::invalid(format!("{path}.name"), &name.into(), &error));
        }
    }
    if params["selector"].is_null() {
        if name.is_empty() {
            checks.add(FieldError::required(path, "one of name or selector must be specified"));
        }
    } else {
        selectors::check(checks, &format!("{path}.selector"), &params["selector"]);
        if !name.is_empty() {
            checks.add(FieldError::forbidden(format!("{path}.name"), exclusive));
            checks.add(FieldError::forbidden(format!("{path}.selector"), exclusive));
        }
    }
    if checks.required(path, params, "parameterNotFoundAction") {
        checks.one_of(path, params, "parameterNotFoundAction", &["Deny", "Allow"]);
    }
}

fn check_actions(checks: &mut Checks, actions: &Value) {
    let path = "spec.validationActions";
    let list = items(actions);
    for (index, action) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if !ACTIONS.iter().any(|known| action == known) {
            checks.add(FieldError::unsupported(path.as_str(), action, &ACTIONS));
        }
        if list.iter().take(index).any(|other| other == action) {
            checks.add(FieldError::duplicate(path, action));
        }
    }
    let has = |action: &str| list.iter().any(|item| item == action);
    if has("Deny") && has("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information \
                      in the API response and headers serves no purpose)";
        checks.add(FieldError::invalid(path, actions, detail));
    }
    if list.is_empty() {
        checks.add(FieldError::required(path, "at least one validation action is required"));
    }
}
