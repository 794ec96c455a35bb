//! The check at the start that this process has the rights that its code and configuration declare.
//!
//! Asks the API server with one access review per verb, before the caches start, so that a missing right is
//! reported with its line of code and not as a watch that fails later. Only controllers that need the right
//! wait, so the replica stays ready. Reviews are repeated until all rights are granted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::{Manager, Shared};
use crate::health::Finding;
use crate::key::Chain;
use crate::rbac::{Rights, Rule, Target};

/// Time for all reviews before the caches start without an answer: an API server that is down must not delay
/// a replica that could serve later.
const START_TIME: Duration = Duration::from_secs(3);
/// Time for all reviews of one repetition.
const REPEAT_TIME: Duration = Duration::from_secs(30);
/// Pause before the first repetition while a right is missing: an API server that has just started denies
/// requests until it has loaded its rules. Doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between two repetitions.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The most reviews in flight.
const AT_ONCE: usize = 16;

/// The missing rights of a process, as the access reviews report them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MissingRights(Vec<Rule>);

/// The latest result of the access reviews; `None` before the first answer. Clones share one result.
#[derive(Clone, Default)]
pub(super) struct Preflight(Arc<Mutex<Option<MissingRights>>>);

// === impl Manager ===

impl Manager {
    /// Asks the API server which of the [rights](Manager::rights) this process does not have. Needs no right
    /// itself.
    ///
    /// # Errors
    /// Fails if the API server does not answer.
    pub async fn preflight(&self) -> Result<MissingRights, kube::Error> {
        let reviews = Api::all(self.shared.clusters.own().client(false).clone());
        missing(&reviews, &self.rights()).await
    }

    /// Reviews the rights at the start of the manager, for a limited time.
    pub(super) async fn review_at_start(&self) {
        let preflight = &self.shared.preflight;
        match timeout(START_TIME, self.preflight()).await {
            Ok(Ok(missing)) => preflight.report(missing),
            Ok(Err(error)) => info!(error = %Chain(&error), "rights not reviewed yet"),
            Err(_) => info!(after = ?START_TIME, "rights not reviewed yet"),
        }
    }

    /// Repeats the reviews until no right is missing that ordinary work needs.
    pub(super) async fn review_until_granted(self) {
        let mut pause = FIRST_PAUSE;
        while !self.shared.preflight.is_complete() {
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
            if let Ok(Ok(missing)) = timeout(REPEAT_TIME, self.preflight()).await {
                self.shared.preflight.report(missing);
            }
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Returns a function that returns the latest result of the reviews, as a check that does not count.
    pub(super) fn rights_finding(&self) -> impl Fn() -> Vec<Finding> + Send + Sync + 'static {
        let Preflight(latest) = self.preflight.clone();
        move || {
            let outcome = match latest.lock().as_ref().map(MissingRights::lines) {
                Some(lines) if lines.is_empty() => Ok(()),
                Some(lines) => Err(lines.join("; ")),
                None => Err("not reviewed yet".to_owned()),
            };
            vec![Finding { name: "rights".to_owned(), counts: false, outcome }]
        }
    }
}

// === impl Preflight ===

impl Preflight {
    fn report(&self, missing: MissingRights) {
        let mut latest = self.0.lock();
        if latest.as_ref() == Some(&missing) {
            return;
        }
        if missing.is_empty() {
            info!("all rights are granted");
        } else {
            warn!(missing = missing.lines().join("; "), "rights are missing");
        }
        *latest = Some(missing);
    }

    fn is_complete(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|missing| !missing.matters())
    }
}

// === impl MissingRights ===

impl MissingRights {
    /// Returns whether no right is missing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the missing rights, with their grounds.
    pub fn rules(&self) -> &[Rule] {
        &self.0
    }

    /// Returns whether ordinary work needs one of the missing rights.
    pub fn matters(&self) -> bool {
        self.0.iter().any(|rule| rule.grounds().iter().any(|(_, grounds)| !grounds.seldom))
    }

    fn lines(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}

impl fmt::Display for MissingRights {
    /// Writes one line for each rule: verbs, resource, namespace, and what needs them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Returns the rights that the account of these reviews does not have.
async fn missing(
    reviews: &Api<SelfSubjectAccessReview>,
    rights: &Rights,
) -> Result<MissingRights, kube::Error> {
    let mut single = Vec::new();
    for (at, rule) in rights.rules().iter().enumerate() {
        single.extend(rule.verbs.keys().map(|verb| (at, verb.clone(), review(rule, verb.as_str()))));
    }
    let answers = stream::iter(single).map(async |(at, verb, review)| {
        let answer = reviews.create(&PostParams::default(), &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        Ok::<_, kube::Error>((!allowed).then_some((at, verb)))
    });
    let answers: Vec<_> = answers.buffered(AT_ONCE).try_collect().await?;
    let refused: Vec<_> = answers.into_iter().flatten().collect();
    let rules = rights.rules().iter().enumerate().filter_map(|(at, rule)| {
        let mut rule = rule.clone();
        rule.verbs.retain(|verb, _| refused.contains(&(at, verb.clone())));
        (!rule.verbs.is_empty()).then_some(rule)
    });
    Ok(MissingRights(rules.collect()))
}

/// Makes the review of one verb of a rule.
fn review(rule: &Rule, verb: &str) -> SelfSubjectAccessReview {
    let verb = Some(verb.to_owned());
    let spec = match &rule.target {
        Target::Resource { group, resource, name } => {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
                None => (&**resource, None),
            };
            let attributes = ResourceAttributes {
                group: Some(group.clone()),
                resource: Some(resource.to_owned()),
                subresource,
                name: name.clone(),
                namespace: rule.namespace.clone(),
                verb,
                ..ResourceAttributes::default()
            };
            SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            }
        }
        Target::Url(path) => SelfSubjectAccessReviewSpec {
            non_resource_attributes: Some(NonResourceAttributes { path: Some(path.clone()), verb }),
            ..SelfSubjectAccessReviewSpec::default()
        },
    };
    SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() }
}
