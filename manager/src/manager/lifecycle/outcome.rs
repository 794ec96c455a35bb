//! How the life of a manager ends: why it stopped, and what went wrong meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use super::ManagerError;
use crate::reconcile::BoxError;

/// Why the manager stops.
pub(super) enum End {
    Asked,
    Failed(&'static str, BoxError),
    LeaseLost,
}

/// What went wrong while stopping.
#[derive(Default)]
pub(super) struct Problems {
    pub(super) late: Vec<String>,
    pub(super) failures: Vec<String>,
}

// === impl Problems ===

impl Problems {
    pub(super) fn conclude(mut self, end: End, grace: Duration) -> Result<(), ManagerError> {
        // In the order of the stop: the first one may be why the others were late.
        let mut named = BTreeSet::new();
        self.late.retain(|name| named.insert(name.clone()));
        let mut others = self.failures;
        if let End::Asked = end {
            return if !self.late.is_empty() {
                Err(ManagerError::Late { names: self.late, grace, others })
            } else if others.is_empty() {
                Ok(())
            } else {
                let first = others.remove(0);
                Err(ManagerError::Failed { name: "stopping", source: first.into(), others })
            };
        }
        others.extend(self.late.iter().map(|name| format!("{name} was late")));
        Err(match end {
            End::Failed(name, source) => ManagerError::Failed { name, source, others },
            End::LeaseLost | End::Asked => ManagerError::LeaseLost { others },
        })
    }
}
