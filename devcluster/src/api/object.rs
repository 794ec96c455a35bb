//! Access to the fields that objects of every kind have.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// Returns a string field of an object; empty if it is missing or no string.
pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn set_text(object: &mut Value, field: &str, text: &str) {
    if let Value::Object(object) = object {
        object.insert(field.to_owned(), text.into());
    }
}

/// Returns a string field of the metadata; empty if it is missing or no string.
pub(super) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").map(|metadata| text(metadata, field)).unwrap_or_default()
}

/// Returns a field of the metadata; `None` if it is missing or null.
pub(super) fn meta_value<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field).filter(|value| !value.is_null())
}

/// Returns the metadata, created if it is missing; `None` if the object or its metadata is no JSON object.
pub(super) fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let object = object.as_object_mut()?;
    object.entry("metadata").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}

pub(super) fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(metadata) = metadata(object) {
        metadata.insert(field.to_owned(), value.into());
    }
}

pub(super) fn remove_meta(object: &mut Value, field: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove(field);
    }
}

/// Copies a field of the metadata from one object to another, or removes it if the first object lacks it.
pub(super) fn copy_meta(from: &Value, to: &mut Value, field: &str) {
    match meta_value(from, field) {
        Some(value) => set_meta(to, field, value.clone()),
        None => remove_meta(to, field),
    }
}

/// Copies a field from one object to another, or removes it if the first object lacks it.
pub(super) fn copy_field(from: &Value, to: &mut Value, field: &str) {
    let Some(to) = to.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(to.insert(field.to_owned(), value.clone())),
        None => drop(to.remove(field)),
    }
}

pub(super) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    meta_value(object, "finalizers").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Sets the finalizers; an empty list removes the field.
pub(super) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    if finalizers.is_empty() {
        remove_meta(object, "finalizers");
    } else {
        set_meta(object, "finalizers", finalizers.to_vec());
    }
}

/// Returns whether a value is a list or map without entries.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

/// Returns whether an object has a deletion timestamp.
pub(super) fn is_terminating(object: &Value) -> bool {
    meta_value(object, "deletionTimestamp").is_some()
}

/// Returns the generation; 0 if the object has none.
pub(super) fn generation(object: &Value) -> i64 {
    meta_value(object, "generation").and_then(Value::as_i64).unwrap_or(0)
}

/// Formats a time as in metadata, such as `2023-11-14T22:13:20Z`; fractions of a second are cut.
pub(super) fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns a random version 4 UUID.
pub(super) fn uid(random: &mut fastrand::Rng) -> String {
    let bits = (random.u128(..) & !(0xf << 76 | 0b11 << 62)) | 0x4 << 76 | 0b10 << 62;
    let hex = format!("{bits:032x}");
    let part = |range| hex.get(range).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0..8), part(8..12), part(12..16), part(16..20), part(20..32))
}

/// Returns a name for a `generateName`: its first 58 bytes (at most) and five random characters.
pub(super) fn generated_name(base: &str, random: &mut fastrand::Rng) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const LONGEST_BASE: usize = 58;
    let mut end = base.len().min(LONGEST_BASE);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = base.get(..end).unwrap_or_default().to_owned();
    for _ in 0..5 {
        name.push(char::from(ALPHABET.get(random.usize(..ALPHABET.len())).copied().unwrap_or(b'x')));
    }
    name
}

/// Removes owner references that repeat the uid of an earlier one. Returns a warning;
/// `None` without duplicates.
pub(super) fn deduplicate_owners(object: &mut Value) -> Option<String> {
    let owners = object.get_mut("metadata")?.get_mut("ownerReferences")?.as_array_mut()?;
    let mut seen: Vec<String> = Vec::new();
    let mut duplicates: Vec<String> = Vec::new();
    owners.retain(|owner| {
        let uid = text(owner, "uid").to_owned();
        if seen.contains(&uid) {
            if !duplicates.contains(&uid) {
                duplicates.push(uid);
            }
            return false;
        }
        seen.push(uid);
        true
    });
    (!duplicates.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in \
             1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate \
             UID(s) observed: {}",
            duplicates.join(", ")
        )
    })
}
