//! Two normalised transcripts side by side.

use std::fmt;

use serde_json::Value;

/// One place where the servers differ.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) path: String,
    embedded: Option<Value>,
    real: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |value: &Option<Value>| -> String {
            let text = value.as_ref().map_or("absent".to_owned(), Value::to_string);
            text.chars().take(420).collect()
        };
        write!(
            f,
            "{}\n      embedded {}\n      real     {}",
            self.path,
            side(&self.embedded),
            side(&self.real)
        )
    }
}

/// Returns all places where the values differ.
pub(crate) fn compare(embedded: &Value, real: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    walk("", Some(embedded), Some(real), &mut found);
    found
}

fn walk(path: &str, embedded: Option<&Value>, real: Option<&Value>, found: &mut Vec<Difference>) {
    match (embedded, real) {
        (Some(Value::Object(ours)), Some(Value::Object(theirs))) => {
            let mut keys: Vec<_> = ours.keys().chain(theirs.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                walk(&format!("{path}.{key}"), ours.get(key), theirs.get(key), found);
            }
        }
        (Some(Value::Array(ours)), Some(Value::Array(theirs))) => {
            for index in 0..ours.len().max(theirs.len()) {
                walk(&format!("{path}[{index}]"), ours.get(index), theirs.get(index), found);
            }
        }
        _ if embedded == real => {}
        _ => {
            found.push(Difference {
                path: path.to_owned(),
                embedded: embedded.cloned(),
                real: real.cloned(),
            });
        }
    }
}
