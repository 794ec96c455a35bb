//! The environments of controllers and runnables.

use tokio::sync::watch;

use super::Shared;
use crate::controller::{ControllerSettings, Environment, Removal};
use crate::reconcile::RunEnvironment;

// === impl Shared ===

impl Shared {
    /// Returns the environment of the runs of a controller or runnable: client, recorder of Events and stop
    /// token. Its writes are fenced by the Lease if `needs_lease`.
    pub(super) fn run_environment(&self, name: &str, needs_lease: bool) -> RunEnvironment {
        let own = self.clusters.own();
        let events = own.events().for_controller(&format!("{}/{name}", self.options.name));
        let mut run_environment =
            RunEnvironment::new(own.client(needs_lease).clone(), events, self.stops.begun.clone());
        run_environment.fenced = needs_lease;
        run_environment
    }

    /// Returns the parts of the manager that the controller `name` uses, such as settings, metrics and stop
    /// token.
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
            runs: self.run_environment(name, needs_lease),
            term: term.clone(),
            directory: self.directory.clone(),
            metrics: self.controller_metrics.clone(),
            queue_metrics: self.queue_metrics.clone(),
            stop: stop.child_token(),
            removal,
            observer: self.run_observer.get().cloned(),
        }
    }
}
