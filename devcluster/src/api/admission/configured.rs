//! The webhooks and policies of the cluster, read from the store when they have changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use serde_json::Value;

use super::super::call::Call;
use super::super::{Api, object};
use super::policies::Policy;
use super::webhooks::Webhook;
use crate::store::{At, GroupResource, Store, Version};

/// The group of all configurations.
pub(in crate::api) const GROUP: &str = "admissionregistration.k8s.io";

/// The webhooks and policies, in the order in which they see a write.
#[derive(Debug, Default)]
pub(super) struct Configured {
    pub(super) mutating: Vec<Webhook>,
    pub(super) validating: Vec<Webhook>,
    pub(super) policies: Vec<Policy>,
}

/// The newest [`Configured`]. A server without configurations takes no lock and allocates nothing.
#[derive(Debug)]
pub(in crate::api) struct Configurations {
    /// The number of changes so far.
    changes: AtomicU64,
    /// The number of changes after which nothing was configured; `u64::MAX` for none.
    nothing_at: AtomicU64,
    /// What was read, and the number of changes before that.
    read: RwLock<(u64, Arc<Configured>)>,
}

// === impl Configurations ===

impl Configurations {
    pub(in crate::api) fn new() -> Self {
        let read = RwLock::new((u64::MAX, Arc::default()));
        Self { changes: AtomicU64::new(0), nothing_at: AtomicU64::new(u64::MAX), read }
    }

    /// Notes that a configuration was written or deleted.
    pub(in crate::api) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the configurations; `None` if there are none.
    pub(super) fn newest(&self, store: &Store) -> Option<Arc<Configured>> {
        let changes = self.changes.load(Ordering::Acquire);
        if self.nothing_at.load(Ordering::Acquire) == changes {
            return None;
        }
        let known = || {
            let read = self.read.read();
            (read.0 == changes).then(|| Arc::clone(&read.1))
        };
        known().or_else(|| self.refresh(store, changes))
    }

    fn refresh(&self, store: &Store, changes: u64) -> Option<Arc<Configured>> {
        let configured = Arc::new(Configured::read(store));
        if configured.is_empty() {
            self.nothing_at.store(changes, Ordering::Release);
            return None;
        }
        *self.read.write() = (changes, Arc::clone(&configured));
        Some(configured)
    }
}

// === impl Configured ===

impl Configured {
    fn read(store: &Store) -> Self {
        let list = |plural: &str| {
            let listing = store.list(&GroupResource::new(GROUP, plural), None, None, At::Newest);
            listing.map_or(Vec::new(), |listing| listing.items)
        };
        let webhooks = |versions: Vec<Arc<Version>>| {
            let mut webhooks = Vec::new();
            for version in &versions {
                let all = version.value().get("webhooks").and_then(Value::as_array);
                let named = |(index, spec)| {
                    let id = format!("{}/{index}", object::meta(version.value(), "uid"));
                    Webhook::new(id, spec)
                };
                webhooks.extend(all.into_iter().flatten().enumerate().map(named));
            }
            webhooks
        };
        let bindings = list("validatingadmissionpolicybindings");
        let policies = list("validatingadmissionpolicies");
        Self {
            mutating: webhooks(list("mutatingwebhookconfigurations")),
            validating: webhooks(list("validatingwebhookconfigurations")),
            policies: policies.iter().filter_map(|policy| Policy::new(policy, &bindings)).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty() && self.policies.is_empty()
    }
}

// === impl Api ===

impl Api {
    /// Returns the webhooks and policies that may see a write; `None` if there are none. None of them sees
    /// writes of configurations.
    pub(super) fn configured(&self, call: &Call) -> Option<Arc<Configured>> {
        let configured = self.shared.configurations.newest(&self.shared.store)?;
        (call.served.kind.group != GROUP).then_some(configured)
    }
}
