//! The metadata of an object that the cache reads without decoding the body.
//!
//! Every version holds it uncompressed, because handlers, predicates and selections read it. `scan` extracts
//! it from the raw bytes.

pub(super) mod pool;
mod uid;
mod version;

use std::fmt;
use std::sync::Arc;

#[cfg(doc)]
use super::{PAUSED_ANNOTATION, RECONCILE_AT_ANNOTATION};
use crate::client::Extent;
use crate::key::{Key, NamespacedName};

pub use uid::Uid;
pub use version::ResourceVersion;

/// The metadata of one version of one object, which is read without decoding the object.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Meta {
    /// Namespace and name of the object.
    pub request: NamespacedName,
    /// Uid of the object, which distinguishes it from earlier ones of the same name.
    pub uid: Uid,
    /// The resourceVersion that the API server assigned to this version of the object.
    pub resource_version: ResourceVersion,
    /// Generation of the object, which counts changes of its desired state; `None` for kinds without a
    /// generation.
    pub generation: Option<i64>,
    /// The labels of the object, sorted by key.
    pub labels: Labels,
    /// The owner references of the object. Objects of the store with the same owners share one list.
    pub owners: Arc<[Owner]>,
    /// The part of the object that the cache keeps as its body. `content_hash` and `status_hash` cover the
    /// whole object even if [`Extent::TooLarge`] shows that the body is not kept.
    pub extent: Extent,
    /// Whether the deletion of the object was requested and waits for finalizers or a grace period.
    pub deleting: bool,
    /// The finalizers, which delay the deletion of the object.
    pub finalizers: Arc<[Arc<str>]>,
    /// A hash of the object's annotations, as the transform of the store left them; 0 without annotations.
    pub annotations_hash: u64,
    /// Whether the object is paused: its [`PAUSED_ANNOTATION`] is `true`.
    pub paused: bool,
    /// A hash of the value of the object's [`RECONCILE_AT_ANNOTATION`]; 0 without it.
    pub reconcile_at_hash: u64,
    /// A hash of all fields of the object outside `metadata` and `status`; 0 in a metadata-only store.
    pub content_hash: u64,
    /// A hash of the object's `status`, as the transform of the store left it; 0 without one and in a
    /// metadata-only store.
    pub status_hash: u64,
}

/// One owner reference of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The owner's uid.
    pub uid: Uid,
    /// The owner's `group/version`.
    pub api_version: Arc<str>,
    /// The owner's kind.
    pub kind: Arc<str>,
    /// The owner's name. The owner is in the same namespace, or cluster-scoped.
    pub name: Arc<str>,
    /// Whether this owner is the managing controller of the object.
    pub controller: bool,
}

/// The labels of one object, sorted by key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Labels(pub(super) Arc<[Label]>);

pub(super) type Label = (Arc<str>, Arc<str>);

// === impl Labels ===

impl Labels {
    /// Returns the value of the label `key`; `None` if the object has no such label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(have, _)| have.as_ref().cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value.as_ref())
    }

    /// Iterates over the labels in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    /// Returns whether the object has no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

// === impl Meta ===

impl Meta {
    /// Returns the owner of the object that is its managing controller; `None` without one.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }

    /// Returns whether both versions are of one object and have the same generation, labels, annotations,
    /// finalizers, owners and request for deletion. Fields outside `metadata` may differ.
    pub(crate) fn has_same_metadata(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.generation == other.generation
            && self.labels == other.labels
            && self.annotations_hash == other.annotations_hash
            && self.finalizers == other.finalizers
            && self.owners == other.owners
            && self.deleting == other.deleting
    }

    /// Returns the namespace of the object; `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.request.namespace()
    }

    /// Returns the name of the object.
    pub fn name(&self) -> &str {
        self.request.name()
    }
}

#[cfg(test)]
mod tests;
