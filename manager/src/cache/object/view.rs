//! One version of one object, shared by all who look at it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::body::Body;
use super::dictionary::Damage;
use super::home::Home;
use super::meta::Meta;
use super::scan;
use crate::client::{Current, Extent};
use crate::key::{KindId, NamespacedName, ObjectKey};

/// One version of one object: slim metadata at hand, the body decoded when asked for. Cheap to clone.
#[derive(Clone)]
pub struct View(Arc<Version>);

pub(in crate::cache) struct Version {
    home: Arc<Home>,
    meta: Meta,
    body: Body,
}

/// Why a read gave nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The first list is not complete. A retry helps once it is; controllers are started after that.
    #[error("the cache of {kind} ({scope}) has not synced yet; wait for it before reading")]
    NotSynced {
        /// The kind.
        kind: KindId,
        /// What the store holds of it.
        scope: String,
    },
    /// The store does not hold what was asked for. A retry does not help; widen the scope.
    #[error("{asked} of {kind} is outside the cache's scope ({scope}); declare the store with a wider scope")]
    OutOfScope {
        /// The kind.
        kind: KindId,
        /// What was asked for.
        asked: String,
        /// What the store holds.
        scope: String,
    },
    /// The handle has no index of this name. A retry does not help; declare it first.
    #[error(
        "this handle of the cache of {kind} has no index {index:?}; declare it with index() before reading by it"
    )]
    UnknownIndex {
        /// The kind.
        kind: KindId,
        /// What was asked for.
        index: String,
    },
    /// The object is there but is not what the type expects. A retry helps once the object has changed.
    #[error("{object} does not decode; correct the object or the type it is read as")]
    Decode {
        /// The object.
        object: ObjectKey,
        /// Where it failed.
        #[source]
        source: serde_json::Error,
    },
    /// The object is there but longer than is kept, or than the handle reads: only its metadata can be read, and where
    /// that is longer than `cache.maxObjectBytes` by itself, only its identity. A retry helps once the object has changed.
    #[error("{object} has {size} bytes, more than {limit}; shrink it, or raise cache.maxObjectBytes")]
    TooLarge {
        /// The object.
        object: ObjectKey,
        /// Bytes of the object as JSON, without managedFields.
        size: usize,
        /// Most bytes that are read of it.
        limit: usize,
    },
    /// The object is there but its kept form is not readable any more. A retry helps once the object has changed.
    #[error("{object} cannot be read from memory; restart the process")]
    Damaged {
        /// The object.
        object: ObjectKey,
        /// What is wrong with it.
        #[source]
        source: Damage,
    },
}

// === impl View ===

impl View {
    pub(in crate::cache) fn new(home: Arc<Home>, meta: Meta, body: Bytes) -> Self {
        Self(Arc::new(Version { home, meta, body: Body::plain(body) }))
    }

    /// Returns whether both are handles of one and the same version.
    pub(in crate::cache) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns what is known without decoding.
    pub fn meta(&self) -> &Meta {
        &self.0.meta
    }

    /// Returns the body: JSON without managedFields, and only `metadata` in a metadata-only store.
    ///
    /// # Errors
    /// Fails when the object is too large to be kept, and when the kept form is damaged.
    pub fn bytes(&self) -> Result<Bytes, ReadError> {
        self.check_size(0)?;
        self.0.body.bytes().map_err(|source| self.damaged(source))
    }

    /// Returns the namespace and name.
    pub fn request(&self) -> &NamespacedName {
        &self.0.meta.request
    }

    /// Returns the kind.
    pub fn kind(&self) -> &KindId {
        &self.0.home.kind
    }

    /// Returns kind, namespace and name.
    pub fn object_key(&self) -> ObjectKey {
        ObjectKey { kind: self.0.home.kind.clone(), request: self.0.meta.request.clone() }
    }

    /// Reads one annotation from the body. Costs a walk over it: look at [`Meta::annotations_hash`] first.
    pub fn annotation(&self, name: &str) -> Option<String> {
        if self.0.meta.annotations_hash == 0 {
            return None;
        }
        self.0.body.read(|json| scan::annotation(json, name)).ok().flatten()
    }

    /// Decodes the body. Who reads one version at about the same time, as the same type, is given the same `Arc`.
    ///
    /// # Errors
    /// Fails when the object is too large to be kept, when the body is not a `T`, and when its kept form is damaged; it
    /// stays so until the object changes.
    pub fn decode<T: DeserializeOwned + Send + Sync + 'static>(&self) -> Result<Arc<T>, ReadError> {
        self.check_size(0)?;
        let recent = &self.0.home.recent;
        if let Some(known) = recent.find(&self.0) {
            return Ok(known);
        }
        let decoded = self.0.body.read(|json| (json.len(), serde_json::from_slice::<T>(json)));
        let (bytes, decoded) = decoded.map_err(|source| self.damaged(source))?;
        let decoded = decoded.map_err(|source| ReadError::Decode { object: self.object_key(), source })?;
        Ok(recent.share(&self.0, Arc::new(decoded), bytes))
    }

    /// Fails for an object of which only metadata is kept, and for one longer than `limit`; 0 = no limit.
    pub(in crate::cache) fn check_size(&self, limit: usize) -> Result<(), ReadError> {
        let (size, kept) = match self.0.meta.extent {
            Extent::TooLarge { size, .. } => (usize::try_from(size).unwrap_or(usize::MAX), false),
            _ => (self.0.body.plain_len(), true),
        };
        if kept && (limit == 0 || size <= limit) {
            return Ok(());
        }
        let limit = if limit == 0 { self.0.home.max_object_bytes } else { limit };
        Err(ReadError::TooLarge { object: self.object_key(), size, limit })
    }

    pub(in crate::cache) fn is_too_large(&self) -> bool {
        matches!(self.0.meta.extent, Extent::TooLarge { .. })
    }

    fn damaged(&self, source: Damage) -> ReadError {
        ReadError::Damaged { object: self.object_key(), source }
    }

    pub(in crate::cache) fn body(&self) -> &Body {
        &self.0.body
    }

    /// Returns whether anybody but the caller has a handle.
    pub(in crate::cache) fn is_held_elsewhere(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Bytes this version keeps alive: the body and the fixed parts of the metadata.
    pub(in crate::cache) fn cost(&self) -> usize {
        self.0.body.len() + size_of::<Version>()
    }
}

impl Current for View {
    fn uid(&self) -> Cow<'_, str> {
        Cow::Owned(self.0.meta.uid.to_string())
    }

    fn resource_version(&self) -> Cow<'_, str> {
        Cow::Owned(self.0.meta.resource_version.to_string())
    }

    fn json(&self) -> Bytes {
        // Nothing is no object either: whoever reads it says which one it was.
        self.0.body.bytes().unwrap_or_default()
    }

    fn extent(&self) -> Extent {
        self.0.meta.extent
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}@{}", self.0.home.kind, self.0.meta.request, self.0.meta.resource_version)
    }
}
