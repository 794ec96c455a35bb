//! Observes the dependencies of WaitDeployments.
//!
//! Three sources meet here: Services in the cache, other objects in the cache, and the results of the probe
//! engine. A reconcile calls [`Dependencies::observe`], which returns at once and sends no request. The
//! WaitDeployment is enqueued when an observation changes.
//!
//! Each call reads the cache anew. The WaitDeployments that wait for a Service are kept by Service, so a
//! changed EndpointSlice enqueues only these ([`Dependencies::on_slice_change`]).
//!
//! # Invariants
//! 1. A call of `observe` replaces the dependencies that an earlier call registered for the WaitDeployment.
//! 2. Equal states give equal observations: they contain no times and no counts.
//! 3. `observe` registers the WaitDeployment before it reads the cache, so a change after the read enqueues
//!    it.

pub mod cluster_info;
pub mod cycles;
mod endpoints;
pub mod observation;
pub mod probe;
pub mod resource;
pub mod service;
#[cfg(test)]
mod tests;
mod waiters;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay::cache::View;
use mainstay::key::{Key as _, NamespacedName};
use mainstay_api::plan::ServiceCheck;
use mainstay_api::wait_for::MatchPolicy;
use mainstay_api::{Check, Plan, PlannedDependency, ProbeCheck};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::cycles::{Awaited, Cycles, Gate};
use self::observation::{Observation, State};
use self::probe::{Description, Engine, Target, Want};
use self::resource::{ResourceReader, Resources};
use self::service::{CachedServices, Endpoints, service_of_slice};
use self::waiters::Waiters;

/// How one dependency of a WaitDeployment is observed, for `mainstay why`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Described {
    /// The dependency is observed in the cache of objects, without probes.
    Cached {
        /// Other WaitDeployments that wait for the same Service or object as this dependency, in order of
        /// their names.
        others: Vec<NamespacedName>,
    },
    /// The dependency is observed by probes over the network, with the state of its probe target.
    Probed(Box<Description>),
    /// The dependency needs probes, but no reconcile has registered its target with the probe engine yet.
    NotRegistered,
}

/// Observes the dependencies of WaitDeployments in the cache and by probes over the network. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dependencies {
    engine: Engine,
    services: Arc<CachedServices>,
    resources: Resources,
    cycles: Arc<Cycles>,
    /// The WaitDeployments with a `service` check, by the Service that they wait for.
    service_waiters: Arc<Mutex<Waiters<NamespacedName>>>,
}

// === impl Dependencies ===

impl Dependencies {
    /// Makes an observer of dependencies: `services` and `resources` read those in the cache, `engine` probes
    /// those on the network, and `cycles` finds closed gates that wait for each other.
    pub fn new(engine: Engine, services: Arc<CachedServices>, resources: Resources, cycles: Cycles) -> Self {
        Self { engine, services, resources, cycles: Arc::new(cycles), service_waiters: Arc::default() }
    }

    /// Registers the dependencies of `plan` for the WaitDeployment `request`, and returns an observation of
    /// each, in the order of the plan. The initial delays of probes count from the time at which the gate
    /// closed, `closed_for` ago.
    ///
    /// `was_ready`: all dependencies were ready when the gate opened. A target that this engine has never
    /// seen ready, because the manager was restarted since, then stays [`State::Unknown`] until its probes
    /// have failed `failureThreshold` times in a row.
    pub fn observe(
        &self,
        request: &NamespacedName,
        plan: &Plan,
        was_ready: bool,
        closed_for: Duration,
    ) -> Vec<Observation> {
        let namespace = request.namespace().unwrap_or_default();
        let services = plan.dependencies.iter().filter_map(|dependency| match &dependency.check {
            Check::Service(check) => Some(NamespacedName::namespaced(namespace, check.name.as_str())),
            Check::Probe(_) | Check::Resource(_) => None,
        });
        self.service_waiters.lock().set(request, services.collect());
        let mut resources = self.resources.watch(request, plan);

        let evaluate = |dependency| self.evaluate(namespace, dependency, &mut resources);
        let evaluations: Vec<_> = plan.dependencies.iter().map(evaluate).collect();
        let want = |(evaluation, dependency): (&Result<_, ProbeCheck>, _)| {
            let target = Target::new(namespace, evaluation.as_ref().err()?.clone());
            Some(Want::new(target, dependency, was_ready, closed_for))
        };
        self.engine.watch(request, evaluations.iter().zip(&plan.dependencies).filter_map(want).collect());
        let mut verdicts = self.engine.verdicts(request).into_iter();
        let mut probed = |check| {
            let verdict = verdicts.next();
            verdict.map_or_else(Observation::unknown, |verdict| Observation::probed(&check, verdict))
        };
        evaluations.into_iter().map(|evaluation| evaluation.unwrap_or_else(&mut probed)).collect()
    }

    /// Records for the leadership term `term` that the gate of the WaitDeployment `request` is closed, with
    /// the last observations of its dependencies. `holds` are the labels of the Pods that the gate holds
    /// back; `None` if it holds back an update only. Returns the cycle of closed gates that contains this
    /// gate, as text for a condition; `None` if there is no cycle.
    pub fn closed(
        &self,
        request: &NamespacedName,
        plan: &Plan,
        observations: &[Observation],
        holds: Option<BTreeMap<String, String>>,
        term: u64,
    ) -> Option<String> {
        let awaits = self.awaited(request, plan, observations);
        let cycle = self.cycles.closed(request, Gate { awaits, holds }, term);
        cycle.map(|cycle| cycles::text_of(&cycle))
    }

    /// Records that the gate of the WaitDeployment `request` is no longer closed.
    pub fn opened(&self, request: &NamespacedName) {
        self.cycles.opened(request);
    }

    /// Returns whether so many probe targets fell silent together that a fault of the manager's own network
    /// is likely.
    pub fn suspects_outage(&self) -> bool {
        self.engine.suspects_outage()
    }

    /// Stops observing all dependencies of the WaitDeployment `request`, and removes its gate from the search
    /// for cycles.
    pub fn forget(&self, request: &NamespacedName) {
        self.engine.forget(request);
        self.service_waiters.lock().forget(request);
        self.resources.forget(request);
        self.opened(request);
    }

    /// Returns the effects of other WaitDeployments, such as their Pods or their readiness, that could make
    /// the required dependencies of `request` ready that are not ready yet.
    fn awaited(&self, request: &NamespacedName, plan: &Plan, observations: &[Observation]) -> Vec<Awaited> {
        let required = || plan.dependencies.iter().zip(observations).filter(|(one, _)| !one.optional);
        // One of several alternatives may become ready without another WaitDeployment.
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
            Awaited::Pods(namespace, self.services.selector(&service))
        };
        match check {
            Check::Service(check) => vec![pods(NamespacedName::namespaced(namespace, check.name.as_str()))],
            Check::Probe(check) => {
                Target::new(namespace, check.clone()).service().map(pods).into_iter().collect()
            }
            Check::Resource(check) => self.resources.awaited(namespace, check),
        }
    }

    /// Describes how each dependency of `plan` is observed for the WaitDeployment `request`, in the order of
    /// the plan. Registers no dependency.
    pub fn describe(&self, request: &NamespacedName, plan: &Plan) -> Vec<Described> {
        let namespace = request.namespace().unwrap_or_default();
        let mut probed = self.engine.describe(request);
        let mut probed = |check: &ProbeCheck| {
            // Matched by target and not by position: a Service may have become an ExternalName since the last
            // reconcile registered the targets.
            let target = Target::new(namespace, check.clone());
            let at = probed.iter().position(|description| description.target == target);
            at.map_or(Described::NotRegistered, |at| Described::Probed(Box::new(probed.remove(at))))
        };
        let cached = |mut others: Vec<NamespacedName>| {
            others.retain(|other| other != request);
            Described::Cached { others }
        };
        let one = |dependency: &PlannedDependency| match &dependency.check {
            Check::Service(check) => match self.evaluate_service(namespace, check) {
                Ok(_) => {
                    let service = NamespacedName::namespaced(namespace, check.name.as_str());
                    cached(self.service_waiters.lock().of(&service))
                }
                Err(check) => probed(&check),
            },
            Check::Resource(check) => cached(self.resources.waiting(namespace, check)),
            Check::Probe(check) => probed(check),
        };
        plan.dependencies.iter().map(one).collect()
    }

    /// Handles a change of a Service or its endpoints: unready probe targets that connect to it are probed
    /// now, unless the Service has no ready endpoint. Returns the WaitDeployments with a `service` check on
    /// it.
    pub fn on_service_change(&self, service: &NamespacedName) -> Vec<NamespacedName> {
        let Self { engine, services, service_waiters, .. } = self;
        let (namespace, name) = (service.namespace().unwrap_or_default(), service.name());
        // Few Services have a probe that connects to them, so the cheap question goes first. Without a ready
        // endpoint no probe can succeed.
        if engine.connects_to(service)
            && !matches!(services.endpoints(namespace, name, None), Endpoints::Ready(0) | Endpoints::NotFound)
        {
            engine.probe_now(namespace, name);
        }
        service_waiters.lock().of(service)
    }

    /// Handles a changed EndpointSlice like a change of its Service. Returns the WaitDeployments with a
    /// `service` check on that Service.
    pub fn on_slice_change(&self, slice: &View) -> Vec<NamespacedName> {
        let service = service_of_slice(slice.meta());
        service.map(|service| self.on_service_change(&service)).unwrap_or_default()
    }

    fn evaluate_service(&self, namespace: &str, check: &ServiceCheck) -> Result<Observation, ProbeCheck> {
        let found = self.services.endpoints(namespace, &check.name, check.port.as_ref());
        endpoints::evaluate(namespace, check, found)
    }

    /// Evaluates a dependency by the cache alone. If the cache is not enough, fails with the probe check that
    /// decides.
    fn evaluate(
        &self,
        namespace: &str,
        dependency: &PlannedDependency,
        resources: &mut ResourceReader<'_>,
    ) -> Result<Observation, ProbeCheck> {
        match &dependency.check {
            Check::Service(check) => self.evaluate_service(namespace, check),
            Check::Probe(check) => Err(check.clone()),
            Check::Resource(check) => Ok(resources.observe(dependency, check)),
        }
    }
}

/// Sleeps until the time `at`; forever if it is `None`.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
