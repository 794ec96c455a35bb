//! Runs an edit and says which request it comes to. Nothing is sent here.
//!
//! # Invariants
//! 1. An edit that fails, makes its object another one, or changes what was not read, comes to no request.
//! 2. A patch is for the one version that was edited: it carries its uid and resourceVersion.

use std::error::Error;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::client::body::{Body, complete_type};
use crate::client::call::Part;
use crate::client::current::{Current, Extent};
use crate::client::error::WriteError;
use crate::key::{Key as _, KindId, NamespacedName};

use super::carry::carry;
use super::merge::diff;

/// What an edit answers.
pub(super) type Edited = Result<(), Box<dyn Error + Send + Sync>>;

/// Makes what an object that is not there begins as.
pub(super) type Start<K> = dyn Fn() -> K + Send + Sync;

/// What says which object it is. An edit may not touch it.
const WHICH: [&str; 6] = [
    "/apiVersion",
    "/kind",
    "/metadata/namespace",
    "/metadata/name",
    "/metadata/uid",
    "/metadata/resourceVersion",
];

/// What is about to be edited.
pub(super) struct Subject<'a> {
    pub(super) kind: &'a KindId,
    pub(super) name: &'a NamespacedName,
    pub(super) part: Part,
    /// The attempt, for errors.
    pub(super) what: &'a str,
}

/// The request that an edit comes to.
pub(super) enum Draft {
    Create(Body),
    Patch {
        /// The object that was edited.
        before: Value,
        /// The JSON merge patch.
        patch: Value,
    },
    /// There is nothing to change.
    Nothing,
}

// === impl Subject ===

impl Subject<'_> {
    /// Runs the edit on the object as it is; if it is not there, on what `start` makes, or on one with nothing but a name.
    pub(super) fn draft<K: Serialize + DeserializeOwned>(
        &self,
        current: Option<&impl Current>,
        start: Option<&Start<K>>,
        edit: impl FnOnce(&mut K) -> Edited,
    ) -> Result<Draft, WriteError> {
        let stored = current.map(|current| self.stored(current)).transpose()?;
        let mut object = match &stored {
            Some(stored) => K::deserialize(stored).map_err(|source| self.unreadable(source))?,
            None => self.new_object(start)?,
        };
        let before = self.encoded(&object)?;
        edit(&mut object).map_err(|source| WriteError::Abandoned { what: self.what.to_owned(), source })?;
        let after = self.encoded(&object)?;
        self.refuse_another_object(&before, &after)?;
        self.refuse_another_part(&before, &after)?;
        let extent = current.map_or(Extent::Whole, Current::extent);
        self.refuse_the_unseen(extent, &before, &after)?;
        let (Some(current), Some(stored)) = (current, stored) else {
            return Body::of(self.kind, &self.named(after), "create").map(Draft::Create);
        };
        let mut patch = differences(&stored, &carry(&stored, &before, &after));
        if patch.is_empty() {
            return Ok(Draft::Nothing);
        }
        let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
        metadata["uid"] = json!(current.uid());
        metadata["resourceVersion"] = json!(current.resource_version());
        Ok(Draft::Patch { before: stored, patch: Value::Object(patch) })
    }

    /// Reads the stored object, without the fields that only the server writes.
    fn stored(&self, current: &impl Current) -> Result<Value, WriteError> {
        let mut stored: Value =
            serde_json::from_slice(&current.json()).map_err(|source| self.unreadable(source))?;
        complete_type(self.kind, &mut stored).map_err(|why| self.malformed(why))?;
        let text = |field: &str| stored["metadata"][field].as_str();
        let given = NamespacedName::new(text("namespace"), text("name").unwrap_or_default());
        if given != *self.name {
            return Err(self.malformed(format!("the object that was read is {given}")));
        }
        if let Some(metadata) = stored["metadata"].as_object_mut() {
            // A cache leaves it out; an edit sees the same wherever the object comes from.
            metadata.remove("managedFields");
        }
        Ok(stored)
    }

    fn new_object<K: Serialize + DeserializeOwned>(&self, start: Option<&Start<K>>) -> Result<K, WriteError> {
        let start = start.map_or_else(|| Ok(json!({})), |start| self.encoded(&start()))?;
        K::deserialize(self.named(start)).map_err(|error| {
            let alone = "one cannot be made of its name alone; give Patcher::starting_from";
            self.malformed(format!("{alone}: {error}"))
        })
    }

    /// Says in the object itself which one it is.
    fn named(&self, mut object: Value) -> Value {
        if let Some(members) = object.as_object_mut() {
            members.insert("apiVersion".to_owned(), json!(self.kind.api_version()));
            members.insert("kind".to_owned(), json!(self.kind.kind()));
            let metadata = members.entry("metadata").or_insert_with(|| json!({}));
            metadata["name"] = json!(self.name.name());
            if let Some(namespace) = self.name.namespace() {
                metadata["namespace"] = json!(namespace);
            }
        }
        object
    }

    fn encoded(&self, object: &impl Serialize) -> Result<Value, WriteError> {
        serde_json::to_value(object).map_err(|error| self.malformed(error.to_string()))
    }

    fn refuse_another_object(&self, before: &Value, after: &Value) -> Result<(), WriteError> {
        let Some(field) = WHICH.iter().find(|field| before.pointer(field) != after.pointer(field)) else {
            return Ok(());
        };
        let say =
            |object: &Value| object.pointer(field).map_or_else(|| "nothing".to_owned(), Value::to_string);
        Err(self.malformed(format!(
            "the edit changed {} from {} to {}; it may change fields of the object it is given, not which object it is",
            field[1..].replace('/', "."),
            say(before),
            say(after),
        )))
    }

    /// The server would drop without a word what belongs to the other part.
    fn refuse_another_part(&self, before: &Value, after: &Value) -> Result<(), WriteError> {
        let is_of_other = |name: &str| (name == "status") != (self.part == Part::Status);
        match changed(before, after).find(|name| is_of_other(name)) {
            None => Ok(()),
            Some(name) if self.part == Part::Status => Err(self.malformed(format!(
                "the edit changed {name}, and only the status is written here; use ensure for the rest"
            ))),
            Some(_) => Err(self.malformed(
                "the edit changed the status, which is not written here; use ensure_status".to_owned(),
            )),
        }
    }

    /// The edit took for absent what was only not read, and a list would be replaced whole.
    fn refuse_the_unseen(&self, extent: Extent, before: &Value, after: &Value) -> Result<(), WriteError> {
        let (unseen, why) = match extent {
            Extent::Whole => return Ok(()),
            Extent::Metadata => (
                changed(before, after).find(|name| *name != "metadata"),
                "only the metadata was read; read the whole object, from a store or with live",
            ),
            Extent::TooLarge { bare, .. } => (
                changed(before, after).find(|name| bare || *name != "metadata"),
                "the object is longer than cache.maxObjectBytes; use ensure_live, or live",
            ),
            Extent::Changed => (
                changed(before, after).next(),
                "the cache's transform has changed what was read of the object; use ensure_live, or live",
            ),
        };
        match unseen {
            None => Ok(()),
            Some(name) => Err(self.malformed(format!("the edit changed {name}, and {why}"))),
        }
    }

    fn unreadable(&self, source: serde_json::Error) -> WriteError {
        WriteError::Unreadable { what: self.what.to_owned(), source }
    }

    fn malformed(&self, why: String) -> WriteError {
        WriteError::Malformed { what: self.what.to_owned(), why }
    }
}

/// Returns the names of the members that are not the same in both; some of them twice.
fn changed<'a>(before: &'a Value, after: &'a Value) -> impl Iterator<Item = &'a str> {
    let members = [before, after].into_iter().filter_map(Value::as_object).flatten();
    members.map(|(name, _)| name.as_str()).filter(|name| before.get(name) != after.get(name))
}

fn differences(from: &Value, to: &Value) -> Map<String, Value> {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => diff(from, to),
        // Both are objects of the API.
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
