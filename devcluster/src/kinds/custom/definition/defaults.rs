//! Checks that the schema accepts its own defaults.

use serde_json::Value;

use crate::kinds::custom::structural::{flag, rules_within, schema};
use crate::kinds::custom::validate::{Outcome, validate};
use crate::kinds::custom::{embedded, rules};
use crate::kinds::errors::FieldError;
use crate::kinds::path::Path;
use crate::kinds::prune::prune_part;

/// Checks all defaults of a schema, except those below `additionalProperties`.
pub(super) fn check(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = raw.get("default").filter(|default| !default.is_null()) {
        check_default(default, raw, &format!("{path}.default"), errors);
    }
    if let Some(items) = raw.get("items").filter(|items| items.is_object()) {
        check(items, &format!("{path}.items"), errors);
    }
    for (name, property) in raw.get("properties").and_then(Value::as_object).into_iter().flatten() {
        check(property, &format!("{path}.properties[{name}]"), errors);
    }
}

fn check_default(default: &Value, raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let of = schema(raw);
    let mut pruned = default.clone();
    if flag(raw, "x-kubernetes-embedded-resource") {
        crate::kinds::prune::prune(&mut pruned, &of);
    } else {
        prune_part(&mut pruned, &of);
    }
    if pruned != *default {
        errors.push(FieldError::invalid(path, default, "must not have unknown fields"));
    }
    let at = Path::Root(path);
    let mut value = default.clone();
    if let Err(error) = embedded::coerce(&mut value, &of, &at, &mut Vec::new()) {
        errors.push(error);
        return;
    }
    let mut found = Vec::new();
    embedded::check(&value, &of, &at, &mut found);
    if found.is_empty() {
        let mut outcome = Outcome::default();
        validate(&value, &of, &at, None, &mut outcome);
        found = outcome.errors;
    }
    if found.is_empty() && rules_within(&of) {
        rules::check(&value, Some(&value), &of, &at, None, None, &mut found);
        if found.is_empty() {
            rules::check(&value, None, &of, &at, None, None, &mut found);
        }
    }
    errors.append(&mut found);
}
