//! The states of an object's dependencies, and whether together they are ready.
//!
//! A result that this process observed decides. Until a dependency has been checked, or while it is not
//! checked, the entry in the object's status stands: a restart of the manager keeps the reported state, but
//! opens no gate by it.

use std::borrow::Cow;

use mainstay_api::wait_for::MatchPolicy;
use mainstay_api::{DependencyStatus, PlannedDependency, WaitDeployment};

use super::Facts;
use crate::conditions::has_reason;
use crate::dependency::observation::{Observation, State};
use crate::reasons::{self, condition};

/// Message in the status for a dependency that is not checked and has no entry in the status.
pub(super) const NOT_CHECKED: &str = "not checked while the gate is open";

/// The states of all dependencies of a WaitDeployment, and whether together they are ready.
#[derive(Clone, Debug, PartialEq)]
pub struct Needs {
    /// The state of each dependency, in the order of the plan.
    pub dependencies: Vec<DependencyState>,
    /// The state of the required dependencies together, by check results and entries of the status: `Ready`
    /// if none is required.
    pub verdict: State,
    /// The state of the required dependencies together by the results of this process alone. `Ready`: enough
    /// of them are ready, or none is required, and the gate opens. `NotReady`: so many failed that the rest
    /// does not matter, and a loss may start. `Unknown`: not enough results yet.
    pub observed: State,
    /// Whether the failure of a dependency was ignored because of a suspected outage of the manager's own
    /// network.
    pub ignores_failures: bool,
    /// Whether the dependencies are being checked, so that there are observations of them.
    pub are_checked: bool,
}

/// The state of one dependency of a WaitDeployment.
#[derive(Clone, Debug, PartialEq)]
pub struct DependencyState {
    /// The name of the dependency in the plan.
    pub name: String,
    /// The name of the dependency for messages: that of the plan, or the address of a `waitProbe`.
    pub display_name: String,
    /// Whether the dependency is reported, but not required.
    pub optional: bool,
    /// The last result of the dependency: ready, not ready, or not known.
    pub state: State,
    /// The reason for the state in one CamelCase word.
    pub reason: Cow<'static, str>,
    /// The reason for the state as a sentence.
    pub message: String,
    /// Whether the state is a result of this process, and not read from the status.
    pub is_fresh: bool,
    /// The observation of the last check if it could not be carried out; the state is then an earlier result
    /// from the status.
    pub check_failure: Option<Observation>,
}

// === impl Needs ===

impl Needs {
    /// Returns the needs of a WaitDeployment without check results.
    pub(super) fn unknown() -> Self {
        Self {
            dependencies: Vec::new(),
            verdict: State::Unknown,
            observed: State::Unknown,
            ignores_failures: false,
            are_checked: false,
        }
    }

    /// Evaluates the dependencies of a WaitDeployment. `exists`: the Deployment exists, so a failure could
    /// count as a loss, and is ignored during a suspected outage.
    pub(super) fn of(facts: &Facts<'_>, exists: bool) -> Self {
        let Ok(plan) = facts.plan else { return Self { verdict: State::Invalid, ..Self::unknown() } };
        if plan.dependencies.is_empty() {
            return Self { verdict: State::Ready, observed: State::Ready, ..Self::unknown() };
        }
        let are_checked = !facts.observations.is_empty();
        let is_ignored = |seen: &Observation| exists && facts.outage && seen.state == State::NotReady;
        let mut observations =
            facts.observations.iter().map(|seen| Some(seen).filter(|seen| !is_ignored(seen)));
        let dependencies: Vec<_> = plan
            .dependencies
            .iter()
            .map(|dependency| {
                let seen = observations.next().flatten();
                DependencyState::of(facts.object, dependency, seen, are_checked, exists)
            })
            .collect();
        let all: Vec<&DependencyState> = dependencies.iter().filter(|one| !one.optional).collect();
        let is_ready = |one: &&DependencyState| one.is_fresh && one.is_ready();
        let has_failed = |one: &&DependencyState| one.is_fresh && one.state == State::NotReady;
        // A dependency without a fresh result counts neither as ready nor as failed.
        let (ready, failed) = match plan.match_policy {
            MatchPolicy::All => (all.iter().all(is_ready), all.iter().any(has_failed)),
            MatchPolicy::Any => (all.is_empty() || all.iter().any(is_ready), all.iter().all(has_failed)),
        };
        let observed = match (ready, failed) {
            (true, _) => State::Ready,
            (false, true) => State::NotReady,
            (false, false) => State::Unknown,
        };
        let verdict = verdict(plan.match_policy, &all);
        let ignores_failures = facts.observations.iter().any(is_ignored);
        Self { dependencies, verdict, observed, ignores_failures, are_checked }
    }

    /// Returns whether check results of this process show enough dependencies ready to open the gate.
    pub fn are_ready(&self) -> bool {
        self.observed == State::Ready
    }

    /// Returns the dependencies that keep the gate closed, in the order of the plan: those not ready, or, if
    /// all were ready, those with a check that could not be carried out.
    pub fn blocking(&self) -> impl Iterator<Item = &DependencyState> {
        let required = || self.dependencies.iter().filter(|one| !one.optional);
        let all_ready = required().all(DependencyState::is_ready);
        required().filter(move |one| if all_ready { one.check_failure.is_some() } else { !one.is_ready() })
    }

    /// Returns the dependencies that keep the gate closed in a few words, such as `database (Refused) +1`;
    /// `None` if there are none.
    pub fn in_short(&self) -> Option<String> {
        let mut blocking = self.blocking();
        let first = blocking.next()?;
        let more = blocking.count();
        let why = match first.state {
            State::Unknown => String::new(),
            _ => format!(" ({})", first.why().0),
        };
        let more = if more == 0 { String::new() } else { format!(" +{more}") };
        Some(format!("{}{why}{more}", first.display_name))
    }
}

// === impl DependencyState ===

impl DependencyState {
    fn of(
        object: &WaitDeployment,
        dependency: &PlannedDependency,
        seen: Option<&Observation>,
        are_checked: bool,
        exists: bool,
    ) -> Self {
        let bare = |state, reason, message| Self {
            name: dependency.name.clone(),
            display_name: display_name(object, dependency),
            optional: dependency.optional,
            state,
            reason,
            message,
            is_fresh: false,
            check_failure: None,
        };
        let check_failure = seen.filter(|seen| seen.state == State::Blind);
        if let Some(seen) = seen.filter(|seen| !matches!(seen.state, State::Unknown | State::Blind)) {
            let state = bare(seen.state, Cow::Borrowed(seen.reason), seen.message.clone());
            return Self { is_fresh: true, ..state };
        }
        let unknown = || {
            if let Some(failure) = check_failure {
                return bare(State::Blind, Cow::Borrowed(failure.reason), failure.message.clone());
            }
            let message = if are_checked { Observation::unknown().message } else { NOT_CHECKED.to_owned() };
            bare(State::Unknown, Cow::Borrowed(reasons::UNKNOWN), message)
        };
        // A closed gate reports why it stays closed; an open one keeps the last result.
        if check_failure.is_some() && !exists {
            return unknown();
        }
        let Some(entry) = status_entry(object, &dependency.name) else { return unknown() };
        let observed_generation = object.status.as_ref().and_then(|status| status.observed_generation);
        // After an edit the same name may stand for another dependency, which has no result yet.
        if are_checked && observed_generation != Some(object.generation()) {
            return unknown();
        }
        let is_invalid = has_reason(object.condition(condition::DEPENDENCIES_READY), reasons::INVALID_SPEC);
        let reason = entry.reason.clone().unwrap_or_default();
        let state = match reason.as_str() {
            _ if entry.ready => State::Ready,
            reasons::UNKNOWN => return unknown(),
            reasons::POLICY_DENIED => State::Denied,
            reason if reasons::is_blind(reason) => State::Blind,
            _ if is_invalid => State::Invalid,
            _ => State::NotReady,
        };
        if state == State::Blind && check_failure.is_some() {
            return unknown();
        }
        // The earlier message stays: it names the target that was checked, even if the spec names another one
        // by now.
        let state = bare(state, Cow::Owned(reason), entry.message.clone().unwrap_or_default());
        Self { check_failure: check_failure.cloned(), ..state }
    }

    /// Returns whether the last result of the dependency was Ready, in this process or by the status.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Returns the reason and the message for which the dependency keeps a gate closed.
    pub fn why(&self) -> (&str, &str) {
        match &self.check_failure {
            Some(failure) if self.is_ready() => (failure.reason, &failure.message),
            _ => (&self.reason, &self.message),
        }
    }
}

/// Returns the entry of the dependency `name` in the status of a WaitDeployment.
pub(super) fn status_entry<'a>(object: &'a WaitDeployment, name: &str) -> Option<&'a DependencyStatus> {
    object.status.as_ref()?.dependencies.iter().find(|entry| entry.name == name)
}

fn display_name(object: &WaitDeployment, dependency: &PlannedDependency) -> String {
    let mainstay_api::Check::Probe(probe) = &dependency.check else { return dependency.name.clone() };
    // The one dependency of a `waitProbe` has no name in the spec.
    let address = object.wait_probe.as_ref().and_then(|_| probe.address());
    address.map_or_else(|| dependency.name.clone(), ToString::to_string)
}

/// Returns the state of several dependencies together: the first state in an order of precedence that one of
/// them has. With `All`, states that need action by a user come first, because each of them blocks the gate;
/// with `Any`, states that may still become ready.
fn verdict(policy: MatchPolicy, required: &[&DependencyState]) -> State {
    let has = |state| required.iter().any(|one| one.state == state);
    let (order, last) = match policy {
        MatchPolicy::All => {
            ([State::Invalid, State::Denied, State::NotReady, State::Blind, State::Unknown], State::Ready)
        }
        MatchPolicy::Any => {
            let last = if required.is_empty() { State::Ready } else { State::Invalid };
            ([State::Ready, State::NotReady, State::Blind, State::Unknown, State::Denied], last)
        }
    };
    order.into_iter().find(|state| has(*state)).unwrap_or(last)
}
