//! Parts of the messages of problems: paths, values, and lists of names.

use serde_json::Value as Json;

/// The longest text that an error message quotes, in characters; a longer text is cut.
const MAX_QUOTED: usize = 60;

/// Appends the key `name` to a path of keys; a key that is not alphanumeric is quoted: `controllers["*"]`.
pub(super) fn child(path: &str, name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric());
    match (path, plain) {
        ("", true) => name.to_owned(),
        (_, true) => format!("{path}.{name}"),
        (_, false) => format!("{path}[{}]", quoted(name)),
    }
}

/// Returns a value of the file as one line for an error message, just long enough to find it in the file.
pub(super) fn shown(value: &Json) -> String {
    match value {
        Json::String(text) => quoted(text),
        Json::Array(items) if !items.is_empty() => format!("a list of {}", items.len()),
        Json::Object(entries) if !entries.is_empty() => format!("a mapping of {}", entries.len()),
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{:?}...", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

/// Joins names to a text such as `a, b or c`; `nothing` without names.
pub(super) fn one_of<T: AsRef<str>>(names: &[T]) -> String {
    match names {
        [] => "nothing".to_owned(),
        [only] => only.as_ref().to_owned(),
        [first @ .., last] => {
            format!("{} or {}", first.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", "), last.as_ref())
        }
    }
}

/// Returns the name most similar to a misspelt text: at most two edits away, and at most one edit per three
/// letters.
fn closest<'a, T: AsRef<str>>(text: &str, names: &'a [T]) -> Option<&'a str> {
    let text = text.to_lowercase();
    let distance = |name: &&str| strsim::osa_distance(&text, &name.to_lowercase());
    let found = names.iter().map(AsRef::as_ref).min_by_key(distance)?;
    (distance(&found) <= 2.min(found.len() / 3)).then_some(found)
}

/// Returns `; did you mean NAME?` for the name that is similar to a misspelt text, or else an empty text.
pub(super) fn hint<T: AsRef<str>>(text: &str, names: &[T]) -> String {
    closest(text, names).map_or_else(String::new, |near| format!("; did you mean {near}?"))
}

/// Returns `did you mean NAME?` for the name that is similar to a misspelt text, or else the list of all
/// names.
pub(super) fn did_you_mean<T: AsRef<str>>(text: &str, names: &[T]) -> String {
    closest(text, names)
        .map_or_else(|| format!("expected {}", one_of(names)), |near| format!("did you mean {near}?"))
}

/// Joins the lines of a message into one line, because each problem is one line of output.
pub(super) fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
