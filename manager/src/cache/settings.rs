//! What the configuration says about the cache.

use std::sync::Arc;
use std::time::Duration;

use crate::cache::store::object_store::Limits;
use crate::cache::store::packer::Pack;
use crate::cache::store::select::Scope;
use crate::key::KindId;

/// What the configuration says about the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// The only namespaces of the manager's own cluster to look at; empty means all of them.
    pub namespaces: Vec<String>,
    /// Between two looks at everything, up to a tenth less; zero means never. Purely local.
    pub resync: Duration,
    /// Longest object that is kept whole, without managedFields; 0 means no limit. Of a longer one only metadata is kept,
    /// and reads of the rest fail with [`ReadError::TooLarge`](super::ReadError::TooLarge).
    pub max_object_bytes: usize,
    /// Longest object that is read at all, as the server sends it; 0 means no limit. Of one that has grown longer the last
    /// version taken is served on: see [`KindStatus::left_out`](super::KindStatus::left_out).
    pub max_frame_bytes: usize,
    /// Whether bodies are kept packed.
    pub pack: Pack,
}

// === impl CacheSettings ===

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            resync: Duration::from_hours(10),
            // Every object that etcd stores: those have 1.5 MiB at most, and a character of one byte may take six in JSON.
            max_object_bytes: 10 * 1024 * 1024,
            // As much, and managedFields.
            max_frame_bytes: 16 * 1024 * 1024,
            pack: Pack::default(),
        }
    }
}

impl CacheSettings {
    pub(super) fn limits(&self) -> Limits {
        Limits { frame: self.max_frame_bytes, object: self.max_object_bytes }
    }

    /// The namespaces to list and watch, one reflector each; a single `None` is all, none at all is a scope that
    /// the configuration does not allow.
    pub(super) fn parts(&self, kind: &KindId, scope: &Scope) -> Vec<Option<Arc<str>>> {
        if !kind.is_namespaced() {
            return vec![None];
        }
        match &scope.namespace {
            Some(namespace) => {
                let allowed =
                    self.namespaces.is_empty() || self.namespaces.iter().any(|one| **one == **namespace);
                allowed.then(|| Some(namespace.clone())).into_iter().collect()
            }
            None if self.namespaces.is_empty() => vec![None],
            None => self.namespaces.iter().map(|namespace| Some(namespace.as_str().into())).collect(),
        }
    }
}
