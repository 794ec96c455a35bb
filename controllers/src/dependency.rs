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

pub mod cycles;
mod endpoints;
pub mod observation;
pub mod probe;
pub mod resource;
pub mod service;
pub mod surroundings;
#[cfg(test)]
mod tests;
mod waiters;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mainstay::cache::View;
use mainstay::key::{Key as _, NamespacedName};
use mainstay_api::plan::ServiceCheck;
use mainstay_api::wait_for::MatchPolicy;
use mainstay_api::{Check, Plan, PlannedDependency, ProbeCheck};
use parking_lot::Mutex;

use self::cycles::{Awaited, Cycles, Gate};
use self::endpoints::Look;
use self::observation::{Observation, State};
use self::probe::{Description, Engine, Target, Want};
use self::resource::{ResourceReader, Resources};
use self::service::{CachedServices, Endpoints, service_of_slice};
use self::waiters::Waiters;

/// What is known of how one dependency is looked at, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Described {
    /// The cache tells of it.
    Cached {
        /// Who else waits for it, in order.
        others: Vec<NamespacedName>,
    },
    /// The engine probes it.
    Probed(Box<Description>),
    /// Nobody looks at it at present.
    Nothing,
}

/// Finds out about dependencies. Cheap to clone.
#[derive(Clone)]
pub struct Dependencies {
    shared: Arc<Shared>,
    /// `None`: nobody looks for circles.
    cycles: Option<Arc<Cycles>>,
}

struct Shared {
    engine: Engine,
    services: Arc<CachedServices>,
    resources: Resources,
    /// By the name of the Service.
    of_services: Mutex<Waiters<NamespacedName>>,
}

// === impl Dependencies ===

impl Dependencies {
    /// Looks at these Services and objects, and has this engine look at everything else.
    pub fn new(engine: Engine, services: Arc<CachedServices>, resources: Resources) -> Self {
        let shared = Shared { engine, services, resources, of_services: Mutex::default() };
        Self { shared: Arc::new(shared), cycles: None }
    }

    /// Looks for circles of closed gates too.
    #[must_use]
    pub fn with_cycles(self, cycles: Cycles) -> Self {
        Self { cycles: Some(Arc::new(cycles)), ..self }
    }

    /// Has everything in `plan` looked at for `request` from now on, and returns what is known, in the order of the plan.
    /// Of the delays so much is over as the gate is `closed_for`.
    ///
    /// `held`: the gate is open, and only a loss matters. What nobody has seen ready then, because the manager was
    /// started meanwhile, is [`State::Unknown`] until it has failed as often as it takes.
    pub fn observe(
        &self,
        request: &NamespacedName,
        plan: &Plan,
        held: bool,
        closed_for: Duration,
    ) -> Vec<Observation> {
        let namespace = request.namespace().unwrap_or_default();
        let services = plan.dependencies.iter().filter_map(|dependency| match &dependency.check {
            Check::Service(check) => Some(NamespacedName::namespaced(namespace, check.name.as_str())),
            Check::Probe(_) | Check::Resource(_) => None,
        });
        self.shared.of_services.lock().set(request, services.collect());
        let mut resources = self.shared.resources.watch(request, plan);

        let mut wants = Vec::new();
        let mut look = |dependency| {
            let look = self.look_at(namespace, dependency, &mut resources);
            if let Look::Probe(check) = &look {
                wants.push(Want::new(Target::new(namespace, check.clone()), dependency, held, closed_for));
            }
            look
        };
        let looks: Vec<Look> = plan.dependencies.iter().map(&mut look).collect();
        self.shared.engine.watch(request, wants);
        let mut verdicts = self.shared.engine.verdicts(request).into_iter();
        let answer = |look| match look {
            Look::Known(observation) => observation,
            Look::Probe(check) => verdicts
                .next()
                .map_or_else(Observation::unknown, |verdict| Observation::probed(&check, verdict)),
        };
        looks.into_iter().map(answer).collect()
    }

    /// Notes in this term that the gate of `request` is closed, with what was observed last; `holds` are the labels of its
    /// Pods, while it holds these back and not only an update. Returns the circle of closed gates that it is in, for
    /// people.
    pub fn closed(
        &self,
        request: &NamespacedName,
        plan: &Plan,
        observations: &[Observation],
        holds: Option<BTreeMap<String, String>>,
        term: u64,
    ) -> Option<String> {
        let awaits = self.awaited(request, plan, observations);
        let circle = self.cycles.as_ref()?.closed(request, Gate { awaits, holds }, term);
        circle.map(|circle| cycles::text_of(&circle))
    }

    /// Notes that the gate of `request` is not closed any more.
    pub fn opened(&self, request: &NamespacedName) {
        if let Some(cycles) = &self.cycles {
            cycles.opened(request);
        }
    }

    /// Returns whether so much failed at once that the manager's own network is to be suspected.
    pub fn suspects_outage(&self) -> bool {
        self.shared.engine.suspects_outage()
    }

    /// Ends the look at everything that `request` waits for.
    pub fn forget(&self, request: &NamespacedName) {
        self.shared.engine.forget(request);
        self.shared.of_services.lock().forget(request);
        self.shared.resources.forget(request);
        self.opened(request);
    }

    /// Returns what other WaitDeployments may bring of what is required and seen not to hold.
    fn awaited(&self, request: &NamespacedName, plan: &Plan, observations: &[Observation]) -> Vec<Awaited> {
        let required = || plan.dependencies.iter().zip(observations).filter(|(one, _)| !one.optional);
        // Another one of several may come up by itself.
        if plan.match_policy == MatchPolicy::Any && required().count() > 1 {
            return Vec::new();
        }
        let missing = required().filter(|(_, observation)| observation.state == State::NotReady);
        missing.flat_map(|(one, _)| self.awaited_by(request, &one.check)).collect()
    }

    fn awaited_by(&self, request: &NamespacedName, check: &Check) -> Vec<Awaited> {
        let namespace = request.namespace().unwrap_or_default();
        let pods = |service: NamespacedName| {
            let namespace = service.namespace().unwrap_or_default().to_owned();
            Awaited::Pods(namespace, self.shared.services.selector(&service))
        };
        match check {
            Check::Service(check) => vec![pods(NamespacedName::namespaced(namespace, check.name.as_str()))],
            Check::Probe(check) => {
                Target::new(namespace, check.clone()).service().map(pods).into_iter().collect()
            }
            Check::Resource(check) => self.shared.resources.awaited(namespace, check),
        }
    }

    /// Tells how everything in `plan` is looked at for `request`, in the order of the plan; changes nothing.
    pub fn describe(&self, request: &NamespacedName, plan: &Plan) -> Vec<Described> {
        let namespace = request.namespace().unwrap_or_default();
        let mut probed = self.shared.engine.describe(request);
        let mut probed = |check: &ProbeCheck| {
            // By what it is: a Service may have become another name for a host since they were named to the engine.
            let target = Target::new(namespace, check.clone());
            let at = probed.iter().position(|description| description.target == target);
            at.map_or(Described::Nothing, |at| Described::Probed(Box::new(probed.remove(at))))
        };
        let cached = |mut others: Vec<NamespacedName>| {
            others.retain(|other| other != request);
            others.sort();
            Described::Cached { others }
        };
        let one = |dependency: &PlannedDependency| match &dependency.check {
            Check::Service(check) => match self.look_at_service(namespace, check) {
                Look::Known(_) => {
                    let service = NamespacedName::namespaced(namespace, check.name.as_str());
                    cached(self.shared.of_services.lock().of(&service))
                }
                Look::Probe(check) => probed(&check),
            },
            Check::Resource(check) => cached(self.shared.resources.waiting(namespace, check)),
            Check::Probe(check) => probed(check),
        };
        plan.dependencies.iter().map(one).collect()
    }

    /// Returns who waits for a Service, for one that has changed. What connects to it is probed now.
    pub fn concerned_by_service(&self, service: &View) -> Vec<NamespacedName> {
        self.changed(service.request())
    }

    /// Returns who waits for the Service that a slice of endpoints belongs to, for a slice that has changed. What
    /// connects to it is probed now.
    pub fn concerned_by_slice(&self, slice: &View) -> Vec<NamespacedName> {
        service_of_slice(slice.meta()).map(|service| self.changed(&service)).unwrap_or_default()
    }

    fn changed(&self, service: &NamespacedName) -> Vec<NamespacedName> {
        let Shared { engine, services, of_services, .. } = &*self.shared;
        let (namespace, name) = (service.namespace().unwrap_or_default(), service.name());
        // Few Services are connected to, so most changes end here. Without a ready endpoint nothing can have come up.
        if engine.connects_to(service)
            && !matches!(services.endpoints(namespace, name, None), Endpoints::Ready(0) | Endpoints::NotFound)
        {
            engine.probe_now(namespace, name);
        }
        of_services.lock().of(service)
    }

    fn look_at_service(&self, namespace: &str, check: &ServiceCheck) -> Look {
        let found = self.shared.services.endpoints(namespace, &check.name, check.port.as_ref());
        endpoints::judge(namespace, check, found)
    }

    fn look_at(
        &self,
        namespace: &str,
        dependency: &PlannedDependency,
        resources: &mut ResourceReader<'_>,
    ) -> Look {
        match &dependency.check {
            Check::Service(check) => self.look_at_service(namespace, check),
            Check::Probe(check) => Look::Probe(check.clone()),
            Check::Resource(check) => Look::Known(resources.observe(dependency, check)),
        }
    }
}

impl fmt::Debug for Dependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dependencies").finish_non_exhaustive()
    }
}
