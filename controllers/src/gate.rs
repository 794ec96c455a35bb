//! Whether the Deployment may exist yet: a pure state machine.
//!
//! Called by the `wait-deployment` reconciler with what the cache holds; nothing here reads a clock, a socket or a
//! server. It looks first and asks for a probe only while the gate is closed: an outage of the prerequisite later
//! on is no business of an app that already runs.
//!
//! # Invariants
//! 1. The prerequisite is asked for only while no Deployment of that name exists and `waitProbe` is valid.
//! 2. A Deployment that is controlled by our uid keeps the gate open, whatever the prerequisite or `waitProbe` say.
//! 3. A Deployment of that name that is not ours is never written.
//! 4. "Not ready yet" is a state, never an error: the engine's period brings the next look, not a backoff.

mod report;
#[cfg(test)]
mod tests;

use mainstay_api::{Address, InvalidProbe, ProbeTiming, WaitDeployment};

use crate::deployment::LiveDeployment;
use crate::probe::ProbeResult;

pub(crate) use report::since;
pub use report::{Applied, GateStatus, is_still_told, report};

/// What to do about one WaitDeployment.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It is being deleted; garbage collection does the rest.
    Leave,
    /// A Deployment of that name belongs to somebody else: no write, no dial.
    Conflict {
        /// Who controls it, such as `HelmRelease web`; `nobody` for one without a controller.
        owner: String,
    },
    /// Our Deployment is being deleted; decide again once it is gone.
    Terminating,
    /// `waitProbe` cannot be acted on: no write, no dial.
    Invalid(InvalidProbe),
    /// Closed: the prerequisite is being probed.
    Wait {
        /// What is waited for.
        address: Address,
        /// The last result; `None` before the first.
        result: Option<ProbeResult>,
    },
    /// Open: bring the Deployment to the current spec.
    Open(Opened),
}

/// Why the gate is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Our Deployment exists.
    Exists,
    /// There is nothing to wait for.
    NoPrerequisite,
    /// The prerequisite answered.
    Answered,
}

/// Decides from the object, the live Deployment of its name, and the state of the prerequisite.
///
/// `probe` is called at most once, and only while the gate is closed; it is to have the address probed from now on
/// and to return the latest result, if there is one.
pub fn decide(
    object: &WaitDeployment,
    live: Option<&LiveDeployment>,
    probe: impl FnOnce(&Address, ProbeTiming) -> Option<ProbeResult>,
) -> Decision {
    if object.is_deleting() {
        return Decision::Leave;
    }
    if let Some(live) = live {
        return decide_by_live(object, live);
    }
    let Some(wait_probe) = &object.wait_probe else { return Decision::Open(Opened::NoPrerequisite) };
    match wait_probe.resolve() {
        Err(invalid) => Decision::Invalid(invalid),
        Ok((address, timing)) => match probe(&address, timing) {
            Some(ProbeResult::Ready) => Decision::Open(Opened::Answered),
            result => Decision::Wait { address, result },
        },
    }
}

// === impl Decision ===

impl Decision {
    /// Returns whether the prerequisite has to be probed on. After [`Opened::Answered`] too: until the Deployment
    /// exists, a failed write must not cost another wait for the first result.
    pub fn keeps_probing(&self) -> bool {
        matches!(self, Self::Wait { .. } | Self::Open(Opened::Answered))
    }

    /// Returns the state in one word, for logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Leave => "deleting",
            Self::Conflict { .. } => "conflict",
            Self::Terminating => "terminating",
            Self::Invalid(_) => "invalid",
            Self::Wait { result: Some(ProbeResult::Denied { .. }), .. } => "denied",
            Self::Wait { .. } => "closed",
            Self::Open(_) => "open",
        }
    }
}

// === private ===

fn decide_by_live(object: &WaitDeployment, live: &LiveDeployment) -> Decision {
    if !live.is_controlled_by(object) {
        let owner = live.controller().map(|owner| format!("{} {}", owner.kind, owner.name));
        return Decision::Conflict { owner: owner.unwrap_or_else(|| "nobody".to_owned()) };
    }
    if live.is_deleting() { Decision::Terminating } else { Decision::Open(Opened::Exists) }
}
