//! Validation of the configurations of webhooks.

mod policies;

use serde_json::Value;

use super::{Checks, items, selectors};
use crate::kinds::custom::{Environment, Output};
use crate::kinds::{FieldError, names};

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];
/// The largest number of match conditions.
const MAX_CONDITIONS: usize = 64;

/// Checks an object of the group `admissionregistration.k8s.io`.
pub(super) fn check(checks: &mut Checks, kind: &str, object: &Value) {
    match kind {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            let webhooks = items(&object["webhooks"]);
            for (index, webhook) in webhooks.iter().enumerate() {
                let path = format!("webhooks[{index}]");
                check_webhook(checks, &path, webhook, kind.starts_with("Mutating"));
                let name = &webhook["name"];
                let earlier = webhooks.iter().take(index);
                if *name != "" && earlier.clone().any(|other| other["name"] == *name) {
                    checks.add(FieldError::duplicate(format!("{path}.name"), name));
                }
            }
        }
        kind => policies::check(checks, kind, object),
    }
}

fn check_webhook(checks: &mut Checks, path: &str, webhook: &Value, mutating: bool) {
    check_name(checks, &format!("{path}.name"), &webhook["name"]);
    for (index, rule) in items(&webhook["rules"]).iter().enumerate() {
        check_rule(checks, &format!("{path}.rules[{index}]"), rule);
    }
    supported(checks, path, webhook, "failurePolicy", &FAILURE_POLICIES);
    supported(checks, path, webhook, "matchPolicy", &["Equivalent", "Exact"]);
    if webhook["sideEffects"].is_null() {
        let detail = "must specify one of None, NoneOnDryRun";
        checks.add(FieldError::required(format!("{path}.sideEffects"), detail));
    }
    supported(checks, path, webhook, "sideEffects", &["None", "NoneOnDryRun"]);
    let timeout = &webhook["timeoutSeconds"];
    if timeout.as_i64().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        checks.add(FieldError::invalid(format!("{path}.timeoutSeconds"), timeout, detail));
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        selectors::check(checks, &format!("{path}.{selector}"), &webhook[selector]);
    }
    if mutating {
        supported(checks, path, webhook, "reinvocationPolicy", &REINVOCATION_POLICIES);
    }
    check_client(checks, &format!("{path}.clientConfig"), &webhook["clientConfig"]);
    let environment = Environment::new(false, true);
    check_conditions(checks, &format!("{path}.matchConditions"), &webhook["matchConditions"], &environment);
    check_review_versions(
        checks,
        &format!("{path}.admissionReviewVersions"),
        &webhook["admissionReviewVersions"],
    );
}

/// Checks a name of at least three segments.
fn check_name(checks: &mut Checks, path: &str, name: &Value) {
    let text = name.as_str().unwrap_or_default();
    let errors = names::dns1123_subdomain(text);
    if text.is_empty() {
        checks.add(FieldError::required(path, ""));
    } else if !errors.is_empty() {
        checks.add(FieldError::invalid(path, name, &errors.join(",")));
    } else if text.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        checks.add(FieldError::invalid(path, name, detail));
    }
}

/// Checks an optional field with a fixed set of values.
fn supported(checks: &mut Checks, path: &str, of: &Value, field: &str, values: &[&str]) {
    if !of[field].is_null() {
        checks.one_of(path, of, field, values);
    }
}

fn check_rule(checks: &mut Checks, path: &str, rule: &Value) {
    let lists = [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")];
    for (field, shown) in lists {
        let (path, list) = (format!("{path}.{field}"), items(&rule[field]));
        if list.is_empty() {
            checks.add(FieldError::required(path.as_str(), ""));
        }
        if list.len() > 1 && list.iter().any(|item| item == "*") {
            let detail = format!("if '*' is present, must not specify other {shown}");
            checks.add(FieldError::invalid(path, &rule[field], &detail));
        }
    }
    for (index, operation) in items(&rule["operations"]).iter().enumerate() {
        if !OPERATIONS.iter().any(|known| operation == known) {
            let path = format!("{path}.operations[{index}]");
            checks.add(FieldError::unsupported(path, operation, &OPERATIONS));
        }
    }
    for (index, version) in items(&rule["apiVersions"]).iter().enumerate() {
        if version == "" {
            checks.add(FieldError::required(format!("{path}.apiVersions[{index}]"), ""));
        }
    }
    check_resources(checks, &format!("{path}.resources"), &rule["resources"]);
    supported(checks, path, rule, "scope", &["*", "Cluster", "Namespaced"]);
}

fn check_resources(checks: &mut Checks, path: &str, resources: &Value) {
    let list = items(resources);
    if list.is_empty() {
        checks.add(FieldError::required(path, ""));
    }
    let (mut of_all, mut all_of, mut plain) = (Vec::new(), Vec::new(), false);
    for (index, resource) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let text = resource.as_str().unwrap_or_default();
        if text.is_empty() {
            checks.add(FieldError::required(path, ""));
            continue;
        }
        let Some((name, subresource)) = text.split_once('/') else {
            plain = text != "*";
            continue;
        };
        if of_all.contains(&name) {
            let detail = format!("if '{name}/*' is present, must not specify {text}");
            checks.add(FieldError::invalid(path.as_str(), resource, &detail));
        }
        if all_of.contains(&subresource) {
            let detail = format!("if '*/{subresource}' is present, must not specify {text}");
            checks.add(FieldError::invalid(path, resource, &detail));
        }
        if subresource == "*" {
            of_all.push(name);
        }
        if name == "*" {
            all_of.push(subresource);
        }
    }
    if list.len() > 1 && list.iter().any(|resource| resource == "*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        checks.add(FieldError::invalid(path, resources, detail));
    }
    if plain && list.iter().any(|resource| resource == "*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        checks.add(FieldError::invalid(path, resources, detail));
    }
}

/// Returns the errors of a webhook's `clientConfig`.
pub fn client_errors(path: &str, client: &Value) -> Vec<FieldError> {
    let mut checks = Checks::default();
    check_client(&mut checks, path, client);
    checks.errors
}

/// Returns the errors of the versions of reviews that a webhook accepts, of which there is at least one.
pub fn review_version_errors(path: &str, versions: &Value) -> Vec<FieldError> {
    let mut checks = Checks::default();
    check_review_versions(&mut checks, path, versions);
    checks.errors
}

fn check_client(checks: &mut Checks, path: &str, client: &Value) {
    let (url, service) = (&client["url"], &client["service"]);
    if url.is_null() == service.is_null() {
        checks.add(FieldError::required(path, "exactly one of url or service is required"));
    } else if let Some(url) = url.as_str() {
        check_url(checks, &format!("{path}.url"), url);
    } else {
        check_service(checks, &format!("{path}.service"), service);
    }
}

fn check_url(checks: &mut Checks, path: &str, url: &str) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let mut refuse = |value: &str, detail: String| {
        checks.add(FieldError::invalid(path, &value.into(), &detail));
    };
    if scheme != "https" {
        refuse(scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        refuse(host, format!("host must be specified{FORM}"));
    }
    for (part, name) in
        [(user, "user information is"), (fragment, "fragments are"), (query, "query parameters are")]
    {
        if !part.is_empty() {
            refuse(part, format!("{name} not permitted in the URL"));
        }
    }
}

fn check_service(checks: &mut Checks, path: &str, service: &Value) {
    checks.required(path, service, "name");
    checks.required(path, service, "namespace");
    let port = &service["port"];
    if !port.as_i64().is_some_and(|port| (1..=65535).contains(&port)) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        checks.add(FieldError::invalid(format!("{path}.port"), port, detail));
    }
    let (path, of) = (format!("{path}.path"), &service["path"]);
    let mut refuse = |detail: &str| checks.add(FieldError::invalid(path.as_str(), of, detail));
    match of.as_str() {
        None | Some("" | "/") => {}
        Some("//") => refuse("segment[0] may not be empty"),
        Some(text) => {
            if !text.starts_with('/') {
                refuse("must start with a '/'");
            }
            let text = text.get(1..).unwrap_or_default();
            for (index, step) in text.strip_suffix('/').unwrap_or(text).split('/').enumerate() {
                if step.is_empty() {
                    refuse(&format!("segment[{index}] may not be empty"));
                    continue;
                }
                for error in names::dns1123_subdomain(step) {
                    refuse(&format!("segment[{index}]: {error}"));
                }
            }
        }
    }
}

fn check_conditions(checks: &mut Checks, path: &str, conditions: &Value, environment: &Environment) {
    let list = items(conditions);
    if list.len() > MAX_CONDITIONS {
        checks.add(FieldError::too_many(path, list.len(), MAX_CONDITIONS));
    }
    for (index, condition) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let text = condition["expression"].as_str().unwrap_or_default().trim();
        let place = format!("{path}.expression");
        if text.is_empty() {
            checks.add(FieldError::required(place, ""));
        } else if let Err(error) = environment.compile(text, Output::Bool) {
            checks.add(FieldError::invalid(place, &text.into(), &error));
        }
        let name = &condition["name"];
        let text = name.as_str().unwrap_or_default();
        let path = format!("{path}.name");
        if text.is_empty() {
            checks.add(FieldError::required(path, ""));
            continue;
        }
        for error in names::qualified_name(text) {
            checks.add(FieldError::invalid(path.as_str(), name, &error));
        }
        if list.iter().take(index).any(|other| other["name"] == *name) {
            checks.add(FieldError::duplicate(path, name));
        }
    }
}

fn check_review_versions(checks: &mut Checks, path: &str, versions: &Value) {
    let list = items(versions);
    if list.is_empty() {
        checks.add(FieldError::required(path, "must specify one of v1, v1beta1"));
        return;
    }
    for (index, version) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if list.iter().take(index).any(|other| other == version) {
            checks.add(FieldError::invalid(path, version, "duplicate version"));
            continue;
        }
        for error in names::dns1035_label(version.as_str().unwrap_or_default()) {
            checks.add(FieldError::invalid(path.as_str(), version, &error));
        }
    }
    if !list.iter().any(|version| version == "v1" || version == "v1beta1") {
        checks.add(FieldError::invalid(path, versions, "must include at least one of v1, v1beta1"));
    }
}
