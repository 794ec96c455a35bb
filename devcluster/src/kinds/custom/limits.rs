//! Validation of the limits of strings, numbers, lists and maps.

use super::validate::Outcome;
use crate::kinds::checks::{Checks, JsonType};
use crate::kinds::errors::{FieldError, Reason, quoted};
use crate::kinds::go;
use crate::kinds::number::{Num, float_is_integer, float_to_int};
use crate::kinds::path::Path;

/// Checks length, pattern and format of a string. Only the first error of length and pattern is reported.
pub(super) fn check_string(text: &str, checks: &Checks, path: &Path<'_>, out: &mut Outcome) {
    out.count(1);
    let shown = || quoted(text);
    let length =
        if checks.max_length.is_some() || checks.min_length.is_some() { text.chars().count() } else { 0 };
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    if let Some(max) = checks.max_length.filter(|max| length > *max) {
        out.add(FieldError::too_long(path.named_field(&path.name()), usize::try_from(max).unwrap_or(0)));
    } else if let Some(min) = checks.min_length.filter(|min| length < *min) {
        out.push(
            path,
            Reason::Invalid,
            &shown(),
            &format!("{{}} in body should be at least {min} chars long"),
        );
    } else if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.regex.is_match(text)) {
        out.push(path, Reason::Invalid, &shown(), &format!("{{}} in body should match '{}'", pattern.source));
    }
    let Some((format, matches)) = checks.format.as_ref().and_then(|format| Some((format, format.matches?)))
    else {
        return;
    };
    out.count(1);
    if !matches(text) {
        let detail = format!("{{}} in body must be of type {}: {}", format.name, shown());
        out.push(path, Reason::TypeInvalid, &shown(), &detail);
    }
}

/// Checks range and divisor of a number.
pub(super) fn check_number(value: Num, checks: &Checks, path: &Path<'_>, out: &mut Outcome) {
    let range = Range::of(checks);
    range.check(value, "Checked", path, out);
    if let Some(factor) = checks.multiple_of {
        let fits = range.check(Num::Float(factor), "MultipleOf", path, out);
        check_multiple(value, factor, fits, path, out);
    }
    if let Some(max) = checks.maximum {
        let fits = range.check(Num::Float(max), "Maximum boundary", path, out);
        let (exceeded, bound) = match value {
            Num::Int(value) if fits => {
                let max = float_to_int(max);
                (value > max || checks.exclusive_maximum && value == max, max.to_string())
            }
            value => {
                let number = value.as_float();
                (number > max || checks.exclusive_maximum && number >= max, go::float(max))
            }
        };
        if exceeded {
            let relation = if checks.exclusive_maximum { "less than" } else { "less than or equal to" };
            push_bound(value, fits, relation, &bound, path, out);
        }
    }
    if let Some(min) = checks.minimum {
        let fits = range.check(Num::Float(min), "Minimum boundary", path, out);
        let (exceeded, bound) = match value {
            Num::Int(value) if fits => {
                let min = float_to_int(min);
                (value < min || checks.exclusive_minimum && value == min, min.to_string())
            }
            value => {
                let number = value.as_float();
                (number < min || checks.exclusive_minimum && number <= min, go::float(min))
            }
        };
        if exceeded {
            let relation = if checks.exclusive_minimum { "greater than" } else { "greater than or equal to" };
            push_bound(value, fits, relation, &bound, path, out);
        }
    }
}

fn push_bound(value: Num, fits: bool, relation: &str, bound: &str, path: &Path<'_>, out: &mut Outcome) {
    let shown = if fits { value.text() } else { go::float(value.as_float()) };
    out.push(path, Reason::Invalid, &shown, &format!("{{}} in body should be {relation} {bound}"));
}

fn check_multiple(value: Num, factor: f64, fits: bool, path: &Path<'_>, out: &mut Outcome) {
    let (positive, multiple, shown) = match value {
        Num::Int(value) if fits => {
            let factor = float_to_int(factor);
            (factor > 0, factor > 0 && value % factor == 0, factor.to_string())
        }
        value => {
            let value = value.as_float();
            let quotient = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
            (factor > 0.0, float_is_integer(quotient), go::float(factor))
        }
    };
    if !positive {
        let detail = format!("factor MultipleOf declared for {{}} must be positive: {shown}");
        out.push(path, Reason::Invalid, &shown, &detail);
    } else if !multiple {
        let value = if fits { value.text() } else { go::float(value.as_float()) };
        out.push(path, Reason::Invalid, &value, &format!("{{}} in body should be a multiple of {shown}"));
    }
}

/// The first float above the range of `i64`: 2 to the power of 63.
const LIMIT: f64 = 9_223_372_036_854_775_808.0;

/// The range of numbers for a type and format.
enum Range {
    Int32,
    Int64,
    FormatInt64,
    Float32,
    Any,
}

impl Range {
    fn of(checks: &Checks) -> Self {
        let format = checks.format.as_ref().map(|format| format.name.as_str());
        match (checks.types.as_slice(), format) {
            ([JsonType::Integer], Some("int32")) => Self::Int32,
            ([JsonType::Integer], Some("int64")) => Self::FormatInt64,
            ([JsonType::Integer], _) => Self::Int64,
            ([JsonType::Number], Some("float")) => Self::Float32,
            _ => Self::Any,
        }
    }

    /// Returns whether a number is in the range, and adds an error if it is not.
    fn check(&self, number: Num, what: &str, path: &Path<'_>, out: &mut Outcome) -> bool {
        let value = number.as_float();
        let (fits, text) = match self {
            Self::Int32 => {
                let fits =
                    value.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value);
                (fits, "integer with format int32")
            }
            Self::Int64 => {
                let whole = value.fract() == 0.0 && (-LIMIT..LIMIT).contains(&value);
                (matches!(number, Num::Int(_)) || whole, "integer (default format)")
            }
            Self::FormatInt64 => {
                let whole = value.fract() == 0.0 && (-LIMIT..LIMIT).contains(&value);
                (matches!(number, Num::Int(_)) || whole, "integer with format int64")
            }
            Self::Float32 => (value.abs() <= f64::from(f32::MAX), "number with format float"),
            Self::Any => (true, ""),
        };
        if !fits {
            out.push_unplaced(path, &format!("{what} value must be of type {text} in {}", path.name()));
        }
        fits
    }
}

/// The elements to count.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    /// The items of a list.
    Items,
    /// The fields or entries of an object.
    Properties,
}

/// Checks the number of items or properties.
pub(super) fn check_count(count: usize, of: Count, checks: &Checks, path: &Path<'_>, out: &mut Outcome) {
    let (min, max, noun) = match of {
        Count::Items => (checks.min_items, checks.max_items, "items"),
        Count::Properties => (checks.min_properties, checks.max_properties, "properties"),
    };
    let size = i64::try_from(count).unwrap_or(i64::MAX);
    if let Some(min) = min.filter(|min| size < *min) {
        let detail = format!("{{}} in body should have at least {min} {noun}");
        out.push(path, Reason::Invalid, &size.to_string(), &detail);
    }
    if let Some(max) = max.filter(|max| size > *max) {
        let max = usize::try_from(max).unwrap_or(0);
        out.add(FieldError::too_many(path.named_field(&path.name()), count, max));
    }
}
