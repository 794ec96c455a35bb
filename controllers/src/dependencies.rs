//! What is known at this moment of everything an object waits for.
//!
//! The one place where the three ways to know meet: Services and objects as the cache has them, and what the probe
//! engine has found out. A reconcile asks ([`Dependencies::observe`]) and gets an answer at once, without a request; it
//! runs again when an answer changes.
//!
//! What the cache knows is looked up anew each time; who waits for it is kept beside, so that an event wakes those
//! and nobody else ([`Dependencies::concerned_by_slice`]).
//!
//! # Invariants
//! 1. Observing says what is to be looked at from now on; what an earlier call named and this one does not is not looked
//!    at any more.
//! 2. Equal states give equal observations: they hold no times and no counts.
//! 3. Who waits is noted before the cache is looked at: a change after the look is told.

mod endpoints;
mod waiters;

use std::fmt;
use std::sync::Arc;

use mainstay::cache::View;
use mainstay::key::{Key as _, Request};
use mainstay_api::{Check, Plan, PlannedDependency, ProbeCheck, ProbeTiming};
use parking_lot::Mutex;

use self::endpoints::Look;
use self::waiters::Waiters;
use crate::probe::{Engine, ProbeResult, Target};
use crate::reasons;
use crate::services::{CachedServices, service_of_slice};

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

/// Finds out about dependencies. Cheap to clone.
#[derive(Clone)]
pub struct Dependencies {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine,
    services: Arc<CachedServices>,
    /// By the name of the Service.
    of_services: Mutex<Waiters<Request>>,
}

// === impl Dependencies ===

impl Dependencies {
    /// Looks at these Services, and has this engine look at everything else.
    pub fn new(engine: Engine, services: Arc<CachedServices>) -> Self {
        Self { shared: Arc::new(Shared { engine, services, of_services: Mutex::default() }) }
    }

    /// Has everything in `plan` looked at for `request` from now on, and returns what is known, in the order of the plan.
    pub fn observe(&self, request: &Request, plan: &Plan) -> Vec<Observation> {
        let namespace = request.namespace().unwrap_or_default();
        let services = plan.dependencies.iter().filter_map(|dependency| match &dependency.check {
            Check::Service(check) => Some(Request::namespaced(namespace, check.name.as_str())),
            Check::Probe(_) | Check::Resource(_) => None,
        });
        self.shared.of_services.lock().set(request, services.collect());
        plan.dependencies.iter().map(|dependency| self.observe_one(request, namespace, dependency)).collect()
    }

    fn observe_one(&self, request: &Request, namespace: &str, dependency: &PlannedDependency) -> Observation {
        match &dependency.check {
            Check::Service(check) => {
                let found = self.shared.services.endpoints(namespace, &check.name, check.port.as_ref());
                match endpoints::judge(namespace, check, found) {
                    Look::Known(observation) => observation,
                    Look::Probe(check) => self.probe(request, namespace, dependency, &check),
                }
            }
            Check::Probe(check) => self.probe(request, namespace, dependency, check),
            Check::Resource(_) => Observation::unknown(),
        }
    }

    fn probe(
        &self,
        request: &Request,
        namespace: &str,
        dependency: &PlannedDependency,
        check: &ProbeCheck,
    ) -> Observation {
        let engine = &self.shared.engine;
        let ProbeCheck::Tcp(address) = check else { return Observation::unknown() };
        let timing = ProbeTiming { period: dependency.period, timeout: dependency.timeout };
        engine.watch(request, Target::new(namespace, address.clone()), timing);
        engine.result(request).map_or_else(Observation::unknown, Observation::from)
    }

    /// Ends the look at everything that `request` waits for.
    pub fn forget(&self, request: &Request) {
        self.shared.engine.forget(request);
        self.shared.of_services.lock().forget(request);
    }

    /// Returns who waits for a Service, for one that has changed.
    pub fn concerned_by_service(&self, service: &View) -> Vec<Request> {
        self.shared.of_services.lock().of(service.request())
    }

    /// Returns who waits for the Service that a slice of endpoints belongs to, for a slice that has changed.
    pub fn concerned_by_slice(&self, slice: &View) -> Vec<Request> {
        let service = service_of_slice(slice.meta());
        service.map(|service| self.shared.of_services.lock().of(&service)).unwrap_or_default()
    }
}

impl fmt::Debug for Dependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dependencies").finish_non_exhaustive()
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
