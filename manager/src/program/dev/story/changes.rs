//! The differences between two versions of an object, as texts for a person.

use std::fmt::Write as _;

use serde_json::Value;

/// Longest text of a condition's message, in bytes.
const LONGEST: usize = 200;

/// The most fields that one text names.
const NAMED: usize = 3;

/// Returns the paths of the fields outside `metadata` and `status` that differ, as ` spec.size, spec.color`.
/// Values are left out: they may be long or secret.
pub(super) fn changed_fields(old: &Value, new: &Value) -> String {
    let mut paths = Vec::new();
    differing(String::new(), old, new, &mut paths);
    let more = paths.len().saturating_sub(NAMED);
    paths.truncate(NAMED);
    let named = paths.join(",");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

/// Adds the path of each differing field, with a space before it. A list counts as one field.
fn differing(path: String, old: &Value, new: &Value, paths: &mut Vec<String>) {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        if old != new {
            paths.push(path);
        }
        return;
    };
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    for name in after.keys().chain(removed) {
        let below = if path.is_empty() { format!(" {name}") } else { format!("{path}.{name}") };
        if below != " metadata" && below != " status" {
            differing(below, &old[name], &new[name], paths);
        }
    }
}

/// Returns a text for the conditions with another status or reason, and with `scalars` one before it for the
/// plain values that differ.
pub(super) fn changes(old: &Value, new: &Value, scalars: bool) -> Vec<String> {
    let mut texts = Vec::new();
    let values = if scalars { plain_values(old, new) } else { String::new() };
    if !values.is_empty() {
        texts.push(format!("status{values}"));
    }
    let differs = |condition: &&Value| {
        let before = conditions(old).iter().find(|before| before["type"] == condition["type"]);
        let same = |field: &str| before.is_some_and(|before| before[field] == condition[field]);
        !same("status") || !same("reason")
    };
    let changed: Vec<_> = conditions(new).iter().filter(differs).collect();
    if let Some(first) = changed.first() {
        let all: Vec<_> = changed.iter().map(|condition| described(condition)).collect();
        // The others mostly repeat it.
        let message = first["message"].as_str().unwrap_or_default();
        let message = &message[..message.floor_char_boundary(LONGEST)];
        texts.push(all.join(", ") + if message.is_empty() { "" } else { ": " } + message);
    }
    texts
}

/// Returns each changed number, text and truth value of a status as ` NAME=VALUE`.
fn plain_values(old: &Value, new: &Value) -> String {
    let mut text = String::new();
    for (name, value) in new.as_object().into_iter().flatten() {
        // Every status has it, and it follows the spec.
        let is_shown = name != "observedGeneration" && !value.is_array() && !value.is_object();
        if is_shown && old[name] != *value {
            // Writing to a String cannot fail.
            write!(text, " {name}={value}").ok();
        }
    }
    text
}

fn conditions(status: &Value) -> &[Value] {
    status["conditions"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns a condition as `Ready=False (Reason)`.
fn described(condition: &Value) -> String {
    let field = |name: &str| condition[name].as_str().unwrap_or_default();
    let (status, reason) = (format!("{}={}", field("type"), field("status")), field("reason"));
    if reason.is_empty() { status } else { format!("{status} ({reason})") }
}
