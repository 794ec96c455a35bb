//! The loss of a dependency that was ready, and its consequences.
//!
//! All memory is in the status: `DependenciesReady` shows whether the dependencies were ready, and the entry
//! of each one since when it is not. So neither a restart nor another replica restarts a grace period, and a
//! dependency that was never ready cannot be lost.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_api::WaitDeployment;
use mainstay_api::wait_for::{MatchPolicy, OnLoss};

use super::needs::status_entry;
use super::{Facts, Needs, later};
use crate::conditions::{has_reason, is_true};
use crate::dependency::observation::State;
use crate::deployment::LiveDeployment;
use crate::reasons::{self, condition};

/// Least time between the loss of a dependency and the scale-down of the Deployment, even if
/// `lossGraceSeconds` is shorter. If the manager itself is cut off, its targets fail one after the other, and
/// the outage guard needs some time to notice.
const MIN_SCALE_GRACE: Duration = Duration::from_secs(30);

/// The loss of a dependency that was ready, and its consequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When the lost dependency failed.
    pub since: Timestamp,
    /// Whether the loss is not reported yet, because `lossGraceSeconds` have not passed.
    pub tolerated: bool,
    /// Whether the Deployment has to have 0 replicas because of the loss.
    pub scales: bool,
    /// Whether the object is Stalled, because `recoveryDeadlineSeconds` have passed since the loss.
    pub stalled: bool,
    /// When one of these values changes next by time alone; `None` if none does.
    pub next: Option<Timestamp>,
}

// === impl Loss ===

impl Loss {
    /// Returns the loss of a dependency, if there is one, of a WaitDeployment that controls the Deployment
    /// `live`.
    pub(super) fn find(facts: &Facts<'_>, needs: &Needs, live: &LiveDeployment) -> Option<Self> {
        let Facts { object, now, .. } = *facts;
        let Ok(plan) = facts.plan else { return Self::of_invalid(object, live) };
        if plan.on_loss == OnLoss::Ignore {
            return None;
        }
        let was_lost = status_shows_lost(object);
        let is_lost = was_lost || status_shows_ready(object) && needs.verdict == State::NotReady;
        if needs.are_ready() || !is_lost {
            return None;
        }
        // After an edit the loss stays until the dependencies of the new spec are ready.
        let since = since(facts, needs, plan.match_policy);
        let graced = later(since, plan.loss_grace);
        let tolerated = !was_lost && graced.is_none_or(|moment| moment > now);
        let calm = facts.last_outage.map_or(since, |outage| outage.max(since));
        let scales_at = later(calm, plan.loss_grace.max(MIN_SCALE_GRACE));
        let is_at_zero = live.spec.replicas == Some(0);
        let may_scale = needs.observed == State::NotReady
            && !facts.outage
            && scales_at.is_some_and(|moment| moment <= now);
        let scales = plan.on_loss == OnLoss::ScaleToZero && !tolerated && (is_at_zero || may_scale);
        let stalled_at = plan.recovery_deadline.and_then(|wait| later(since, wait));
        let stalled = stalled_at.is_some_and(|moment| moment <= now);
        let scales_at = scales_at.filter(|_| plan.on_loss == OnLoss::ScaleToZero && !scales);
        let ahead = [graced, scales_at, stalled_at].into_iter().flatten().filter(|moment| *moment > now);
        Some(Self { since, tolerated, scales, stalled, next: ahead.min() })
    }

    /// Returns the loss of a dependency of a WaitDeployment with an invalid spec, if its Deployment was
    /// scaled to 0: it stays at 0 while the dependencies cannot be checked.
    fn of_invalid(object: &WaitDeployment, live: &LiveDeployment) -> Option<Self> {
        let shown = object.condition(condition::DEPENDENCIES_READY).filter(|_| status_shows_lost(object))?;
        let since = shown.last_transition_time.as_ref()?.0;
        let was_scaled = object.spec.scales_on_loss() && live.spec.replicas == Some(0);
        was_scaled.then_some(Self { since, tolerated: false, scales: true, stalled: false, next: None })
    }
}

/// Returns whether the status shows dependencies that are ready, or were ready and are lost: a failure of one
/// of them is a loss then.
pub fn were_ready(object: &WaitDeployment) -> bool {
    status_shows_ready(object) || status_shows_lost(object)
}

fn status_shows_ready(object: &WaitDeployment) -> bool {
    is_true(object.condition(condition::DEPENDENCIES_READY))
}

fn status_shows_lost(object: &WaitDeployment) -> bool {
    has_reason(object.condition(condition::DEPENDENCIES_READY), reasons::LOST)
}

/// Returns when the loss of dependencies began: with `All` when the first dependency failed, with `Any` when
/// the last one did. If all failed ones are ready again and a check that cannot be carried out keeps the loss
/// alive, it began at the time in the status.
fn since(facts: &Facts<'_>, needs: &Needs, policy: MatchPolicy) -> Timestamp {
    let moments = needs.blocking().filter(|dependency| !dependency.is_ready()).map(|dependency| {
        let entry = status_entry(facts.object, &dependency.name).filter(|entry| !entry.ready);
        entry.and_then(|entry| entry.last_transition_time.as_ref()).map_or(facts.now, |time| time.0)
    });
    let found = match policy {
        MatchPolicy::All => moments.min(),
        MatchPolicy::Any => moments.max(),
    };
    let shown = || {
        let lost =
            facts.object.condition(condition::DEPENDENCIES_READY).filter(|_| status_shows_lost(facts.object));
        Some(lost?.last_transition_time.as_ref()?.0)
    };
    found.or_else(shown).unwrap_or(facts.now)
}
