//! The validations that a CustomResourceDefinition declares for one value.

use std::sync::Arc;

use regex::Regex;
use serde_json::Value;

use super::custom::Rule;
use super::schema::Schema;

/// The validations of one value, besides those that follow from its form.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one flag for each keyword of a schema")]
pub struct Checks {
    /// The accepted types; empty accepts every type.
    pub types: Vec<JsonType>,
    /// The format of a string or number.
    pub format: Option<Format>,
    /// The accepted values; empty accepts every value.
    pub values: Vec<Value>,
    /// The smallest number.
    pub minimum: Option<f64>,
    /// Whether the number must be larger than `minimum`.
    pub exclusive_minimum: bool,
    /// The largest number.
    pub maximum: Option<f64>,
    /// Whether the number must be smaller than `maximum`.
    pub exclusive_maximum: bool,
    /// The number is a multiple of this one.
    pub multiple_of: Option<f64>,
    /// The smallest length of a string, in characters.
    pub min_length: Option<i64>,
    /// The largest length of a string, in characters.
    pub max_length: Option<i64>,
    /// The regular expression that a string matches somewhere.
    pub pattern: Option<Pattern>,
    /// The smallest number of items.
    pub min_items: Option<i64>,
    /// The largest number of items.
    pub max_items: Option<i64>,
    /// The smallest number of fields or entries.
    pub min_properties: Option<i64>,
    /// The largest number of fields or entries.
    pub max_properties: Option<i64>,
    /// Fields or entries that must be present.
    pub required: Vec<String>,
    /// `additionalProperties` as a boolean: whether entries of any value are accepted.
    pub additional: Option<bool>,
    /// Whether unknown fields are kept, in values of any form.
    pub preserve_unknown: bool,
    /// Whether the value is an object with `apiVersion`, `kind` and `metadata` of its own.
    pub embedded: bool,
    /// All of these hold, too.
    pub all_of: Vec<Schema>,
    /// At least one of these holds.
    pub any_of: Vec<Schema>,
    /// Exactly one of these holds.
    pub one_of: Vec<Schema>,
    /// This does not hold.
    pub not: Option<Box<Schema>>,
    /// The CEL rules of the value.
    pub rules: Vec<Arc<Rule>>,
    /// Whether the value or one below it has CEL rules.
    pub rules_within: bool,
}

/// A type of JSON values, with whole numbers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonType {
    /// Lists.
    Array,
    /// True and false.
    Boolean,
    /// Whole numbers.
    Integer,
    /// All numbers.
    Number,
    /// Mappings.
    Object,
    /// Strings.
    String,
}

impl JsonType {
    /// Returns the type with this name.
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

    /// Returns the name of the type in schemas.
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
    /// The name, as the schema writes it.
    pub name: String,
    /// Whether a string has the format; `None` for formats of numbers.
    pub matches: Option<fn(&str) -> bool>,
}

/// A regular expression of a schema.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The expression as the schema writes it.
    pub source: String,
    /// The compiled expression.
    pub regex: Regex,
}
