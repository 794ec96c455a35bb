//! Runs an edit and turns it into a create, a patch or no request. The caller sends it.
//!
//! # Invariants
//! 1. An edit that fails, makes its object another one, or changes unread fields is an error, and no request
//!    is made.
//! 2. A patch is for the version that was edited: it carries the uid and resourceVersion of that version.

use std::error::Error;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::client::body::{Body, complete_type, metadata_text};
use crate::client::call::Part;
use crate::client::current::{Current, Extent};
use crate::client::error::WriteError;
use crate::key::{Key as _, KindId, NamespacedName};

use super::carry::carry;
use super::merge::diff;

/// The return value of a caller's `edit` function; an error cancels the write.
pub(super) type EditResult = Result<(), Box<dyn Error + Send + Sync>>;

/// A function that makes the object to edit when a new one is created.
pub(super) type InitialObject<K> = dyn Fn() -> K + Send + Sync;

/// JSON pointers of the fields that identify an object and its version. An edit may not change them.
const IDENTITY: [&str; 6] = [
    "/apiVersion",
    "/kind",
    "/metadata/namespace",
    "/metadata/name",
    "/metadata/uid",
    "/metadata/resourceVersion",
];

/// The object, and the part of it, that an edit may change.
pub(super) struct EditTarget<'a> {
    pub(super) kind: &'a KindId,
    pub(super) name: &'a NamespacedName,
    pub(super) part: Part,
    /// The name of the write for error texts, such as `patch of Pod shop/web`.
    pub(super) what: &'a str,
}

/// The request that writes an edit of an object, if one is needed.
pub(super) enum Draft {
    Create(Body),
    Patch {
        /// The stored object before the edit.
        before: Value,
        /// The JSON merge patch that turns the stored object into the edited one.
        patch: Value,
    },
    /// The edit changed no field, so no request is needed.
    Unchanged,
}

// === impl EditTarget ===

impl EditTarget<'_> {
    /// Runs `edit` on the current object and returns the request that writes the result. If there is no
    /// object, edits the one that `initial` makes, or else one that has only a name.
    pub(super) fn draft<K: Serialize + DeserializeOwned>(
        &self,
        current: Option<&impl Current>,
        initial: Option<&InitialObject<K>>,
        edit: impl FnOnce(&mut K) -> EditResult,
    ) -> Result<Draft, WriteError> {
        let stored = current.map(|current| self.stored(current)).transpose()?;
        let mut object = match &stored {
            Some(stored) => K::deserialize(stored).map_err(|source| self.unreadable(source))?,
            None => self.new_object(initial)?,
        };
        let before = self.encoded(&object)?;
        edit(&mut object).map_err(|source| WriteError::Abandoned { what: self.what.to_owned(), source })?;
        let after = self.encoded(&object)?;
        self.refuse_another_object(&before, &after)?;
        self.refuse_another_part(&before, &after)?;
        let extent = current.map_or(Extent::Whole, Current::extent);
        self.refuse_unread_fields(extent, &before, &after)?;
        let (Some(current), Some(stored)) = (current, stored) else {
            return Body::of(self.kind, &self.named(after), "create").map(Draft::Create);
        };
        let carried = carry(&stored, &before, &after);
        let both = stored.as_object().zip(carried.as_object());
        let mut patch = both.map(|(stored, carried)| diff(stored, carried)).unwrap_or_default();
        if patch.is_empty() {
            return Ok(Draft::Unchanged);
        }
        let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
        metadata["uid"] = json!(current.uid());
        metadata["resourceVersion"] = json!(current.resource_version());
        Ok(Draft::Patch { before: stored, patch: Value::Object(patch) })
    }

    /// Decodes the stored object without `metadata.managedFields`. Fails if its type or name is another one.
    fn stored(&self, current: &impl Current) -> Result<Value, WriteError> {
        let mut stored: Value =
            serde_json::from_slice(&current.json()).map_err(|source| self.unreadable(source))?;
        complete_type(self.kind, &mut stored).map_err(|why| self.malformed(why))?;
        let name = metadata_text(&stored, "name").unwrap_or_default();
        let given = NamespacedName::new(metadata_text(&stored, "namespace"), name);
        if given != *self.name {
            return Err(self.malformed(format!("the object that was read is {given}")));
        }
        if let Some(metadata) = stored["metadata"].as_object_mut() {
            // The cache drops this field, and an edit sees the same object from the cache and from the API
            // server.
            metadata.remove("managedFields");
        }
        Ok(stored)
    }

    fn new_object<K: Serialize + DeserializeOwned>(
        &self,
        initial: Option<&InitialObject<K>>,
    ) -> Result<K, WriteError> {
        let object = initial.map_or_else(|| Ok(json!({})), |initial| self.encoded(&initial()))?;
        K::deserialize(self.named(object)).map_err(|error| {
            let hint = "a new object needs more than a name; give Patcher::starting_from";
            self.malformed(format!("{hint}: {error}"))
        })
    }

    /// Returns the JSON object with apiVersion, kind, name and namespace of the edit's target filled in.
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
        let Some(field) = IDENTITY.iter().find(|field| before.pointer(field) != after.pointer(field)) else {
            return Ok(());
        };
        let value =
            |object: &Value| object.pointer(field).map_or_else(|| "unset".to_owned(), Value::to_string);
        Err(self.malformed(format!(
            "the edit changed {} from {} to {}, which would make it another object or version",
            field[1..].replace('/', "."),
            value(before),
            value(after),
        )))
    }

    /// Fails if an edit of an object changed its status, or an edit of the status changed another field: the
    /// API server would drop such a change silently.
    fn refuse_another_part(&self, before: &Value, after: &Value) -> Result<(), WriteError> {
        let is_of_other = |name: &str| (name == "status") != (self.part == Part::Status);
        match changed(before, after).find(|name| is_of_other(name)) {
            None => Ok(()),
            Some(name) if self.part == Part::Status => Err(self.malformed(format!(
                "the edit changed {name}, but ensure_status writes only the status; use ensure for the rest"
            ))),
            Some(_) => Err(self.malformed(
                "the edit changed the status, which ensure does not write; use ensure_status".to_owned(),
            )),
        }
    }

    /// Fails if the edit changed a field that was not read: the edit took it for absent, and a patch replaces
    /// a list as a whole.
    fn refuse_unread_fields(&self, extent: Extent, before: &Value, after: &Value) -> Result<(), WriteError> {
        let (has_metadata, why) = match extent {
            Extent::Whole => return Ok(()),
            Extent::Metadata => {
                (true, "only the metadata was read; read the whole object, from a store or with live")
            }
            Extent::TooLarge { bare, .. } => {
                (!bare, "the object is longer than cache.maxObjectBytes; use ensure_live, or live")
            }
            Extent::Changed => (
                false,
                "the cache's transform has changed the object that was read; use ensure_live, or live",
            ),
        };
        match changed(before, after).find(|name| !has_metadata || *name != "metadata") {
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

/// Returns the names of the top-level fields that differ between two JSON objects; a name may come twice.
fn changed<'a>(before: &'a Value, after: &'a Value) -> impl Iterator<Item = &'a str> {
    let members = [before, after].into_iter().filter_map(Value::as_object).flatten();
    members.map(|(name, _)| name.as_str()).filter(|name| before.get(name) != after.get(name))
}

#[cfg(test)]
mod tests;
