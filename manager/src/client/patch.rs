//! Create-or-patch of one kind: read, edit, write the difference.
//!
//! For writers who change some fields of an object that others write too, and cannot say with server-side apply which
//! fields are theirs: a counter, a list with elements of several writers, what depends on the present value. A writer
//! who knows the whole of its fields should [apply](super::Applier) them instead.
//!
//! What is sent is a JSON merge patch, and what it does not name stays. It replaces a list whole and is therefore always
//! for one version: who edited an older one gets a conflict, and the next run edits the newer.
//!
//! Differs from controllerutil's `CreateOrPatch`, which writes the status in a second request and without asking for a
//! version, and drops from the elements of lists what its type does not know.

mod carry;
mod draft;
mod merge;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::key::{Key as _, KindId, NamespacedName};

use super::apply::{Authority, decode, effect, is_version, read};
use super::call::{Part, address, attempt, query, request, send};
use super::current::{Current, live};
use super::effect::Effect;
use super::error::WriteError;

use self::draft::{Draft, Edited, Start, Subject};

/// The right to create and patch one kind. Usable only with an [`Authority`]. Cheap to clone.
///
/// Needs the verbs `create` and `patch`, and `get` for [`ensure_live`](Self::ensure_live).
#[doc(alias = "CreateOrPatch")]
#[doc(alias = "CreateOrUpdate")]
pub struct Patcher<K> {
    kind: KindId,
    field_manager: Arc<str>,
    start: Option<Arc<Start<K>>>,
}

// === impl Patcher ===

impl<K> Patcher<K> {
    /// Names kind and field manager: who `kubectl get --show-managed-fields` says has written a field.
    pub fn new(kind: KindId, field_manager: impl Into<Arc<str>>) -> Self {
        Self { kind, field_manager: field_manager.into(), start: None }
    }

    /// Has an object that is not there begin as this, with the name it is to have. Otherwise it begins with nothing but
    /// the name, which is not enough for a type with fields that must be there.
    #[must_use]
    pub fn starting_from(self, start: impl Fn() -> K + Send + Sync + 'static) -> Self {
        Self { start: Some(Arc::new(start)), ..self }
    }

    /// Returns the kind this writes.
    pub fn kind(&self) -> &KindId {
        &self.kind
    }
}

impl<K: Serialize + DeserializeOwned> Patcher<K> {
    /// Makes everything but the status as `edit` leaves it, and sends nothing if it leaves it as it is.
    ///
    /// `current` is the object called `name` as last read; `None` if it is not there. `edit` gets it decoded and changes
    /// the fields it cares for; an object that is not there is created with them. Fields that `K` does not know stay,
    /// in the elements of lists too. It is called once and should be quick.
    ///
    /// ```no_run
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::Resource as _;
    /// use mainstay::cache::Store;
    /// use mainstay::client::{Effect, Patcher, set_controller_reference};
    /// use mainstay::key::{KindId, NamespacedName};
    /// use mainstay::reconcile::{Context, ReconcileError};
    ///
    /// /// Counts visits beside whatever else people keep in the same `ConfigMap`.
    /// async fn visit(
    ///     cx: &Context,
    ///     owner: &ConfigMap,
    ///     name: &NamespacedName,
    ///     maps: &Store<ConfigMap>,
    ///     patcher: &Patcher<ConfigMap>,
    /// ) -> Result<(), ReconcileError> {
    ///     let effect = patcher
    ///         .ensure(cx, name, maps.entry(name)?.as_ref(), |map| {
    ///             let visits = map.data.get_or_insert_default().entry("visits".to_owned()).or_default();
    ///             let count = if visits.is_empty() { 0 } else { visits.parse::<u64>()? };
    ///             *visits = (count + 1).to_string();
    ///             set_controller_reference(map.meta_mut(), owner.meta(), &KindId::of::<ConfigMap>())?;
    ///             Ok(())
    ///         })
    ///         .await?;
    ///     if let Effect::Created(_) = effect {
    ///         tracing::info!("the first visit");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`WriteError::is_conflict`] if the object is another version than `current` by now, or is there after all
    /// ([`is_already_exists`](WriteError::is_already_exists)): a reconcile that ends with it is tried again without
    /// ado. [`WriteError::is_not_found`] if it has gone since.
    ///
    /// Nothing was sent if `edit` fails ([`WriteError::Abandoned`]), or changes the name, namespace, uid,
    /// resourceVersion, type or status, puts another object in place of the given one, changes more than the metadata
    /// of an object from a metadata-only store or longer than `cache.maxObjectBytes`, or anything of one whose metadata
    /// alone is longer or that a transform of the cache has changed ([`WriteError::Malformed`]).
    ///
    /// # Cancel safety
    /// Dropping it may leave the request sent. Look again before you edit again.
    pub async fn ensure(
        &self,
        cx: &impl Authority,
        name: &NamespacedName,
        current: Option<&impl Current>,
        edit: impl FnOnce(&mut K) -> Edited,
    ) -> Result<Effect<K>, WriteError> {
        self.write(cx, name, current, edit, Part::Object, false).await
    }

    /// As [`ensure`](Self::ensure), on the object as the server has it now: for kinds that no cache holds.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure), and those of [`live`]. [`WriteError::Unreadable`] if what the server has is no `K`.
    pub async fn ensure_live(
        &self,
        cx: &impl Authority,
        name: &NamespacedName,
        edit: impl FnOnce(&mut K) -> Edited,
    ) -> Result<Effect<K>, WriteError> {
        let current = live(cx, &self.kind, name).await?;
        self.ensure(cx, name, current.as_ref(), edit).await
    }

    /// Makes the status as `edit` leaves it: as [`ensure`](Self::ensure), through the `status` subresource. A change of
    /// anything else is refused before it is sent.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure).
    pub async fn ensure_status(
        &self,
        cx: &impl Authority,
        name: &NamespacedName,
        current: &impl Current,
        edit: impl FnOnce(&mut K) -> Edited,
    ) -> Result<Effect<K>, WriteError> {
        self.write(cx, name, Some(current), edit, Part::Status, false).await
    }

    /// Returns what [`ensure`](Self::ensure) would come to: admission and validation run, nothing is stored. An edit that
    /// changes nothing is not sent.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure).
    pub async fn dry_run(
        &self,
        cx: &impl Authority,
        name: &NamespacedName,
        current: Option<&impl Current>,
        edit: impl FnOnce(&mut K) -> Edited,
    ) -> Result<Effect<K>, WriteError> {
        self.write(cx, name, current, edit, Part::Object, true).await
    }

    /// Returns what [`ensure_status`](Self::ensure_status) would come to, with nothing stored.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure).
    pub async fn dry_run_status(
        &self,
        cx: &impl Authority,
        name: &NamespacedName,
        current: &impl Current,
        edit: impl FnOnce(&mut K) -> Edited,
    ) -> Result<Effect<K>, WriteError> {
        self.write(cx, name, Some(current), edit, Part::Status, true).await
    }

    async fn write(
        &self,
        cx: &impl Authority,
        name: &NamespacedName,
        current: Option<&impl Current>,
        edit: impl FnOnce(&mut K) -> Edited,
        part: Part,
        dry_run: bool,
    ) -> Result<Effect<K>, WriteError> {
        let verb = if current.is_some() { "patch" } else { "create" };
        let what = attempt(verb, &self.kind, part, name, dry_run);
        let subject = Subject { kind: &self.kind, name, part, what: &what };
        match subject.draft(current, self.start.as_deref(), edit)? {
            Draft::Create(body) => {
                let path = self.kind.collection_path(name.namespace());
                let answer = self.send(cx, Method::POST, &path, body.bytes(), &what, dry_run).await?;
                decode(&what, answer.body()).map(Effect::Created)
            }
            Draft::Patch { before, patch } => {
                let path = address(&self.kind, part, name);
                let body = Bytes::from(patch.to_string());
                let answer = self.send(cx, Method::PATCH, &path, body, &what, dry_run).await?;
                let now: Value = read(&what, answer.body())?;
                // A dry run gives no new version, so the content has to tell.
                let unchanged = if dry_run {
                    has_content(&before, now)
                } else {
                    current.is_some_and(|current| is_version(&now, current))
                };
                effect(&what, &answer, unchanged)
            }
            Draft::Nothing => Ok(Effect::Unchanged),
        }
    }

    async fn send(
        &self,
        cx: &impl Authority,
        method: Method,
        path: &str,
        body: Bytes,
        what: &str,
        dry_run: bool,
    ) -> Result<Response<Bytes>, WriteError> {
        let content_type =
            if method == Method::POST { "application/json" } else { "application/merge-patch+json" };
        let address = format!("{path}?{}", query(&self.field_manager, dry_run, what)?);
        send(cx.client(), request(method, &address, Some(content_type), body, what)?, what).await
    }
}

impl<K> Clone for Patcher<K> {
    fn clone(&self) -> Self {
        Self {
            kind: self.kind.clone(),
            field_manager: Arc::clone(&self.field_manager),
            start: self.start.clone(),
        }
    }
}

impl<K> fmt::Debug for Patcher<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Patcher({} as {})", self.kind, self.field_manager)
    }
}

/// Returns whether an answer says the same as the stored object, apart from what the server keeps account of.
fn has_content(stored: &Value, mut answer: Value) -> bool {
    if let Some(metadata) = answer.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.insert("resourceVersion".to_owned(), stored["metadata"]["resourceVersion"].clone());
    }
    *stored == answer
}

#[cfg(test)]
mod tests;
