//! What members are given to live in.

use tokio::sync::watch;

use super::Shared;
use crate::controller::{ControllerSettings, Environment, Removal};
use crate::reconcile::RunEnvironment;

// === impl Shared ===

impl Shared {
    /// What writes are made with: fenced by the Lease where it is needed.
    pub(super) fn run_environment(&self, name: &str, needs_lease: bool) -> RunEnvironment {
        let own = self.clusters.own();
        let events = own.events().for_controller(&format!("{}/{name}", self.options.name));
        let run_environment =
            RunEnvironment::new(own.client(needs_lease).clone(), events, self.stops.begun.clone());
        if needs_lease { run_environment.fenced() } else { run_environment }
    }

    /// What a controller gets to live in.
    pub(super) fn environment(
        &self,
        name: &str,
        needs_lease: bool,
        settings: watch::Receiver<ControllerSettings>,
        removal: Removal,
    ) -> Environment {
        let (term, stop) = if needs_lease {
            (&self.term, &self.stops.leader_only)
        } else {
            (&self.always, &self.stops.others)
        };
        Environment {
            settings,
            run_environment: self.run_environment(name, needs_lease),
            needs_lease,
            term: term.clone(),
            directory: self.directory.clone(),
            metrics: self.controller_metrics.clone(),
            queue_metrics: self.queue_metrics.clone(),
            stop: stop.child_token(),
            removal,
        }
    }
}
