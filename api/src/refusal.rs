//! The error about an invalid field of a spec.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value;

/// Maximum length of a value quoted in an error, in bytes; a longer one is shortened.
const MAX_VALUE: usize = 128;

/// An invalid field of a spec. A retry does not help; the object must be edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} {value}: {expected}")]
pub struct InvalidSpec {
    /// Path of the invalid field, such as `spec.waitFor.dependencies[database].httpGet.port`.
    pub path: String,
    /// The invalid value as JSON, with quotes if it is a string; shortened if it is long.
    pub value: String,
    /// Text with the expected value, after the problem if there is more to explain.
    pub expected: String,
}

/// The path of a field of an object. Its methods return errors about the value of the field.
#[derive(Clone, Debug)]
pub(crate) struct At(String);

// === impl At ===

impl At {
    pub(crate) fn new(path: &str) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn field(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    /// Returns the path of one item of the list at this path, by the item's key or index.
    pub(crate) fn item(&self, key: impl fmt::Display) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// Returns `Err` with the error about the value of the field at this path, instead of the expected one.
    pub(crate) fn refuse<T>(&self, value: impl Into<Value>, expected: &str) -> Result<T, InvalidSpec> {
        Err(self.refusal(value, expected))
    }

    pub(crate) fn refusal(&self, value: impl Into<Value>, expected: &str) -> InvalidSpec {
        self.problem(value, format!("expected {expected}"))
    }

    /// Returns the error about the value of the field at this path, as [`refusal`](Self::refusal) does, with
    /// the text `problem` instead of `expected ...`.
    pub(crate) fn problem(&self, value: impl Into<Value>, problem: String) -> InvalidSpec {
        let value = match value.into() {
            // Escapes invisible characters too.
            Value::String(text) => format!("{text:?}"),
            value => value.to_string(),
        };
        let value = shorten(value);
        InvalidSpec { path: self.0.clone(), value, expected: problem }
    }

    /// Returns an error about the value of the field at this path, unless `is_valid`.
    pub(crate) fn needs(
        &self,
        is_valid: bool,
        value: impl Into<Value>,
        expected: &str,
    ) -> Result<(), InvalidSpec> {
        if is_valid { Ok(()) } else { self.refuse(value, expected) }
    }

    /// Returns `text`, the value of the field `name` below this path, if `is_valid` accepts it, else an error
    /// about it.
    pub(crate) fn text(
        &self,
        name: &str,
        text: &str,
        is_valid: impl Fn(&str) -> bool,
        expected: &str,
    ) -> Result<String, InvalidSpec> {
        self.field(name).needs(is_valid(text), text, expected).map(|()| text.to_owned())
    }

    pub(crate) fn seconds(&self, value: i32, range: RangeInclusive<i32>) -> Result<Duration, InvalidSpec> {
        self.number(value, range).map(|seconds| Duration::from_secs(seconds.into()))
    }

    pub(crate) fn number(&self, value: i32, range: RangeInclusive<i32>) -> Result<u32, InvalidSpec> {
        match u32::try_from(value) {
            Ok(number) if range.contains(&value) => Ok(number),
            _ => self.refuse(value, &format!("{} to {}", range.start(), range.end())),
        }
    }

    pub(crate) fn at_most(&self, count: usize, max: usize) -> Result<(), InvalidSpec> {
        self.needs(count <= max, format!("{count} entries"), &format!("at most {max}"))
    }
}

// === private ===

fn shorten(mut text: String) -> String {
    if text.len() > MAX_VALUE {
        let end = (0..=MAX_VALUE).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}
