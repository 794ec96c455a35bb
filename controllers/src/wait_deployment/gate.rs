//! Whether the Deployment may be created, updated and scaled up yet: a pure state machine.
//!
//! Called by the `wait-deployment` reconciler with the cached objects and the results of the checks; it does
//! no I/O and reads no clock. State that must survive a restart of the manager is read back from the object's
//! status: when the gate closed, the last result of each dependency, and whether one was lost.
//!
//! Dependencies are not checked while the gate holds no part of the spec back and `onLoss` is Ignore, so an
//! outage of them does not affect an application that runs already.
//!
//! # Invariants
//! 1. A Deployment that is controlled by the object's uid is never deleted, and is scaled to 0 only where
//!    `onLoss` is `ScaleToZero`, after a dependency that was ready has failed in this process.
//! 2. A Deployment of the object's name that another owner controls, or that may not be adopted, is never
//!    written.
//! 3. A result from before the start of this process stays in the status until the dependency has been
//!    checked again, but never opens a gate.
//! 4. "Not ready yet" is a state and never an error: the next run comes from a check result, not from a
//!    backoff.
//! 5. A decision that depends on time returns when to decide again.

mod events;
mod loss;
mod needs;
mod ownership;
mod report;
mod result;
mod summary;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use mainstay_api::wait_for::{Adoption, OnDeadline, OnLoss};
use mainstay_api::{InvalidSpec, Plan, WaitDeployment};

use crate::dependency::observation::{Observation, State};
use crate::deployment::{LiveDeployment, template_hash};
use crate::reasons::condition;

pub(crate) use events::{OpenedBy, Opening, StatusChange, Transition, Write, write_transition};
pub use loss::{Loss, were_ready};
pub use needs::{DependencyState, Needs};
pub use ownership::{Conflict, Ownership};
pub(crate) use report::report_too_large;
pub use report::{is_shown, report};
pub use result::{Applied, DryRun, Refusal, RefusalKind};

/// Time until a WaitDeployment is reconciled again while an outage of the manager's own network is suspected.
const OUTAGE_RETRY: Duration = Duration::from_secs(10);

/// The input of the decision about the gate and the Deployment of a WaitDeployment.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The WaitDeployment with its last written status.
    pub object: &'a WaitDeployment,
    /// The resolved `spec.waitFor` or `waitProbe` of the object.
    pub plan: Result<&'a Plan, &'a InvalidSpec>,
    /// The Deployment of the object's name, whichever owner controls it.
    pub live: Option<&'a LiveDeployment>,
    /// The observation of each dependency, in the order of the plan; empty unless [`needs_checks`] returns
    /// true.
    pub observations: &'a [Observation],
    /// Whether so many targets failed at once that an outage of the manager's own network is suspected. A
    /// failure seen now does not count as a loss then, and no Deployment is scaled down.
    pub outage: bool,
    /// When this process last suspected an outage of the manager's own network; the grace before a scale-down
    /// counts from there.
    pub last_outage: Option<Timestamp>,
    /// Whether the API server found that `live`, which has no template hash, has the template of the object.
    pub same_template: bool,
    /// The current time.
    pub now: Timestamp,
}

/// The decision about one WaitDeployment: the state of its gate, and the next step for its Deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The next step for the Deployment of the object.
    pub course: Course,
    /// The closed gate; `None` while the gate holds no part of the spec back.
    pub closed: Option<Closed>,
    /// The states of the dependencies of the object.
    pub needs: Needs,
    /// Whether the Deployment is written but the status does not show the open gate yet, and no check has run
    /// since: the status is left as it is until one has.
    pub unexplained: bool,
    /// The loss of a dependency that was ready; `None` without a loss.
    pub loss: Option<Loss>,
    /// The cycle of closed gates that keeps this gate closed, as text; `None` without a cycle. [`decide`]
    /// always leaves it `None`.
    pub cycle: Option<String>,
    /// Time after which to decide again, even if no event arrives; `None` if time changes no decision.
    pub next: Option<Duration>,
}

/// The next step for the Deployment of a WaitDeployment.
#[derive(Clone, Debug, PartialEq)]
pub enum Course {
    /// No step: the WaitDeployment is being deleted, and garbage collection deletes its Deployment.
    Leave,
    /// No step: a Deployment of the WaitDeployment's name exists that must be left alone, for this reason.
    Conflict(Conflict),
    /// No step: the Deployment is being deleted; decide again once it is gone.
    Terminating,
    /// No step: there is no Deployment, and the dependencies in the spec are invalid.
    Invalid(InvalidSpec),
    /// No step yet: there is no Deployment, and its dependencies are not ready.
    Wait,
    /// Apply the current spec to the Deployment, except for the parts that the gate holds back.
    Write(PlannedWrite),
}

/// The planned write of the Deployment, with the parts of the spec that are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedWrite {
    /// Whether the Deployment is written although its dependencies are not ready, because the deadline has
    /// passed and `onDeadline` is Proceed.
    pub proceeds: bool,
    /// Whether the write adopts the Deployment, because it has no controller yet.
    pub adopts: bool,
    /// Whether the write keeps the live Pod template, because the new one is held back.
    pub holds_template: bool,
    /// The number of replicas that the write gives the Deployment.
    pub replicas: Replicas,
}

/// The number of replicas that a write gives a Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// As many replicas as the WaitDeployment sets; left to other writers if it sets none.
    AsSpecified,
    /// The Deployment is kept at 0 replicas, although the spec of the WaitDeployment sets more.
    Held,
    /// The gate sets 0 replicas, because a dependency that was ready has failed.
    ScaledToZero,
}

/// The closed gate of a WaitDeployment, which holds part of its spec back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// When the gate closed.
    pub since: Timestamp,
    /// When the deadline of the closed gate passes and `onDeadline` applies; `None` without a deadline.
    pub deadline: Option<Timestamp>,
    /// The value of `onDeadline`, once the deadline of the gate has passed; `None` before.
    pub expired: Option<OnDeadline>,
}

/// Returns whether the gate of a WaitDeployment needs results of the checks of its dependencies.
pub fn needs_checks(object: &WaitDeployment, plan: &Plan, live: Option<&LiveDeployment>) -> bool {
    if object.is_deleting() || plan.dependencies.is_empty() {
        return false;
    }
    match Ownership::of(object, live) {
        Ownership::Absent => object.spec.gates().create || holds_replicas(object, None),
        Ownership::Owned(live) => {
            plan.on_loss != OnLoss::Ignore || !status_shows_open(object) || may_hold(object, live)
        }
        Ownership::Adoptable(live) => may_hold(object, live),
        Ownership::Terminating | Ownership::Conflict(_) => false,
    }
}

/// Returns how long the gate of a WaitDeployment has been closed, for the `initialDelaySeconds` of checks:
/// they count from the closing of the gate, and a new manager does not restart them. While an open gate is
/// watched for losses, every delay is over.
pub fn closed_for(object: &WaitDeployment, plan: &Plan, now: Timestamp) -> Duration {
    let closed = object.status.as_ref().and_then(|status| status.gate_closed_time.as_ref());
    match closed {
        // If the clock was set back since, the gate counts as closed now.
        Some(since) => Duration::try_from(now.duration_since(since.0)).unwrap_or_default(),
        None if plan.on_loss != OnLoss::Ignore && were_ready(object) => Duration::MAX,
        None => Duration::ZERO,
    }
}

/// Decides the state of the gate and the next step for the Deployment of a WaitDeployment.
pub fn decide(facts: &Facts<'_>) -> Decision {
    let Facts { object, live, .. } = *facts;
    if object.is_deleting() {
        return Decision::of(Course::Leave, Needs::unknown());
    }
    let (live, adopts) = match Ownership::of(object, live) {
        Ownership::Conflict(conflict) => return Decision::of(Course::Conflict(conflict), Needs::unknown()),
        Ownership::Terminating => return Decision::of(Course::Terminating, Needs::unknown()),
        Ownership::Absent => (None, false),
        Ownership::Owned(live) => (Some(live), false),
        Ownership::Adoptable(live) => (Some(live), true),
    };
    let needs = Needs::of(facts, live.is_some());
    let loss = live.filter(|_| !adopts).and_then(|live| Loss::find(facts, &needs, live));
    decide_by_needs(facts, live, adopts, needs, loss)
}

// === impl Decision ===

impl Decision {
    /// All states of a gate in metrics: every value of [`as_str`](Self::as_str) except `deleting`, and
    /// `too_large` for objects that are not decoded.
    pub const STATES: [&'static str; 11] = [
        "closed",
        "conflict",
        "denied",
        "expired",
        "held",
        "invalid",
        "lost",
        "open",
        "scaled_to_zero",
        "terminating",
        "too_large",
    ];

    fn of(course: Course, needs: Needs) -> Self {
        Self { course, closed: None, needs, unexplained: false, loss: None, cycle: None, next: None }
    }

    /// Returns the state of the gate in one word, for logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match &self.course {
            Course::Leave => "deleting",
            Course::Conflict(_) => "conflict",
            Course::Terminating => "terminating",
            Course::Invalid(_) => "invalid",
            _ if self.closed.is_some_and(|closed| closed.expired.is_some()) => "expired",
            Course::Wait => match self.needs.verdict {
                State::Denied => "denied",
                State::Invalid => "invalid",
                _ => "closed",
            },
            Course::Write(_) if self.closed.is_some() => "held",
            Course::Write(_) if self.scales_to_zero() => "scaled_to_zero",
            Course::Write(_) if self.loss.as_ref().is_some_and(|loss| !loss.tolerated) => "lost",
            Course::Write(_) => "open",
        }
    }

    /// Returns the planned write of the Deployment; `None` if it is not to be written.
    pub fn write(&self) -> Option<PlannedWrite> {
        if let Course::Write(planned) = self.course { Some(planned) } else { None }
    }

    /// Returns whether the Deployment has to have 0 replicas because a dependency is lost.
    pub(crate) fn scales_to_zero(&self) -> bool {
        self.loss.as_ref().is_some_and(|loss| loss.scales)
    }
}

// === impl PlannedWrite ===

impl PlannedWrite {
    /// Returns whether the write holds part of the spec back: the template or the replicas.
    pub fn holds(&self) -> bool {
        self.holds_template || self.replicas == Replicas::Held
    }
}

// === private: the parts that a gate holds back ===

// `gates` is read from the raw field and not from the plan: an invalid spec must not open a gate that it
// names.

fn may_hold(object: &WaitDeployment, live: &LiveDeployment) -> bool {
    holds_template(object, live, false) || holds_replicas(object, Some(live))
}

fn holds_template(object: &WaitDeployment, live: &LiveDeployment, same_template: bool) -> bool {
    object.spec.gates().update && !same_template && !has_template(object, live)
}

/// Returns whether the gate keeps the Deployment at 0 replicas. Replicas that the object does not set are
/// never held back: another writer sets them. A missing Deployment counts as one with 0 replicas.
fn holds_replicas(object: &WaitDeployment, live: Option<&LiveDeployment>) -> bool {
    let asked = object.spec.replicas.unwrap_or_default();
    let present = live.map_or(Some(0), |live| live.spec.replicas);
    object.spec.gates().scale_from_zero && asked > 0 && present == Some(0)
}

/// Returns whether the Deployment has the object's template: by its template hash, or by its generation if an
/// earlier version of mainstay wrote it without one. A Deployment that is adopted only if it is identical
/// counts as having it.
fn has_template(object: &WaitDeployment, live: &LiveDeployment) -> bool {
    match live.template_hash() {
        None if live.controller().is_none() && object.spec.adoption() == Adoption::IfIdentical => true,
        Some(hash) => hash == template_hash(object),
        None => live.written_for() == Some(object.generation()),
    }
}

/// Returns whether the status of a WaitDeployment shows an open gate with all dependencies ready, or not
/// checked. The write of the status may have failed after that of the Deployment; checks then go on until the
/// status shows the result.
fn status_shows_open(object: &WaitDeployment) -> bool {
    let Some(status) = &object.status else { return false };
    let Some(shown) = object.condition(condition::DEPENDENCIES_READY) else { return false };
    // Unknown is also the status while the dependencies of an open gate are not checked.
    let is_unchecked = shown.status == "Unknown" && shown.message.as_deref() == Some(needs::NOT_CHECKED);
    status.gate_closed_time.is_none() && (shown.status == "True" || is_unchecked)
}

// === private: the decision ===

fn decide_by_needs(
    facts: &Facts<'_>,
    live: Option<&LiveDeployment>,
    adopts: bool,
    needs: Needs,
    loss: Option<Loss>,
) -> Decision {
    let Facts { object, plan, now, .. } = *facts;
    let ready = needs.are_ready();
    let waits = live.is_none() && object.spec.gates().create && !ready;
    let scales = loss.as_ref().is_some_and(|loss| loss.scales);
    let holds_template = !ready && live.is_some_and(|live| holds_template(object, live, facts.same_template));
    let holds_replicas = !ready && !waits && !scales && holds_replicas(object, live);
    if let (true, Err(invalid)) = (waits, plan) {
        let closed = Some(Closed::of(object, None, now));
        return Decision { closed, ..Decision::of(Course::Invalid(invalid.clone()), needs) };
    }
    let is_closed = waits || holds_template || holds_replicas;
    let was_closed = object.status.as_ref().is_some_and(|status| status.gate_closed_time.is_some());
    let closed = (is_closed || was_closed && !ready).then(|| Closed::of(object, plan.ok(), now));
    // If the status could not be written then, it still has the same deadline, and the next run proceeds
    // again.
    let proceeds = closed.is_some_and(|closed| closed.expired == Some(OnDeadline::Proceed));
    let closed = closed.filter(|_| is_closed && !proceeds);
    let planned = PlannedWrite {
        proceeds,
        adopts,
        holds_template: holds_template && !proceeds,
        replicas: match (scales, holds_replicas && !proceeds) {
            (true, _) => Replicas::ScaledToZero,
            (false, true) => Replicas::Held,
            (false, false) => Replicas::AsSpecified,
        },
    };
    let course = if waits && !proceeds { Course::Wait } else { Course::Write(planned) };
    let is_unreported = live.is_some()
        && !adopts
        && !is_closed
        && !proceeds
        && needs.are_checked
        && !status_shows_open(object);
    let unexplained = is_unreported && !ready && needs.blocking().any(|dependency| !dependency.is_fresh);
    let moments = [
        closed.filter(|closed| closed.expired.is_none()).and_then(|closed| closed.deadline),
        loss.as_ref().and_then(|loss| loss.next),
    ];
    let timers = moments.into_iter().flatten().filter_map(|moment| until(now, moment));
    // A failure that is ignored during a suspected outage is judged again later, and no event announces the
    // end of it.
    let retry = (facts.outage && needs.ignores_failures).then_some(OUTAGE_RETRY);
    let next = timers.chain(retry).min();
    Decision { course, closed, needs, unexplained, loss, cycle: None, next }
}

// === impl Closed ===

impl Closed {
    /// Returns the closed gate of a WaitDeployment: closed since the time in its status, or since now. The
    /// deadline counts from there, so neither a restart of the manager nor an edit of another field extends
    /// it.
    fn of(object: &WaitDeployment, plan: Option<&Plan>, now: Timestamp) -> Self {
        let shown = object.status.as_ref().and_then(|status| status.gate_closed_time.as_ref());
        let since = shown.map_or(now, |shown| shown.0);
        let deadline = plan.and_then(|plan| later(since, plan.deadline?));
        let over = deadline.is_some_and(|deadline| deadline <= now);
        Self { since, deadline, expired: plan.filter(|_| over).map(|plan| plan.on_deadline) }
    }
}

/// Returns the time `moment + wait`; `None` beyond the end of the calendar.
fn later(moment: Timestamp, wait: Duration) -> Option<Timestamp> {
    moment.checked_add(wait).ok()
}

/// Returns the time from `now` until `moment`; `None` if the moment has passed.
fn until(now: Timestamp, moment: Timestamp) -> Option<Duration> {
    Duration::try_from(moment.duration_since(now)).ok().filter(|wait| !wait.is_zero())
}
