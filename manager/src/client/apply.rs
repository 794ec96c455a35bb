//! Server-side apply of one kind by one field manager.
//!
//! Apply is the only write most reconcilers need: it creates or changes, is safe to repeat, and takes away what the
//! last apply set and this one no longer does. `force` is always on, because a controller that yields a field to
//! whoever touched it last never converges. A body with `metadata.uid` answers 409 for a recreated object, and one
//! with `metadata.resourceVersion` for a changed one.

mod memory;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::key::{KindId, NamespacedName};

use super::body::Body;
use super::call::{Part, address, attempt, query, request, send};
use super::current::Current;
use super::effect::Effect;
use super::error::WriteError;

use self::memory::Memory;

/// Something that may write now: its client is stopped by a fence. The context of a reconcile is one.
pub trait Authority: Sync {
    /// Returns the client that leader-only work must use.
    fn client(&self) -> &kube::Client;

    /// Returns a number that is another one whenever others may have written in this one's place. What an earlier number
    /// wrote is not taken to stand. One who never shares a kind and field manager with anybody may always return 0.
    fn term(&self) -> u64;
}

/// The right to write one kind, as one field manager. Usable only with an [`Authority`].
///
/// Clones share what they remember for [`ensure`](Self::ensure). Make one applier per kind and field manager and clone
/// it: two that write the same objects do not know of each other.
pub struct Applier<K> {
    kind: KindId,
    field_manager: Arc<str>,
    memory: Arc<Memory>,
    decode: PhantomData<fn() -> K>,
}

// === impl Applier ===

impl<K> Applier<K> {
    /// Names kind and field manager. Two controllers that write the same kind need two field managers, or each takes
    /// away the other's fields.
    pub fn new(kind: KindId, field_manager: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            field_manager: field_manager.into(),
            memory: Arc::new(Memory::new()),
            decode: PhantomData,
        }
    }

    /// Returns the same right with its answers decoded as another type, such as one that names only the fields of
    /// interest.
    #[must_use]
    pub fn view<V>(&self) -> Applier<V> {
        Applier {
            kind: self.kind.clone(),
            field_manager: Arc::clone(&self.field_manager),
            memory: Arc::clone(&self.memory),
            decode: PhantomData,
        }
    }

    /// Returns the kind this writes.
    pub fn kind(&self) -> &KindId {
        &self.kind
    }
}

impl<K: DeserializeOwned> Applier<K> {
    /// Makes everything but the status as `object` says, and sends nothing if it is so already.
    ///
    /// `current` is the object as last read; `None` if it is not there. `object` needs `metadata.name`, and
    /// `metadata.namespace` if its kind lives in one; `apiVersion` and `kind` are filled in where they are missing.
    ///
    /// Skipped is an apply whose body equals the last one of this applier, while the object is still the version that
    /// answered it or has the same content. What others change is therefore seen and overwritten, and a field that is
    /// no longer applied is taken away. The first apply after a start, and of a term, is always sent.
    ///
    /// Of an object from a metadata-only store, or one that a transform of the cache has changed, each new version is
    /// sent: what changed need not be in what was read.
    ///
    /// One thing is not seen: somebody takes over a field with its value put back since, in `metadata` or a kind without
    /// a generation. The value is as wanted, but it stays if this applier stops applying it.
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

    /// Makes the status as `object` says: as [`ensure`](Self::ensure), through the `status` subresource.
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

    /// Applies everything but the status, whatever is there, and returns the object as the server now has it.
    ///
    /// # Errors
    /// [`WriteError`] says whether it may have happened, and its predicates what to do.
    ///
    /// # Cancel safety
    /// Dropping it may leave the request sent; applying again is safe.
    pub async fn apply(
        &self,
        cx: &impl Authority,
        object: &(impl Serialize + Sync),
    ) -> Result<Arc<K>, WriteError> {
        self.apply_part(cx, object, Part::Object).await
    }

    /// Applies the status alone: as [`apply`](Self::apply), through the `status` subresource. The object must exist.
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

    /// Returns what [`ensure`](Self::ensure) would come to: admission and validation run, nothing is stored. Always
    /// asks the server. Of an object from a metadata-only store it says changed, because what was read is not all of it.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub async fn dry_run(
        &self,
        cx: &impl Authority,
        current: Option<&impl Current>,
        object: &(impl Serialize + Sync),
    ) -> Result<Effect<K>, WriteError> {
        if current.is_none() {
            let (what, answer) = self.send_once(cx, object, Part::Object, true).await?;
            return effect(&what, &answer, false);
        }
        self.write(cx, current, object, Part::Object, true).await
    }

    /// Returns what [`ensure_status`](Self::ensure_status) would come to, with nothing stored.
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
        let (what, answer) = self.send_once(cx, object, part, false).await?;
        decode(&what, answer.body())
    }

    /// Sends what is compared with nothing. While the request is on its way only its bytes are kept.
    async fn send_once(
        &self,
        cx: &impl Authority,
        object: &(impl Serialize + Sync),
        part: Part,
        dry_run: bool,
    ) -> Result<(String, Response<Bytes>), WriteError> {
        let body = Body::of(&self.kind, object, verb(dry_run))?;
        if !dry_run {
            self.memory.forget(&body.name, part);
        }
        let bytes = body.bytes();
        let Body { name, value } = body;
        drop(value);
        self.send(cx, &name, bytes, part, dry_run).await
    }

    async fn write(
        &self,
        cx: &impl Authority,
        current: Option<&impl Current>,
        object: &(impl Serialize + Sync),
        part: Part,
        dry_run: bool,
    ) -> Result<Effect<K>, WriteError> {
        let body = Body::of(&self.kind, object, verb(dry_run))?;
        if !dry_run {
            if current.is_some_and(|current| self.memory.still_stands(&body, part, current, cx.term())) {
                return Ok(Effect::Unchanged);
            }
            self.memory.forget(&body.name, part);
        }
        let (what, answer) = self.send(cx, &body.name, body.bytes(), part, dry_run).await?;
        let now: Value = read(&what, answer.body())?;
        let unchanged = if dry_run {
            // A dry run gives no new version, so the content has to tell.
            current.is_some_and(|current| self.memory.same_content(&now, &current.json(), part, &body))
        } else {
            self.memory.remember(&body, part, &now, cx.term());
            current.is_some_and(|current| is_version(&now, current))
        };
        effect(&what, &answer, unchanged)
    }

    /// Sends the body and returns what it was, for errors, with the answer.
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
        let content_type = Some("application/apply-patch+yaml");
        let request = request(Method::PATCH, &address, content_type, body, &what)?;
        let answer = send(cx.client(), request, &what).await?;
        Ok((what, answer))
    }
}

impl<K> Clone for Applier<K> {
    fn clone(&self) -> Self {
        self.view()
    }
}

impl<K> fmt::Debug for Applier<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Applier({} as {})", self.kind, self.field_manager)
    }
}

/// Begins an error.
fn verb(dry_run: bool) -> &'static str {
    if dry_run { "dry run" } else { "apply" }
}

/// Reads an answer's effect; `unchanged` says whether it is the object as the caller knows it.
pub(super) fn effect<K: DeserializeOwned>(
    what: &str,
    answer: &Response<Bytes>,
    unchanged: bool,
) -> Result<Effect<K>, WriteError> {
    if answer.status() == StatusCode::CREATED {
        return Ok(Effect::Created(decode(what, answer.body())?));
    }
    if unchanged { Ok(Effect::Unchanged) } else { Ok(Effect::Changed(decode(what, answer.body())?)) }
}

/// Returns whether an answer is the version that was read: the write was one that changes nothing.
pub(super) fn is_version(answer: &Value, current: &impl Current) -> bool {
    let text = |field| answer.pointer(field).and_then(Value::as_str);
    text("/metadata/uid") == Some(&*current.uid())
        && text("/metadata/resourceVersion") == Some(&*current.resource_version())
}

pub(super) fn read<T: DeserializeOwned>(what: &str, answer: &[u8]) -> Result<T, WriteError> {
    serde_json::from_slice(answer).map_err(|source| WriteError::Undecodable { what: what.to_owned(), source })
}

pub(super) fn decode<K: DeserializeOwned>(what: &str, answer: &[u8]) -> Result<Arc<K>, WriteError> {
    read(what, answer).map(Arc::new)
}

#[cfg(test)]
mod tests;
