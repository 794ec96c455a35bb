//! Holds an object back from going until its controller has cleaned up behind it.
//!
//! A finalizer is a name in `metadata.finalizers`: a deletion only marks the object, which goes once the list is
//! empty. [`Finalizer::add`] and [`Finalizer::remove`] change the list at the server, with one merge patch that carries
//! the uid and the resourceVersion the list was read at. Who meets a conflict looks at the live object once and tries
//! again on it; a second conflict is the caller's.
//!
//! Rights: `patch` on the resource itself, and `get` for that look; without `get` the first conflict is the caller's.
//! The subresource `finalizers` is about owner references and plays no part.
//!
//! # Invariants
//! 1. The list that is written is the stored one with one name more or one less: nobody else's finalizer is lost or
//!    brought back.
//! 2. An object that took the name of the given one is not touched.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use serde_json::json;

use crate::key::{KindId, is_dns_subdomain};

use super::apply::Authority;
use super::call::{call, request};
use super::current::{live, look_at};
use super::error::WriteError;
use super::owner::name_of;

/// Longest domain of a finalizer, in bytes: that of a DNS name.
const MAX_DOMAIN: usize = 253;
/// Longest part after the slash, in bytes: the API's limit for qualified names.
const MAX_NAME: usize = 63;

/// The name under which one controller holds objects back, such as `greeter.example.com/cleanup`. Cheap to clone.
///
/// ```
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
/// use mainstay::client::Finalizer;
///
/// let finalizer = Finalizer::new("greeter.example.com/cleanup")?;
/// let mut meta = ObjectMeta::default();
/// assert!(finalizer.add_to(&mut meta), "it was not there");
/// assert!(!finalizer.add_to(&mut meta), "it was there");
///
/// let mistake = Finalizer::new("cleanup").unwrap_err();
/// assert_eq!(
///     mistake.to_string(),
///     "finalizer \"cleanup\" has no domain; write it as domain/name, such as greeter.example.com/cleanup"
/// );
/// # Ok::<(), mainstay::client::InvalidFinalizer>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Finalizer(Arc<str>);

/// A text that cannot be a finalizer. It has to be changed.
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
    /// The list of finalizers is now as wanted, and was not before.
    Changed,
    /// The list was as wanted already.
    Already,
    /// The object has gone or was replaced by another of its name; or the finalizer was to be added, and the object is
    /// being deleted: it cannot be held back any more.
    TooLate,
}

/// A change of the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edit {
    Add,
    Remove,
}

// === impl Finalizer ===

impl Finalizer {
    /// Takes a name of the form `domain/name`. The API server would take others and warn; they could be anybody's.
    ///
    /// # Errors
    /// Fails if there is no domain, or a part is empty, too long or has characters that the API does not allow.
    pub fn new(name: &str) -> Result<Self, InvalidFinalizer> {
        match fault(name) {
            None => Ok(Self(name.into())),
            Some(why) => Err(InvalidFinalizer { name: name.to_owned(), why }),
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Returns whether a list of finalizers has this one.
    pub fn is_in(&self, finalizers: &[impl AsRef<str>]) -> bool {
        finalizers.iter().any(|one| one.as_ref() == self.name())
    }

    /// Puts the finalizer on an object that is yet to be written. Returns whether that changed it.
    pub fn add_to(&self, meta: &mut ObjectMeta) -> bool {
        let finalizers = meta.finalizers.get_or_insert_default();
        let missing = !self.is_in(finalizers);
        if missing {
            finalizers.push(self.name().to_owned());
        }
        missing
    }

    /// Takes the finalizer off an object that is yet to be written. Returns whether that changed it.
    pub fn remove_from(&self, meta: &mut ObjectMeta) -> bool {
        let Some(finalizers) = &mut meta.finalizers else { return false };
        let before = finalizers.len();
        finalizers.retain(|one| one != self.name());
        finalizers.len() != before
    }

    /// Puts the finalizer on the stored object. `object` is its metadata as last read; if that has the finalizer,
    /// nothing is sent.
    ///
    /// # Errors
    /// As [`Applier::apply`](super::Applier::apply). A conflict means that others change the object all the time; the
    /// object has gone is no error.
    ///
    /// # Cancel safety
    /// Dropping it may leave the request sent; adding again is safe.
    pub async fn add(
        &self,
        cx: &impl Authority,
        kind: &KindId,
        object: &ObjectMeta,
    ) -> Result<Edited, WriteError> {
        self.edit(cx, kind, object, Edit::Add).await
    }

    /// Takes the finalizer off the stored object, which may go with it. Returns whether that changed it: false if the
    /// finalizer or the object was no longer there. `object` is its metadata as last read.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    /// Dropping it may leave the request sent; removing again is safe.
    pub async fn remove(
        &self,
        cx: &impl Authority,
        kind: &KindId,
        object: &ObjectMeta,
    ) -> Result<bool, WriteError> {
        Ok(matches!(self.edit(cx, kind, object, Edit::Remove).await?, Edited::Changed))
    }

    /// Edits the object as given and, if somebody was faster, as it is.
    async fn edit(
        &self,
        cx: &impl Authority,
        kind: &KindId,
        object: &ObjectMeta,
        edit: Edit,
    ) -> Result<Edited, WriteError> {
        let conflict = match self.patch(cx, kind, object, edit).await {
            Err(error) if error.is_conflict() => error,
            settled => return settled,
        };
        match look(cx, kind, object).await {
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
        let malformed = |why: String| WriteError::Malformed { what: what.clone(), why };
        let read = |field: &Option<String>, path: &str| {
            let value = field.clone().filter(|value| !value.is_empty());
            value.ok_or_else(|| {
                malformed(format!("the object has no {path}; use it as the API server gave it"))
            })
        };
        read(&object.name, "metadata.name")?;
        wanted.uid = Some(read(&object.uid, "metadata.uid")?);
        wanted.resource_version = Some(read(&object.resource_version, "metadata.resourceVersion")?);
        let body = Bytes::from(json!({"metadata": wanted}).to_string());
        let content_type = Some("application/merge-patch+json");
        let request = request(Method::PATCH, &kind.object_path(&name), content_type, body, &what)?;
        match call(cx.client(), request, &what).await {
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

impl fmt::Debug for Finalizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Finalizer({self})")
    }
}

/// Reads the metadata of an object at the server; `None` if it has gone, or another has taken its name.
async fn look(
    cx: &impl Authority,
    kind: &KindId,
    object: &ObjectMeta,
) -> Result<Option<ObjectMeta>, WriteError> {
    let name = name_of(object);
    let Some(live) = live(cx, kind, &name).await? else { return Ok(None) };
    let live: PartialObjectMeta =
        live.decode().map_err(|source| WriteError::Undecodable { what: look_at(kind, &name), source })?;
    Ok(Some(live.metadata).filter(|live| live.uid == object.uid))
}

/// Says what is wrong with a name.
fn fault(name: &str) -> Option<&'static str> {
    let Some((domain, rest)) = name.split_once('/') else { return Some("has no domain") };
    let edged = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if domain.len() > MAX_DOMAIN {
        Some("has a domain of more than 253 characters")
    } else if !is_dns_subdomain(domain) {
        Some("has no valid domain before the slash (lower-case letters, digits, hyphens and dots)")
    } else if rest.len() > MAX_NAME {
        Some("has more than 63 characters after the slash")
    } else if !edged(rest) || !rest.chars().all(is_word) {
        Some("has no valid name after the slash (letters, digits, hyphens, underscores and dots)")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
