//! Server-side apply of one kind by one field manager.
//!
//! Apply is the only write most reconcilers need: it creates or changes, is safe to repeat, and takes away what the
//! last apply set and this one no longer does. `force` is always on, because a controller that yields a field to
//! whoever touched it last never converges. A body with `metadata.uid` answers 409 for a recreated object, and one
//! with `metadata.resourceVersion` for a changed one.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::key::{KindId, Request as ObjectName};

use super::call::call;
use super::error::WriteError;

/// Something that may write now: its client is stopped by a fence. The context of a reconcile is one.
pub trait Authority {
    /// Returns the client that leader-only work must use.
    fn client(&self) -> &kube::Client;
}

/// The right to write one kind, as one field manager. Usable only with an [`Authority`].
pub struct Applier<K> {
    kind: KindId,
    field_manager: &'static str,
    decode: PhantomData<fn() -> K>,
}

/// Which part of an object an apply is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Object,
    Status,
}

// === impl Applier ===

impl<K> Applier<K> {
    /// Names kind and field manager. Two controllers that write the same kind need two field managers, or each takes
    /// away the other's fields.
    pub fn new(kind: KindId, field_manager: &'static str) -> Self {
        Self { kind, field_manager, decode: PhantomData }
    }

    /// Returns the same right with its answers decoded as another type, such as one that names only the fields of
    /// interest.
    #[must_use]
    pub fn view<V>(&self) -> Applier<V> {
        Applier { kind: self.kind.clone(), field_manager: self.field_manager, decode: PhantomData }
    }

    /// Returns the kind this writes.
    pub fn kind(&self) -> &KindId {
        &self.kind
    }

    /// Returns the name the server files its fields under.
    pub fn field_manager(&self) -> &'static str {
        self.field_manager
    }

    fn target(&self, name: &ObjectName, part: Part, dry_run: bool) -> String {
        let path = self.kind.object_path(name);
        let subresource = if part == Part::Status { "/status" } else { "" };
        let dry_run = if dry_run { "&dryRun=All" } else { "" };
        format!("{path}{subresource}?fieldManager={}&force=true{dry_run}", self.field_manager)
    }

    fn what(&self, part: Part, dry_run: bool, name: &dyn fmt::Display) -> String {
        let verb = if dry_run { "dry run" } else { "apply" };
        let part = if part == Part::Status { " status" } else { "" };
        format!("{verb} of {}{part} {name}", self.kind)
    }

    /// Serialises the object, completes its type and reads its name.
    fn body(&self, object: &impl Serialize) -> Result<(ObjectName, Bytes), WriteError> {
        let refuse = |why: String| WriteError::Malformed { what: format!("apply of {}", self.kind), why };
        let mut value = serde_json::to_value(object).map_err(|error| refuse(error.to_string()))?;
        let Some(fields) = value.as_object_mut() else {
            return Err(refuse("it does not serialise to a JSON object".to_owned()));
        };
        for (field, expected) in
            [("apiVersion", self.kind.api_version()), ("kind", self.kind.kind().to_owned())]
        {
            match fields.get(field) {
                None | Some(Value::Null) => drop(fields.insert(field.to_owned(), Value::String(expected))),
                Some(Value::String(given)) if *given == expected => {}
                Some(given) => {
                    return Err(refuse(format!("its {field} is {given}; this applier writes {expected}")));
                }
            }
        }
        let text = |field: &str| value.pointer(field).and_then(Value::as_str);
        let namespace = text("/metadata/namespace").filter(|namespace| !namespace.is_empty());
        let name = text("/metadata/name").unwrap_or_default();
        if !is_path_segment(name) {
            return Err(refuse(format!(
                "its metadata.name is {name:?}; it must be set and contain none of / % ? #"
            )));
        }
        match namespace {
            None if self.kind.is_namespaced() => {
                return Err(refuse(format!("{name} has no metadata.namespace")));
            }
            Some(_) if !self.kind.is_namespaced() => {
                return Err(refuse(format!(
                    "{name} has a metadata.namespace, but {} is cluster-scoped",
                    self.kind
                )));
            }
            Some(namespace) if !is_path_segment(namespace) => {
                return Err(refuse(format!("its metadata.namespace is {namespace:?}")));
            }
            _ => {}
        }
        let name = ObjectName::new(namespace, name);
        let body = serde_json::to_vec(&value).map_err(|error| refuse(error.to_string()))?;
        Ok((name, Bytes::from(body)))
    }
}

impl<K: DeserializeOwned> Applier<K> {
    /// Applies everything but the status, and returns the object as the server now has it.
    ///
    /// `object` needs `metadata.name`, and `metadata.namespace` if its kind lives in one. `apiVersion` and `kind` are
    /// filled in where they are missing.
    ///
    /// # Errors
    /// [`WriteError`] says whether it may have happened, and its predicates what to do.
    ///
    /// # Cancel safety
    /// Dropping it may leave the request sent; applying again is safe.
    pub async fn apply(
        &self,
        cx: &(impl Authority + Sync),
        object: &(impl Serialize + Sync),
    ) -> Result<Arc<K>, WriteError> {
        self.send(cx, self.body(object), Part::Object, false).await
    }

    /// Applies the status alone: as [`apply`](Self::apply), through the `status` subresource. The object must exist.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub async fn apply_status(
        &self,
        cx: &(impl Authority + Sync),
        object: &(impl Serialize + Sync),
    ) -> Result<Arc<K>, WriteError> {
        self.send(cx, self.body(object), Part::Status, false).await
    }

    /// Returns what [`apply`](Self::apply) would: admission and validation run, nothing is stored.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub async fn dry_run(
        &self,
        cx: &(impl Authority + Sync),
        object: &(impl Serialize + Sync),
    ) -> Result<Arc<K>, WriteError> {
        self.send(cx, self.body(object), Part::Object, true).await
    }

    /// Returns what [`apply_status`](Self::apply_status) would, with nothing stored.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub async fn dry_run_status(
        &self,
        cx: &(impl Authority + Sync),
        object: &(impl Serialize + Sync),
    ) -> Result<Arc<K>, WriteError> {
        self.send(cx, self.body(object), Part::Status, true).await
    }

    async fn send(
        &self,
        cx: &(impl Authority + Sync),
        body: Result<(ObjectName, Bytes), WriteError>,
        part: Part,
        dry_run: bool,
    ) -> Result<Arc<K>, WriteError> {
        let (name, body) = body?;
        let what = self.what(part, dry_run, &name);
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(self.target(&name, part, dry_run))
            .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
            .header(header::ACCEPT, "application/json")
            .body(body)
            .map_err(|error| WriteError::Malformed { what: what.clone(), why: error.to_string() })?;
        let answer = call(cx.client(), request, &what).await?;
        let object =
            serde_json::from_slice(&answer).map_err(|source| WriteError::Undecodable { what, source })?;
        Ok(Arc::new(object))
    }
}

impl<K> Clone for Applier<K> {
    fn clone(&self) -> Self {
        Self { kind: self.kind.clone(), field_manager: self.field_manager, decode: PhantomData }
    }
}

impl<K> fmt::Debug for Applier<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Applier({} as {})", self.kind, self.field_manager)
    }
}

/// What the server accepts as a name in a path; `.` and `..` would be another path.
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%', '?', '#']) && name.is_ascii()
}

#[cfg(test)]
mod tests;
