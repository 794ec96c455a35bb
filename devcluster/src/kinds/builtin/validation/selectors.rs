//! Validation and matching of label selectors.

use serde_json::Value;

use super::{Checks, entries, items};
use crate::kinds::{FieldError, names};

/// Checks a label selector.
pub(super) fn check(checks: &mut Checks, path: &str, selector: &Value) {
    for (key, value) in entries(&selector["matchLabels"]) {
        let path = format!("{path}.matchLabels");
        for error in names::qualified_name(key) {
            checks.add(FieldError::invalid(path.as_str(), &key.as_str().into(), &error));
        }
        for error in names::label_value(value.as_str().unwrap_or_default()) {
            checks.add(FieldError::invalid(path.as_str(), value, &error));
        }
    }
    for (i, expression) in items(&selector["matchExpressions"]).iter().enumerate() {
        let path = format!("{path}.matchExpressions[{i}]");
        let values = items(&expression["values"]);
        match expression["operator"].as_str().unwrap_or_default() {
            "In" | "NotIn" if values.is_empty() => checks.add(FieldError::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => checks.add(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => checks.add(FieldError::invalid(
                format!("{path}.operator"),
                &expression["operator"],
                "not a valid selector operator",
            )),
        }
        for error in names::qualified_name(expression["key"].as_str().unwrap_or_default()) {
            checks.add(FieldError::invalid(format!("{path}.key"), &expression["key"], &error));
        }
        for (i, value) in values.iter().enumerate() {
            for error in names::label_value(value.as_str().unwrap_or_default()) {
                checks.add(FieldError::invalid(format!("{path}.values[{i}]"), value, &error));
            }
        }
    }
}

/// Returns whether a selector has no requirement, so it matches all labels.
pub fn is_empty(selector: &Value) -> bool {
    entries(&selector["matchLabels"]).next().is_none() && items(&selector["matchExpressions"]).is_empty()
}

/// Returns whether labels match a selector; `None` if the selector is invalid.
pub fn matches(selector: &Value, labels: &Value) -> Option<bool> {
    let mut all = true;
    for (key, value) in entries(&selector["matchLabels"]) {
        all &= labels.get(key) == Some(value);
    }
    for expression in items(&selector["matchExpressions"]) {
        let label = labels.get(expression["key"].as_str()?);
        let values = items(&expression["values"]);
        all &= match expression["operator"].as_str()? {
            "In" if !values.is_empty() => label.is_some_and(|label| values.contains(label)),
            "NotIn" if !values.is_empty() => label.is_none_or(|label| !values.contains(label)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            _ => return None,
        };
    }
    Some(all)
}
