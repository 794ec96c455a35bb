//! What is about to be written: an object with its type filled in and its name read.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::key::{Key as _, KindId, NamespacedName};

use super::error::WriteError;

/// An object of a known kind, with a name that can stand in a path.
pub(super) struct Body {
    pub(super) name: NamespacedName,
    pub(super) value: Value,
}

// === impl Body ===

impl Body {
    /// Serialises the object, completes its type and reads its name; `verb` begins the error, such as `apply`.
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

    /// The uid that the object must have, if the caller says so.
    pub(super) fn uid(&self) -> Option<&str> {
        self.value.pointer("/metadata/uid").and_then(Value::as_str)
    }
}

/// Hashes an object without some of its members and some of those of its metadata. The order of members says nothing.
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

/// Fills in apiVersion and kind, or says that they are others.
pub(super) fn complete_type(kind: &KindId, value: &mut Value) -> Result<(), String> {
    let Some(fields) = value.as_object_mut() else {
        return Err("it does not serialise to a JSON object".to_owned());
    };
    for (field, expected) in [("apiVersion", kind.api_version()), ("kind", kind.kind().to_owned())] {
        match fields.get(field) {
            None | Some(Value::Null) => drop(fields.insert(field.to_owned(), Value::String(expected))),
            Some(Value::String(given)) if *given == expected => {}
            Some(given) => return Err(format!("its {field} is {given}; {expected} is written here")),
        }
    }
    Ok(())
}

fn name_in(kind: &KindId, value: &Value) -> Result<NamespacedName, String> {
    let text = |field: &str| value.pointer(field).and_then(Value::as_str);
    let namespace = text("/metadata/namespace").filter(|namespace| !namespace.is_empty());
    let name = text("/metadata/name").unwrap_or_default();
    let name = NamespacedName::new(namespace, name);
    check_name(kind, &name).map(|()| name)
}

/// Says what is wrong with a name of an object of this kind, which may come from anywhere: in a path, some would be
/// another object's, or a question about all of them.
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

/// What the server accepts as a name in a path; `.` and `..` would be another path.
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%', '?', '#']) && name.is_ascii()
}
