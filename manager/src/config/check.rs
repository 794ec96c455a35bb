//! Checks the values of a file against the schema of their section: ranges, and lists without duplicates.
//!
//! A bound is written once, at the field: schemars' `range`, `x-mainstay-range` for text with units, and
//! `uniqueItems`. The schema, the comments of the default file and the checks here all read it from there.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::messages::{child, one_of, shown};
use super::{Duration, Problem, Size};

/// The schema keyword for the least and the greatest value of a duration or a size, both inclusive, such as
/// `["1s", "1h"]`.
pub(super) const RANGE: &str = "x-mainstay-range";

/// Adds a problem for every value at and below `path` that is outside the bounds of its schema.
pub(super) fn check(schema: &Json, value: &Json, path: &str, problems: &mut Vec<Problem>) {
    match value {
        Json::Object(entries) => {
            for (name, value) in entries {
                if let Some(schema) =
                    schema["properties"].get(name).or_else(|| schema.get("additionalProperties"))
                {
                    check(schema, value, &child(path, name), problems);
                }
            }
            return;
        }
        Json::Array(items) => {
            let (unique, mut seen) = (schema["uniqueItems"] == true, HashSet::new());
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                if unique && !seen.insert(item) {
                    problems.push(Problem::message(path, format!("{}; already listed", shown(item))));
                } else {
                    check(&schema["items"], item, &path, problems);
                }
            }
            let least = schema["minItems"].as_u64().unwrap_or(0);
            if usize::try_from(least).is_ok_and(|least| items.len() < least) {
                problems.push(Problem::new(path, value, format_args!("at least {least}")));
            }
            return;
        }
        _ => {}
    }
    let end = |end: &str| schema[end].as_f64();
    let kind = kind(schema).unwrap_or_default();
    let within = match value {
        Json::Number(number) => number.as_f64().is_some_and(|number| {
            end("minimum").is_none_or(|least| number >= least)
                && end("maximum").is_none_or(|most| number <= most)
        }),
        // A number in quotes is text; a number that is not finite arrives as null.
        Json::String(text) => {
            !matches!(kind, "integer" | "number" | "boolean") && within_text(&schema[RANGE], text)
        }
        Json::Null => is_optional(schema) || !matches!(kind, "integer" | "number" | "boolean" | "string"),
        _ => true,
    };
    if !within {
        problems.push(Problem::new(path, value, expected(schema).unwrap_or_default()));
    }
}

/// Returns whether a text that is a duration or a size is within its range; `true` for other texts, and
/// without a range.
fn within_text(range: &Json, text: &str) -> bool {
    fn between<T: std::str::FromStr + PartialOrd>(least: &str, text: &str, most: &str) -> Option<bool> {
        let text: T = text.parse().ok()?;
        let (least, most): (T, T) = (least.parse().ok()?, most.parse().ok()?);
        Some(least <= text && text <= most)
    }
    let (Some(least), Some(most)) = (range[0].as_str(), range[1].as_str()) else { return true };
    between::<Duration>(least, text, most).or_else(|| between::<Size>(least, text, most)).unwrap_or(true)
}

/// Describes the values that a schema allows, such as `a whole number from 1 to 5`; `None` if it has no type.
pub(super) fn expected(schema: &Json) -> Option<String> {
    if let Some((words, least, most)) = range(schema) {
        return Some(format!("{words} from {least} to {most}"));
    }
    choices(schema).map(|choices| one_of(&choices)).or_else(|| {
        let words = match kind(schema)? {
            "boolean" => "true or false",
            "integer" => "a whole number",
            "number" => "a number",
            "string" => "text",
            "array" => "a list",
            "object" => "a mapping",
            _ => return None,
        };
        Some(words.to_owned())
    })
}

/// Returns the JSON type that a schema allows; for an optional value, the type beside `null`.
fn kind(schema: &Json) -> Option<&str> {
    let kind = if is_optional(schema) { &schema["type"][0] } else { &schema["type"] };
    kind.as_str()
}

/// Returns whether a schema allows exactly one type beside `null`.
fn is_optional(schema: &Json) -> bool {
    schema["type"].as_array().is_some_and(|types| types.len() == 2 && types[1] == "null")
}

/// Describes the values that a schema allows for a comment of the default file, such as `Range: 1 to 5.`
pub(super) fn range_comment(schema: &Json) -> Option<String> {
    let range = range(schema).map(|(_, least, most)| format!("Range: {least} to {most}."));
    range.or_else(|| choices(schema).map(|choices| format!("Values: {}.", choices.join(", "))))
}

/// Returns the noun, the least and the greatest value of a key, such as `a duration`, `1s` and `1h`; `None`
/// without a range.
fn range(schema: &Json) -> Option<(&'static str, String, String)> {
    let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(range) = schema[RANGE].as_array() {
        let words =
            if range.first()?.as_str()?.parse::<Duration>().is_ok() { "a duration" } else { "a size" };
        return Some((words, text(range.first()?), text(range.get(1)?)));
    }
    let words = if kind(schema) == Some("integer") { "a whole number" } else { "a number" };
    Some((words, text(schema.get("minimum")?), text(schema.get("maximum")?)))
}

/// Returns the values that the schema of an enum or of a boolean allows; `None` for other schemas.
fn choices(schema: &Json) -> Option<Vec<String>> {
    if schema["type"] == "boolean" {
        return Some(vec!["true".to_owned(), "false".to_owned()]);
    }
    let of = |value: &Json| value.as_str().map(str::to_owned);
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(of).collect();
    }
    schema["oneOf"].as_array()?.iter().map(|choice| of(&choice["const"])).collect()
}
