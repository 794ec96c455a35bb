//! Which of the names that a definition asks for it gets.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Condition, condition, is_true, set_condition};
use crate::store::Version;

/// The names that definitions of one group have been given.
#[derive(Default)]
struct Taken {
    resources: HashSet<String>,
    kinds: HashSet<String>,
}

/// Returns the next state of a definition, which may equal the current one.
pub(super) fn next(definition: &Value, others: &[Arc<Version>], now: Timestamp) -> Option<Value> {
    let group = definition.pointer("/spec/group");
    let same = others.iter().map(|version| version.value()).filter(|other| other.pointer("/spec/group") == group);
    let taken = Taken::of(same);
    let mut next = definition.clone();
    let (names, conflict) = accept(definition, &taken);
    let accepted = conflict.is_none();
    let (status, reason, message) = match conflict {
        None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, message)) => ("False", reason, message),
    };
    let named = Condition { name: "NamesAccepted", status, reason, message };
    let unchanged = condition(definition, "NamesAccepted")
        .is_some_and(|known| super::object::text(known, "status") == status && super::object::text(known, "reason") == reason);
    let names_unchanged = definition.pointer("/status/acceptedNames") == Some(&names);
    if unchanged && names_unchanged && accepted && !is_true(definition, "Established") {
        let message = "the initial names have been accepted".to_owned();
        let done = Condition { name: "Established", status: "True", reason: "InitialNamesAccepted", message };
        set_condition(&mut next, done, now);
        return Some(next);
    }
    if let Some(status) = next.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("acceptedNames".to_owned(), names);
    }
    set_condition(&mut next, named, now);
    if !is_true(definition, "Established") {
        let (reason, message) = match accepted {
            true => ("Installing", "the initial names have been accepted"),
            false => ("NotAccepted", "not all names are accepted"),
        };
        let message = message.to_owned();
        set_condition(&mut next, Condition { name: "Established", status: "False", reason, message }, now);
    }
    Some(next)
}

// === impl Taken ===

impl Taken {
    fn of<'a>(definitions: impl Iterator<Item = &'a Value>) -> Self {
        let mut taken = Self::default();
        for definition in definitions {
            let Some(names) = definition.pointer("/status/acceptedNames") else { continue };
            let text = |field: &str| names.get(field).and_then(Value::as_str).map(str::to_owned);
            taken.resources.extend(text("plural").into_iter().chain(text("singular")));
            let short = names.get("shortNames").and_then(Value::as_array).into_iter().flatten();
            taken.resources.extend(short.filter_map(Value::as_str).map(str::to_owned));
            taken.kinds.extend(text("kind").into_iter().chain(text("listKind")));
        }
        taken
    }
}

/// Returns the accepted names, and the last conflict if there is one.
fn accept(definition: &Value, taken: &Taken) -> (Value, Option<(&'static str, String)>) {
    let empty = json!({});
    let wanted = definition.pointer("/spec/names").unwrap_or(&empty);
    let mut accepted = definition.pointer("/status/acceptedNames").cloned().unwrap_or_else(|| json!({}));
    let mut conflict = None;
    let Some(names) = accepted.as_object_mut() else { return (accepted, None) };
    let in_use = |name: &str| format!("\"{name}\" is already in use");
    for (field, reason, used) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ] {
        let Some(value) = wanted.get(field) else {
            names.remove(field);
            continue;
        };
        let values: Vec<&str> = match value {
            Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
            value => value.as_str().into_iter().collect(),
        };
        let clashes: Vec<String> = values
            .into_iter()
            .filter(|name| used.contains(*name) && names.get(field) != Some(value))
            .map(in_use)
            .collect();
        match clashes.as_slice() {
            [] => drop(names.insert(field.to_owned(), value.clone())),
            [one] => conflict = Some((reason, one.clone())),
            many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    match wanted.get("categories") {
        Some(categories) => drop(names.insert("categories".to_owned(), categories.clone())),
        None => drop(names.remove("categories")),
    }
    (accepted, conflict)
}
