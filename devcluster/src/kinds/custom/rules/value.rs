//! Converts JSON to the values that CEL rules use.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use kube_cel::cel::Value as Cel;
use kube_cel::cel::functions::time;
use kube_cel::cel::objects::{Key, Map};
use serde_json::Value;

use crate::kinds::checks::Checks;
use crate::kinds::custom::formats;
use crate::kinds::number::Num;
use crate::kinds::schema::{Form, Schema};

/// The reserved words of CEL. Fields with these names are escaped, and no variable has one.
pub const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Converts a value. `root` is set for an object with `apiVersion`, `kind` and `metadata`.
///
/// Only declared fields are visible, under escaped names, and numbers have their declared type.
pub(super) fn to_cel(value: &Value, schema: &Schema, root: bool) -> Cel {
    match (value, &schema.form) {
        (Value::Object(map), Form::Object(fields)) => {
            let root = root || embedded(schema);
            let entries = map.iter().filter_map(|(name, value)| {
                let visible = match (root, name.as_str()) {
                    (true, "apiVersion" | "kind") => plain(value),
                    (true, "metadata") => names_only(value),
                    _ => to_cel(value, fields.fields.get(name)?, false),
                };
                Some((Key::from(escape(name)?), visible))
            });
            Cel::Map(Map { map: Arc::new(entries.collect()) })
        }
        (Value::Object(map), Form::Map { values, .. }) => {
            let entries =
                map.iter().map(|(key, value)| (Key::from(key.clone()), to_cel(value, values, false)));
            Cel::Map(Map { map: Arc::new(entries.collect()) })
        }
        (Value::Array(list), Form::List { items, .. }) => {
            Cel::List(Arc::new(list.iter().map(|item| to_cel(item, items, false)).collect()))
        }
        (Value::String(text), Form::String) => string(text, schema.checks.as_deref()),
        (Value::Number(number), Form::Number) => Cel::Float(Num::from(number).as_float()),
        (Value::Number(number), Form::Integer) => match Num::from(number) {
            Num::Int(int) => Cel::Int(int),
            Num::Float(float) => Cel::Int(crate::kinds::number::float_to_int(float)),
        },
        _ => plain(value),
    }
}

fn embedded(schema: &Schema) -> bool {
    schema.checks.as_ref().is_some_and(|checks| checks.embedded)
}

/// Converts the part of `metadata` that rules can access.
fn names_only(metadata: &Value) -> Cel {
    let entries = ["name", "generateName"].into_iter().filter_map(|name| {
        let value = metadata.get(name)?;
        Some((Key::from(name.to_owned()), plain(value)))
    });
    Cel::Map(Map { map: Arc::new(entries.collect()) })
}

fn string(text: &str, checks: Option<&Checks>) -> Cel {
    let format = checks.and_then(|checks| checks.format.as_ref()).map(|format| format.name.as_str());
    let special = match format {
        Some("byte") => {
            base64::engine::general_purpose::STANDARD.decode(text).ok().map(|b| Cel::Bytes(Arc::new(b)))
        }
        Some("date-time" | "datetime") => text.parse().ok().map(Cel::Timestamp),
        Some("date") => format!("{text}T00:00:00Z").parse().ok().map(Cel::Timestamp),
        Some("duration") => formats::duration_nanoseconds(text)
            .and_then(|nanoseconds| time::duration(Arc::new(format!("{nanoseconds}ns"))).ok()),
        _ => None,
    };
    special.unwrap_or_else(|| Cel::String(Arc::new(text.to_owned())))
}

/// Converts a value without a schema.
pub(super) fn plain(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(bool) => Cel::Bool(*bool),
        Value::Number(number) => match Num::from(number) {
            Num::Int(int) => Cel::Int(int),
            Num::Float(float) => Cel::Float(float),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(list) => Cel::List(Arc::new(list.iter().map(plain).collect())),
        Value::Object(map) => {
            let entries: HashMap<_, _> =
                map.iter().map(|(key, value)| (Key::from(key.clone()), plain(value))).collect();
            Cel::Map(Map { map: Arc::new(entries) })
        }
    }
}

/// Returns the name of a field as an identifier of CEL; `None` if it cannot be escaped.
pub(super) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '_' if chars.next_if_eq(&'_').is_some() => out.push_str("__underscores__"),
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            _ => return None,
        }
    }
    Some(out)
}

/// The functions that rules may call.
pub(super) static FUNCTIONS: LazyLock<kube_cel::cel::Context<'static>> = LazyLock::new(|| {
    use kube_cel::KubeCelExt as _;
    let mut functions = kube_cel::cel::Context::default().with_all();
    for name in TYPE_NAMES {
        functions.add_variable_from_value(name, name.to_owned());
    }
    functions.add_function("type", |value: Cel| type_name(&value).to_owned());
    // Only tells a type checker that any type is allowed.
    functions.add_function("dyn", |value: Cel| Ok::<_, kube_cel::cel::ExecutionError>(value));
    functions
});

/// The types that rules can name. The library has no type values, so a string with the name replaces them.
pub(super) const TYPE_NAMES: [&str; 9] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"];

fn type_name(value: &Cel) -> &'static str {
    match value {
        Cel::Bool(_) => "bool",
        Cel::Bytes(_) => "bytes",
        Cel::Float(_) => "double",
        Cel::Int(_) => "int",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Null => "null_type",
        Cel::String(_) => "string",
        Cel::UInt(_) => "uint",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        Cel::Function(..) | Cel::Opaque(_) => "optional_type",
    }
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_are_escaped_as_identifiers() {
        for (name, escaped) in [
            ("replicas", Some("replicas")),
            ("namespace", Some("__namespace__")),
            ("a-b.c/d", Some("a__dash__b__dot__c__slash__d")),
            ("a_b", Some("a_b")),
            ("a__b", Some("a__underscores__b")),
            ("1a", None),
            ("a b", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped);
        }
    }
}
