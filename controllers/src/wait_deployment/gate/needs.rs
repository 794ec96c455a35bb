//! What is known of an object's dependencies, and what that comes to.
//!
//! What was seen since this process began decides. Where nobody has looked yet, or nobody is to look, what the status
//! tells stands: a restart makes no object forget what was found out about it, and opens nothing on old news.

use std::borrow::Cow;

use mainstay_api::wait_for::MatchPolicy;
use mainstay_api::{DependencyStatus, PlannedDependency, WaitDeployment};

use super::Facts;
use crate::dependency::observation::{Observation, State};
use crate::reasons::{self, condition};

/// What is said of one that nobody has looked at and nobody will for now.
pub(super) const NOT_WATCHED: &str = "not looked at while the gate is open";

/// What is known of all dependencies.
#[derive(Clone, Debug, PartialEq)]
pub struct Needs {
    /// One entry per dependency, in the order of the plan.
    pub known: Vec<Known>,
    /// What the needed ones come to: `Ready` if there are none.
    pub verdict: State,
    /// What was seen since this process began, and is believed: what is acted on.
    pub seen: Seen,
    /// Whether a failure was seen and not believed.
    pub has_doubts: bool,
    /// Whether somebody looks.
    pub looks: bool,
}

/// What is known of one dependency.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Its name in the plan.
    pub name: String,
    /// What people know it by: the name, or the address of a `waitProbe`.
    pub shown: String,
    /// It is reported only.
    pub optional: bool,
    /// Whether it holds.
    pub state: State,
    /// Why, in one word.
    pub reason: Cow<'static, str>,
    /// Why, for people.
    pub message: String,
    /// It was seen since this process began, and is believed.
    pub is_fresh: bool,
    /// Why nobody can look at it now, where what is known of it from before still stands.
    pub unseen: Option<Observation>,
}

/// What was seen of the needed dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Enough of them hold, or there are none: what opens a gate.
    Holds,
    /// Not enough of them can hold: what may be taken for a loss.
    Fails,
    /// Not enough to tell.
    Unsettled,
}

// === impl Needs ===

impl Needs {
    /// Nothing is known, and nothing is asked.
    pub(super) fn unknown() -> Self {
        Self {
            known: Vec::new(),
            verdict: State::Unknown,
            seen: Seen::Unsettled,
            has_doubts: false,
            looks: false,
        }
    }

    /// Judges; `exists` says whether the Deployment is there, so that a failure seen in a doubtful moment would be a
    /// loss.
    pub(super) fn of(facts: &Facts<'_>, exists: bool) -> Self {
        let Ok(plan) = facts.plan else { return Self { verdict: State::Invalid, ..Self::unknown() } };
        if plan.dependencies.is_empty() {
            return Self { verdict: State::Ready, seen: Seen::Holds, ..Self::unknown() };
        }
        let looks = !facts.observations.is_empty();
        let doubted = |seen: &Observation| exists && facts.outage && seen.state == State::NotReady;
        let known: Vec<_> = plan
            .dependencies
            .iter()
            .enumerate()
            .map(|(index, dependency)| {
                let seen = facts.observations.get(index).filter(|seen| !doubted(seen));
                Known::of(facts.object, dependency, seen, looks, exists)
            })
            .collect();
        let all: Vec<&Known> = known.iter().filter(|known| !known.optional).collect();
        let fresh: Vec<&Known> = all.iter().copied().filter(|known| known.is_fresh).collect();
        let verdict = verdict(plan.match_policy, &all);
        // One that nobody has looked at yet holds for nobody, and fails for nobody.
        let holds = match plan.match_policy {
            MatchPolicy::All => fresh.len() == all.len() && all.iter().all(|known| known.is_ready()),
            MatchPolicy::Any => all.is_empty() || fresh.iter().any(|known| known.is_ready()),
        };
        let has_failed = |known: &&Known| known.state == State::NotReady;
        let fails = match plan.match_policy {
            MatchPolicy::All => fresh.iter().any(has_failed),
            MatchPolicy::Any => fresh.len() == all.len() && all.iter().all(has_failed),
        };
        let has_doubts = facts.observations.iter().any(doubted);
        let seen = match (holds, fails) {
            (true, _) => Seen::Holds,
            (false, true) => Seen::Fails,
            (false, false) => Seen::Unsettled,
        };
        Self { known, verdict, seen, has_doubts, looks }
    }

    /// Returns whether they are seen to hold.
    pub fn hold(&self) -> bool {
        self.seen == Seen::Holds
    }

    /// Returns what keeps the gate closed, in the order of the plan: what does not hold, and if there is nothing of that,
    /// what nobody can look at.
    pub fn blocking(&self) -> impl Iterator<Item = &Known> {
        let needed = || self.known.iter().filter(|known| !known.optional);
        let all_held = needed().all(Known::is_ready);
        needed().filter(move |known| if all_held { known.unseen.is_some() } else { !known.is_ready() })
    }

    /// Returns what is waited for in a few words, such as `database (Refused) +1`.
    pub fn in_short(&self) -> Option<String> {
        let mut blocking = self.blocking();
        let first = blocking.next()?;
        let more = blocking.count();
        let why = match first.state {
            State::Unknown => String::new(),
            _ => format!(" ({})", first.why().0),
        };
        let more = if more == 0 { String::new() } else { format!(" +{more}") };
        Some(format!("{}{why}{more}", first.shown))
    }
}

// === impl Known ===

impl Known {
    fn of(
        object: &WaitDeployment,
        dependency: &PlannedDependency,
        seen: Option<&Observation>,
        looks: bool,
        exists: bool,
    ) -> Self {
        let bare = |state, reason, message| Self {
            name: dependency.name.clone(),
            shown: shown(object, dependency),
            optional: dependency.optional,
            state,
            reason,
            message,
            is_fresh: false,
            unseen: None,
        };
        let unseen = seen.filter(|seen| seen.state == State::Blind);
        if let Some(seen) = seen.filter(|seen| !matches!(seen.state, State::Unknown | State::Blind)) {
            let known = bare(seen.state, Cow::Borrowed(seen.reason), seen.message.clone());
            return Self { is_fresh: true, ..known };
        }
        let unknown = || {
            if let Some(unseen) = unseen {
                return bare(State::Blind, Cow::Borrowed(unseen.reason), unseen.message.clone());
            }
            let message = if looks { Observation::unknown().message } else { NOT_WATCHED.to_owned() };
            bare(State::Unknown, Cow::Borrowed(reasons::UNKNOWN), message)
        };
        // What keeps a gate closed has to be said; of one that is open the last that is known stands.
        if unseen.is_some() && !exists {
            return unknown();
        }
        let Some(told) = told(object, &dependency.name) else { return unknown() };
        let status = object.status.as_ref().and_then(|status| status.observed_generation);
        // An edit may have put something else under the same name, which has never held as far as anybody knows.
        if looks && status != Some(object.generation()) {
            return unknown();
        }
        let reason = told.reason.clone().unwrap_or_default();
        let state = match reason.as_str() {
            _ if told.ready => State::Ready,
            reasons::UNKNOWN => return unknown(),
            reasons::POLICY_DENIED => State::Denied,
            reason if reasons::is_blind(reason) => State::Blind,
            _ if is_told_invalid(object) => State::Invalid,
            _ => State::NotReady,
        };
        if state == State::Blind && unseen.is_some() {
            return unknown();
        }
        // In the words of the time: they also tell what it was that held, should the spec name something else by now.
        let known = bare(state, Cow::Owned(reason), told.message.clone().unwrap_or_default());
        Self { unseen: unseen.cloned(), ..known }
    }

    /// Returns whether it holds, or held when it was looked at last.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Returns why it keeps a gate closed: in one word, and for people.
    pub fn why(&self) -> (&str, &str) {
        match &self.unseen {
            Some(unseen) if self.is_ready() => (unseen.reason, &unseen.message),
            _ => (&self.reason, &self.message),
        }
    }
}

/// Returns what the status tells of a dependency.
pub(super) fn told<'a>(object: &'a WaitDeployment, name: &str) -> Option<&'a DependencyStatus> {
    object.status.as_ref()?.dependencies.iter().find(|entry| entry.name == name)
}

fn is_told_invalid(object: &WaitDeployment) -> bool {
    let condition = object.condition(condition::DEPENDENCIES_READY);
    condition.is_some_and(|condition| condition.reason.as_deref() == Some(reasons::INVALID_SPEC))
}

fn shown(object: &WaitDeployment, dependency: &PlannedDependency) -> String {
    let mainstay_api::Check::Probe(probe) = &dependency.check else { return dependency.name.clone() };
    // The one dependency of a `waitProbe` has no name of its own.
    let address = object.wait_probe.as_ref().and_then(|_| probe.address());
    address.map_or_else(|| dependency.name.clone(), ToString::to_string)
}

/// With All, what a person has to see to comes first, since nothing goes on without it; with Any, what may still hold.
fn verdict(policy: MatchPolicy, needed: &[&Known]) -> State {
    let has = |state| needed.iter().any(|known| known.state == state);
    let order = match policy {
        MatchPolicy::All => [State::Invalid, State::Denied, State::NotReady, State::Blind, State::Unknown],
        MatchPolicy::Any => [State::Ready, State::NotReady, State::Blind, State::Unknown, State::Denied],
    };
    let last = match policy {
        MatchPolicy::All => State::Ready,
        MatchPolicy::Any if needed.is_empty() => State::Ready,
        MatchPolicy::Any => State::Invalid,
    };
    order.into_iter().find(|state| has(*state)).unwrap_or(last)
}
