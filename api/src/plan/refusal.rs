//! A spec that cannot be acted on, and the words for it.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::address::InvalidAddress;
use crate::wait_probe::InvalidProbe;

/// Longest value that is quoted, in bytes: the rest of the message matters more.
const MAX_VALUE: usize = 128;

/// A spec that cannot be acted on. Retrying does not help; the object must be edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} {value}: {expected}")]
pub struct InvalidSpec {
    /// Path of the field, such as `spec.waitFor.dependencies[database].httpGet.port`.
    pub path: String,
    /// As written, in JSON; shortened where it is long.
    pub value: String,
    /// What was expected, and what is wrong with it.
    pub expected: String,
}

/// The place of a value in the object, by its path.
#[derive(Clone, Debug)]
pub(super) struct At(String);

// === impl At ===

impl At {
    pub(super) fn new(path: &str) -> Self {
        Self(path.to_owned())
    }

    pub(super) fn field(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    /// The item of a list, by its key or its index.
    pub(super) fn item(&self, key: impl fmt::Display) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// Refuses the value that stands here.
    pub(super) fn refuse<T>(&self, value: impl Into<Value>, expected: &str) -> Result<T, InvalidSpec> {
        Err(self.refusal(value, expected))
    }

    pub(super) fn refusal(&self, value: impl Into<Value>, expected: &str) -> InvalidSpec {
        let value = shorten(value.into().to_string());
        InvalidSpec { path: self.0.clone(), value, expected: format!("expected {expected}") }
    }

    pub(super) fn number(&self, value: i32, range: RangeInclusive<i32>) -> Result<u32, InvalidSpec> {
        match u32::try_from(value) {
            Ok(number) if range.contains(&value) => Ok(number),
            _ => self.refuse(value, &format!("{} to {}", range.start(), range.end())),
        }
    }

    pub(super) fn at_most(&self, count: usize, max: usize) -> Result<(), InvalidSpec> {
        if count <= max { Ok(()) } else { self.refuse(format!("{count} entries"), &format!("at most {max}")) }
    }
}

// === impl InvalidSpec ===

impl From<InvalidProbe> for InvalidSpec {
    fn from(invalid: InvalidProbe) -> Self {
        let whole = invalid.to_string();
        let (field, value) = match invalid {
            InvalidProbe::Address(InvalidAddress { value, .. }) => ("address", format!("{value:?}")),
            InvalidProbe::Nanoseconds { value, .. } => ("timeout", value.to_string()),
            InvalidProbe::Timeout { value, .. } => ("timeout", format!("{value:?}")),
            InvalidProbe::Period { value } => ("periodSeconds", value.to_string()),
        };
        let path = format!("waitProbe.{field}");
        let head = format!("{path} {value}: ");
        let expected = whole.strip_prefix(&head).unwrap_or(&whole).to_owned();
        Self { path, value: shorten(value), expected }
    }
}

fn shorten(mut text: String) -> String {
    if text.len() > MAX_VALUE {
        let end = (0..=MAX_VALUE).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}
