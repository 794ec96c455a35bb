//! The rights that controllers and settings need, declared when a manager is made and wired.

use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;

use super::{Shared, own_namespace};
use crate::controller::Controller;
use crate::key::Key;
use crate::rbac::{Access, Need, Place, Within};

// === impl Shared ===

impl Shared {
    /// Returns the namespace of this manager: that of its Lease or of its Pod; `default` outside a cluster.
    pub(super) fn own_namespace(&self) -> String {
        let of_lease = self.election.as_ref().map(|election| election.namespace.clone());
        let of_pod = || self.options.pod.as_ref().and_then(|pod| pod.namespace.clone());
        of_lease.or_else(of_pod).or_else(own_namespace).unwrap_or_else(|| "default".to_owned())
    }

    /// Declares the rights that a controller needs in the cluster of the objects it reconciles.
    pub(super) fn declare<Q: Key>(&self, controller: &Controller<Q>, registered_at: Place) {
        let Some(cluster) = self.clusters.find(controller.cluster()) else { return };
        let declarations = cluster.declarations();
        for Need { access, place } in controller.declared_needs().iter().cloned() {
            declarations.declare(access, place);
        }
        let events = events(controller.events_within());
        let why = format!("controller {} records Events", controller.name);
        declarations.declare(events.because(why), registered_at);
    }

    /// Declares the rights that follow from the configuration.
    pub(super) fn declare_settings(&self) {
        let declarations = self.clusters.own().declarations();
        let own_events =
            events(Within::Own).because("it records Events about the election and the configuration");
        declarations.declare(own_events, Place::Manager);
        if let Some(election) = &self.election {
            let create =
                Access::to::<Lease>(["create"]).within(Within::Own).because("the first replica creates it");
            let hold = Access::to::<Lease>(["get", "watch", "update"]).within(Within::Own);
            let hold = hold.named(&election.lease_name).because("replicas elect a leader through it");
            for access in [create, hold] {
                declarations.declare(access, Place::Setting("leaderElection.enabled"));
            }
        }
        let configuration = self.members.configuration();
        let reviewed =
            [(configuration.metrics.auth, "metrics.auth"), (configuration.inspect.auth, "inspect.auth")];
        for (_, setting) in reviewed.into_iter().filter(|(on, _)| *on) {
            let tokens = Access::to::<TokenReview>(["create"]).because("authenticates bearer tokens");
            let accesses = Access::to::<SubjectAccessReview>(["create"]).because("authorizes their users");
            for access in [tokens, accesses] {
                declarations.declare(access, Place::Setting(setting));
            }
        }
    }
}

/// Returns the access to record Events. A repeated Event is counted by a patch. Without it everything else
/// works.
fn events(within: Within) -> Access {
    Access::to::<Event>(["create", "patch"]).within(within).seldom()
}
