//! Validation of CEL rules.

use serde_json::Value;

use crate::kinds::custom::rules::{self, Declared};
use crate::kinds::custom::structural::flag;
use crate::kinds::custom::{field_path, text};
use crate::kinds::errors::{FieldError, Reason};

/// The values of a rule's `reason`.
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Checks the strings of a rule.
pub(super) fn check(rule: &Value, raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (of, message) = (text(rule, "rule"), text(rule, "message"));
    let broken = |text: &str| text.contains(['\n', '\r']);
    if of.trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(
            format!("{path}.message"),
            &message.into(),
            "must be non-empty if specified",
        ));
    } else if broken(message.trim()) {
        errors.push(FieldError::invalid(
            format!("{path}.message"),
            &message.into(),
            "must not contain line breaks",
        ));
    } else if broken(of.trim()) && message.trim().is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(format!("{path}.message"), detail));
    }
    let expression = text(rule, "messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(format!("{path}.messageExpression"), detail));
    }
    if let Some(reason) =
        rule.get("reason").and_then(Value::as_str).filter(|reason| !REASONS.contains(reason))
    {
        errors.push(FieldError::unsupported(format!("{path}.reason"), &reason.into(), &REASONS));
    }
    let field = text(rule, "fieldPath");
    if field.is_empty() {
        return;
    }
    let path = format!("{path}.fieldPath");
    let value = Value::from(field.as_str());
    if field.trim().is_empty() {
        errors.push(FieldError::invalid(&path, &value, "must be non-empty if specified"));
    }
    if broken(&field) {
        errors.push(FieldError::invalid(&path, &value, "must not contain line breaks"));
    }
    if field_path::resolve(&field, raw, true).is_err() {
        errors.push(FieldError::invalid(path, &value, "must be a valid path"));
    }
}

/// Compiles a rule and its message. `uncorrelated` is the path of the outermost list above that cannot match
/// its items with old ones; `None` if there is none.
pub(super) fn compile(
    rule: &Value,
    declared: &Declared,
    uncorrelated: Option<&str>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let optional = flag(rule, "optionalOldSelf");
    let mut push = |field: &str, detail: &str| {
        let message = format!("Invalid value: {}: {detail}", shown_rule(rule));
        errors.push(FieldError { path: format!("{path}.{field}"), reason: Reason::Invalid, message });
    };
    let uses_old_self = match rules::compile(&text(rule, "rule"), declared, optional, "bool") {
        Err(detail) => {
            push("rule", &detail);
            false
        }
        Ok(uses_old_self) => {
            let expression = text(rule, "messageExpression");
            if !expression.is_empty()
                && let Err(detail) = rules::compile(&expression, declared, optional, "string")
            {
                push("messageExpression", &detail);
            }
            uses_old_self
        }
    };
    match (uncorrelated, rule.get("optionalOldSelf")) {
        (Some(list), _) if uses_old_self => {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            errors.push(FieldError::invalid(format!("{path}.rule"), &text(rule, "rule").into(), &detail));
        }
        (_, Some(value)) if !uses_old_self && !value.is_null() => {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(format!("{path}.optionalOldSelf"), value, detail));
        }
        _ => {}
    }
}

/// Returns a rule as the messages of the server quote it.
fn shown_rule(rule: &Value) -> String {
    let string = |field: &str| Value::from(text(rule, field)).to_string();
    let any = |field: &str| rule.get(field).unwrap_or(&Value::Null).to_string();
    let shown = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\
         \"OptionalOldSelf\":{}}}",
        string("rule"),
        string("message"),
        string("messageExpression"),
        any("reason"),
        string("fieldPath"),
        any("optionalOldSelf"),
    );
    shown.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}
