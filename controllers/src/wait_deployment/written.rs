//! What was last sent to the server for each object, so that it is not sent twice.
//!
//! Lost on a restart, which costs one apply per object that changes nothing. What a trial was answered stands in the
//! status too.
//!
//! # Invariants
//! 1. What ended in an earlier term of this replica is not recalled: another one, of another version perhaps, has led
//!    since. It may have written more than is compared here, and what refused a write then may accept it now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay::cache::RECONCILE_AT_ANNOTATION;
use mainstay::key::NamespacedName;
use mainstay_api::WaitDeployment;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::gate::{Applied, Trial};
use crate::deployment::{Fingerprint, LiveDeployment};

/// How long a refused trial rests, which nobody waits for: somebody has to change something elsewhere, and no event tells
/// when they have.
pub(super) const TRIAL_RETRY: Duration = Duration::from_mins(10);

/// A write about to be made.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The Deployment as it should be.
    pub(super) desired: Value,
    /// As it is.
    pub(super) live: Option<Arc<LiveDeployment>>,
    mark: Mark,
}

/// By what the same attempt is known again.
#[derive(Clone, Debug, PartialEq)]
struct Mark {
    term: u64,
    fingerprint: Fingerprint,
    asked_at: Option<String>,
}

/// By object: how its last write and its last trial ended. Two locks, each held for a look-up and never both.
#[derive(Debug, Default)]
pub(super) struct Memory {
    last: Mutex<HashMap<NamespacedName, (Mark, Last)>>,
    trials: Mutex<HashMap<NamespacedName, (Mark, Trial, Instant)>>,
}

#[derive(Debug)]
enum Last {
    Written,
    Rejected(String),
    /// Not to be adopted.
    Different,
}

// === impl Attempt ===

impl Attempt {
    pub(super) fn new(
        object: &WaitDeployment,
        desired: Value,
        live: Option<Arc<LiveDeployment>>,
        term: u64,
    ) -> Self {
        let fingerprint = Fingerprint::of(&desired, live.as_deref());
        let annotations = object.metadata.annotations.as_ref();
        // A person who asks for another look asks for another try of what was refused, too.
        let asked_at = annotations.and_then(|annotations| annotations.get(RECONCILE_AT_ANNOTATION)).cloned();
        Self { desired, live, mark: Mark { term, fingerprint, asked_at } }
    }
}

// === impl Memory ===

impl Memory {
    /// Returns how the attempt would end, if the same was made before and nothing has changed since.
    pub(super) fn recall(&self, request: &NamespacedName, attempt: &Attempt) -> Option<Applied> {
        let last = self.last.lock();
        let (mark, how) = last.get(request)?;
        if (mark.term, mark.fingerprint) != (attempt.mark.term, attempt.mark.fingerprint) {
            return None;
        }
        match (how, &attempt.live) {
            (Last::Written, Some(live)) => Some(Applied::Current(Box::new((**live).clone()))),
            (Last::Rejected(message), _) if mark.asked_at == attempt.mark.asked_at => {
                Some(Applied::Rejected(message.clone()))
            }
            (Last::Different, _) => Some(Applied::Differs),
            _ => None,
        }
    }

    /// Remembers that the attempt made the Deployment what it is now.
    pub(super) fn remember_written(&self, request: &NamespacedName, attempt: &Attempt, now: &LiveDeployment) {
        let fingerprint = Fingerprint::of(&attempt.desired, Some(now));
        self.remember(request, Mark { fingerprint, ..attempt.mark.clone() }, Last::Written);
    }

    /// Remembers that the server refused the attempt as invalid.
    pub(super) fn remember_rejected(&self, request: &NamespacedName, attempt: &Attempt, message: &str) {
        self.remember(request, attempt.mark.clone(), Last::Rejected(message.to_owned()));
    }

    /// Remembers that the Deployment is not identical with what would be made of it.
    pub(super) fn remember_different(&self, request: &NamespacedName, attempt: &Attempt) {
        self.remember(request, attempt.mark.clone(), Last::Different);
    }

    /// Returns what a trial of the attempt would be answered, if the same was tried before. A refusal that may pass is
    /// asked for again after a while, and any other when a person asks for it.
    pub(super) fn recall_trial(&self, request: &NamespacedName, attempt: &Attempt) -> Option<Trial> {
        let trials = self.trials.lock();
        let (_, trial, at) = trials.get(request).filter(|(mark, ..)| *mark == attempt.mark)?;
        let has_passed = trial.may_pass() && at.elapsed() >= TRIAL_RETRY;
        (!has_passed).then(|| trial.clone())
    }

    /// Remembers what a trial was answered.
    pub(super) fn remember_trial(&self, request: &NamespacedName, attempt: &Attempt, trial: Trial) {
        let tried = (attempt.mark.clone(), trial, Instant::now());
        self.trials.lock().insert(request.clone(), tried);
    }

    fn remember(&self, request: &NamespacedName, mark: Mark, how: Last) {
        self.last.lock().insert(request.clone(), (mark, how));
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, request: &NamespacedName) {
        self.last.lock().remove(request);
        self.trials.lock().remove(request);
    }
}

#[cfg(test)]
mod tests;
