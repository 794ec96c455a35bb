//! The controller `wait-deployment`: creates a Deployment once its dependencies are ready, and keeps its spec
//! equal to that of its WaitDeployment.
//!
//! [`gate::decide`] makes the decision and [`gate::report`] the status; this file reads and writes objects.
//! [`Dependencies`] checks the dependencies and enqueues the object when a result changes.
//!
//! # Invariants
//! 1. A Deployment is created only if the cache shows none of that name, and changed only while it has the
//!    uid that the cache shows: a stale cache can cost a 409, but never overwrites another Deployment.
//! 2. A status is never written to an object that was created again under the same name.
//! 3. A body that the server refused as invalid, or accepted in a dry run, is not sent again before the
//!    object changes.
//! 4. An object that cannot be decoded gets a Warning Event; the object and its Deployment are left alone. If
//!    one of the two is too large to be decoded, conditions of the object report that as well.

mod adopt;
pub mod gate;
mod memory;
mod metrics;
mod refused;
#[cfg(test)]
mod tests;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use mainstay::cache::{Entry, ReadError, Store, Uid};
use mainstay::client::{Applier, EventType};
use mainstay::key::{Key, NamespacedName};
use mainstay::reconcile::{Action, Context, Outcome, ReconcileError, Reconciler};
use mainstay_api::{Plan, WaitDeployment, WaitDeploymentStatus};
use parking_lot::Mutex;
use serde_json::Value;

use crate::dependency::Dependencies;
use crate::dependency::observation::{Observation, State};
use crate::deployment::{LiveDeployment, SIZE_FIELD_MANAGER, desired};
use crate::reasons::event;
use crate::status::{StatusWriter, uid_of};
use gate::{Course, Facts, StatusChange};
use memory::{DRY_RUN_RETRY, Memory};
use write::WriteResult;

pub use metrics::GateMetrics;

/// Name of the controller that creates and updates the Deployments of WaitDeployments, in metrics, logs and
/// configuration.
pub const NAME: &str = "wait-deployment";

/// The field `action` of every Event that the gate sends.
const ACTION: &str = "Gate";

/// Reconciles WaitDeployments: creates and updates their Deployments, and writes their status.
#[derive(Debug)]
pub struct WaitDeploymentReconciler {
    objects: Store<WaitDeployment>,
    deployments: Store<LiveDeployment>,
    write_deployment: Applier<LiveDeployment>,
    status: StatusWriter,
    dependencies: Dependencies,
    /// Keys of labels and annotations of a WaitDeployment that are not copied to its Deployment; see
    /// [`desired`].
    not_passed_on: Vec<String>,
    memory: Memory,
    /// Writes the conditions of WaitDeployments that are too large, under a field manager of its own: all
    /// other fields of the gate stay, and its first report after the object has shrunk takes the conditions
    /// over.
    size_status: StatusWriter,
    /// The WaitDeployments reported as too large, once per version: a status that shows the report cannot be
    /// decoded.
    too_large: Mutex<HashMap<NamespacedName, Version>>,
    metrics: GateMetrics,
    last_outage: Mutex<LastOutage>,
}

/// The Deployment of a WaitDeployment's name, as the cache shows it.
#[derive(Debug)]
struct FoundDeployment {
    /// The cached JSON of the Deployment, from which the template is decoded when it is needed.
    entry: Entry<LiveDeployment>,
    live: Arc<LiveDeployment>,
}

/// The leadership term in which a WaitDeployment was reported as too large, with its uid and generation.
type Version = (u64, Uid, Option<i64>);

type ObjectAndDeployment = (Arc<WaitDeployment>, Option<FoundDeployment>);

/// One run of the reconciler for a WaitDeployment that can be decoded.
#[derive(Clone, Copy)]
struct Run<'a> {
    reconciler: &'a WaitDeploymentReconciler,
    request: &'a NamespacedName,
    object: &'a WaitDeployment,
    cx: &'a Context,
}

/// When an outage of the manager's own network was last suspected.
#[derive(Debug, Default)]
struct LastOutage {
    /// The leadership term that the time `at` belongs to; `None` before the first one.
    term: Option<u64>,
    at: Option<Timestamp>,
}

// === impl WaitDeploymentReconciler ===

impl WaitDeploymentReconciler {
    /// Makes the reconciler of WaitDeployments. `write_deployment` and `status` must write as
    /// [`FIELD_MANAGER`](crate::deployment::FIELD_MANAGER); `dependencies` must enqueue objects of this
    /// controller when a result changes; for `not_passed_on` see [`desired`].
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
            size_status: status.with_field_manager(SIZE_FIELD_MANAGER),
            too_large: Mutex::default(),
            status,
            dependencies,
            not_passed_on,
            memory: Memory::default(),
            metrics,
            last_outage: Mutex::default(),
        }
    }

    /// Reads a WaitDeployment from the cache. `None` if it is gone or being deleted; its dependencies and
    /// other state in memory are forgotten then.
    fn object(
        &self,
        request: &NamespacedName,
        cx: &Context,
    ) -> Result<Option<Arc<WaitDeployment>>, ReadError> {
        let found = self.objects.get(request);
        let gone = found.as_ref().is_ok_and(|found| found.as_ref().is_none_or(|object| object.is_deleting()));
        // After any other read error the object may still exist unchanged, so its state is kept.
        if gone || matches!(found, Err(ReadError::Decode { .. } | ReadError::TooLarge { .. })) {
            self.dependencies.forget(request);
            self.memory.forget(request);
            self.metrics.forget(request);
        }
        if let Err(error @ ReadError::Decode { source, .. }) = &found {
            self.send_unreadable(request, &format!("{error}: {source}"), cx);
        }
        Ok(found?.filter(|_| !gone))
    }

    /// Reads a WaitDeployment and the Deployment of its name from the cache; `None` if the WaitDeployment is
    /// gone or being deleted.
    fn read(&self, request: &NamespacedName, cx: &Context) -> Result<Option<ObjectAndDeployment>, ReadError> {
        let Some(object) = self.object(request, cx)? else { return Ok(None) };
        let deployment = match self.deployments.entry(request)? {
            Some(entry) => Some(FoundDeployment { live: entry.decode()?, entry }),
            None => None,
        };
        Ok(Some((object, deployment)))
    }

    /// Sends a Warning Event about a WaitDeployment that cannot be decoded: its author does not read the
    /// manager's log, and a status computed from it would be wrong.
    fn send_unreadable(&self, request: &NamespacedName, why: &str, cx: &Context) {
        let Ok(Some(entry)) = self.objects.entry(request) else { return };
        let object = ObjectReference {
            name: Some(request.name().to_owned()),
            namespace: request.namespace().map(str::to_owned),
            uid: Some(entry.meta().uid.to_string()),
            ..WaitDeployment::default().object_ref(&())
        };
        let note = format!("{why}; the object is not reconciled and its Deployment is left as it is");
        cx.events().event(&object, EventType::Warning, event::UNREADABLE, ACTION, &note);
    }

    /// Reports in the status and by an Event that a WaitDeployment, or its Deployment, is too large. Only the
    /// metadata of such an object is known, so only the three summary conditions are written.
    async fn report_too_large(&self, request: &NamespacedName, error: &ReadError, cx: &Context) -> Outcome {
        let Some(entry) = self.objects.entry(request)? else { return Ok(Action::Done) };
        let meta = entry.meta();
        if meta.deleting {
            return Ok(Action::Done);
        }
        self.metrics.observe(request, "too_large");
        let version = (cx.term(), meta.uid.clone(), meta.generation);
        if self.too_large.lock().get(request) == Some(&version) {
            return Ok(Action::Done);
        }
        let (generation, now) = (meta.generation.unwrap_or_default(), Time(Timestamp::now()));
        let status = gate::report_too_large(generation, &error.to_string(), &now);
        if self.size_status.write(cx, request, &meta.uid.to_string(), &status).await? {
            self.too_large.lock().insert(request.clone(), version);
            self.send_unreadable(request, &error.to_string(), cx);
        }
        Ok(Action::Done)
    }
}

impl Reconciler for WaitDeploymentReconciler {
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        let read = match self.read(request, cx) {
            Err(error @ ReadError::TooLarge { .. }) => {
                return self.report_too_large(request, &error, cx).await;
            }
            read => read?,
        };
        self.too_large.lock().remove(request);
        match read {
            Some((object, found)) => {
                Run { reconciler: self, request, object: &object, cx }.reconcile(found.as_ref()).await
            }
            None => Ok(Action::Done),
        }
    }
}

// === impl Run ===

impl Run<'_> {
    async fn reconcile(&self, found: Option<&FoundDeployment>) -> Outcome {
        let Self { reconciler, object, cx, .. } = *self;
        let live = found.map(|found| &*found.live);
        let plan = object.plan();
        let observations = self.observe(plan.as_ref().ok(), live);
        let now = Timestamp::now();
        // The outage guard is consulted only where a failure might count as a loss: the answer costs time.
        let fails = observations.iter().any(|observation| observation.state == State::NotReady);
        let outage = fails && live.is_some() && reconciler.dependencies.suspects_outage();
        let mut facts = Facts {
            object,
            plan: plan.as_ref(),
            live,
            observations: &observations,
            outage,
            last_outage: reconciler.last_outage.lock().update(cx.term(), outage, now),
            same_template: false,
            now,
        };
        let mut decision = gate::decide(&facts);
        if let Some(found) = found.filter(|found| must_compare_templates(&decision, &found.live)) {
            facts.same_template = self.has_same_template(&found.entry, &self.desired()).await?;
            decision = gate::decide(&facts);
        }
        decision.cycle = self.cycle(&facts, &decision);
        reconciler.metrics.observe(self.request, decision.as_str());
        let result = match decision.course {
            Course::Leave => return Ok(Action::Done),
            Course::Wait => WriteResult::not_tried().with(self.dry_run(None).await),
            Course::Write(planned) => self.write(found, planned).await?,
            Course::Conflict(_) | Course::Terminating | Course::Invalid(_) => WriteResult::not_tried(),
        };
        let status = gate::report(object, &decision, &result.applied, &result.dry_run, &Time(now));
        self.publish(&decision, &result, &status).await?;
        if let Some(error) = result.error {
            return Err(error);
        }
        let retry = result.dry_run.may_pass().then_some(DRY_RUN_RETRY);
        let next = decision.next.into_iter().chain(retry).min();
        Ok(next.map_or(Action::Done, Action::RequeueAfter))
    }

    /// Returns the Deployment to apply for the WaitDeployment of this run.
    fn desired(&self) -> Value {
        desired(self.object, &self.reconciler.not_passed_on)
    }

    /// Checks the dependencies of the WaitDeployment if its gate needs them, and returns their observations.
    /// Stops checking them otherwise.
    fn observe(&self, plan: Option<&Plan>, live: Option<&LiveDeployment>) -> Vec<Observation> {
        let Self { reconciler, request, object, .. } = *self;
        let Some(plan) = plan.filter(|plan| gate::needs_checks(object, plan, live)) else {
            reconciler.dependencies.forget(request);
            return Vec::new();
        };
        let were_ready = live.is_some() && gate::were_ready(object);
        let closed_for = gate::closed_for(object, plan, Timestamp::now());
        reconciler.dependencies.observe(request, plan, were_ready, closed_for)
    }

    /// Records whether the gate of the WaitDeployment is closed, and returns the cycle of closed gates that
    /// it is part of, as text; `None` if there is none.
    fn cycle(&self, facts: &Facts<'_>, decision: &gate::Decision) -> Option<String> {
        let dependencies = &self.reconciler.dependencies;
        let Some(plan) = facts.plan.ok().filter(|_| decision.closed.is_some()) else {
            dependencies.opened(self.request);
            return None;
        };
        let has_pods = facts.live.is_some_and(|live| live.spec.replicas != Some(0));
        let holds = (!has_pods).then(|| template_labels(self.object));
        dependencies.closed(self.request, plan, facts.observations, holds, self.cx.term())
    }

    /// Writes the status of the WaitDeployment and, once it is written, sends the Events that follow from the
    /// change.
    async fn publish(
        &self,
        decision: &gate::Decision,
        result: &WriteResult,
        status: &WaitDeploymentStatus,
    ) -> Result<(), ReconcileError> {
        let Self { reconciler, request, object, cx } = *self;
        let written = gate::write_transition(object, decision, result.write);
        self.send_events(written, result.deployment(object).as_ref());
        let is_shown = gate::is_shown(status, object);
        if !is_shown && !reconciler.status.write(cx, request, uid_of(object), status).await? {
            return Ok(());
        }
        let (write, now) = (result.write, Timestamp::now());
        let change = StatusChange { object, decision, write, after: status, now };
        self.send_events(change.transitions(), None);
        reconciler.metrics.count(&change);
        Ok(())
    }

    /// Sends one Event about the WaitDeployment per transition, with `related` as its related object.
    fn send_events(
        &self,
        transitions: impl IntoIterator<Item = gate::Transition>,
        related: Option<&ObjectReference>,
    ) {
        let (events, regarding) = (self.cx.events(), self.object.object_ref(&()));
        for gate::Transition { kind, reason, note } in transitions {
            match related {
                Some(related) => {
                    events.event_with_related(&regarding, related, kind, &reason, ACTION, &note);
                }
                None => events.event(&regarding, kind, &reason, ACTION, &note),
            }
        }
    }
}

// === impl LastOutage ===

impl LastOutage {
    /// Records whether an outage of the manager's own network is suspected now, and returns when one last
    /// was.
    ///
    /// The start of a term counts as an outage: until a target has answered this process, it cannot
    /// distinguish a cut network from failed targets.
    fn update(&mut self, term: u64, outage: bool, now: Timestamp) -> Option<Timestamp> {
        if outage || self.term != Some(term) {
            *self = Self { term: Some(term), at: Some(now) };
        }
        self.at
    }
}

// === private ===

/// Returns whether the API server has to compare the live Pod template with that of the WaitDeployment: a
/// Deployment that is being adopted has no [`template_hash`](LiveDeployment::template_hash) yet.
fn must_compare_templates(decision: &gate::Decision, live: &LiveDeployment) -> bool {
    let holds = decision.write().is_some_and(|planned| planned.adopts && planned.holds_template);
    holds && live.template_hash().is_none()
}

/// Returns the labels of the WaitDeployment's Pod template.
fn template_labels(object: &WaitDeployment) -> BTreeMap<String, String> {
    let labels = object.spec.template.get("metadata").and_then(|metadata| metadata.get("labels"));
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
