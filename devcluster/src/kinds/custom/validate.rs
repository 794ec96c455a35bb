//! Validation of a value against the schema of a CustomResourceDefinition, with the messages of the real
//! server.
//!
//! The server validates with kube-openapi, which counts the checks that it made. If all alternatives of
//! `anyOf` or `oneOf` fail, it reports the errors of the alternative with the most checks. The counts here
//! follow kube-openapi.

use serde_json::Value;

use super::limits;
use super::ratchet::Correlated;
use crate::kinds::checks::{Checks, JsonType};
use crate::kinds::errors::{FieldError, Reason, quoted};
use crate::kinds::number::{Num, float_to_int};
use crate::kinds::path::Path;
use crate::kinds::schema::{Form, Schema};

/// The result of a validation.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The errors found so far.
    pub errors: Vec<FieldError>,
    /// The number of checks made. It decides which alternative explains a failure.
    matched: u32,
}

impl Outcome {
    /// Returns an outcome that starts with the errors of earlier checks.
    pub(super) fn after(errors: Vec<FieldError>) -> Self {
        Self { errors, matched: 0 }
    }

    /// Adds an error in the value at this path. The first `{}` in `detail` is replaced by the path.
    pub(super) fn push(&mut self, path: &Path<'_>, reason: Reason, shown: &str, detail: &str) {
        let name = path.name();
        let message = format!("Invalid value: {shown}: {}", detail.replacen("{}", &name, 1));
        self.add(FieldError { path: path.named_field(&name), reason, message });
    }

    /// Adds an error without the name of a field.
    pub(super) fn push_unplaced(&mut self, path: &Path<'_>, detail: &str) {
        self.add(FieldError::invalid(path.named_field(""), &Value::from(""), detail));
    }

    /// Counts further checks.
    pub(super) fn count(&mut self, checks: u32) {
        self.matched += checks;
    }

    /// Adds an error, unless the outcome contains it already.
    pub(super) fn add(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Outcome) {
        self.matched += other.matched;
        other.errors.into_iter().for_each(|error| self.add(error));
    }
}

/// Validates a value. `correlated` has the old value that it replaces, if there is one. Errors in unchanged
/// values are not reported.
pub(super) fn validate(
    value: &Value,
    schema: &Schema,
    path: &Path<'_>,
    correlated: Option<Correlated<'_>>,
    out: &mut Outcome,
) {
    let Some(checks) = schema.checks.as_deref() else { return };
    let before = out.errors.len();
    if value.is_null() {
        check_null(schema.nullable, checks, path, out);
        check_values(value, checks, path, out);
    } else {
        check_type(value, checks, path, out);
        check_combinations(value, checks, path, out);
        match value {
            Value::String(text) => limits::check_string(text, checks, path, out),
            Value::Number(number) => {
                limits::check_number(Num::from(number), checks, path, out);
                out.matched += 2;
            }
            Value::Array(items) => {
                check_items(items, schema, checks, path, correlated, out);
                out.matched += 2;
            }
            _ => {}
        }
        out.matched += 1;
        check_values(value, checks, path, out);
        if let Value::Object(map) = value {
            check_object(map, schema, checks, path, correlated, out);
            out.matched += 1;
        }
        out.matched += 2;
    }
    if out.errors.len() > before && correlated.is_some_and(Correlated::is_unchanged) {
        out.errors.truncate(before);
    }
}

fn type_names(checks: &Checks) -> String {
    checks.types.iter().map(|json| json.name()).collect::<Vec<_>>().join(",")
}

fn check_null(nullable: bool, checks: &Checks, path: &Path<'_>, out: &mut Outcome) {
    if checks.types.is_empty() || nullable {
        out.matched += 1;
    } else {
        wrong_type(path, &type_names(checks), "null", out);
    }
}

fn wrong_type(path: &Path<'_>, expected: &str, found: &str, out: &mut Outcome) {
    let found = quoted(found);
    out.push(path, Reason::TypeInvalid, &found, &format!("{{}} in body must be of type {expected}: {found}"));
}

fn check_type(value: &Value, checks: &Checks, path: &Path<'_>, out: &mut Outcome) {
    if checks.types.is_empty() && checks.format.is_none() {
        return;
    }
    out.matched += 1;
    let has = |json: JsonType| checks.types.contains(&json);
    let (found, format) = match value {
        Value::Null => return,
        Value::Bool(_) => (JsonType::Boolean, ""),
        Value::String(_) => (JsonType::String, ""),
        Value::Array(_) => (JsonType::Array, ""),
        Value::Object(_) => (JsonType::Object, ""),
        Value::Number(number) => match Num::from(number) {
            Num::Int(_) => (JsonType::Integer, "int64"),
            Num::Float(_) => (JsonType::Number, "float64"),
        },
    };
    let whole = found == JsonType::Number
        && has(JsonType::Integer)
        && matches!(value, Value::Number(number) if Num::from(number).is_integer());
    let fits = has(found) || whole || (found == JsonType::Integer && has(JsonType::Number));
    let text_or_list = matches!(found, JsonType::String | JsonType::Array);
    if let Some(declared) = &checks.format {
        if !text_or_list && !fits && declared.name != format {
            return wrong_type(path, &declared.name, format, out);
        }
        if text_or_list && !has(JsonType::Number) && !has(JsonType::Integer) {
            out.matched += 1;
            return;
        }
    }
    if fits {
        out.matched += 1;
    } else {
        wrong_type(path, &type_names(checks), found.name(), out);
    }
}

fn check_values(value: &Value, checks: &Checks, path: &Path<'_>, out: &mut Outcome) {
    if checks.values.is_empty() || checks.values.iter().any(|accepted| accepts(accepted, value)) {
        return;
    }
    let texts: Vec<String> = checks
        .values
        .iter()
        .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    out.add(FieldError::unsupported(path.named_field(&path.name()), value, &texts));
}

/// Returns whether a value of `enum` equals the value. A float is first converted to the type of the number
/// in `enum`.
fn accepts(accepted: &Value, value: &Value) -> bool {
    match (accepted, value) {
        (Value::Number(accepted), Value::Number(value)) => match (Num::from(accepted), Num::from(value)) {
            (Num::Int(accepted), Num::Float(value)) => accepted == float_to_int(value),
            (accepted, value) => accepted.as_float().to_bits() == value.as_float().to_bits(),
        },
        _ => accepted == value && !accepted.is_null(),
    }
}

fn check_items(
    items: &[Value],
    schema: &Schema,
    checks: &Checks,
    path: &Path<'_>,
    correlated: Option<Correlated<'_>>,
    out: &mut Outcome,
) {
    if let Form::List { items: each, .. } = &schema.form {
        for (index, item) in items.iter().enumerate() {
            let correlated = correlated.and_then(|of| of.index(index));
            validate(item, each, &path.index(index), correlated, out);
        }
    }
    limits::check_count(items.len(), limits::Count::Items, checks, path, out);
}

fn check_object(
    map: &serde_json::Map<String, Value>,
    schema: &Schema,
    checks: &Checks,
    path: &Path<'_>,
    correlated: Option<Correlated<'_>>,
    out: &mut Outcome,
) {
    limits::check_count(map.len(), limits::Count::Properties, checks, path, out);
    match &schema.form {
        Form::Object(fields) => {
            for (name, value) in map {
                let Some(schema) = fields.fields.get(name) else { continue };
                let correlated = correlated.and_then(|of| of.key(name));
                validate(value, schema, &path.field(name), correlated, out);
            }
        }
        Form::Map { .. } if checks.additional == Some(false) => {
            for key in map.keys() {
                let detail = format!("{{}}.{key} in body is a forbidden property");
                out.push(path, Reason::Invalid, &quoted(key), &detail);
            }
        }
        Form::Map { values, .. } => {
            for (key, value) in map {
                let correlated = correlated.and_then(|of| of.key(key));
                validate(value, values, &path.key(key), correlated, out);
            }
        }
        _ => {}
    }
    for name in checks.required.iter().filter(|name| !map.contains_key(*name)) {
        let path = path.key(name);
        out.add(FieldError::required(path.named_field(&path.name()), ""));
    }
}

fn check_combinations(value: &Value, checks: &Checks, path: &Path<'_>, out: &mut Outcome) {
    out.matched += 2;
    let run = |schema: &Schema| {
        let mut outcome = Outcome::default();
        validate(value, schema, path, None, &mut outcome);
        outcome
    };
    if !checks.any_of.is_empty() {
        check_any(checks.any_of.iter().map(run), path, out);
    }
    if !checks.one_of.is_empty() {
        check_one(checks.one_of.iter().map(run), path, out);
    }
    if !checks.all_of.is_empty() {
        let mut valid = 0;
        for outcome in checks.all_of.iter().map(run) {
            valid += usize::from(outcome.errors.is_empty());
            out.merge(outcome);
        }
        if valid != checks.all_of.len() {
            let more = if valid == 0 { ". None validated" } else { "" };
            let detail = format!("{} must validate all the schemas (allOf){more}", quoted(&path.name()));
            out.push_unplaced(path, &detail);
        }
    }
    if checks.not.as_deref().is_some_and(|schema| run(schema).errors.is_empty()) {
        out.push_unplaced(path, &format!("{} must not validate the schema (not)", quoted(&path.name())));
    }
}

fn check_any(outcomes: impl Iterator<Item = Outcome>, path: &Path<'_>, out: &mut Outcome) {
    let mut best: Option<Outcome> = None;
    for outcome in outcomes {
        if outcome.errors.is_empty() {
            return out.merge(outcome);
        }
        if best.as_ref().is_none_or(|best| outcome.matched > best.matched) {
            best = Some(outcome);
        }
    }
    out.push_unplaced(path, &format!("{} must validate at least one schema (anyOf)", quoted(&path.name())));
    out.merge(best.unwrap_or_default());
}

fn check_one(outcomes: impl Iterator<Item = Outcome>, path: &Path<'_>, out: &mut Outcome) {
    let (mut valid, mut best, mut first) = (0, None::<Outcome>, None);
    for outcome in outcomes {
        if outcome.errors.is_empty() {
            valid += 1;
            best = None;
            first = first.or(Some(outcome));
        } else if valid == 0 && best.as_ref().is_none_or(|best| outcome.matched > best.matched) {
            best = Some(outcome);
        }
    }
    if let (1, Some(first)) = (valid, first) {
        return out.merge(first);
    }
    let found =
        if valid == 0 { "Found none valid".to_owned() } else { format!("Found {valid} valid alternatives") };
    let name = quoted(&path.name());
    out.push_unplaced(path, &format!("{name} must validate one and only one schema (oneOf). {found}"));
    out.merge(best.unwrap_or_default());
}
