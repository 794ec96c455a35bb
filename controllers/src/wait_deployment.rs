//! The controller `wait-deployment`: lets a Deployment into the world once its dependencies hold, and keeps it as its
//! WaitDeployment says.
//!
//! The decision is [`gate::decide`]'s, the words are [`gate::report`]'s; here is only what reads and writes. What waits is
//! left to [`Dependencies`], which have this controller look again when an answer changes.
//!
//! # Invariants
//! 1. A Deployment that the cache does not show is only ever created, and one that it shows is only changed while it is
//!    the same one: a stale cache can cost a 409, never somebody else's Deployment.
//! 2. A status never reaches a successor of the object that it was computed from.
//! 3. What the server refused as invalid, or accepted on trial, is not sent again before the object has changed.
//! 4. An object that cannot be decoded is told so by an Event and otherwise left alone, its Deployment too. One that is too
//!    large to be decoded, or whose Deployment is, is told so by its conditions as well.

mod adopt;
mod deed;
pub mod gate;
mod metrics;
mod refused;
mod size;
#[cfg(test)]
mod tests;
mod written;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use mainstay::cache::{Entry, ReadError, Store};
use mainstay::client::{Applier, EventType};
use mainstay::key::{Key, NamespacedName};
use mainstay::reconcile::{Action, Context, Outcome, ReconcileError, Reconciler};
use mainstay_api::{Plan, WaitDeployment};
use parking_lot::Mutex;
use serde_json::Value;

use crate::dependency::Dependencies;
use crate::dependency::observation::{Observation, State};
use crate::deployment::{LiveDeployment, desired};
use crate::reasons::event;
use crate::status::{StatusWriter, uid_of};
use deed::Done;
use gate::{Change, Course, Facts, GateStatus};
use size::Sizes;
use written::Memory;

pub use metrics::GateMetrics;

/// Name in metrics, logs and configuration.
pub const NAME: &str = "wait-deployment";

/// The action that Events of the gate name.
const ACTION: &str = "Gate";

/// The object, and the Deployment undecoded and decoded.
type Read = (Arc<WaitDeployment>, Option<Entry<LiveDeployment>>, Option<Arc<LiveDeployment>>);

/// Reconciles WaitDeployments.
#[derive(Debug)]
pub struct WaitDeploymentReconciler {
    objects: Store<WaitDeployment>,
    deployments: Store<LiveDeployment>,
    write_deployment: Applier<LiveDeployment>,
    status: StatusWriter,
    dependencies: Dependencies,
    /// Keys of labels and annotations that the Deployments do not get; see [`desired`].
    not_passed_on: Vec<String>,
    memory: Memory,
    sizes: Sizes,
    metrics: GateMetrics,
    doubt: Mutex<Doubt>,
    clock: fn() -> Timestamp,
}

/// When the network of this process was last in doubt.
#[derive(Debug, Default)]
struct Doubt {
    /// In which term that was learned; `None` before the first.
    term: Option<u64>,
    until: Option<Timestamp>,
}

// === impl WaitDeploymentReconciler ===

impl WaitDeploymentReconciler {
    /// Makes the reconciler. `write_deployment` and `status` are in the name of
    /// [`FIELD_MANAGER`](crate::deployment::FIELD_MANAGER); `dependencies` must wake the controller when an answer
    /// changes; for `not_passed_on` see [`desired`].
    pub fn new(
        objects: &Store<WaitDeployment>,
        deployments: &Store<Deployment>,
        write_deployment: &Applier<Deployment>,
        status: StatusWriter,
        dependencies: Dependencies,
        not_passed_on: Vec<String>,
        metrics: GateMetrics,
    ) -> Self {
        Self {
            objects: objects.clone(),
            deployments: deployments.view(),
            write_deployment: write_deployment.view(),
            sizes: Sizes::new(&status),
            status,
            dependencies,
            not_passed_on,
            memory: Memory::default(),
            metrics,
            doubt: Mutex::default(),
            clock: Timestamp::now,
        }
    }

    /// Returns the object; `None` once there is nothing to do for it any more.
    fn object(
        &self,
        request: &NamespacedName,
        cx: &Context,
    ) -> Result<Option<Arc<WaitDeployment>>, ReadError> {
        let found = self.objects.get(request);
        let gone = found.as_ref().is_ok_and(|found| found.as_ref().is_none_or(|object| object.is_deleting()));
        // A cache that cannot be read for now says nothing about the object: what is known of it is kept.
        if gone || matches!(found, Err(ReadError::Decode { .. } | ReadError::TooLarge { .. })) {
            self.dependencies.forget(request);
            self.memory.forget(request);
            self.metrics.forget(request);
        }
        if let Err(error @ ReadError::Decode { source, .. }) = &found {
            self.tell_unreadable(request, &format!("{error}: {source}"), cx);
        }
        Ok(found?.filter(|_| !gone))
    }

    /// Returns the object and the Deployment of its name, undecoded and decoded; `None` as [`Self::object`].
    fn read(&self, request: &NamespacedName, cx: &Context) -> Result<Option<Read>, ReadError> {
        let Some(object) = self.object(request, cx)? else { return Ok(None) };
        let live = self.deployments.entry(request)?;
        let deployment = live.as_ref().map(Entry::decode).transpose()?;
        Ok(Some((object, live, deployment)))
    }

    /// Returns the Deployment that the object asks for.
    fn desired(&self, object: &WaitDeployment) -> Value {
        desired(object, &self.not_passed_on)
    }

    /// Nobody reads the manager's log for a typo: the object itself has to say it, and a status it cannot have.
    fn tell_unreadable(&self, request: &NamespacedName, why: &str, cx: &Context) {
        let Ok(Some(entry)) = self.objects.entry(request) else { return };
        let object = ObjectReference {
            name: Some(request.name().to_owned()),
            namespace: request.namespace().map(str::to_owned),
            uid: Some(entry.meta().uid.to_string()),
            ..WaitDeployment::default().object_ref(&())
        };
        let note = format!("{why}; nothing is done for it, and its Deployment is left as it is");
        cx.events().event(&object, EventType::Warning, event::UNREADABLE, ACTION, &note);
    }

    /// Has the dependencies looked at, if the gate asks for them.
    fn look(
        &self,
        request: &NamespacedName,
        object: &WaitDeployment,
        plan: Option<&Plan>,
        live: Option<&LiveDeployment>,
    ) -> Vec<Observation> {
        let Some(plan) = plan.filter(|plan| gate::looks(object, plan, live)) else {
            self.dependencies.forget(request);
            return Vec::new();
        };
        let held = live.is_some() && gate::had_held(object);
        self.dependencies.observe(request, plan, held, gate::closed_for(object, plan, (self.clock)()))
    }

    /// Says whether the gate is closed, and returns the circle that it is in.
    fn cycle(
        &self,
        request: &NamespacedName,
        facts: &Facts<'_>,
        decision: &gate::Decision,
        term: u64,
    ) -> Option<String> {
        let Some(plan) = facts.plan.ok().filter(|_| decision.closed.is_some()) else {
            self.dependencies.opened(request);
            return None;
        };
        let has_pods = facts.live.is_some_and(|live| live.spec.replicas != Some(0));
        let holds = (!has_pods).then(|| template_labels(facts.object));
        self.dependencies.closed(request, plan, facts.observations, holds, term)
    }

    /// Writes the status and, once it is written, tells what has happened.
    async fn tell(
        &self,
        request: &NamespacedName,
        object: &WaitDeployment,
        decision: &gate::Decision,
        done: &Done,
        status: &GateStatus,
        cx: &Context,
    ) -> Result<(), ReconcileError> {
        send(object, gate::of_deed(object, decision, done.deed), done, cx);
        if !status.is_shown_by(object) && !self.status.write(cx, request, uid_of(object), status).await? {
            // Gone: there is nobody left to tell.
            return Ok(());
        }
        let change = Change { object, decision, deed: done.deed, after: status, now: (self.clock)() };
        send(object, change.happenings(), done, cx);
        self.metrics.count(&change);
        Ok(())
    }
}

impl Reconciler for WaitDeploymentReconciler {
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        let (object, live, deployment) = match self.read(request, cx) {
            Ok(Some(read)) => read,
            Ok(None) => {
                self.sizes.forget(request);
                return Ok(Action::Done);
            }
            Err(error @ ReadError::TooLarge { .. }) => return self.tell_too_large(request, &error, cx).await,
            Err(error) => return Err(error.into()),
        };
        self.sizes.forget(request);
        let plan = object.plan();
        let observations = self.look(request, &object, plan.as_ref().ok(), deployment.as_deref());
        let now = (self.clock)();
        // Asked only where something may be taken for a loss: the answer is not for nothing.
        let fails = observations.iter().any(|seen| seen.state == State::NotReady);
        let outage = fails && deployment.is_some() && self.dependencies.suspects_outage();
        let mut facts = Facts {
            object: &object,
            plan: plan.as_ref(),
            live: deployment.as_deref(),
            observations: &observations,
            outage,
            outage_until: self.doubt.lock().note(cx.term(), outage, now),
            same_template: false,
            cycle: None,
            now,
        };
        let mut decision = gate::decide(&facts);
        if let Some((found, _)) = live.as_ref().zip(facts.live).filter(|(_, live)| asks(&decision, live)) {
            facts.same_template = self.has_same_template(request, found, &self.desired(&object), cx).await?;
            decision = gate::decide(&facts);
        }
        let cycle = self.cycle(request, &facts, &decision, cx.term());
        if cycle.is_some() {
            facts.cycle = cycle.as_deref();
            decision = gate::decide(&facts);
        }
        self.metrics.observe(request, decision.as_str());
        let done = match decision.course {
            Course::Leave => return Ok(Action::Done),
            Course::Wait => self.try_out(request, &object, None, cx).await,
            Course::Write(write) => {
                let live = live.as_ref().zip(deployment);
                self.write(request, &object, live, write, cx).await?
            }
            Course::Conflict(_) | Course::Terminating | Course::Invalid(_) => Done::nothing(),
        };
        let status = gate::report(&object, &decision, &done.applied, &done.trial, &Time(now));
        self.tell(request, &object, &decision, &done, &status, cx).await?;
        if let Some(error) = done.error {
            return Err(error);
        }
        let next = decision.next.into_iter().chain(done.next).min();
        Ok(next.map_or(Action::Done, Action::RequeueAfter))
    }
}

// === impl Doubt ===

impl Doubt {
    /// Returns until when there was doubt. A term begins with it: this process has seen nobody answer yet, so that it
    /// could not tell a network that is cut from targets that are gone.
    fn note(&mut self, term: u64, outage: bool, now: Timestamp) -> Option<Timestamp> {
        if outage || self.term != Some(term) {
            *self = Self { term: Some(term), until: Some(now) };
        }
        self.until
    }
}

// === private ===

/// Returns whether to ask the server if the Deployment has the object's template already: taken over for the first
/// time, it bears no mark that would tell. Afterwards it does.
fn asks(decision: &gate::Decision, live: &LiveDeployment) -> bool {
    let holds = decision.write().is_some_and(|write| write.adopts && write.holds_template);
    holds && live.template_mark().is_none()
}

/// Returns the labels of the Pods to come.
fn template_labels(object: &WaitDeployment) -> BTreeMap<String, String> {
    let labels = object.spec.template.get("metadata").and_then(|metadata| metadata.get("labels"));
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn send(
    object: &WaitDeployment,
    happenings: impl IntoIterator<Item = gate::Happening>,
    done: &Done,
    cx: &Context,
) {
    let regarding = object.object_ref(&());
    for gate::Happening { kind, reason, note, is_about_deployment } in happenings {
        match done.deployment(object).filter(|_| is_about_deployment) {
            Some(related) => {
                cx.events().event_with_related(&regarding, &related, kind, reason, ACTION, &note);
            }
            None => cx.events().event(&regarding, kind, reason, ACTION, &note),
        }
    }
}
