//! Dependencies that are lost after they had held, and when something follows from that.
//!
//! The memory is the status: `DependenciesReady` says whether they had held, and the entries since when which one does
//! not. So neither a restart nor another replica begins a grace anew, and what never held cannot be lost.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_api::WaitDeployment;
use mainstay_api::wait_for::{MatchPolicy, OnLoss};

use super::needs::told;
use super::{Facts, Needs, Seen, later};
use crate::dependency::observation::State;
use crate::deployment::LiveDeployment;
use crate::reasons::{self, condition};

/// How long a loss lasts at least before replicas are taken away, whatever the object asks for: if it is the manager that
/// is cut off, its targets fall silent one after the other, and it takes a while until that can be seen.
const MIN_SCALE_GRACE: Duration = Duration::from_secs(30);

/// A loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Since when.
    pub since: Timestamp,
    /// `lossGraceSeconds` are not over yet: nothing is said.
    pub tolerated: bool,
    /// The Deployment is to have no replicas.
    pub scales: bool,
    /// `recoveryDeadlineSeconds` are over: somebody has to see to it.
    pub stalled: bool,
    /// When one of these may change by itself.
    pub next: Option<Timestamp>,
}

// === impl Loss ===

impl Loss {
    /// Finds the loss, if there is one, of an object whose Deployment is `live`.
    pub(super) fn find(facts: &Facts<'_>, needs: &Needs, live: &LiveDeployment) -> Option<Self> {
        let Facts { object, now, .. } = *facts;
        let Ok(plan) = facts.plan else { return Self::kept(object, live) };
        if plan.on_loss == OnLoss::Ignore {
            return None;
        }
        let was_lost = is_told_lost(object);
        let is_lost = was_lost || is_told_ready(object) && needs.verdict == State::NotReady;
        if needs.hold() || !is_lost {
            return None;
        }
        // An edited spec keeps the loss of the earlier one until what it names now is seen to hold.
        let since = since(facts, needs, plan.match_policy);
        let graced = later(since, plan.loss_grace);
        let tolerated = !was_lost && graced.is_none_or(|moment| moment > now);
        let calm = facts.outage_until.map_or(since, |until| until.max(since));
        let scales_at = later(calm, plan.loss_grace.max(MIN_SCALE_GRACE));
        let is_at_zero = live.spec.replicas == Some(0);
        let may_scale =
            needs.seen == Seen::Fails && !facts.outage && scales_at.is_some_and(|moment| moment <= now);
        let scales = plan.on_loss == OnLoss::ScaleToZero && !tolerated && (is_at_zero || may_scale);
        let stalled_at = plan.recovery_deadline.and_then(|wait| later(since, wait));
        let stalled = stalled_at.is_some_and(|moment| moment <= now);
        let scales_at = scales_at.filter(|_| plan.on_loss == OnLoss::ScaleToZero && !scales);
        let ahead = [graced, scales_at, stalled_at].into_iter().flatten().filter(|moment| *moment > now);
        Some(Self { since, tolerated, scales, stalled, next: ahead.min() })
    }

    /// What a loss took stays away while the spec cannot be acted on: nobody can tell whether it holds again.
    fn kept(object: &WaitDeployment, live: &LiveDeployment) -> Option<Self> {
        let told = object.condition(condition::DEPENDENCIES_READY).filter(|_| is_told_lost(object))?;
        let since = told.last_transition_time.as_ref()?.0;
        let was_taken = object.spec.scales_on_loss() && live.spec.replicas == Some(0);
        was_taken.then_some(Self { since, tolerated: false, scales: true, stalled: false, next: None })
    }
}

/// Returns whether the dependencies held when they were last told of, or had held and were lost since: one that fails is
/// a loss then.
pub fn had_held(object: &WaitDeployment) -> bool {
    is_told_ready(object) || is_told_lost(object)
}

fn is_told_ready(object: &WaitDeployment) -> bool {
    object.condition(condition::DEPENDENCIES_READY).is_some_and(|told| told.status == "True")
}

fn is_told_lost(object: &WaitDeployment) -> bool {
    let told = object.condition(condition::DEPENDENCIES_READY);
    told.is_some_and(|told| told.reason.as_deref() == Some(reasons::LOST))
}

/// With All the loss begins with the first that fails, with Any with the last. Once all that failed is back, and it lasts
/// because something else cannot be looked at, it is as old as it was told.
fn since(facts: &Facts<'_>, needs: &Needs, policy: MatchPolicy) -> Timestamp {
    let moments = needs.blocking().filter(|known| !known.is_ready()).map(|known| {
        let told = told(facts.object, &known.name).filter(|told| !told.ready);
        told.and_then(|told| told.last_transition_time.as_ref()).map_or(facts.now, |time| time.0)
    });
    let found = match policy {
        MatchPolicy::All => moments.min(),
        MatchPolicy::Any => moments.max(),
    };
    let told =
        || facts.object.condition(condition::DEPENDENCIES_READY).filter(|_| is_told_lost(facts.object));
    found.or_else(|| Some(told()?.last_transition_time.as_ref()?.0)).unwrap_or(facts.now)
}
