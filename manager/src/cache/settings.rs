//! The settings of the cache, as read from the configuration.

use std::sync::Arc;
use std::time::Duration;

use crate::cache::store::{Limits, Pack, Scope};
use crate::key::KindId;

/// The settings of a [`Cache`](super::Cache).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// The namespaces of the manager's own cluster to which the cache is restricted; empty = all.
    pub namespaces: Vec<String>,
    /// Period after which handlers get every cached object again, less a random part of up to a tenth; zero =
    /// never. A resync sends no request.
    pub resync: Duration,
    /// Longest object that is kept whole, in bytes without managedFields; 0 = no limit. Of a longer object
    /// only metadata is kept, and reads of the rest fail with
    /// [`ReadError::TooLarge`](super::ReadError::TooLarge).
    pub max_object_bytes: usize,
    /// Longest object that is read, in bytes as the server sends it; 0 = no limit. If an object grows beyond
    /// it, reads return its last version below the limit: see
    /// [`KindStatus::left_out`](super::KindStatus::left_out).
    pub max_frame_bytes: usize,
    /// Whether the cache keeps the bodies of objects packed (compressed).
    pub pack: Pack,
}

// === impl CacheSettings ===

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            resync: Duration::from_hours(10),
            // Fits every object: etcd stores 1.5 MiB at most, and JSON may escape a byte as six characters.
            max_object_bytes: 10 * 1024 * 1024,
            // The same, and room for managedFields.
            max_frame_bytes: 16 * 1024 * 1024,
            pack: Pack::default(),
        }
    }
}

impl CacheSettings {
    pub(super) fn limits(&self) -> Limits {
        let limit = |setting| if setting == 0 { usize::MAX } else { setting };
        Limits { frame: limit(self.max_frame_bytes), object: limit(self.max_object_bytes) }
    }

    /// Returns the namespaces that a store of this scope lists and watches, one reflector each. A single
    /// `None` means all of them; an empty list means that the scope's namespace is not among `namespaces`.
    pub(super) fn parts(&self, kind: &KindId, scope: &Scope) -> Vec<Option<Arc<str>>> {
        let allowed = &self.namespaces;
        match &scope.namespace {
            _ if !kind.is_namespaced() => vec![None],
            namespace if allowed.is_empty() => vec![namespace.clone()],
            None => allowed.iter().map(|name| Some(name.as_str().into())).collect(),
            Some(name) if allowed.iter().any(|one| **one == **name) => vec![Some(name.clone())],
            Some(_) => Vec::new(),
        }
    }
}
