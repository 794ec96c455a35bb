//! One step of a field path: a field, a list item (by key or by value), or a position.

use std::cmp::Ordering;
use std::fmt::Write;

use serde_json::{Number, Value};

use crate::kinds::go;

/// One step of a field path.
#[derive(Clone, Debug)]
pub(super) enum Element {
    /// A field of an object, or an entry of a map.
    Field(String),
    /// The list item with these values in its key fields, sorted by field name.
    Key(Vec<(String, Value)>),
    /// The item of a set that has this value.
    Value(Value),
    /// The item at this position. Parsed from `fieldsV1`, but never produced here.
    Index(i64),
}

impl Element {
    /// Parses the form used in `fieldsV1`: `f:name`, `k:{"name":"x"}`, `v:"x"`, `i:0`.
    ///
    /// Returns `Ok(None)` for an unknown prefix; such entries are ignored.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, String> {
        let (prefix, rest) = match (text.get(..1), text.get(1..2), text.get(2..)) {
            (Some(prefix), Some(":"), Some(rest)) => (prefix, rest),
            _ if text.len() < 2 => return Err("key must be 2 characters long:".to_owned()),
            _ => return Err(format!("missing colon: {text}")),
        };
        let read = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
        Ok(Some(match prefix {
            "f" => Self::Field(rest.to_owned()),
            "v" => Self::Value(read(rest)?),
            "k" => match read(rest)? {
                Value::Object(fields) => {
                    let mut fields: Vec<_> = fields.into_iter().collect();
                    fields.sort_by(|a, b| a.0.cmp(&b.0));
                    Self::Key(fields)
                }
                _ => return Err(format!("expected an object: {rest}")),
            },
            "i" => Self::Index(rest.parse().map_err(|_| format!("invalid index: {rest}"))?),
            _ => return Ok(None),
        }))
    }

    /// Returns the form used in `fieldsV1`.
    pub(super) fn write(&self) -> String {
        match self {
            Self::Field(name) => ["f:", name].concat(),
            Self::Key(fields) => {
                let mut text = String::from("k:{");
                for (index, (name, value)) in fields.iter().enumerate() {
                    text.push_str(if index == 0 { "" } else { "," });
                    write_string(&mut text, name, false);
                    text.push(':');
                    write_json(&mut text, value);
                }
                text.push('}');
                text
            }
            Self::Value(value) => {
                let mut text = String::from("v:");
                write_json(&mut text, value);
                text
            }
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Returns the form used in error messages: `.name`, `[name="x"]`, `[="x"]`, `[0]`.
    pub(super) fn display(&self, numbers: Numbers) -> String {
        match self {
            Self::Field(name) => format!(".{name}"),
            Self::Key(fields) => {
                let fields: Vec<_> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={}", display(value, numbers)))
                    .collect();
                format!("[{}]", fields.join(","))
            }
            Self::Value(value) => format!("[={}]", display(value, numbers)),
            Self::Index(index) => format!("[{index}]"),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// The notation of numbers in a path. The real server decodes the numbers of `fieldsV1` as floating point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbers {
    /// The notation of the object.
    Plain,
    /// Floating point, with an exponent from a million on.
    Decoded,
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                let fields = a.iter().zip(b);
                fields
                    .map(|((a, x), (b, y))| a.cmp(b).then_with(|| compare(x, y)))
                    .find(|order| order.is_ne())
                    .unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (Self::Value(a), Self::Value(b)) => compare(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element {}

/// Orders two values of any types: numbers, strings, booleans, lists, maps, null.
pub(super) fn compare(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let items = a.iter().zip(b).map(|(a, b)| compare(a, b));
            items.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let entries = a.iter().zip(b).map(|((a, x), (b, y))| a.cmp(b).then_with(|| compare(x, y)));
            entries.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal),
    }
}

fn write_json(text: &mut String, value: &Value) {
    match value {
        Value::String(string) => write_string(text, string, true),
        Value::Number(number) => match number.as_f64() {
            // Go writes 80.0 as 80.
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e21 => {
                _ = write!(text, "{float:.0}");
            }
            _ => _ = write!(text, "{number}"),
        },
        other => _ = write!(text, "{other}"),
    }
}

/// Appends a JSON string. `html` escapes `<`, `>` and `&`, which Go escapes in values, but not in names.
fn write_string(text: &mut String, string: &str, html: bool) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '<' | '>' | '&' if html => _ = write!(text, "\\u{:04x}", u32::from(character)),
            '\0'..='\x1f' | '\u{2028}' | '\u{2029}' => _ = write!(text, "\\u{:04x}", u32::from(character)),
            _ => text.push(character),
        }
    }
    text.push('"');
}

/// Returns a value in the form used in error messages.
fn display(value: &Value, numbers: Numbers) -> String {
    match (value, numbers) {
        (Value::String(string), _) => format!("{string:?}"),
        (Value::Number(number), Numbers::Decoded) => number.as_f64().map_or_else(String::new, go::float),
        (Value::Number(number), Numbers::Plain) if number.is_f64() => {
            number.as_f64().map_or_else(String::new, go::float)
        }
        _ => value.to_string(),
    }
}
