//! The end of a manager: the reason of the stop, and further problems.

use std::collections::BTreeSet;
use std::time::Duration;

use tracing::error;

use super::{ManagerError, StopError};
use crate::controller::Failure;
use crate::key::Chain;

/// The reason that a manager stops.
pub(super) enum End {
    Asked,
    Failed(Failure),
    LeaseLost,
}

/// The problems of the parts of a manager while it stopped.
#[derive(Default)]
pub(super) struct Problems {
    /// The names of the late parts, in the order of the stop. A name may occur twice: of a controller, and of
    /// its work.
    pub(super) late: Vec<String>,
    /// The failures of parts, each with the name of the part, in the order of the stop.
    failures: Vec<Failure>,
}

// === impl Problems ===

impl Problems {
    pub(super) fn fail(&mut self, (name, error): Failure) {
        error!(name = &*name, error = %Chain(&*error), "failed while stopping");
        self.failures.push((name, error));
    }

    pub(super) fn conclude(mut self, end: End, grace: Duration) -> Result<(), ManagerError> {
        // Each name once, at its first place: the first late part may be the cause of the others.
        let mut named = BTreeSet::new();
        self.late.retain(|name| named.insert(name.clone()));
        let mut failures = self.failures.into_iter();
        let first = match end {
            End::LeaseLost => None,
            End::Failed(failure) => Some(failure),
            // A late part comes before a failed one, because it may still run.
            End::Asked if !self.late.is_empty() => {
                let others = failures.map(failed).collect();
                return Err(ManagerError::Late { names: self.late, grace, others });
            }
            End::Asked => match failures.next() {
                None => return Ok(()),
                first => first,
            },
        };
        let late = self.late.into_iter().map(|name| StopError::Late { name });
        let others = failures.map(failed).chain(late).collect();
        Err(match first {
            Some((name, source)) => ManagerError::Failed { name, source, others },
            None => ManagerError::LeaseLost { others },
        })
    }
}

fn failed((name, error): Failure) -> StopError {
    StopError::Failed { name, error }
}
