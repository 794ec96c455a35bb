//! Admission and validation of custom resources, in the order of the real server.

use serde_json::Value;

use super::CustomKind;
use super::embedded;
use super::lists;
use super::ratchet::Correlated;
use super::rules;
use super::validate::{Outcome, validate};
use crate::kinds::defaults::set_defaults;
use crate::kinds::errors::{FieldError, Reason};
use crate::kinds::kind::Scale;
use crate::kinds::metadata;
use crate::kinds::names::NameRule;
use crate::kinds::path::Path;
use crate::kinds::prune::{drop_nulls, prune};
use crate::kinds::schema::{Form, Schema};

impl CustomKind {
    /// Converts an object from a client, or one stored in another version, to the form of this version:
    /// removes unknown fields and nulls, and sets defaults. Returns the paths of the removed fields, sorted.
    ///
    /// # Errors
    ///
    /// Returns the error of metadata with a wrong type, in the object or in an embedded one.
    pub fn admit(&self, object: &mut Value) -> Result<Vec<String>, FieldError> {
        let schema = self.schema();
        let mut unknown = Vec::new();
        if let Some(metadata) = object.get_mut("metadata") {
            embedded::coerce_metadata(metadata, &Path::Root("metadata"), &mut unknown)?;
            for name in &mut unknown {
                name.insert_str(0, "metadata.");
            }
        }
        if !self.preserves_all {
            unknown.extend(prune(object, schema));
            drop_nulls(object, schema);
        }
        embedded::coerce(object, schema, &Path::Root(""), &mut unknown)?;
        set_defaults(object, schema);
        unknown.sort_unstable();
        Ok(unknown)
    }

    /// Converts a stored object of any version to this version, like the conversion strategy `None`.
    pub fn convert(&self, object: &mut Value) {
        self.rename(object);
        set_defaults(object, self.schema());
    }

    /// As [`convert`](Self::convert), without the defaults of this version.
    pub fn rename(&self, object: &mut Value) {
        if let Value::Object(map) = object {
            map.insert("apiVersion".to_owned(), self.api_version.as_str().into());
        }
        if !self.preserves_all {
            prune(object, self.schema());
            drop_nulls(object, self.schema());
        }
    }

    /// Validates a new object.
    pub fn check_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = self.check_type(object);
        if !errors.is_empty() {
            return errors;
        }
        let root = Path::Root("");
        let metadata = object.get("metadata").unwrap_or(&Value::Null);
        let path = Path::Root("metadata");
        metadata::check(metadata, self.kind.namespaced, NameRule::Subdomain, &path, &mut errors);
        let mut outcome = Outcome::after(errors);
        validate(object, self.schema(), &root, None, &mut outcome);
        let mut errors = outcome.errors;
        if let Some(scale) = &self.kind.scale {
            check_spec_replicas(object, scale, &mut errors);
            check_status_scale(object, scale, &mut errors);
        }
        embedded::check(object, self.schema(), &root, &mut errors);
        lists::check(object, self.schema(), &root, &mut errors);
        self.check_rules(object, None, &mut errors);
        errors
    }

    /// Validates an object that replaces `old`.
    pub fn check_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.check_type(object);
        if !errors.is_empty() {
            return errors;
        }
        let root = Path::Root("");
        check_metadata_update(object, old, &mut errors);
        let mut outcome = Outcome::after(errors);
        let correlated = Correlated { new: object, old, schema: self.schema(), root: true };
        validate(object, self.schema(), &root, Some(correlated), &mut outcome);
        let mut errors = outcome.errors;
        if let Some(scale) = &self.kind.scale {
            check_spec_replicas(object, scale, &mut errors);
            check_status_scale(object, scale, &mut errors);
        }
        embedded::check(object, self.schema(), &root, &mut errors);
        self.check_lists_update(object, old, &mut errors);
        self.check_rules(object, Some(old), &mut errors);
        errors
    }

    /// Validates an object after its status was replaced.
    pub fn check_status_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.check_type(object);
        if !errors.is_empty() {
            return errors;
        }
        check_metadata_update(object, old, &mut errors);
        let mut outcome = Outcome::after(errors);
        if let (Some(status), Form::Object(fields)) = (object.get("status"), &self.schema().form)
            && let Some(schema) = fields.fields.get("status")
        {
            let root = Correlated { new: object, old, schema: self.schema(), root: true };
            validate(status, schema, &Path::Root("status"), root.key("status"), &mut outcome);
        }
        let mut errors = outcome.errors;
        if let Some(scale) = &self.kind.scale {
            check_status_scale(object, scale, &mut errors);
        }
        self.check_lists_update(object, old, &mut errors);
        self.check_rules(object, Some(old), &mut errors);
        errors
    }

    fn schema(&self) -> &Schema {
        self.kind.schema.get()
    }

    fn check_type(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut check = |field: &'static str, expected: &str| {
            let found = object.get(field).and_then(Value::as_str).unwrap_or_default();
            if found != expected {
                errors.push(FieldError::invalid(field, &found.into(), &format!("must be {expected}")));
            }
        };
        check("kind", &self.kind.kind);
        check("apiVersion", &self.api_version);
        errors
    }

    /// Checks lists for equal items, unless the old object has some, too.
    fn check_lists_update(&self, object: &Value, old: &Value, errors: &mut Vec<FieldError>) {
        let mut found = Vec::new();
        lists::check(object, self.schema(), &Path::Root(""), &mut found);
        if found.is_empty() {
            return;
        }
        let mut known = Vec::new();
        lists::check(old, self.schema(), &Path::Root(""), &mut known);
        if known.is_empty() {
            errors.append(&mut found);
        }
    }

    /// Checks CEL rules. They run only if the object has the declared types and sizes.
    fn check_rules(&self, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        if !super::structural::rules_within(self.schema()) {
            return;
        }
        let blocks = |error: &FieldError| {
            matches!(
                error.reason,
                Reason::Unsupported
                    | Reason::Required
                    | Reason::TooLong
                    | Reason::TooMany
                    | Reason::TypeInvalid
            )
        };
        if errors.iter().any(blocks) {
            let detail = "some validation rules were not checked because the object was invalid; correct the \
                          existing errors to complete validation";
            errors.push(FieldError::invalid("<nil>", &Value::Null, detail));
            return;
        }
        let correlated = old.map(|old| Correlated { new: object, old, schema: self.schema(), root: true });
        rules::check(object, old, self.schema(), &Path::Root(""), correlated, None, errors);
    }
}

fn check_metadata_update(object: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let old = old.get("metadata").unwrap_or(&Value::Null);
    metadata::check_update(metadata, old, &Path::Root("metadata"), errors);
}

/// Returns the value at a path such as `.spec.replicas`; `None` if it is missing.
pub fn at_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.').split('.').try_fold(object, |value, name| value.get(name))
}

fn check_spec_replicas(object: &Value, scale: &Scale, errors: &mut Vec<FieldError>) {
    check_replicas(object, &scale.spec_replicas, errors);
}

fn check_status_scale(object: &Value, scale: &Scale, errors: &mut Vec<FieldError>) {
    check_replicas(object, &scale.status_replicas, errors);
    let Some(path) = &scale.selector else { return };
    match nested(object, path) {
        Err(detail) => errors.push(FieldError::invalid(path, &"".into(), &detail)),
        Ok(Some(value)) if !value.is_string() => {
            let detail = format!("{}{}, expected string", accessor(path, value), go_type(value));
            errors.push(FieldError::invalid(path, &"".into(), &detail));
        }
        Ok(_) => {}
    }
}

fn check_replicas(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let value = match nested(object, path) {
        Ok(None) => return,
        Ok(Some(value)) => value,
        Err(detail) => return errors.push(FieldError::invalid(path, &0.into(), &detail)),
    };
    match value.as_i64() {
        None => {
            let detail = format!("{}{}, expected int64", accessor(path, value), go_type(value));
            errors.push(FieldError::invalid(path, &0.into(), &detail));
        }
        Some(..0) => errors.push(FieldError::invalid(path, value, "should be a non-negative integer")),
        Some(replicas) if replicas > i64::from(i32::MAX) => {
            let detail = format!("should be less than or equal to {}", i32::MAX);
            errors.push(FieldError::invalid(path, value, &detail));
        }
        Some(_) => {}
    }
}

/// Returns the value at a path; `None` if it is missing. The error describes a value on the path that is not
/// an object.
fn nested<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    let mut walked = String::new();
    for name in path.trim_start_matches('.').split('.') {
        walked.push('.');
        walked.push_str(name);
        let Some(map) = value.as_object() else {
            if value.is_null() {
                return Ok(None);
            }
            let found = shown(value);
            return Err(format!(
                "{walked} accessor error: {found} is of the type {}, expected map[string]interface{{}}",
                go_type(value)
            ));
        };
        match map.get(name) {
            Some(next) => value = next,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

fn accessor(path: &str, value: &Value) -> String {
    format!(".{} accessor error: {} is of the type ", path.trim_start_matches('.'), shown(value))
}

/// Returns a value in the form of Go's `%v`.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => crate::kinds::number::Num::from(number).text(),
        Value::Array(list) => format!("[{}]", list.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| format!("{key}:{}", shown(value)));
            format!("map[{}]", entries.collect::<Vec<_>>().join(" "))
        }
        Value::Bool(bool) => bool.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests;
