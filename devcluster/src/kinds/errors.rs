//! Field errors, as the response with status 422 lists them.

use std::fmt;

use serde_json::Value;

use super::number::Num;

/// An error in one field of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field, such as `spec.ports[0].name`.
    pub path: String,
    /// The kind of the error, which is also the reason of the status cause.
    pub reason: Reason,
    /// The message without the path, such as `Required value: name or generateName is required`.
    pub message: String,
}

/// The kind of a field error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The value occurs twice.
    Duplicate,
    /// The value must not be set, or must not be changed.
    Forbidden,
    /// The value is malformed.
    Invalid,
    /// The object that the value refers to does not exist.
    NotFound,
    /// The value is missing.
    Required,
    /// The list or map has too many items.
    TooMany,
    /// The text is too long.
    TooLong,
    /// The value has the wrong type.
    TypeInvalid,
    /// The value is not one of the supported values.
    Unsupported,
}

impl Reason {
    /// Returns the reason of the status cause, such as `FieldValueRequired`.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::Invalid => "FieldValueInvalid",
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::TooMany => "FieldValueTooMany",
            Self::TooLong => "FieldValueTooLong",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Unsupported => "FieldValueNotSupported",
        }
    }
}

impl FieldError {
    fn new(path: impl Into<String>, reason: Reason, message: String) -> Self {
        Self { path: path.into(), reason, message }
    }

    /// Returns the error of a missing field.
    pub fn required(path: impl Into<String>, detail: &str) -> Self {
        Self::new(path, Reason::Required, with_detail("Required value", detail))
    }

    /// Returns the error of a malformed value.
    pub fn invalid(path: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::invalid_shown(path, &shown(value), detail)
    }

    /// Returns the error of a malformed value that the message shows as `shown`.
    pub fn invalid_shown(path: impl Into<String>, shown: &str, detail: &str) -> Self {
        Self::new(path, Reason::Invalid, with_detail(&format!("Invalid value: {shown}"), detail))
    }

    /// Returns the error of an unsupported value. The message lists the supported values in the given order.
    pub fn unsupported(path: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let supported: Vec<_> = supported.iter().map(|value| quoted(value)).collect();
        let detail = if supported.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", supported.join(", "))
        };
        Self::new(
            path,
            Reason::Unsupported,
            with_detail(&format!("Unsupported value: {}", shown(value)), &detail),
        )
    }

    /// Returns the error of a value that must not be set or changed.
    pub fn forbidden(path: impl Into<String>, detail: &str) -> Self {
        Self::new(path, Reason::Forbidden, with_detail("Forbidden", detail))
    }

    /// Returns the error of a value that occurs twice.
    pub fn duplicate(path: impl Into<String>, value: &Value) -> Self {
        Self::new(path, Reason::Duplicate, format!("Duplicate value: {}", shown(value)))
    }

    /// Returns the error of a value that refers to a missing object.
    pub fn not_found(path: impl Into<String>, value: &Value) -> Self {
        Self::new(path, Reason::NotFound, format!("Not found: {}", shown(value)))
    }

    /// Returns the error of a string longer than `max_bytes`.
    pub fn too_long(path: impl Into<String>, max_bytes: usize) -> Self {
        let unit = if max_bytes == 1 { "byte" } else { "bytes" };
        Self::new(path, Reason::TooLong, format!("Too long: may not be more than {max_bytes} {unit}"))
    }

    /// Returns the error of a list or map with `actual` items, more than `max`.
    pub fn too_many(path: impl Into<String>, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::new(path, Reason::TooMany, format!("Too many: {actual}: must have at most {max} {unit}"))
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

fn with_detail(text: &str, detail: &str) -> String {
    if detail.is_empty() { text.to_owned() } else { format!("{text}: {detail}") }
}

/// Returns the value as messages quote it: a string in Go's quotes, other values as the JSON that Go writes.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(_) | Value::Object(_) => {
            value.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
        }
        Value::Number(number) => Num::from(number).text(),
        _ => value.to_string(),
    }
}

/// Returns the text in Go's quotes, like `%q`.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\x0b' => out.push_str("\\v"),
            c if c.is_ascii_control() => out.extend(format!("\\x{:02x}", u32::from(c)).chars()),
            c if c.is_control() => out.extend(format!("\\u{:04x}", u32::from(c)).chars()),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_equal_those_of_the_server() {
        let name = json!("a\"\n");
        assert_eq!(
            FieldError::invalid("metadata.name", &name, "bad").to_string(),
            "metadata.name: Invalid value: \"a\\\"\\n\": bad"
        );
        assert_eq!(FieldError::required("spec", "").to_string(), "spec: Required value");
        assert_eq!(
            FieldError::unsupported("spec.type", &json!("X"), &["A", "B"]).to_string(),
            "spec.type: Unsupported value: \"X\": supported values: \"A\", \"B\""
        );
        assert_eq!(
            FieldError::too_many("data", 3, 1).to_string(),
            "data: Too many: 3: must have at most 1 item"
        );
        assert_eq!(
            FieldError::duplicate("spec", &json!({"a": "<"})).to_string(),
            "spec: Duplicate value: {\"a\":\"\\u003c\"}"
        );
    }
}
