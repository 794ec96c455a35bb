//! The JSON object of a write: its type is filled in and its name is checked.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::key::{Key as _, KindId, NamespacedName};

use super::error::WriteError;

/// The JSON body of a write: its apiVersion and kind are set, and its name is safe to put into a URL path.
pub(super) struct Body {
    pub(super) name: NamespacedName,
    pub(super) value: Value,
}

// === impl Body ===

impl Body {
    /// Serialises an object, fills in a missing apiVersion and kind, and checks its name. The error text
    /// begins with `verb`, such as `apply`.
    pub(super) fn of(kind: &KindId, object: &impl Serialize, verb: &str) -> Result<Self, WriteError> {
        let refuse = |why: String| WriteError::Malformed { what: format!("{verb} of {kind}"), why };
        let mut value = serde_json::to_value(object).map_err(|error| refuse(error.to_string()))?;
        complete_type(kind, &mut value).map_err(refuse)?;
        let name = name_in(kind, &value).map_err(refuse)?;
        Ok(Self { name, value })
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes::from(self.value.to_string())
    }
}

/// Returns a field of an object's metadata, such as `uid`; `None` if it is missing or no string.
pub(super) fn metadata_text<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object["metadata"][field].as_str()
}

/// Hashes a JSON object without the top-level fields `members` and the metadata fields `of_metadata`. The
/// order of fields does not matter.
pub(super) fn hash_without(
    state: &RandomState,
    object: &Value,
    members: &[&str],
    of_metadata: &[&str],
) -> u64 {
    let rest_of = |value: &'_ Value, left_out: &[&str]| {
        let members = value.as_object().into_iter().flatten();
        let kept = members.filter(|(key, _)| !left_out.contains(&key.as_str()));
        kept.map(|(key, value)| (key.clone(), state.hash_one(value))).collect::<BTreeMap<_, _>>()
    };
    let mut outer = rest_of(object, members);
    outer.remove("metadata");
    state.hash_one((outer, rest_of(&object["metadata"], of_metadata)))
}

/// Fills a missing apiVersion and kind into a JSON object. Fails with the reason if one of them is set to
/// another value.
pub(super) fn complete_type(kind: &KindId, value: &mut Value) -> Result<(), String> {
    let Some(fields) = value.as_object_mut() else {
        return Err("it does not serialise to a JSON object".to_owned());
    };
    for (field, expected) in [("apiVersion", kind.api_version()), ("kind", kind.kind().to_owned())] {
        match fields.get(field) {
            None | Some(Value::Null) => drop(fields.insert(field.to_owned(), Value::String(expected))),
            Some(Value::String(given)) if *given == expected => {}
            Some(given) => return Err(format!("its {field} is {given}, expected {expected}")),
        }
    }
    Ok(())
}

fn name_in(kind: &KindId, value: &Value) -> Result<NamespacedName, String> {
    let namespace = metadata_text(value, "namespace").filter(|namespace| !namespace.is_empty());
    let name = NamespacedName::new(namespace, metadata_text(value, "name").unwrap_or_default());
    check_name(kind, &name).map(|()| name)
}

/// Fails with the reason if no object of this kind can have this name. With an unchecked name the URL path
/// could be that of another object, or of a whole collection.
pub(super) fn check_name(kind: &KindId, given: &NamespacedName) -> Result<(), String> {
    let name = given.name();
    if !is_path_segment(name) {
        return Err(format!("its metadata.name is {name:?}; it must be set and contain none of / % ? #"));
    }
    match given.namespace() {
        None if kind.is_namespaced() => Err(format!("{name} has no metadata.namespace")),
        Some(_) if !kind.is_namespaced() => {
            Err(format!("{name} has a metadata.namespace, but {kind} is cluster-scoped"))
        }
        Some(namespace) if !is_path_segment(namespace) => {
            Err(format!("its metadata.namespace is {namespace:?}"))
        }
        _ => Ok(()),
    }
}

/// Returns whether a name can be one segment of a URL path; `.` and `..` would make it another path.
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%', '?', '#']) && name.is_ascii()
}
