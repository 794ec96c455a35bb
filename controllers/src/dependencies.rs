//! What is known at this moment of everything an object waits for.
//!
//! The one place where the three ways to know meet: Services and objects as the cache has them, and what the probe
//! engine has found out. A reconcile asks ([`Dependencies::observe`]) and gets an answer at once, without a request; it
//! runs again when an answer changes.
//!
//! # Invariants
//! 1. Observing says what is to be looked at from now on; what an earlier call named and this one does not is not looked
//!    at any more.
//! 2. Equal states give equal observations: they hold no times and no counts.

use mainstay::key::{Key as _, Request};
use mainstay_api::{Check, Plan, ProbeCheck, ProbeTiming};

use crate::probe::{Engine, ProbeResult, Target};
use crate::reasons;

/// What is known of one dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Whether it holds.
    pub state: State,
    /// Why, in one CamelCase word.
    pub reason: &'static str,
    /// Why, for people. Never anything that came from the other side.
    pub message: String,
}

/// Whether a dependency holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody has looked yet.
    Unknown,
    /// It holds.
    Ready,
    /// It does not.
    NotReady,
    /// The operator's policy forbids to look.
    Denied,
    /// It cannot be looked at as it is written, whatever happens elsewhere.
    Invalid,
}

/// Finds out about dependencies.
#[derive(Clone, Debug)]
pub struct Dependencies {
    engine: Engine,
}

// === impl Dependencies ===

impl Dependencies {
    /// Asks this engine.
    pub fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// Has everything in `plan` looked at for `request` from now on, and returns what is known, in the order of the plan.
    pub fn observe(&self, request: &Request, plan: &Plan) -> Vec<Observation> {
        let namespace = request.namespace().unwrap_or_default();
        let one = |dependency: &mainstay_api::PlannedDependency| {
            if let Check::Probe(ProbeCheck::Tcp(address)) = &dependency.check {
                let timing = ProbeTiming { period: dependency.period, timeout: dependency.timeout };
                self.engine.watch(request, Target::new(namespace, address.clone()), timing);
                self.engine.result(request).map_or_else(Observation::unknown, Observation::from)
            } else {
                Observation::unknown()
            }
        };
        plan.dependencies.iter().map(one).collect()
    }

    /// Ends the look at everything that `request` waits for.
    pub fn forget(&self, request: &Request) {
        self.engine.forget(request);
    }
}

// === impl Observation ===

impl Observation {
    /// What is said before anybody has looked.
    pub fn unknown() -> Self {
        Self { state: State::Unknown, reason: reasons::UNKNOWN, message: "not tried yet".to_owned() }
    }
}

impl From<ProbeResult> for Observation {
    fn from(result: ProbeResult) -> Self {
        let state = match result {
            ProbeResult::Ready => State::Ready,
            ProbeResult::NotReady { .. } => State::NotReady,
            ProbeResult::Denied { .. } => State::Denied,
        };
        Self { state, reason: result.reason(), message: result.message().to_owned() }
    }
}
