//! Create-or-patch of one kind: read, edit, write the difference.
//!
//! For controllers that change some fields of a shared object but cannot list their fields for server-side
//! apply: counters, lists with elements of several writers, values that depend on the present ones. A
//! controller that knows all of its fields in advance should [apply](super::Applier) them instead.
//!
//! The request is a JSON merge patch; fields that the patch does not name stay. It replaces lists as a whole
//! and is therefore always for one version: an edit of an older version gets a conflict, and the next
//! reconcile edits the newer one.
//!
//! Differs from controllerutil's `CreateOrPatch`, which writes the status in a second request and without a
//! version as condition, and drops fields unknown to its type from the elements of lists.

mod carry;
mod draft;
mod merge;

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::key::{Key as _, KindId, NamespacedName};

use super::apply::{Authority, decode, effect, is_version, read};
use super::call::{MERGE_PATCH, Part, address, attempt, query, send};
use super::current::{Current, live};
use super::effect::Effect;
use super::error::WriteError;

use self::draft::{Draft, EditResult, EditTarget, InitialObject};

/// Creates and patches objects of one kind. Usable only with an [`Authority`]. Cheap to clone.
///
/// Needs the verbs `create` and `patch`, and `get` for [`ensure_live`](Self::ensure_live).
#[doc(alias = "CreateOrPatch")]
#[doc(alias = "CreateOrUpdate")]
#[derive(derive_more::Debug)]
#[debug("Patcher({} as {})", self.kind, self.field_manager)]
pub struct Patcher<K> {
    kind: KindId,
    field_manager: Arc<str>,
    initial: Option<Arc<InitialObject<K>>>,
}

// === impl Patcher ===

impl<K> Patcher<K> {
    /// Makes a patcher for objects of one kind. `kubectl get --show-managed-fields` shows the field manager
    /// beside the fields that the patcher wrote.
    pub fn new(kind: KindId, field_manager: impl Into<Arc<str>>) -> Self {
        Self { kind, field_manager: field_manager.into(), initial: None }
    }

    /// Sets the function that makes the object to edit when a new one is created; its name is filled in. By
    /// default a new object has only a name, which is not enough for a type with required fields.
    #[must_use]
    pub fn starting_from(self, start: impl Fn() -> K + Send + Sync + 'static) -> Self {
        Self { initial: Some(Arc::new(start)), ..self }
    }

    /// Returns the kind of the objects that this patcher writes.
    pub fn kind(&self) -> &KindId {
        &self.kind
    }
}

impl<K: Serialize + DeserializeOwned> Patcher<K> {
    /// Creates or patches an object, without its status, to be as `edit` leaves it. Sends no request if
    /// `edit` changes no field.
    ///
    /// `current` is the object called `name` as last read; `None` if it does not exist. `edit` gets it
    /// decoded and changes some of its fields; an object that does not exist is created with them. Fields
    /// unknown to `K` stay, in the elements of lists too. `edit` is called once and should be quick.
    ///
    /// ```no_run
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::Resource as _;
    /// use mainstay::cache::Store;
    /// use mainstay::client::{Effect, Patcher, set_controller_reference};
    /// use mainstay::key::{KindId, NamespacedName};
    /// use mainstay::reconcile::{Context, ReconcileError};
    ///
    /// /// Counts visits in a `ConfigMap` that has other keys too.
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
    /// [`WriteError::is_conflict`] if the stored object is no longer the version of `current`, or exists
    /// already ([`is_already_exists`](WriteError::is_already_exists)): return it from the reconcile, which is
    /// then retried. [`WriteError::is_not_found`] if the object was deleted since it was read.
    ///
    /// No request is sent if `edit` fails ([`WriteError::Abandoned`]), or makes an edit that is not allowed
    /// ([`WriteError::Malformed`]):
    /// - of the name, namespace, uid, resourceVersion, type or status, or by replacing the whole object
    /// - of more than the metadata of an object from a metadata-only store, or longer than
    ///   `cache.maxObjectBytes`
    /// - of any field if the metadata alone is too long, or if a transform of the cache has changed the
    ///   object
    ///
    /// # Cancel safety
    /// After the future is dropped the write may still happen. Read the object again before the next edit.
    pub async fn ensure(
        &self,
        cx: &impl Authority,
        name: &NamespacedName,
        current: Option<&impl Current>,
        edit: impl FnOnce(&mut K) -> EditResult,
    ) -> Result<Effect<K>, WriteError> {
        self.write(cx, name, current, edit, Part::Object, false).await
    }

    /// Creates or patches an object to be as `edit` leaves it, as [`ensure`](Self::ensure), but reads the
    /// object from the API server first: for kinds that no cache holds.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure) and [`live`]. [`WriteError::Unreadable`] if the stored object does not fit
    /// `K`.
    pub async fn ensure_live(
        &self,
        cx: &impl Authority,
        name: &NamespacedName,
        edit: impl FnOnce(&mut K) -> EditResult,
    ) -> Result<Effect<K>, WriteError> {
        let current = live(cx, &self.kind, name).await?;
        self.ensure(cx, name, current.as_ref(), edit).await
    }

    /// Patches the status to be as `edit` leaves it: as [`ensure`](Self::ensure), through the `status`
    /// subresource. An edit of any other field is [`WriteError::Malformed`], without a request.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure).
    pub async fn ensure_status(
        &self,
        cx: &impl Authority,
        name: &NamespacedName,
        current: &impl Current,
        edit: impl FnOnce(&mut K) -> EditResult,
    ) -> Result<Effect<K>, WriteError> {
        self.write(cx, name, Some(current), edit, Part::Status, false).await
    }

    /// Returns the effect that [`ensure`](Self::ensure) would have: admission and validation run, but no
    /// object is stored. Sends no request if `edit` changes no field.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure).
    pub async fn dry_run(
        &self,
        cx: &impl Authority,
        name: &NamespacedName,
        current: Option<&impl Current>,
        edit: impl FnOnce(&mut K) -> EditResult,
    ) -> Result<Effect<K>, WriteError> {
        self.write(cx, name, current, edit, Part::Object, true).await
    }

    /// Returns the effect that [`ensure_status`](Self::ensure_status) would have: sends a dry run, which
    /// stores no object.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure).
    pub async fn dry_run_status(
        &self,
        cx: &impl Authority,
        name: &NamespacedName,
        current: &impl Current,
        edit: impl FnOnce(&mut K) -> EditResult,
    ) -> Result<Effect<K>, WriteError> {
        self.write(cx, name, Some(current), edit, Part::Status, true).await
    }

    async fn write(
        &self,
        cx: &impl Authority,
        name: &NamespacedName,
        current: Option<&impl Current>,
        edit: impl FnOnce(&mut K) -> EditResult,
        part: Part,
        dry_run: bool,
    ) -> Result<Effect<K>, WriteError> {
        let verb = if current.is_some() { "patch" } else { "create" };
        let what = attempt(verb, &self.kind, part, name, dry_run);
        let target = EditTarget { kind: &self.kind, name, part, what: &what };
        let draft = target.draft(current, self.initial.as_deref(), edit)?;
        let (method, path, content_type, body) = match &draft {
            Draft::Unchanged => return Ok(Effect::Unchanged),
            Draft::Create(body) => {
                (Method::POST, self.kind.collection_path(name.namespace()), "application/json", body.bytes())
            }
            Draft::Patch { patch, .. } => {
                (Method::PATCH, address(&self.kind, part, name), MERGE_PATCH, Bytes::from(patch.to_string()))
            }
        };
        let address = format!("{path}?{}", query(&self.field_manager, dry_run, &what)?);
        let answer = send(cx.client(), method, &address, Some((content_type, body)), &what).await?;
        let Draft::Patch { before, .. } = draft else {
            return decode(&what, answer.body()).map(Effect::Created);
        };
        let now: Value = read(&what, answer.body())?;
        // A dry run makes no new version, so the content is compared.
        let unchanged = if dry_run {
            has_content(&before, now)
        } else {
            current.is_some_and(|current| is_version(&now, current))
        };
        effect(&what, &answer, unchanged)
    }
}

impl<K> Clone for Patcher<K> {
    fn clone(&self) -> Self {
        Self {
            kind: self.kind.clone(),
            field_manager: Arc::clone(&self.field_manager),
            initial: self.initial.clone(),
        }
    }
}

/// Returns whether the object in the response to a dry run equals the stored one, apart from managedFields
/// and resourceVersion.
fn has_content(stored: &Value, mut answer: Value) -> bool {
    if let Some(metadata) = answer.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.insert("resourceVersion".to_owned(), stored["metadata"]["resourceVersion"].clone());
    }
    *stored == answer
}

#[cfg(test)]
mod tests;
