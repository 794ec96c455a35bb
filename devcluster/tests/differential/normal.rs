//! Transcripts without the values that must differ between two servers.
//!
//! - uids are numbered by first appearance.
//! - resourceVersions of objects become ranks among all of the transcript; that of a list or bookmark becomes
//!   the number of ranks up to it, since other writers of the real server may have moved it on.
//! - Times the server sets, allocated addresses and ports, tokens and generated suffixes become
//!   marks.
//! - Bookmarks that a timer sends are left out.
//! - Causes are a set: the real server repeats some. The text that repeats them is dropped.
//! - The resources of a custom group are a set: the real server lists them in the order of a Go map.
//! - Dumps of Go structs in messages are cut. Their content is that of the request, in a form for debugging.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value};

static UID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").expect("a pattern")
});
/// Times the server sets, also in texts.
static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$").expect("a pattern"));
/// Revisions in messages.
static REVISIONS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"current: \d+|version: \d+ \(\d+\)|\(\d+\)|0x[0-9a-f]+").expect("a pattern")
});
/// A `PodSpec` or the difference of two, in the internal form of the server.
static DUMP: LazyLock<Regex> = LazyLock::new(|| {
    let value = r#"^(Invalid value: )\{"(?:Volumes|containers)":.*\}(: field is immutable)$"#;
    let difference = r"(previously negative\)\n).*$";
    Regex::new(&format!("(?s){value}|{difference}")).expect("a pattern")
});
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\d+\.\d+\.\d+\.\d+$").expect("a pattern"));

/// Cells of tables that differ: ages, addresses and ports.
static CELL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(\d+[smhdy](\d+[smhd])?)$|^\d+\.\d+\.\d+\.\d+$|\d+m?\d*s ago|:\d{5}/").expect("a pattern")
});
/// Hashes of `OpenAPI` documents in URLs.
static HASH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\?hash=[0-9A-F]+").expect("a pattern"));

/// Keys of times that servers set.
const TIMES: &[&str] = &[
    "creationTimestamp",
    "deletionTimestamp",
    "expirationTimestamp",
    "time",
    "lastTransitionTime",
    "lastUpdateTime",
    "startTime",
];

/// Returns the transcript with marks.
pub(crate) fn normalised(mut transcript: Value) -> Value {
    let mut ranks = Vec::new();
    collect(&transcript, false, &mut ranks);
    ranks.sort_unstable();
    ranks.dedup();
    let mut normaliser = Normaliser { ranks, uids: BTreeMap::new() };
    normaliser.value("", &mut transcript);
    transcript
}

struct Normaliser {
    /// All resourceVersions of objects, sorted.
    ranks: Vec<u64>,
    uids: BTreeMap<String, usize>,
}

/// Whether this has a resourceVersion of the store rather than of an object.
fn is_list(object: &Map<String, Value>) -> bool {
    object.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List") || kind == "Table")
}

fn is_bookmark(object: &Map<String, Value>) -> bool {
    object.get("type").is_some_and(|kind| kind == "BOOKMARK")
}

/// Whether this is a bookmark that only a timer sends; the one at the end of initial events is none.
fn is_timed_bookmark(event: &Map<String, Value>) -> bool {
    is_bookmark(event) && event["object"]["metadata"].get("annotations").is_none()
}

fn collect(value: &Value, bookmark: bool, ranks: &mut Vec<u64>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, false, ranks)),
        Value::Object(object) => {
            if !is_list(object) && !bookmark {
                ranks.extend(version(object).and_then(|text| text.parse::<u64>().ok()));
            }
            let bookmark = is_bookmark(object);
            object.values().for_each(|child| collect(child, bookmark, ranks));
        }
        _ => {}
    }
}

fn version(object: &Map<String, Value>) -> Option<&str> {
    object.get("metadata")?.get("resourceVersion")?.as_str()
}

// === impl Normaliser ===

impl Normaliser {
    fn value(&mut self, key: &str, value: &mut Value) {
        match value {
            Value::Array(items) => {
                items.retain(|item| !item.as_object().is_some_and(is_timed_bookmark));
                if key == "managedFields" {
                    // The order of entries depends on whether a second has passed between two writes.
                    items.sort_by_key(|item| {
                        ["operation", "manager", "apiVersion", "subresource"]
                            .map(|part| item[part].as_str().unwrap_or_default().to_owned())
                    });
                }
                for item in items {
                    self.value(key, item);
                }
            }
            Value::Object(pods) if key == "disruptedPods" => {
                pods.values_mut().for_each(|time| *time = "<time>".into());
            }
            Value::Object(object) => self.object(object),
            Value::String(text) => {
                if TIMES.contains(&key) && TIME.is_match(text) {
                    if text.contains('.') { "<time with fraction>" } else { "<time>" }.clone_into(text);
                } else if (key == "continue" && !text.is_empty())
                    || (key == "token" && text.starts_with("eyJ"))
                {
                    "<token>".clone_into(text);
                } else if ["clusterIP", "clusterIPs", "ip"].contains(&key) && ADDRESS.is_match(text) {
                    "<address>".clone_into(text);
                } else if key == "cells" {
                    *text = CELL.replace_all(text, "<varies>").into_owned();
                    *text = TIME.replace_all(text, "<time>").into_owned();
                } else if key == "serverRelativeURL" {
                    *text = HASH.replace_all(text, "?hash=<hash>").into_owned();
                } else if key == "message" {
                    *text = REVISIONS.replace_all(text, "<revision>").into_owned();
                }
                if UID.is_match(text) {
                    *text = self.uid(text);
                }
            }
            Value::Number(_) if key == "nodePort" || key == "healthCheckNodePort" => *value = "<port>".into(),
            _ => {}
        }
    }

    fn object(&mut self, object: &mut Map<String, Value>) {
        let bookmark = is_bookmark(object);
        if bookmark && let Some(inner) = object.get_mut("object").and_then(Value::as_object_mut) {
            self.version(inner, true);
        }
        let list = is_list(object);
        self.version(object, list);
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            generated(metadata);
        }
        if object.get("kind").is_some_and(|kind| kind == "Status") {
            causes(object);
        }
        if let Some(Value::Array(rows)) = object.get_mut("resources") {
            rows.sort_by_key(|row| row["name"].to_string());
        }
        for (key, value) in object.iter_mut() {
            self.value(key, value);
        }
    }

    fn version(&self, object: &mut Map<String, Value>, list: bool) {
        let Some(number) = version(object).and_then(|text| text.parse::<u64>().ok()) else { return };
        let mark = if list {
            format!("<after {}>", self.ranks.partition_point(|rank| *rank <= number))
        } else {
            format!("<version {}>", self.ranks.partition_point(|rank| *rank < number))
        };
        object["metadata"]["resourceVersion"] = mark.into();
    }

    fn uid(&mut self, text: &str) -> String {
        let replaced = UID.replace_all(text, |found: &Captures<'_>| {
            let next = self.uids.len();
            let number = *self.uids.entry(found[0].to_owned()).or_insert(next);
            format!("<uid {number}>")
        });
        replaced.into_owned()
    }
}

/// Marks the part of a name that the server chose.
fn generated(metadata: &mut Map<String, Value>) {
    let Some(base) = metadata.get("generateName").and_then(Value::as_str).map(str::to_owned) else { return };
    if let Some(Value::String(name)) = metadata.get_mut("name")
        && let base = base.get(..58).unwrap_or(&base)
        && let Some(suffix) = name.strip_prefix(base)
    {
        *name = format!("{base}<{} generated>", suffix.len());
    }
}

/// Makes the causes a set, and drops the part of the message that repeats them.
fn causes(status: &mut Map<String, Value>) {
    let Some(causes) =
        status.get_mut("details").and_then(|it| it.get_mut("causes")).and_then(Value::as_array_mut)
    else {
        return;
    };
    for cause in causes.iter_mut().filter(|cause| cause["field"] == "patch") {
        // It quotes the whole object.
        if let Some(Value::String(message)) = cause.get_mut("message")
            && let Some((_, error)) = message.rsplit_once("\": ")
        {
            *message = format!("Invalid value: <patched>: {error}");
        }
    }
    for cause in causes.iter_mut() {
        if let Some(Value::String(message)) = cause.get_mut("message") {
            *message = DUMP.replace(message, "$1$3<dump>$2").into_owned();
        }
    }
    causes.sort_by_key(Value::to_string);
    causes.dedup();
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some((before, _)) = message.split_once(" is invalid: ")
    {
        *message = format!("{before} is invalid: <causes>");
    }
}
