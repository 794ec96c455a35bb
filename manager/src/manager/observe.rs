//! The view of a manager that the command `dev` has.

use std::sync::Arc;

use super::Manager;
use crate::cache::UntypedStore;
use crate::controller::RunObserver;

impl Manager {
    /// Calls `observer` at the end of each reconcile of the controllers that are registered from now on. Only
    /// the first call has an effect.
    pub(crate) fn observe_runs(&self, observer: RunObserver) {
        self.shared.run_observer.set(observer).ok();
    }

    /// Returns the stores of the manager's own cluster that have been declared so far.
    pub(crate) fn declared_stores(&self) -> Vec<Arc<UntypedStore>> {
        self.shared.clusters.own().cache().stores()
    }
}
