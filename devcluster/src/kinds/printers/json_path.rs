//! `JSONPath` in the dialect of Kubernetes, as columns of custom resources use it.

mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

/// A path that selects values in an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JsonPath(Vec<Node>);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Field(String),
    Wildcard,
    /// `..`: a value and all values in it.
    Recursive,
    Slice(Slice),
    Union(Vec<JsonPath>),
    Filter {
        left: JsonPath,
        operator: String,
        right: JsonPath,
    },
    Literal(Value),
    /// A word such as `range`, which a path cannot use.
    Word,
}

/// A part of a list. An index is a slice with one item.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slice {
    start: i64,
    /// `None` for the length of the list.
    end: Option<i64>,
    /// Whether the end follows from an index, for which 0 stands for the length of the list.
    is_index: bool,
    step: Option<i64>,
}

/// The path does not fit the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mismatch;

type Found<'a> = Vec<Cow<'a, Value>>;

// === impl JsonPath ===

impl JsonPath {
    /// Reads a path without its braces; `None` if it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        parse::path(text)
    }

    /// Returns the selected values.
    pub(super) fn find<'a>(&'a self, object: &'a Value) -> Result<Found<'a>, Mismatch> {
        self.walk(vec![Cow::Borrowed(object)])
    }

    fn walk<'a>(&'a self, mut values: Found<'a>) -> Result<Found<'a>, Mismatch> {
        for node in &self.0 {
            values = node.walk(values)?;
        }
        Ok(values)
    }
}

// === impl Node ===

impl Node {
    fn walk<'a>(&'a self, values: Found<'a>) -> Result<Found<'a>, Mismatch> {
        let mut found = Vec::new();
        match self {
            Self::Word => return Err(Mismatch),
            Self::Literal(value) => found.extend(values.iter().map(|_| Cow::Borrowed(value))),
            Self::Union(paths) => {
                for path in paths {
                    found.extend(path.walk(values.clone())?);
                }
            }
            _ => {
                for value in values {
                    // Only a literal is owned, and it has no parts.
                    if let Cow::Borrowed(value) = value {
                        self.step(value, &mut found)?;
                    }
                }
            }
        }
        Ok(found)
    }

    fn step<'a>(&'a self, value: &'a Value, found: &mut Found<'a>) -> Result<(), Mismatch> {
        match (self, value) {
            (Self::Slice(_), Value::Null) => {}
            (Self::Slice(slice), Value::Array(items)) => slice.pick(items, found)?,
            (Self::Filter { left, operator, right }, Value::Array(items)) => {
                for item in items {
                    if holds(left, operator, right, item)? {
                        found.push(Cow::Borrowed(item));
                    }
                }
            }
            (Self::Slice(_) | Self::Filter { .. }, _) => return Err(Mismatch),
            (Self::Field(name), value) => found.extend(value.get(name).map(Cow::Borrowed)),
            (Self::Wildcard, value) => found.extend(children(value).into_iter().map(Cow::Borrowed)),
            (Self::Recursive, value) => descend(value, found),
            _ => {}
        }
        Ok(())
    }
}

/// Adds a value and all values in it that have parts themselves.
fn descend<'a>(value: &'a Value, found: &mut Found<'a>) {
    let children = children(value);
    if !children.is_empty() {
        found.push(Cow::Borrowed(value));
        for child in children {
            descend(child, found);
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

/// Returns whether an item passes a filter. A comparison of values of different types is a mismatch.
fn holds(left: &JsonPath, operator: &str, right: &JsonPath, item: &Value) -> Result<bool, Mismatch> {
    let lefts = left.find(item);
    if operator == "exists" {
        return Ok(lefts.is_ok_and(|lefts| !lefts.is_empty()));
    }
    let (lefts, rights) = (lefts?, right.find(item)?);
    let (left, right) = match (lefts.as_slice(), rights.as_slice()) {
        ([], _) | ([_], []) => return Ok(false),
        ([left], [right]) => (left.as_ref(), right.as_ref()),
        _ => return Err(Mismatch),
    };
    let order = order(left, right).ok_or(Mismatch)?;
    let ordered = !left.is_boolean();
    match operator {
        "==" => Ok(order.is_eq()),
        "!=" => Ok(order.is_ne()),
        "<" if ordered => Ok(order.is_lt()),
        "<=" if ordered => Ok(order.is_le()),
        ">" if ordered => Ok(order.is_gt()),
        ">=" if ordered => Ok(order.is_ge()),
        _ => Err(Mismatch),
    }
}

fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            (None, None) => left.as_f64()?.partial_cmp(&right.as_f64()?),
            _ => None,
        },
        _ => None,
    }
}

// === impl Slice ===

impl Slice {
    fn pick<'a>(&self, items: &'a [Value], found: &mut Found<'a>) -> Result<(), Mismatch> {
        let length = i64::try_from(items.len()).map_err(|_| Mismatch)?;
        let start = if self.start < 0 { self.start + length } else { self.start };
        let end = match self.end {
            None => length,
            Some(end) if end < 0 || (end == 0 && self.is_index) => end + length,
            Some(end) => end,
        };
        if start == end {
            return Ok(());
        }
        let (Ok(start), Ok(end)) = (usize::try_from(start), usize::try_from(end)) else {
            return Err(Mismatch);
        };
        let picked = items.get(start..end).filter(|picked| !picked.is_empty()).ok_or(Mismatch)?;
        let step = usize::try_from(self.step.unwrap_or(1)).ok().filter(|step| *step > 0).ok_or(Mismatch)?;
        found.extend(picked.iter().step_by(step).map(Cow::Borrowed));
        Ok(())
    }
}
