//! The kinds that the readiness of a replica depends on.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::key::KindId;

/// How the readiness of a replica depends on a kind. In all cases `/readyz/cache-KIND` reports the kind's own
/// status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Required {
    /// The default: the replica is not ready while the kind is served but its list or watch does not work for
    /// some time. A kind that is not served or not readable only delays its own controllers. Once the replica
    /// has started, kinds of other clusters than the manager's own are treated as [`Required::Never`].
    #[default]
    WhileServed,
    /// The replica is not ready before the first list of the kind, and not while the kind is not served or
    /// not readable.
    Always,
    /// The kind never affects the readiness, only its own controllers.
    Never,
}

/// How the readiness of a replica depends on each kind for which this was set. Shared by the stores of a
/// cache; the last setting of a kind applies to all of its stores.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequiredKinds(Arc<RwLock<HashMap<KindId, Required>>>);

// === impl RequiredKinds ===

impl RequiredKinds {
    pub(crate) fn set(&self, kind: KindId, required: Required) {
        self.0.write().insert(kind, required);
    }

    pub(crate) fn of(&self, kind: &KindId) -> Required {
        self.0.read().get(kind).copied().unwrap_or_default()
    }
}
