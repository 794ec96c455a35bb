//! Keeps an object from being deleted until its controller has cleaned up.
//!
//! A finalizer is a name in `metadata.finalizers`: a deletion only marks the object, which is removed once
//! the list is empty. [`Finalizer::add`] and [`Finalizer::remove`] change the stored list with one merge
//! patch that carries the uid and resourceVersion of the object that was read. After a conflict they read the
//! live object once and retry; a second conflict is returned.
//!
//! Rights: `patch` on the resource itself, and `get` for that read; without `get` the first conflict is
//! returned. The subresource `finalizers` concerns owner references and is not used.
//!
//! # Invariants
//! 1. The written list is the stored one with one name added or removed: finalizers of other controllers are
//!    neither removed nor restored.
//! 2. A newer object of the same name is never changed.

use std::fmt;
use std::sync::Arc;

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use serde_json::json;

use crate::key::{KindId, is_dns_subdomain};

use super::apply::Authority;
use super::call::{MERGE_PATCH, send};
use super::current::{live, read_of};
use super::error::WriteError;
use super::owner::name_of;

/// Longest domain of a finalizer, in bytes: the limit of a DNS name.
const MAX_DOMAIN: usize = 253;
/// Longest part of a finalizer after the slash, in bytes: the API's limit for qualified names.
const MAX_NAME: usize = 63;

/// The name of one controller's finalizer, such as `greeter.example.com/cleanup`. Cheap to clone.
///
/// ```
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
/// use mainstay::client::Finalizer;
///
/// let finalizer = Finalizer::new("greeter.example.com/cleanup")?;
/// let mut meta = ObjectMeta::default();
/// assert!(finalizer.add_to(&mut meta), "newly added");
/// assert!(!finalizer.add_to(&mut meta), "already present");
///
/// let mistake = Finalizer::new("cleanup").unwrap_err();
/// assert_eq!(
///     mistake.to_string(),
///     "finalizer \"cleanup\" has no domain; write it as domain/name, such as greeter.example.com/cleanup"
/// );
/// # Ok::<(), mainstay::client::InvalidFinalizer>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, derive_more::Debug)]
#[debug("Finalizer({})", self)]
pub struct Finalizer(Arc<str>);

/// The error for a text that is no valid name of a finalizer. A retry does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("finalizer {name:?} {why}; write it as domain/name, such as greeter.example.com/cleanup")]
pub struct InvalidFinalizer {
    name: String,
    why: &'static str,
}

/// The result of adding or removing a finalizer.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edited {
    /// The stored list of finalizers was changed.
    Changed,
    /// The stored list of finalizers was already as wanted and was not written.
    Already,
    /// The object was deleted or replaced by another one of its name. Also: a finalizer was to be added to an
    /// object that is being deleted, which the API server no longer allows.
    TooLate,
}

/// A change of an object's list of finalizers: one is added or removed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edit {
    Add,
    Remove,
}

// === impl Finalizer ===

impl Finalizer {
    /// Makes a finalizer from a name of the form `domain/name`. The API server accepts other names with a
    /// warning, but two controllers could choose the same one.
    ///
    /// # Errors
    /// Fails if there is no domain, or a part is empty, too long or has characters that the API does not
    /// allow.
    pub fn new(name: &str) -> Result<Self, InvalidFinalizer> {
        match why_invalid(name) {
            None => Ok(Self(name.into())),
            Some(why) => Err(InvalidFinalizer { name: name.to_owned(), why }),
        }
    }

    /// Returns the name of the finalizer, such as `greeter.example.com/cleanup`.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Returns whether this finalizer is in a list of finalizers.
    pub fn is_in(&self, finalizers: &[impl AsRef<str>]) -> bool {
        finalizers.iter().any(|one| one.as_ref() == self.name())
    }

    /// Adds the finalizer to an object's metadata in memory, without a request. Returns whether the list
    /// changed.
    pub fn add_to(&self, meta: &mut ObjectMeta) -> bool {
        let finalizers = meta.finalizers.get_or_insert_default();
        let missing = !self.is_in(finalizers);
        if missing {
            finalizers.push(self.name().to_owned());
        }
        missing
    }

    /// Removes the finalizer from an object's metadata in memory, without a request. Returns whether the list
    /// changed.
    pub fn remove_from(&self, meta: &mut ObjectMeta) -> bool {
        let Some(finalizers) = &mut meta.finalizers else { return false };
        let before = finalizers.len();
        finalizers.retain(|one| one != self.name());
        finalizers.len() != before
    }

    /// Adds the finalizer to the stored object. `object` is its metadata as last read; if the finalizer is
    /// there, no request is sent.
    ///
    /// # Errors
    /// As [`Applier::apply`](super::Applier::apply). A conflict means that the object changed twice in the
    /// meantime. A deleted object is no error but [`Edited::TooLate`].
    ///
    /// # Cancel safety
    /// After the future is dropped the write may still happen; adding again is safe.
    pub async fn add(
        &self,
        cx: &impl Authority,
        kind: &KindId,
        object: &ObjectMeta,
    ) -> Result<Edited, WriteError> {
        self.edit(cx, kind, object, Edit::Add).await
    }

    /// Removes the finalizer from the stored object, which may delete the object. Returns false if the
    /// finalizer or the object no longer existed. `object` is its metadata as last read.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    /// After the future is dropped the write may still happen; removing again is safe.
    pub async fn remove(
        &self,
        cx: &impl Authority,
        kind: &KindId,
        object: &ObjectMeta,
    ) -> Result<bool, WriteError> {
        Ok(matches!(self.edit(cx, kind, object, Edit::Remove).await?, Edited::Changed))
    }

    /// Adds or removes the finalizer with a patch of the object as given and, after a conflict, once more of
    /// the live object.
    async fn edit(
        &self,
        cx: &impl Authority,
        kind: &KindId,
        object: &ObjectMeta,
        edit: Edit,
    ) -> Result<Edited, WriteError> {
        let conflict = match self.patch(cx, kind, object, edit).await {
            Err(error) if error.is_conflict() => error,
            result => return result,
        };
        match read_live(cx, kind, object).await {
            Ok(Some(live)) => self.patch(cx, kind, &live, edit).await,
            Ok(None) => Ok(Edited::TooLate),
            Err(error) if error.is_forbidden() => Err(conflict),
            Err(error) => Err(error),
        }
    }

    async fn patch(
        &self,
        cx: &impl Authority,
        kind: &KindId,
        object: &ObjectMeta,
        edit: Edit,
    ) -> Result<Edited, WriteError> {
        if edit == Edit::Add && object.deletion_timestamp.is_some() {
            return Ok(Edited::TooLate);
        }
        let mut wanted = ObjectMeta { finalizers: object.finalizers.clone(), ..ObjectMeta::default() };
        let changed =
            if edit == Edit::Add { self.add_to(&mut wanted) } else { self.remove_from(&mut wanted) };
        if !changed {
            return Ok(Edited::Already);
        }
        let name = name_of(object);
        let verb = if edit == Edit::Add { "add" } else { "removal" };
        let what = format!("{verb} of finalizer {self} at {kind} {name}");
        let require = |field: &Option<String>, path: &str| {
            let value = field.clone().filter(|value| !value.is_empty());
            let why = format!("the object has no {path}; use it as the API server returned it");
            value.ok_or_else(|| WriteError::Malformed { what: what.clone(), why })
        };
        require(&object.name, "metadata.name")?;
        wanted.uid = Some(require(&object.uid, "metadata.uid")?);
        wanted.resource_version = Some(require(&object.resource_version, "metadata.resourceVersion")?);
        let body = Some((MERGE_PATCH, json!({"metadata": wanted}).to_string().into()));
        match send(cx.client(), Method::PATCH, &kind.object_path(&name), body, &what).await {
            Ok(_) => Ok(Edited::Changed),
            Err(error) if error.is_not_found() => Ok(Edited::TooLate),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Display for Finalizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads the metadata of an object from the API server; `None` if the object was deleted or replaced by
/// another one.
async fn read_live(
    cx: &impl Authority,
    kind: &KindId,
    object: &ObjectMeta,
) -> Result<Option<ObjectMeta>, WriteError> {
    let name = name_of(object);
    let Some(live) = live(cx, kind, &name).await? else { return Ok(None) };
    let live: PartialObjectMeta =
        live.decode().map_err(|source| WriteError::Undecodable { what: read_of(kind, &name), source })?;
    Ok(Some(live.metadata).filter(|live| live.uid == object.uid))
}

/// Returns the reason why the name of a finalizer is invalid; `None` if it is valid.
fn why_invalid(name: &str) -> Option<&'static str> {
    let Some((domain, rest)) = name.split_once('/') else { return Some("has no domain") };
    let is_edge = |c: char| c.is_ascii_alphanumeric();
    let is_word = |c: char| is_edge(c) || matches!(c, '-' | '_' | '.');
    if domain.len() > MAX_DOMAIN {
        Some("has a domain of more than 253 characters")
    } else if !is_dns_subdomain(domain) {
        Some("has no valid domain before the slash (lower-case letters, digits, hyphens and dots)")
    } else if rest.len() > MAX_NAME {
        Some("has more than 63 characters after the slash")
    } else if !rest.starts_with(is_edge) || !rest.ends_with(is_edge) || !rest.chars().all(is_word) {
        Some("has no valid name after the slash (letters, digits, hyphens, underscores and dots)")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
