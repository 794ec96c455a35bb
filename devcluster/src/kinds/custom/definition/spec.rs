//! Validation of a definition's `spec`, except for its schemas.

use serde_json::Value;

use super::schema;
use crate::kinds::builtin::validation;
use crate::kinds::custom::{field_path, list, text};
use crate::kinds::errors::{FieldError, Reason, quoted};
use crate::kinds::names;

/// The largest number of selectable fields.
const MAX_SELECTABLE: usize = 8;
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// Checks the `spec` of a definition.
pub(super) fn check(spec: &Value, errors: &mut Vec<FieldError>) {
    check_group(spec, errors);
    match text(spec, "scope").as_str() {
        "" => errors.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        scope => {
            errors.push(FieldError::unsupported("spec.scope", &scope.into(), &["Cluster", "Namespaced"]));
        }
    }
    let versions: Vec<&Value> = list(spec, "versions").collect();
    check_versions(&versions, errors);
    let shared = |field: &str| {
        let first =
            versions.first().and_then(|version| version.get(field)).filter(|value| !value.is_null())?;
        versions.iter().all(|version| version.get(field) == Some(first)).then_some(first)
    };
    let status = |version: &Value| version.pointer("/subresources/status").is_some_and(Value::is_object);
    let any_status = versions.iter().any(|version| status(version));
    match shared("schema") {
        Some(shared) => check_schema(shared, any_status, "spec.validation", errors),
        None => {
            for (index, version) in versions.iter().enumerate() {
                if let Some(schema) = version.get("schema") {
                    check_schema(schema, status(version), &format!("spec.versions[{index}].schema"), errors);
                }
            }
        }
    }
    for (field, target, one) in [
        (
            "subresources",
            "spec.subresources",
            check_subresources as fn(&Value, &Value, &str, &mut Vec<FieldError>),
        ),
        ("additionalPrinterColumns", "spec.additionalPrinterColumns", check_columns),
        ("selectableFields", "spec.selectableFields", check_selectable),
    ] {
        if let (Some(value), Some(version)) = (shared(field), versions.first()) {
            one(value, version, target, errors);
            continue;
        }
        for (index, version) in versions.iter().enumerate() {
            if let Some(value) = version.get(field).filter(|value| !value.is_null()) {
                one(value, version, &format!("spec.versions[{index}].{field}"), errors);
            }
        }
    }
    let names = spec.get("names").unwrap_or(&Value::Null);
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(names, name).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{name}"), ""));
        }
    }
    check_names(names, "spec.names", errors);
    check_conversion(spec, errors);
}

fn check_group(spec: &Value, errors: &mut Vec<FieldError>) {
    let group = text(spec, "group");
    let found = names::dns1123_subdomain(&group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !found.is_empty() {
        errors.push(FieldError::invalid("spec.group", &group.into(), &found.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", &group.into(), detail));
    }
}

fn check_versions(versions: &[&Value], errors: &mut Vec<FieldError>) {
    let (mut storage, mut unique) = (0, true);
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = text(version, "name");
        storage += usize::from(version["storage"] == true);
        unique &= !versions.iter().take(index).any(|other| other["name"] == version["name"]);
        let found = names::dns1035_label(&name);
        if !found.is_empty() {
            errors.push(FieldError::invalid(format!("{path}.name"), &name.clone().into(), &found.join(",")));
            if index == 0 && !name.is_empty() {
                errors.push(FieldError::invalid("spec.version", &name.into(), &found.join(",")));
            }
        }
        if version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
            errors.push(FieldError::required(format!("{path}.schema.openAPIV3Schema"), ""));
        }
        if let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) {
            let mut push = |detail: &str| {
                errors.push(FieldError::invalid(
                    format!("{path}.deprecationWarning"),
                    &warning.into(),
                    detail,
                ));
            };
            if version["deprecated"] != true {
                push("can only be set for deprecated versions");
            } else if warning.is_empty() {
                push("must not be an empty string");
            } else if warning.len() > 256 {
                push("must be <= 256 characters long");
            } else if let Some((at, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
                push(&format!(
                    "must only contain printable UTF-8 characters; non-printable character found at index \
                     {at}"
                ));
            }
        }
    }
    let shown = shown_versions(versions);
    let mut push = |detail: &str| {
        let message = format!("Invalid value: {shown}: {detail}");
        errors.push(FieldError { path: "spec.versions".to_owned(), reason: Reason::Invalid, message });
    };
    if !unique {
        push("must contain unique version names");
    }
    if storage != 1 {
        push("must have exactly one version marked as storage version");
    }
}

/// Returns the versions as the messages of the server quote them. Schemas and other large parts are always
/// null.
fn shown_versions(versions: &[&Value]) -> String {
    let shown = versions.iter().map(|version| {
        let flag = |field: &str| version[field] == true;
        format!(
            "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\
             \"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\
             \"SelectableFields\":null}}",
            quoted(&text(version, "name")),
            flag("served"),
            flag("storage"),
            flag("deprecated"),
            version.get("deprecationWarning").unwrap_or(&Value::Null),
        )
    });
    format!("[{}]", shown.collect::<Vec<_>>().join(","))
}

fn check_schema(schema: &Value, status: bool, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(schema) = schema.get("openAPIV3Schema").filter(|schema| !schema.is_null()) {
        schema::check_root(schema, status, &format!("{path}.openAPIV3Schema"), errors);
    }
}

fn check_subresources(subresources: &Value, _version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(scale) = subresources.get("scale").filter(|scale| scale.is_object()) else { return };
    for (field, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let value = text(scale, field);
        let path = format!("{path}.scale.{field}");
        if value.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if !check_simple_path(&value, &path, errors) && !value.starts_with(root) {
            let detail = format!("should be a json path under {}", root.trim_end_matches('.'));
            errors.push(FieldError::invalid(path, &value.into(), &detail));
        }
    }
    let value = text(scale, "labelSelectorPath");
    let path = format!("{path}.scale.labelSelectorPath");
    if !value.is_empty()
        && !check_simple_path(&value, &path, errors)
        && !value.starts_with(".spec.")
        && !value.starts_with(".status.")
    {
        errors.push(FieldError::invalid(
            path,
            &value.into(),
            "should be a json path under either .spec or .status",
        ));
    }
}

/// Adds an error for a path that does not start with a dot. Returns whether it added one.
fn check_simple_path(value: &str, path: &str, errors: &mut Vec<FieldError>) -> bool {
    if value.starts_with('.') {
        return false;
    }
    errors.push(FieldError::invalid(path, &value.into(), "must be a simple json path starting with ."));
    true
}

fn check_columns(columns: &Value, _version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}[{index}]");
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        let types = format!("must be one of {}", COLUMN_TYPES.join(","));
        match text(column, "type").as_str() {
            "" => errors.push(FieldError::required(format!("{path}.type"), &types)),
            known if COLUMN_TYPES.contains(&known) => {}
            other => errors.push(FieldError::invalid(format!("{path}.type"), &other.into(), &types)),
        }
        let format = text(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format.as_str()) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.push(FieldError::invalid(format!("{path}.format"), &format.into(), &detail));
        }
        let json_path = text(column, "jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(format!("{path}.JSONPath"), ""));
        } else {
            check_simple_path(&json_path, &format!("{path}.JSONPath"), errors);
        }
    }
}

fn check_selectable(fields: &Value, version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(schema) = version.pointer("/schema/openAPIV3Schema") else { return };
    let mut seen = Vec::new();
    for (index, field) in fields.as_array().into_iter().flatten().enumerate() {
        let json_path = text(field, "jsonPath");
        let path = format!("{path}[{index}].jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let value = Value::from(json_path.as_str());
        let found = match field_path::resolve(&json_path, schema, false) {
            Ok(found) => found,
            Err(error) => {
                errors.push(FieldError::invalid(path, &value, &format!("is an invalid path: {error}")));
                continue;
            }
        };
        if found.root == "metadata" {
            errors.push(FieldError::invalid(&path, &value, "must not point to fields in metadata"));
        }
        if !matches!(text(found.schema, "type").as_str(), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and \
                          strings with formats are allowed.";
            errors.push(FieldError::invalid(&path, &value, detail));
        }
        if seen.contains(&found.path) {
            errors.push(FieldError::duplicate(path, &value));
        } else {
            seen.push(found.path);
        }
    }
    if seen.len() > MAX_SELECTABLE {
        errors.push(FieldError::too_many(path, seen.len(), MAX_SELECTABLE));
    }
}

/// Checks the names of a definition.
fn check_names(names: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut check = |field: String, name: &str, mixed: bool| {
        let found = names::dns1035_label(&if mixed { name.to_lowercase() } else { name.to_owned() });
        if !name.is_empty() && !found.is_empty() {
            let prefix = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            let detail = format!("{prefix}{}", found.join(","));
            errors.push(FieldError::invalid(format!("{path}.{field}"), &name.into(), &detail));
        }
    };
    for (field, mixed) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        check(field.to_owned(), &text(names, field), mixed);
    }
    for field in ["shortNames", "categories"] {
        for (index, name) in list(names, field).enumerate() {
            check(format!("{field}[{index}]"), name.as_str().unwrap_or_default(), false);
        }
    }
    let list_kind = text(names, "listKind");
    if !list_kind.is_empty() && list_kind == text(names, "kind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(format!("{path}.listKind"), &list_kind.into(), detail));
    }
}

fn check_conversion(spec: &Value, errors: &mut Vec<FieldError>) {
    let Some(conversion) = spec.get("conversion").filter(|value| value.is_object()) else { return };
    let path = "spec.conversion";
    let client = conversion.pointer("/webhook/clientConfig").filter(|value| value.is_object());
    let versions: Vec<&str> = conversion
        .pointer("/webhook/conversionReviewVersions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    match text(conversion, "strategy").as_str() {
        "Webhook" => {
            let target = format!("{path}.webhookClientConfig");
            match client {
                None => errors.push(FieldError::required(target, "required when strategy is set to Webhook")),
                Some(client) => errors.extend(validation::client_errors(&target, client)),
            }
            let target = format!("{path}.conversionReviewVersions");
            if versions.is_empty() {
                errors.push(FieldError::required(target, ""));
            } else {
                errors.extend(validation::review_version_errors(&target, &versions.into()));
            }
            return;
        }
        "" => errors.push(FieldError::required(format!("{path}.strategy"), "")),
        "None" => {}
        other => {
            let path = format!("{path}.strategy");
            errors.push(FieldError::unsupported(path, &other.into(), &["None", "Webhook"]));
        }
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if client.is_some() {
        errors.push(FieldError::forbidden(format!("{path}.webhookClientConfig"), detail));
    }
    if !versions.is_empty() {
        errors.push(FieldError::forbidden(format!("{path}.conversionReviewVersions"), detail));
    }
}
