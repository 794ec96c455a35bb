//! Access to the fields of an object, where a missing field reads as the zero value of its type.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::duration;

/// An object, and the time at which it is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    object: &'a Value,
    now: Timestamp,
}

// === impl View ===

impl<'a> View<'a> {
    pub(super) fn new(object: &'a Value, now: Timestamp) -> Self {
        Self { object, now }
    }

    /// Returns the whole object.
    pub(super) fn object(&self) -> &'a Value {
        self.object
    }

    /// Returns the view of a part of the object, of which all fields are missing if there is no such part.
    pub(super) fn part(&self, pointer: &str) -> Self {
        Self { object: self.object.pointer(pointer).unwrap_or(&Value::Null), now: self.now }
    }

    /// Returns the value at a pointer; `None` if it is missing or null.
    pub(super) fn get(&self, pointer: &str) -> Option<&'a Value> {
        self.object.pointer(pointer).filter(|value| !value.is_null())
    }

    pub(super) fn has(&self, pointer: &str) -> bool {
        self.get(pointer).is_some()
    }

    pub(super) fn text(&self, pointer: &str) -> &'a str {
        self.get(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns a text; `default` if it is missing or empty.
    pub(super) fn text_or(&self, pointer: &str, default: &'a str) -> &'a str {
        Some(self.text(pointer)).filter(|text| !text.is_empty()).unwrap_or(default)
    }

    pub(super) fn number(&self, pointer: &str) -> i64 {
        self.get(pointer).and_then(Value::as_i64).unwrap_or_default()
    }

    pub(super) fn flag(&self, pointer: &str) -> bool {
        self.get(pointer).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Returns the items of a list.
    pub(super) fn list(&self, pointer: &str) -> impl DoubleEndedIterator<Item = View<'a>> + use<'a> {
        let now = self.now;
        let items = self.get(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        items.iter().map(move |object| View { object, now })
    }

    /// Returns the number of items of a list or of entries of a map.
    pub(super) fn count(&self, pointer: &str) -> usize {
        match self.get(pointer) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(entries)) => entries.len(),
            _ => 0,
        }
    }

    /// Returns the entries of a map, sorted by key.
    pub(super) fn map(&self, pointer: &str) -> Option<&'a Map<String, Value>> {
        self.get(pointer).and_then(Value::as_object)
    }

    /// Returns the texts of a list.
    pub(super) fn texts(&self, pointer: &str) -> Vec<&'a str> {
        let items = self.get(pointer).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).collect()
    }

    /// Returns a value as text, whether it is a number or a text; `None` if it is missing.
    pub(super) fn shown(&self, pointer: &str) -> Option<String> {
        self.get(pointer).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&'a str> {
        self.get("/metadata/annotations")?.get(name)?.as_str()
    }

    /// Returns the condition of a type: the first one.
    pub(super) fn condition(&self, pointer: &str, name: &str) -> Option<View<'a>> {
        self.list(pointer).find(|condition| condition.text("/type") == name)
    }

    pub(super) fn name(&self) -> &'a str {
        self.text("/metadata/name")
    }

    pub(super) fn is_terminating(&self) -> bool {
        self.has("/metadata/deletionTimestamp")
    }

    /// Returns the time since the creation.
    pub(super) fn age(&self) -> String {
        self.since("/metadata/creationTimestamp")
    }

    /// Returns the time at a pointer; `None` if it is missing or no time.
    pub(super) fn time(&self, pointer: &str) -> Option<Timestamp> {
        self.text(pointer).parse().ok()
    }

    /// Returns how long ago the time at a pointer was.
    pub(super) fn since(&self, pointer: &str) -> String {
        self.time(pointer).map_or_else(|| "<unknown>".to_owned(), |time| self.ago(time))
    }

    /// Returns how long ago a time was.
    pub(super) fn ago(&self, time: Timestamp) -> String {
        duration::human(self.now.duration_since(time))
    }
}
