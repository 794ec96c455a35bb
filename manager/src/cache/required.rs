//! Which kinds a replica cannot be ready without.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::Cache;
use crate::key::KindId;

/// How much a replica's readiness requires a kind. Each says whether the replica is ready without it. Whatever holds, `/readyz/cache-KIND` tells how the kind is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Required {
    /// It is not while the kind is there and does not work: the default. One that is not served or not readable holds up its own controllers and
    /// leaves the replica ready; of one that is there the watch must not be down for long. Kinds of another cluster than
    /// the manager's own are as with [`Required::Never`], once the replica has started.
    #[default]
    WhileServed,
    /// It never is: not before the first list of the kind, and not from when the kind is gone, or may not be read any
    /// more, until it is back.
    Always,
    /// It always is: whatever becomes of the kind concerns its own controllers only.
    Never,
}

/// What was said of single kinds. Shared by the stores of a cache, so that the last word holds for all of a kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Words(Arc<RwLock<HashMap<KindId, Required>>>);

// === impl Cache ===

impl Cache {
    /// Says whether a replica is ready without a kind, for its stores of every scope. May be said at any time, before or
    /// after a store is declared; the last word holds.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use mainstay::cache::{Cache, Required};
    /// # use mainstay::key::KindId;
    /// # fn wire(cache: &Cache) {
    /// // Nothing can be done without them.
    /// cache.required(KindId::of::<ConfigMap>(), Required::Always);
    /// # }
    /// ```
    pub fn required(&self, kind: KindId, required: Required) {
        self.0.required.0.write().insert(kind, required);
    }
}

// === impl Words ===

impl Words {
    pub(super) fn about(&self, kind: &KindId) -> Required {
        self.0.read().get(kind).copied().unwrap_or_default()
    }
}
