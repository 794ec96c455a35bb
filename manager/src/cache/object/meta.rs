//! What the cache knows about an object without decoding it.
//!
//! The part of an object that every version of it keeps at hand, because handlers, predicates and selections look at
//! it without a decode. It is read from the raw bytes by `scan`.

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

/// The slim metadata of one version of one object.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Meta {
    /// Namespace and name.
    pub request: NamespacedName,
    /// Tells an object from an earlier one of the same name.
    pub uid: Uid,
    /// The write that made this version.
    pub resource_version: ResourceVersion,
    /// Counts changes of the desired state; `None` for kinds that have no generation.
    pub generation: Option<i64>,
    /// The labels, by key.
    pub labels: Labels,
    /// Whose child it is. One list for all objects of the store that have the same owners.
    pub owners: Arc<[Owner]>,
    /// How much of the object the body is. `content_hash` and `status_hash` are of the whole object even where
    /// [`Extent::TooLarge`] says that it is not kept.
    pub extent: Extent,
    /// Whether its deletion was asked for and waits for finalizers or a grace period.
    pub deleting: bool,
    /// Who wants to act before it goes.
    pub finalizers: Arc<[Arc<str>]>,
    /// Changes when an annotation does; 0 without annotations.
    pub annotations_hash: u64,
    /// Whether [`PAUSED_ANNOTATION`] says `true`.
    pub paused: bool,
    /// Changes when [`RECONCILE_AT_ANNOTATION`] does; 0 without it.
    pub reconcile_at_hash: u64,
    /// Changes when anything outside `metadata` and `status` does; 0 in a metadata-only store.
    pub content_hash: u64,
    /// Changes when `status` does; 0 without one.
    pub status_hash: u64,
}

/// One owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The owner's uid.
    pub uid: Uid,
    /// Its `group/version`.
    pub api_version: Arc<str>,
    /// Its kind.
    pub kind: Arc<str>,
    /// Its name; an owner lives in the same namespace or in none.
    pub name: Arc<str>,
    /// Whether it is the one that manages the object.
    pub controller: bool,
}

/// The labels of one object, sorted by key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Labels(pub(super) Arc<[Label]>);

pub(super) type Label = (Arc<str>, Arc<str>);

// === impl Labels ===

impl Labels {
    /// Returns the value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(have, _)| have.as_ref().cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value.as_ref())
    }

    /// Goes through the labels by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
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
    /// Returns the owner that manages the object.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }

    /// Returns the namespace, if it lives in one.
    pub fn namespace(&self) -> Option<&str> {
        self.request.namespace()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.request.name()
    }
}

#[cfg(test)]
mod tests;
