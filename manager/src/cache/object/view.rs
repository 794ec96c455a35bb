//! One version of one object, shared by all readers.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::body::Body;
use super::meta::pool::Pool;
use super::recent::Recent;
use super::{Damage, Meta, scan};
use crate::client::{Current, Extent};
use crate::key::{KindId, NamespacedName, ObjectKey};

/// A view of one version of one object in a store. Its metadata is always available; its body is decoded on
/// demand. Cheap to clone.
#[derive(Clone, derive_more::Debug)]
#[debug("{} {}@{}", self.0.context.kind, self.0.meta.request, self.0.meta.resource_version)]
pub struct View(Arc<Version>);

/// The data of one version of one object, which all handles of the version share.
pub(crate) struct Version {
    context: Arc<StoreContext>,
    meta: Meta,
    body: Body,
}

/// Data that all objects of one store share. Each version of an object holds a reference to it.
pub(crate) struct StoreContext {
    pub(crate) kind: KindId,
    /// The beginning of the JSON of every body in the store: `{"apiVersion":"v1","kind":"Pod"`.
    pub(crate) head: Box<str>,
    /// The longest body of an object that is kept, in bytes.
    pub(crate) max_object_bytes: usize,
    pub(crate) pool: Pool,
    pub(crate) recent: Recent,
}

/// The reason why a read of the cache failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The first list of the store is not complete. A retry succeeds once it is; controllers start only after
    /// that.
    #[error("the cache of {kind} ({scope}) has not synced yet; wait for it before reading")]
    NotSynced {
        /// The kind of the objects in the store.
        kind: KindId,
        /// The scope of the store that was read, as a phrase.
        scope: String,
    },
    /// The namespace of the request is outside the scope of the store. A retry does not help; widen the
    /// scope.
    #[error("{asked} of {kind} is outside the cache's scope ({scope}); declare the store with a wider scope")]
    OutOfScope {
        /// The kind of the objects in the store.
        kind: KindId,
        /// The namespace of the request, as a phrase.
        asked: String,
        /// The scope of the store that was read, as a phrase.
        scope: String,
    },
    /// The store handle has no index of this name. A retry does not help; declare the index first.
    #[error("this handle of the cache of {kind} has no index {index:?}; declare it with index() first")]
    UnknownIndex {
        /// The kind of the objects in the store.
        kind: KindId,
        /// The name of the index that the store handle does not have.
        index: String,
    },
    /// The stored object is not a valid value of the requested type. A retry succeeds only once the object
    /// has changed.
    #[error("{object} does not decode; correct the object or the type it is read as")]
    Decode {
        /// Kind, namespace and name of the object.
        object: ObjectKey,
        /// The error of the decoder, with the position in the JSON and the reason.
        #[source]
        source: serde_json::Error,
    },
    /// The stored object is longer than `cache.maxObjectBytes` or than the limit of the handle, so only its
    /// metadata can be read; if the metadata alone is longer than `cache.maxObjectBytes`, only its identity.
    /// A retry succeeds only once the object has changed.
    #[error("{object} has {size} bytes, more than {limit}; shrink it, or raise cache.maxObjectBytes")]
    TooLarge {
        /// Kind, namespace and name of the object.
        object: ObjectKey,
        /// The length of the object as JSON in bytes, without `managedFields`.
        size: usize,
        /// The limit that the object exceeds, in bytes.
        limit: usize,
    },
    /// The compressed body of the object in memory is damaged. A retry succeeds only once the object has
    /// changed.
    #[error("{object} cannot be read from memory; restart the process")]
    Damaged {
        /// Kind, namespace and name of the object.
        object: ObjectKey,
        /// The error of the decompression of the object's body.
        #[source]
        source: Damage,
    },
}

// === impl StoreContext ===

impl StoreContext {
    pub(crate) fn new(kind: KindId, max_object_bytes: usize) -> Self {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let (version, name) = (quoted(&kind.api_version()), quoted(kind.kind()));
        let head = format!(r#"{{"apiVersion":{version},"kind":{name}"#).into_boxed_str();
        Self { kind, head, max_object_bytes, pool: Pool::default(), recent: Recent::default() }
    }
}

// === impl View ===

impl View {
    pub(in crate::cache) fn new(context: Arc<StoreContext>, meta: Meta, body: Bytes) -> Self {
        Self(Arc::new(Version { context, meta, body: Body::plain(body) }))
    }

    /// Returns whether both views refer to the same version of an object in memory.
    pub(in crate::cache) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the metadata of the object, without decoding the object.
    pub fn meta(&self) -> &Meta {
        &self.0.meta
    }

    /// Returns the body of the object: JSON without `managedFields`, and only `metadata` in a metadata-only
    /// store.
    ///
    /// # Errors
    /// Fails if the object is too large to be kept, and if the body in memory is damaged.
    pub fn bytes(&self) -> Result<Bytes, ReadError> {
        self.check_size(usize::MAX)?;
        self.0.body.bytes().map_err(|source| self.damaged(source))
    }

    /// Returns the namespace and name of the object.
    pub fn request(&self) -> &NamespacedName {
        &self.0.meta.request
    }

    /// Returns the kind of the object.
    pub fn kind(&self) -> &KindId {
        &self.0.context.kind
    }

    /// Returns kind, namespace and name of the object.
    pub fn object_key(&self) -> ObjectKey {
        ObjectKey { kind: self.0.context.kind.clone(), name: self.0.meta.request.clone() }
    }

    /// Returns one annotation of the object, read from its body; `None` without it. Scans the metadata:
    /// compare [`Meta::annotations_hash`] first where that is enough.
    pub fn annotation(&self, name: &str) -> Option<String> {
        if self.0.meta.annotations_hash == 0 {
            return None;
        }
        self.0.body.read(|json| scan::annotation(json, name)).ok().flatten()
    }

    /// Decodes the object as a `T`. Calls for the same version and type share one `Arc` as long as it is in a
    /// small cache of recently decoded objects.
    ///
    /// # Errors
    /// Fails if the object is too large to be kept, if the body is not a `T`, and if the body in memory is
    /// damaged. The call keeps failing until the object changes.
    pub fn decode<T: DeserializeOwned + Send + Sync + 'static>(&self) -> Result<Arc<T>, ReadError> {
        self.check_size(usize::MAX)?;
        let recent = &self.0.context.recent;
        if let Some(known) = recent.find(&self.0) {
            return Ok(known);
        }
        let decoded = self.0.body.read(|json| (json.len(), serde_json::from_slice::<T>(json)));
        let (bytes, decoded) = decoded.map_err(|source| self.damaged(source))?;
        let decoded = decoded.map_err(|source| ReadError::Decode { object: self.object_key(), source })?;
        Ok(recent.share(&self.0, Arc::new(decoded), bytes))
    }

    /// Checks the size of the object: fails if only its metadata is kept, and if it is longer than `limit`
    /// bytes.
    pub(in crate::cache) fn check_size(&self, limit: usize) -> Result<(), ReadError> {
        let (size, kept) = match self.0.meta.extent {
            Extent::TooLarge { size, .. } => (usize::try_from(size).unwrap_or(usize::MAX), false),
            _ => (self.0.body.plain_len(), true),
        };
        if kept && size <= limit {
            return Ok(());
        }
        let limit = limit.min(self.0.context.max_object_bytes);
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

    /// Returns whether there are other handles of this version of the object.
    pub(in crate::cache) fn is_held_elsewhere(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Returns the bytes that this version of the object keeps allocated: its body and the fixed part of its
    /// metadata.
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
        // An empty text is not valid JSON: the caller that decodes it reports the object.
        self.0.body.bytes().unwrap_or_default()
    }

    fn extent(&self) -> Extent {
        self.0.meta.extent
    }
}
