//! Evaluates the CEL rules of a schema for an object.

use std::sync::Arc;

use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value as Cel};
use serde_json::Value;

use super::Rule;
use super::value::{FUNCTIONS, to_cel};
use crate::kinds::checks::Checks;
use crate::kinds::custom::ratchet::{Correlated, find_item};
use crate::kinds::custom::structural::rules_within;
use crate::kinds::errors::{FieldError, Reason};
use crate::kinds::path::Path;
use crate::kinds::schema::{Form, Schema};

/// The largest size of a message that an expression returns, in bytes.
const MAX_MESSAGE: usize = 5 << 10;

/// Checks the rules of a value and of the values below it.
///
/// `old` is the old value that this one replaces. Errors in unchanged values are not reported: `correlated`
/// compares the value with its old one, and if it is `None`, `parent` compares the closest value above that
/// has an old one.
pub(in crate::kinds::custom) fn check<'a>(
    value: &'a Value,
    old: Option<&'a Value>,
    schema: &'a Schema,
    path: &Path<'_>,
    correlated: Option<Correlated<'a>>,
    parent: Option<Correlated<'a>>,
    errors: &mut Vec<FieldError>,
) {
    let Some(checks) = schema.checks.as_deref().filter(|checks| checks.rules_within && !value.is_null())
    else {
        return;
    };
    let old = old.filter(|old| !old.is_null());
    if !checks.rules.is_empty() {
        let unchanged = || correlated.or(parent).is_some_and(Correlated::is_unchanged);
        let scope = Scope { value, old, schema, checks, root: matches!(path, Path::Root("")) };
        scope.check(path, &unchanged, errors);
    }
    let next = |below: Option<Correlated<'a>>| match correlated {
        Some(of) => (below, Some(of)),
        None => (None, parent),
    };
    match (value, &schema.form) {
        (Value::Object(map), Form::Object(fields)) => {
            for (name, value) in map {
                let Some(schema) = fields.fields.get(name).filter(|schema| rules_within(schema)) else {
                    continue;
                };
                let (below, parent) = next(correlated.and_then(|of| of.key(name)));
                check(
                    value,
                    old.and_then(|old| old.get(name)),
                    schema,
                    &path.field(name),
                    below,
                    parent,
                    errors,
                );
            }
        }
        (Value::Object(map), Form::Map { values, .. }) if rules_within(values) => {
            for (key, value) in map {
                let (below, parent) = next(correlated.and_then(|of| of.key(key)));
                check(value, old.and_then(|old| old.get(key)), values, &path.key(key), below, parent, errors);
            }
        }
        (Value::Array(list), Form::List { items, list: kind, .. }) if rules_within(items) => {
            let old = old.and_then(Value::as_array);
            for (index, value) in list.iter().enumerate() {
                let (below, parent) = next(correlated.and_then(|of| of.index(index)));
                let old = old.and_then(|old| find_item(old, value, kind));
                check(value, old, items, &path.index(index), below, parent, errors);
            }
        }
        _ => {}
    }
}

/// A value with rules, and the data for their evaluation.
struct Scope<'a> {
    value: &'a Value,
    old: Option<&'a Value>,
    schema: &'a Schema,
    checks: &'a Checks,
    root: bool,
}

impl Scope<'_> {
    fn check(&self, path: &Path<'_>, unchanged: &dyn Fn() -> bool, errors: &mut Vec<FieldError>) {
        let value = to_cel(self.value, self.schema, self.root);
        let uses_old = self.checks.rules.iter().any(|rule| rule.uses_old_self);
        let old = self.old.filter(|_| uses_old).map(|old| to_cel(old, self.schema, self.root));
        let mut plain = FUNCTIONS.new_inner_scope();
        plain.add_variable_from_value("self", value.clone());
        if let Some(old) = &old {
            plain.add_variable_from_value("oldSelf", old.clone());
        }
        let mut optional = FUNCTIONS.new_inner_scope();
        if self.checks.rules.iter().any(|rule| rule.optional_old_self) {
            optional.add_variable_from_value("self", value);
            let old = old.map_or_else(OptionalValue::none, OptionalValue::of);
            optional.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
        }
        for rule in &self.checks.rules {
            if rule.uses_old_self && self.old.is_none() && !rule.optional_old_self {
                continue;
            }
            let context = if rule.optional_old_self { &optional } else { &plain };
            match run(rule, context) {
                Ok(true) => {}
                Err(detail) => {
                    errors.push(FieldError::invalid(path.text(), &self.type_name().into(), &detail));
                }
                Ok(false) if !rule.uses_old_self && unchanged() => {}
                Ok(false) => errors.push(self.failure(rule, &plain, path)),
            }
        }
    }

    fn failure(&self, rule: &Rule, context: &Context<'_>, path: &Path<'_>) -> FieldError {
        let path = match (&rule.field_path, path.text()) {
            (None, path) => path,
            (Some(below), path) if path == "<nil>" => below.clone(),
            (Some(below), path) => format!("{path}.{below}"),
        };
        let detail =
            rule.message_program.as_ref().and_then(|program| message(program, context)).unwrap_or_else(
                || {
                    if rule.message.is_empty() {
                        format!("failed rule: {}", rule.name())
                    } else {
                        rule.message.clone()
                    }
                },
            );
        let whole = matches!(self.type_name(), "object" | "array");
        match rule.reason {
            Reason::Forbidden => FieldError::forbidden(path, &detail),
            Reason::Required => FieldError::required(path, &detail),
            Reason::Duplicate if whole => {
                FieldError { path, reason: Reason::Duplicate, message: "Duplicate value".to_owned() }
            }
            Reason::Duplicate => FieldError::duplicate(path, self.value),
            reason if whole => FieldError { path, reason, message: format!("Invalid value: {detail}") },
            _ => FieldError::invalid(path, self.value, &detail),
        }
    }

    /// Returns the declared type, which replaces the value in messages; empty unless there is exactly one.
    fn type_name(&self) -> &'static str {
        match self.checks.types.as_slice() {
            [one] => one.name(),
            _ => "",
        }
    }
}

/// Returns whether a value follows a rule.
///
/// # Errors
///
/// Returns the message of a compile error or an evaluation error.
fn run(rule: &Rule, context: &Context<'_>) -> Result<bool, String> {
    let program = match &rule.program {
        Ok(Some(program)) => program,
        Ok(None) => return Ok(true),
        Err(error) => return Err(format!("rule compile error: compilation failed: {error}")),
    };
    match Cel::resolve(program, context) {
        Ok(value) => Ok(value == Cel::Bool(true)),
        Err(error) => {
            let error = error_text(&error);
            Err(if error.starts_with("no such overload") {
                format!(
                    "'{error}': call arguments did not match a supported operator, function or macro \
                     signature for rule: {}",
                    rule.name()
                )
            } else {
                format!("{error} evaluating rule: {}", rule.name())
            })
        }
    }
}

/// Returns the result of a message expression; `None` if it fails or returns no usable string.
pub(super) fn message(program: &IdedExpr, context: &Context<'_>) -> Option<String> {
    let Ok(Cel::String(text)) = Cel::resolve(program, context) else { return None };
    let text = text.trim();
    (!text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
}

/// Returns the message of an evaluation error in the form of Go's CEL.
pub(super) fn error_text(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnsupportedTargetType { .. }
        | ExecutionError::NotSupportedAsMethod { .. }
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedMapIndex(_)
        | ExecutionError::UnsupportedListIndex(_)
        | ExecutionError::UnsupportedIndex(..) => "no such overload".to_owned(),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::FunctionError { function, message } if message.starts_with("string parse error") => {
            format!("type conversion error from 'string' to '{function}'")
        }
        ExecutionError::FunctionError { message, .. } => message.clone(),
        error => error.to_string(),
    }
}
