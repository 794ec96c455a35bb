//! Which kinds a replica cannot be ready without.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

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
pub(in crate::cache) struct Words(Arc<RwLock<HashMap<KindId, Required>>>);

// === impl Words ===

impl Words {
    pub(in crate::cache) fn set(&self, kind: KindId, required: Required) {
        self.0.write().insert(kind, required);
    }

    pub(in crate::cache) fn about(&self, kind: &KindId) -> Required {
        self.0.read().get(kind).copied().unwrap_or_default()
    }
}
