//! Whether the Deployment may exist, grow and change yet: a pure state machine.
//!
//! Called by the `wait-deployment` reconciler with what the cache and the probe engine know; nothing here reads a clock,
//! a socket or a server. What has to outlive the manager stands in the object's status and is read back from there:
//! when the gate closed, what was known of each dependency, and that one was lost.
//!
//! The gate looks first: as long as nothing is to be held back and nobody asked for losses to be told, dependencies are
//! not looked at, so their outages are no business of an app that already runs.
//!
//! # Invariants
//! 1. A Deployment that is controlled by our uid is never deleted, and its replicas are taken away only where `onLoss`
//!    says so, for a dependency that had held and is seen to fail now.
//! 2. A Deployment of that name that is not ours and may not be adopted is never written.
//! 3. What was told before this process began is repeated until it has been tried again, and opens nothing.
//! 4. "Not ready yet" is a state, never an error: what is waited for brings the next look, not a backoff.
//! 5. A decision that depends on time names the moment of the next one.

mod events;
mod loss;
mod needs;
mod report;
mod rollout;
mod standing;
mod summary;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use mainstay_api::wait_for::{Adoption, OnDeadline, OnLoss};
use mainstay_api::{InvalidSpec, Plan, WaitDeployment};

use crate::dependency::observation::{Observation, State};
use crate::deployment::{LiveDeployment, template_mark};
use crate::reasons::condition;

pub(crate) use events::{Change, Deed, Happening, OpenedBy, Opening, of_deed};
pub use loss::{Loss, had_held};
pub use needs::{Known, Needs, Seen};
pub(crate) use report::TooLargeStatus;
pub use report::{Applied, GateStatus, Trial, report};
pub use standing::{Conflict, Standing};

/// How soon to look again while the manager's own network is in doubt.
const OUTAGE_RETRY: Duration = Duration::from_secs(10);

/// What is known when the gate decides.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// With the status that was told last.
    pub object: &'a WaitDeployment,
    /// What it waits for.
    pub plan: Result<&'a Plan, &'a InvalidSpec>,
    /// The Deployment of its name, whoever controls it.
    pub live: Option<&'a LiveDeployment>,
    /// In the order of the plan; empty unless [`looks`] asks for them.
    pub observations: &'a [Observation],
    /// Whether so much failed at once that the manager's own network is to be suspected. A failure seen now is not taken
    /// for a loss then, and nothing is scaled down.
    pub outage: bool,
    /// When that was last so, as far as this process knows: grace counts from there.
    pub outage_until: Option<Timestamp>,
    /// The API server was asked, and would make of the object's template just the one that `live` has, which bears no
    /// mark.
    pub same_template: bool,
    /// The cycle of closed gates that this one is part of, for people.
    pub cycle: Option<&'a str>,
    /// The present.
    pub now: Timestamp,
}

/// What to do about one WaitDeployment, and what is known of its dependencies.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What to do about the Deployment.
    pub course: Course,
    /// Set while anything is held back.
    pub closed: Option<Closed>,
    /// As far as they are looked at.
    pub needs: Needs,
    /// The Deployment was let through, which was not told yet, and nobody knows what opened the gate: what was told
    /// stands until the dependencies have been looked at.
    pub unexplained: bool,
    /// Set while a dependency is lost that had held.
    pub loss: Option<Loss>,
    /// The cycle that keeps the gate closed.
    pub cycle: Option<String>,
    /// When to decide again, even if nothing changes.
    pub next: Option<Duration>,
}

/// What to do about the Deployment.
#[derive(Clone, Debug, PartialEq)]
pub enum Course {
    /// Nothing: the object is being deleted, and garbage collection does the rest.
    Leave,
    /// Nothing: the Deployment belongs to somebody else.
    Conflict(Conflict),
    /// Nothing: our Deployment is being deleted; decide again once it is gone.
    Terminating,
    /// Nothing: there is no Deployment, and what to wait for cannot be acted on.
    Invalid(InvalidSpec),
    /// Nothing yet: there is no Deployment, and it is waited for its dependencies.
    Wait,
    /// Bring the Deployment to the current spec, but for what is held back.
    Write(Write),
}

/// How the Deployment is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The dependencies do not hold, but the deadline is over and the object asks to go on without them.
    pub proceeds: bool,
    /// It is nobody's so far: take it over.
    pub adopts: bool,
    /// Leave the template as it is.
    pub holds_template: bool,
    /// How many replicas it gets.
    pub replicas: Replicas,
}

/// How many replicas a Deployment gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// As many as the object asks for, or whatever there are if it asks for none.
    AsAsked,
    /// 0 as before, though more are asked for.
    Held,
    /// 0, because a dependency is lost.
    TakenAway,
}

/// A closed gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// When it closed.
    pub since: Timestamp,
    /// When `onDeadline` applies.
    pub deadline: Option<Timestamp>,
    /// What follows, once that time is over.
    pub expired: Option<OnDeadline>,
}

/// Returns whether the dependencies have to be looked at.
pub fn looks(object: &WaitDeployment, plan: &Plan, live: Option<&LiveDeployment>) -> bool {
    if object.is_deleting() || plan.dependencies.is_empty() {
        return false;
    }
    match Standing::of(object, live) {
        Standing::Absent => object.spec.gates().create || holds_replicas(object, None),
        Standing::Ours(live) => {
            plan.on_loss != OnLoss::Ignore || !is_told_open(object) || may_hold(object, live, false)
        }
        Standing::Adoptable(live) => may_hold(object, live, false),
        Standing::Leaving | Standing::Foreign(_) => false,
    }
}

/// Returns how long the gate has been closed, as far as delays go: they begin with its closing, and not anew with another
/// manager. Where losses are looked at while it is open they are over.
pub fn closed_for(object: &WaitDeployment, plan: &Plan, now: Timestamp) -> Duration {
    let told = object.status.as_ref().and_then(|status| status.gate_closed_time.as_ref());
    match told {
        // A clock that was set back in between makes it begin now.
        Some(since) => Duration::try_from(now.duration_since(since.0)).unwrap_or_default(),
        None if plan.on_loss != OnLoss::Ignore && had_held(object) => Duration::MAX,
        None => Duration::ZERO,
    }
}

/// Decides what to do.
pub fn decide(facts: &Facts<'_>) -> Decision {
    let Facts { object, live, .. } = *facts;
    let bare = |course| Decision {
        course,
        closed: None,
        needs: Needs::unknown(),
        unexplained: false,
        loss: None,
        cycle: None,
        next: None,
    };
    if object.is_deleting() {
        return bare(Course::Leave);
    }
    let (live, adopts) = match Standing::of(object, live) {
        Standing::Foreign(conflict) => return bare(Course::Conflict(conflict)),
        Standing::Leaving => return bare(Course::Terminating),
        Standing::Absent => (None, false),
        Standing::Ours(live) => (Some(live), false),
        Standing::Adoptable(live) => (Some(live), true),
    };
    let needs = Needs::of(facts, live.is_some());
    let loss = live.filter(|_| !adopts).and_then(|live| Loss::find(facts, &needs, live));
    decide_by_needs(facts, live, adopts, needs, loss)
}

// === impl Decision ===

impl Decision {
    /// Returns the state in one word, for logs and metrics.
    pub fn as_str(&self) -> &'static str {
        let scaled = self.loss.as_ref().is_some_and(|loss| loss.scales);
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
            Course::Write(_) if scaled => "scaled_to_zero",
            Course::Write(_) if self.loss.as_ref().is_some_and(|loss| !loss.tolerated) => "lost",
            Course::Write(_) => "open",
        }
    }

    /// Every word that [`as_str`](Self::as_str) may return of an object that is not being deleted, and that of one of
    /// which nothing is decided, because it is too large.
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

    /// Returns how the Deployment is to be written, if it is.
    pub fn write(&self) -> Option<Write> {
        if let Course::Write(write) = self.course { Some(write) } else { None }
    }
}

// === impl Write ===

impl Write {
    /// Returns whether anything is held back.
    pub fn holds(&self) -> bool {
        self.holds_template || self.replicas == Replicas::Held
    }
}

// === private: what is held back ===

// The gates are read from the fields as they are, not from the plan: a spec that cannot be acted on must not let through
// what it means to hold.

fn may_hold(object: &WaitDeployment, live: &LiveDeployment, same_template: bool) -> bool {
    holds_template(object, live, same_template) || holds_replicas(object, Some(live))
}

fn holds_template(object: &WaitDeployment, live: &LiveDeployment, same_template: bool) -> bool {
    object.spec.gates().update && !same_template && !is_let_through(object, live)
}

/// Replicas that the object does not set are somebody else's, and nobody's to hold back. A Deployment that is not there
/// counts as one without replicas.
fn holds_replicas(object: &WaitDeployment, live: Option<&LiveDeployment>) -> bool {
    let asked = object.spec.replicas.unwrap_or_default();
    let present = live.map_or(Some(0), |live| live.spec.replicas);
    object.spec.gates().scale_from_zero && asked > 0 && present == Some(0)
}

/// Returns whether the Deployment has the object's template: by the mark that was left with it, and where an earlier
/// version left none, by the generation. One that is adopted only if it is identical either has it or is left alone.
fn is_let_through(object: &WaitDeployment, live: &LiveDeployment) -> bool {
    match live.template_mark() {
        None if live.controller().is_none() && object.spec.adoption() == Adoption::IfIdentical => true,
        Some(mark) => mark == template_mark(object),
        None => live.written_for() == Some(object.generation()),
    }
}

/// Returns whether the status tells of an open gate all that there is to tell: a write of the status may be refused, or
/// never made, after the Deployment was. What was not told to hold by then is told once it does.
fn is_told_open(object: &WaitDeployment) -> bool {
    let Some(status) = &object.status else { return false };
    let Some(told) = object.condition(condition::DEPENDENCIES_READY) else { return false };
    // Unknown is also what is said where nobody is to look.
    let is_left_alone = told.status == "Unknown" && told.message.as_deref() == Some(needs::NOT_WATCHED);
    status.gate_closed_time.is_none() && (told.status == "True" || is_left_alone)
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
    let holds = needs.hold();
    let is_scaled = loss.as_ref().is_some_and(|loss| loss.scales);
    let waits = live.is_none() && object.spec.gates().create && !holds;
    let mut write = Write {
        proceeds: false,
        adopts,
        holds_template: !holds && live.is_some_and(|live| holds_template(object, live, facts.same_template)),
        replicas: if is_scaled {
            Replicas::TakenAway
        } else if !holds && !waits && holds_replicas(object, live) {
            Replicas::Held
        } else {
            Replicas::AsAsked
        },
    };
    if let (true, Err(invalid)) = (waits, plan) {
        let closed = Some(Closed { deadline: None, expired: None, ..Closed::of(object, None, now) });
        let course = Course::Invalid(invalid.clone());
        return Decision { course, closed, needs, unexplained: false, loss: None, cycle: None, next: None };
    }
    let is_closed = waits || write.holds();
    let was_closed = object.status.as_ref().is_some_and(|status| status.gate_closed_time.is_some());
    let mut closed = (is_closed || was_closed && !holds).then(|| Closed::of(object, plan.ok(), now));
    let mut course = if waits { Course::Wait } else { Course::Write(write) };
    let proceeds = closed.is_some_and(|closed| closed.expired == Some(OnDeadline::Proceed));
    closed = closed.filter(|_| is_closed);
    // That it went on is told again where it was not written: the deadline is as old as before.
    if proceeds {
        write.proceeds = true;
        write.holds_template = false;
        if write.replicas == Replicas::Held {
            write.replicas = Replicas::AsAsked;
        }
        course = Course::Write(write);
        closed = None;
    }
    let is_untold =
        live.is_some() && !adopts && !is_closed && !proceeds && needs.looks && !is_told_open(object);
    let unexplained = is_untold && !holds && needs.blocking().any(|known| !known.is_fresh);
    let moments = [
        closed.filter(|closed| closed.expired.is_none()).and_then(|closed| closed.deadline),
        loss.as_ref().and_then(|loss| loss.next),
    ];
    let in_time = moments.into_iter().flatten().filter_map(|moment| until(now, moment));
    // What is not believed now has to be looked at again, and no event may tell of it.
    let doubts = (facts.outage && needs.has_doubts).then_some(OUTAGE_RETRY);
    let next = in_time.chain(doubts).min();
    let cycle = facts.cycle.filter(|_| closed.is_some()).map(str::to_owned);
    Decision { course, closed, needs, unexplained, loss, cycle, next }
}

// === impl Closed ===

impl Closed {
    /// A gate that has been closed for as long as the status says, or is closed now. The deadline counts from there, so
    /// that neither a restart nor an edit of anything else begins it anew.
    fn of(object: &WaitDeployment, plan: Option<&Plan>, now: Timestamp) -> Self {
        let told = object.status.as_ref().and_then(|status| status.gate_closed_time.as_ref());
        let since = told.map_or(now, |told| told.0);
        let deadline = plan.and_then(|plan| later(since, plan.deadline?));
        let over = deadline.is_some_and(|deadline| deadline <= now);
        Self { since, deadline, expired: plan.filter(|_| over).map(|plan| plan.on_deadline) }
    }
}

/// Returns the moment this much later; `None` beyond the end of the calendar.
fn later(moment: Timestamp, wait: Duration) -> Option<Timestamp> {
    moment.checked_add(wait).ok()
}

/// Returns how long it is until `moment`; `None` if it has come.
fn until(now: Timestamp, moment: Timestamp) -> Option<Duration> {
    Duration::try_from(moment.duration_since(now)).ok().filter(|wait| !wait.is_zero())
}
