//! Paths to one value of an object: the subset of `kubectl wait --for=jsonpath` that selects a single value.
//!
//! | step | selects |
//! |---|---|
//! | `.status`, `['status']` | a field of an object |
//! | `[0]`, `[-1]` | an element of a list; negative indexes count from the end |
//! | `[?(@.type=="Ready")]` | the elements of a list in which a field equals a string, number or boolean |
//!
//! Every accepted path selects the same values in kubectl, whose grammar is that of client-go
//! (<https://github.com/kubernetes/client-go/blob/master/util/jsonpath/parser.go>); as there, the braces and
//! the first dot may be absent. Wildcards, slices, unions, `..` and other filters are refused with their
//! position. A dot inside a name needs a backslash even between quotes, because kubectl parses `['a.b']` as
//! two fields.
//!
//! # Invariants
//! 1. A search reads the JSON text in place and once per step; it copies the keys of one object at a time.
//! 2. Neither the parser nor a search panics on any text; recursion is at most [`MAX_STEPS`] deep.

mod find;
#[cfg(any(test, fuzzing))]
#[path = "json_path/tests/fuzz.rs"]
pub(crate) mod fuzz;
mod parse;

use std::fmt;

use serde_json::Value;

pub use find::{NotOneValue, Scalar};
pub use parse::InvalidPath;

/// Maximum length of a JSON path, in characters.
pub const MAX_CHARACTERS: usize = 256;
/// Maximum number of steps of a JSON path. Each field of a filter counts as a step too, since a search reads
/// it for every element.
pub const MAX_STEPS: usize = 16;

/// A JSON path to one value of an object, such as `{.status.phase}`. Displays as in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath {
    text: String,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    /// Position of an element in a list; counts from the end if negative.
    Index(i64),
    Filter(Filter),
}

/// A filter in a JSON path: selects the elements of a list in which one value equals a literal.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Filter {
    /// The names of the fields from a list element to the value to compare; empty to compare the element
    /// itself.
    fields: Vec<String>,
    /// The literal to compare with: a string, a number or a boolean.
    literal: Value,
}

// === impl JsonPath ===

impl JsonPath {
    /// Returns the number of steps of this JSON path, including the fields of filters.
    pub fn step_count(&self) -> usize {
        self.steps.iter().map(Step::count).sum()
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

// === impl Step ===

impl Step {
    fn count(&self) -> usize {
        match self {
            Self::Field(_) | Self::Index(_) => 1,
            Self::Filter(filter) => 1 + filter.fields.len(),
        }
    }
}

#[cfg(test)]
mod tests;
