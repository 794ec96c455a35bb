//! Server-side apply of one kind by one field manager.
//!
//! Apply is the only write most reconcilers need: it creates or changes, is safe to repeat, and removes
//! fields that the last apply set and this one no longer does. `force` is always on, because a controller
//! that yields each field to its last writer never converges. A body with `metadata.uid` gets a 409 for a
//! recreated object, and one with `metadata.resourceVersion` for a changed one.

mod memory;

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::key::{KindId, NamespacedName};

use super::body::{Body, metadata_text};
use super::call::{Part, address, attempt, query, send};
use super::current::Current;
use super::effect::Effect;
use super::error::WriteError;

use self::memory::Memory;

/// Permission for leader-only writes, with a client that is stopped when the leadership ends. The context of
/// a reconcile implements it.
pub trait Authority: Sync {
    /// Returns the client that leader-only work must use.
    fn client(&self) -> &kube::Client;

    /// Returns the number of the term of leadership. It must change whenever another replica may have written
    /// since: memory of writes of earlier terms is then discarded. An implementor that never shares its kind
    /// and field manager with another process may always return 0.
    fn term(&self) -> u64;
}

/// The verbs of a role that allow an apply, which may create the object.
pub(crate) const APPLY: [&str; 2] = ["create", "patch"];

/// Writes one kind by server-side apply, as one field manager. Usable only with an [`Authority`].
///
/// Clones share the memory of [`ensure`](Self::ensure). Make one applier per kind and field manager and clone
/// it: two appliers made separately do not see each other's writes.
#[derive(derive_more::Debug)]
#[debug("Applier({} as {})", self.kind, self.field_manager)]
pub struct Applier<K> {
    kind: KindId,
    field_manager: Arc<str>,
    memory: Arc<Memory>,
    decode: PhantomData<fn() -> K>,
}

// === impl Applier ===

impl<K> Applier<K> {
    /// Makes an applier for one kind and one field manager. Two controllers that write the same kind need two
    /// field managers, or each removes the other's fields.
    pub fn new(kind: KindId, field_manager: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            field_manager: field_manager.into(),
            memory: Arc::new(Memory::new()),
            decode: PhantomData,
        }
    }

    /// Returns an applier with the same memory that decodes responses as another type, such as one with only
    /// the fields of interest.
    #[must_use]
    pub fn view<V>(&self) -> Applier<V> {
        Applier {
            kind: self.kind.clone(),
            field_manager: Arc::clone(&self.field_manager),
            memory: Arc::clone(&self.memory),
            decode: PhantomData,
        }
    }

    /// Returns the kind of the objects that this applier writes.
    pub fn kind(&self) -> &KindId {
        &self.kind
    }
}

impl<K: DeserializeOwned> Applier<K> {
    /// Applies `object`, without its status, unless the same apply was already made and still holds.
    ///
    /// `current` is the object as last read; `None` if it does not exist. `object` needs `metadata.name`, and
    /// `metadata.namespace` if its kind is namespaced; `apiVersion` and `kind` are filled in where they are
    /// missing.
    ///
    /// An apply is skipped if its body equals the last one of this applier, and `current` is the version that
    /// the last apply returned, or has the same content. Changes by other writers are therefore detected and
    /// overwritten, and a field that is no longer applied is removed. The first apply after a start, and of
    /// each term, is always sent.
    ///
    /// For an object from a metadata-only store, or one that a transform of the cache has changed, each new
    /// version causes an apply, because a change may be in a field that was not read.
    ///
    /// One change goes undetected: another field manager takes over a field and the value is then restored,
    /// in `metadata` or in a kind without a generation. The value is as wanted, but stays when this applier
    /// stops applying it.
    ///
    /// ```no_run
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mainstay::cache::Store;
    /// use mainstay::client::{Applier, Effect};
    /// use mainstay::key::{Key as _, NamespacedName};
    /// use mainstay::reconcile::{Context, ReconcileError};
    ///
    /// async fn greet(
    ///     cx: &Context,
    ///     request: &NamespacedName,
    ///     maps: &Store<ConfigMap>,
    ///     applier: &Applier<ConfigMap>,
    /// ) -> Result<(), ReconcileError> {
    ///     let desired = serde_json::json!({
    ///         "metadata": {"name": request.name(), "namespace": request.namespace()},
    ///         "data": {"greeting": "hello"},
    ///     });
    ///     match applier.ensure(cx, maps.entry(request)?.as_ref(), &desired).await? {
    ///         Effect::Created(_) => tracing::info!("greeted"),
    ///         Effect::Changed(_) => tracing::info!("greeted again"),
    ///         Effect::Unchanged => {}
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    ///
    /// # Cancel safety
    /// As [`apply`](Self::apply).
    pub async fn ensure(
        &self,
        cx: &impl Authority,
        current: Option<&impl Current>,
        object: &(impl Serialize + Sync),
    ) -> Result<Effect<K>, WriteError> {
        self.write(cx, current, object, Part::Object, false).await
    }

    /// Applies the status of `object` through the `status` subresource, unless the same apply was already
    /// made and still holds, as [`ensure`](Self::ensure) does.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub async fn ensure_status(
        &self,
        cx: &impl Authority,
        current: &impl Current,
        object: &(impl Serialize + Sync),
    ) -> Result<Effect<K>, WriteError> {
        self.write(cx, Some(current), object, Part::Status, false).await
    }

    /// Applies `object` without its status, always with a request, and returns the object as stored.
    ///
    /// # Errors
    /// The variant of [`WriteError`] shows whether the write may have happened; its predicates classify the
    /// refusal.
    ///
    /// # Cancel safety
    /// After the future is dropped the apply may still happen; applying again is safe.
    pub async fn apply(
        &self,
        cx: &impl Authority,
        object: &(impl Serialize + Sync),
    ) -> Result<Arc<K>, WriteError> {
        self.apply_part(cx, object, Part::Object).await
    }

    /// Applies only the status of `object`, through the `status` subresource: always with a request, as
    /// [`apply`](Self::apply). The object must exist.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub async fn apply_status(
        &self,
        cx: &impl Authority,
        object: &(impl Serialize + Sync),
    ) -> Result<Arc<K>, WriteError> {
        self.apply_part(cx, object, Part::Status).await
    }

    /// Returns the effect that [`ensure`](Self::ensure) would have: admission and validation run, but no
    /// object is stored. Always sends a request. For an object from a metadata-only store the effect is
    /// always a change, because only a part of the object was read.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub async fn dry_run(
        &self,
        cx: &impl Authority,
        current: Option<&impl Current>,
        object: &(impl Serialize + Sync),
    ) -> Result<Effect<K>, WriteError> {
        self.write(cx, current, object, Part::Object, true).await
    }

    /// Returns the effect that [`ensure_status`](Self::ensure_status) would have: sends a dry run, which
    /// stores no object.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub async fn dry_run_status(
        &self,
        cx: &impl Authority,
        current: &impl Current,
        object: &(impl Serialize + Sync),
    ) -> Result<Effect<K>, WriteError> {
        self.write(cx, Some(current), object, Part::Status, true).await
    }

    async fn apply_part(
        &self,
        cx: &impl Authority,
        object: &(impl Serialize + Sync),
        part: Part,
    ) -> Result<Arc<K>, WriteError> {
        let body = Body::of(&self.kind, object, "apply")?;
        self.memory.forget(&body.name, part);
        let (name, bytes) = (body.name.clone(), body.bytes());
        // Only the bytes stay in memory while the request is in flight.
        drop(body);
        let (what, answer) = self.send(cx, &name, bytes, part, false).await?;
        decode(&what, answer.body())
    }

    async fn write(
        &self,
        cx: &impl Authority,
        current: Option<&impl Current>,
        object: &(impl Serialize + Sync),
        part: Part,
        dry_run: bool,
    ) -> Result<Effect<K>, WriteError> {
        let body = Body::of(&self.kind, object, if dry_run { "dry run" } else { "apply" })?;
        if !dry_run {
            if current.is_some_and(|current| self.memory.is_applied(&body, part, current, cx.term())) {
                return Ok(Effect::Unchanged);
            }
            self.memory.forget(&body.name, part);
        }
        let (what, answer) = self.send(cx, &body.name, body.bytes(), part, dry_run).await?;
        let now: Value = read(&what, answer.body())?;
        let unchanged = if dry_run {
            // A dry run makes no new version, so the content is compared.
            current.is_some_and(|current| self.memory.same_content(&now, &current.json(), part, &body))
        } else {
            self.memory.remember(&body, part, &now, cx.term());
            current.is_some_and(|current| is_version(&now, current))
        };
        effect(&what, &answer, unchanged)
    }

    /// Sends an apply request and returns the name of the apply for error texts, and the response.
    async fn send(
        &self,
        cx: &impl Authority,
        name: &NamespacedName,
        body: Bytes,
        part: Part,
        dry_run: bool,
    ) -> Result<(String, Response<Bytes>), WriteError> {
        let what = attempt("apply", &self.kind, part, name, dry_run);
        let query = query(&self.field_manager, dry_run, &what)?;
        let address = format!("{}?{query}&force=true", address(&self.kind, part, name));
        let body = Some(("application/apply-patch+yaml", body));
        let answer = send(cx.client(), Method::PATCH, &address, body, &what).await?;
        Ok((what, answer))
    }
}

impl<K> Clone for Applier<K> {
    fn clone(&self) -> Self {
        self.view()
    }
}

/// Returns the effect of a successful write from its response. `unchanged`: whether the response is the
/// object that the caller passed.
pub(super) fn effect<K: DeserializeOwned>(
    what: &str,
    answer: &Response<Bytes>,
    unchanged: bool,
) -> Result<Effect<K>, WriteError> {
    match answer.status() {
        StatusCode::CREATED => decode(what, answer.body()).map(Effect::Created),
        _ if unchanged => Ok(Effect::Unchanged),
        _ => decode(what, answer.body()).map(Effect::Changed),
    }
}

/// Returns whether the object in the response to a write is still the version that was read: the write
/// changed no field.
pub(super) fn is_version(answer: &Value, current: &impl Current) -> bool {
    metadata_text(answer, "uid") == Some(&*current.uid())
        && metadata_text(answer, "resourceVersion") == Some(&*current.resource_version())
}

pub(super) fn read<T: DeserializeOwned>(what: &str, answer: &[u8]) -> Result<T, WriteError> {
    serde_json::from_slice(answer).map_err(|source| WriteError::Undecodable { what: what.to_owned(), source })
}

pub(super) fn decode<K: DeserializeOwned>(what: &str, answer: &[u8]) -> Result<Arc<K>, WriteError> {
    read(what, answer).map(Arc::new)
}

#[cfg(test)]
mod tests;
