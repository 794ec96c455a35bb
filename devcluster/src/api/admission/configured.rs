//! The webhooks and policies of the cluster, read from the store when they have changed.

use std::sync::Arc;

use serde_json::Value;

use super::super::call::Call;
use super::super::{Api, Shared, object};
use super::policies::Policy;
use super::webhooks::Webhook;
use crate::store::{At, GroupResource, Store, Version};

/// The group of all configurations.
pub(in crate::api) const GROUP: &str = "admissionregistration.k8s.io";

/// The webhooks and policies, in the order in which they see a write.
#[derive(Debug, Default)]
pub(in crate::api) struct Configured {
    pub(super) mutating: Vec<Webhook>,
    pub(super) validating: Vec<Webhook>,
    pub(super) policies: Vec<Policy>,
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
        if call.served.kind.group == GROUP {
            return None;
        }
        let Shared { configured, store, .. } = &*self.shared;
        Some(configured.newest(|_| Configured::read(store))).filter(|configured| !configured.is_empty())
    }
}
