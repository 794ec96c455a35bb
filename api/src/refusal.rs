//! A spec that cannot be acted on, and the words for it.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::Value;

/// Longest value that is quoted, in bytes: the rest of the message matters more.
const MAX_VALUE: usize = 128;

/// A spec that cannot be acted on. Retrying does not help; the object must be edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} {value}: {expected}")]
pub struct InvalidSpec {
    /// Path of the field, such as `spec.waitFor.dependencies[database].httpGet.port`.
    pub path: String,
    /// As written, in quotes if it is text; shortened where it is long.
    pub value: String,
    /// What was expected, and what is wrong with it.
    pub expected: String,
}

/// The place of a value in the object, by its path.
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

    /// The item of a list, by its key or its index.
    pub(crate) fn item(&self, key: impl fmt::Display) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// Refuses the value that stands here.
    pub(crate) fn refuse<T>(&self, value: impl Into<Value>, expected: &str) -> Result<T, InvalidSpec> {
        Err(self.refusal(value, expected))
    }

    pub(crate) fn refusal(&self, value: impl Into<Value>, expected: &str) -> InvalidSpec {
        self.problem(value, format!("expected {expected}"))
    }

    /// As [`refusal`](Self::refusal), where more than what was expected is to be said.
    pub(crate) fn problem(&self, value: impl Into<Value>, problem: String) -> InvalidSpec {
        let value = match value.into() {
            // Escapes what cannot be seen, too.
            Value::String(text) => format!("{text:?}"),
            value => value.to_string(),
        };
        let value = shorten(value);
        InvalidSpec { path: self.0.clone(), value, expected: problem }
    }

    /// Refuses the value that stands here unless it is right.
    pub(crate) fn needs(
        &self,
        is_right: bool,
        value: impl Into<Value>,
        expected: &str,
    ) -> Result<(), InvalidSpec> {
        if is_right { Ok(()) } else { self.refuse(value, expected) }
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
