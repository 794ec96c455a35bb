//! The validations that a CustomResourceDefinition declares for one value.

use std::sync::Arc;

use regex::Regex;
use serde_json::Value;

use super::custom::Rule;
use super::schema::Schema;

/// The validations of one value, besides those that follow from its [`Form`](super::schema::Form).
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one flag for each keyword of a schema")]
pub struct Checks {
    /// The accepted types; empty if every type is accepted.
    pub types: Vec<JsonType>,
    /// The format of a string or number.
    pub format: Option<Format>,
    /// The accepted values; empty if every value is accepted.
    pub values: Vec<Value>,
    /// The smallest accepted number.
    pub minimum: Option<f64>,
    /// Whether the number must be larger than `minimum`.
    pub exclusive_minimum: bool,
    /// The largest accepted number.
    pub maximum: Option<f64>,
    /// Whether the number must be smaller than `maximum`.
    pub exclusive_maximum: bool,
    /// The divisor of the number.
    pub multiple_of: Option<f64>,
    /// The smallest length of a string, in characters.
    pub min_length: Option<i64>,
    /// The largest length of a string, in characters.
    pub max_length: Option<i64>,
    /// The regular expression that a part of the string must match.
    pub pattern: Option<Pattern>,
    /// The smallest number of items.
    pub min_items: Option<i64>,
    /// The largest number of items.
    pub max_items: Option<i64>,
    /// The smallest number of fields or entries.
    pub min_properties: Option<i64>,
    /// The largest number of fields or entries.
    pub max_properties: Option<i64>,
    /// The names of fields or entries that must be present.
    pub required: Vec<String>,
    /// The value of `additionalProperties` if it is a boolean: whether any entries are accepted.
    pub additional: Option<bool>,
    /// Whether unknown fields are kept, for values of any form.
    pub preserve_unknown: bool,
    /// Whether the value is an object with `apiVersion`, `kind` and `metadata` of its own.
    pub embedded: bool,
    /// Schemas that must all accept the value.
    pub all_of: Vec<Schema>,
    /// Schemas of which at least one must accept the value.
    pub any_of: Vec<Schema>,
    /// Schemas of which exactly one must accept the value.
    pub one_of: Vec<Schema>,
    /// A schema that must not accept the value.
    pub not: Option<Box<Schema>>,
    /// The CEL rules of the value.
    pub rules: Vec<Arc<Rule>>,
    /// Whether this value or a value below it has CEL rules.
    pub rules_within: bool,
}

/// A type of JSON values. Whole numbers are a type of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonType {
    /// A list.
    Array,
    /// A boolean.
    Boolean,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// An object.
    Object,
    /// A string.
    String,
}

impl JsonType {
    /// Returns the type that schemas write as `name`; `None` if there is no such type.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "array" => Self::Array,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "object" => Self::Object,
            "string" => Self::String,
            _ => return None,
        })
    }

    /// Returns the name of the type, as schemas write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Object => "object",
            Self::String => "string",
        }
    }
}

/// The format of a string or number.
#[derive(Clone, Debug)]
pub struct Format {
    /// The name, such as `date-time`.
    pub name: String,
    /// The function that returns whether a string has the format; `None` for a format of numbers.
    pub matches: Option<fn(&str) -> bool>,
}

/// A regular expression of a schema.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The expression in the schema, in Go's syntax.
    pub source: String,
    /// The compiled expression.
    pub regex: Regex,
}
