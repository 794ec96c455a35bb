//! One look at the objects that one WaitDeployment waits for.

use std::fmt;

use kube::core::DynamicObject;
use mainstay::cache::{Entry, LabelSelector, Select, Store};
use mainstay::key::{Key as _, KindId, Request};
use mainstay_api::PlannedDependency;
use mainstay_api::plan::{ResourceCheck, Which};
use tokio::time::Instant;

use super::check::{gvk, is_final, kind_name, verb};
use super::evaluations::Budget;
use super::expression::Failure;
use super::rights::{Answer, Rights};
use super::state::Found;
use super::words::{Objects, blind, explain, explain_failure, holds, not_ready, tell, unreadable};
use super::{Resources, questions};
use crate::dependencies::{Observation, State};
use crate::mirror::selector_text;
use crate::reasons::{self, resource};

/// Most objects that one selector may pick: each is looked at whenever one of them changes.
pub(super) const MAX_SELECTED: usize = 500;

/// Answers of what one WaitDeployment waits for, which together cost no more than one look may. See
/// [`Resources::watch`].
pub struct Look<'a> {
    resources: &'a Resources,
    request: &'a Request,
    /// The ServiceAccount of the Pods to come.
    account: String,
    budget: Budget,
}

/// Why nothing can be said about objects.
type Blind = Observation;

// === impl Look ===

impl<'a> Look<'a> {
    pub(super) fn new(resources: &'a Resources, request: &'a Request, account: String) -> Self {
        Self { resources, request, account, budget: Budget::default() }
    }

    /// Returns what is known of one dependency.
    pub fn observe(&mut self, dependency: &PlannedDependency, check: &ResourceCheck) -> Observation {
        match self.find(dependency, check) {
            Ok(found) => found,
            Err(blind) if blind.state == State::Denied => blind,
            // Told though there is nothing to look at: it stands in the spec, and says nothing of any object.
            Err(blind) => match self.resources.shared.evaluations.refuses(&check.state) {
                Some(failure) => {
                    explain_failure(self.request.namespace().unwrap_or_default(), check, &failure)
                }
                None => blind,
            },
        }
    }

    fn find(&mut self, dependency: &PlannedDependency, check: &ResourceCheck) -> Result<Observation, Blind> {
        let namespace = self.request.namespace().unwrap_or_default();
        let store = self.readable(namespace, check)?;
        let kind = store.kind_store().kind().clone();
        let objects = Objects { namespace, check };
        match &check.which {
            Which::Name(name) => {
                let entry = store.entry(&Request::namespaced(namespace, name.as_str()));
                match entry.map_err(|error| unreadable(&store, &error))? {
                    Some(entry) => Ok(self.judge(&kind, &entry, check).map_or_else(
                        |failure| explain_failure(namespace, check, &failure),
                        |found| tell(namespace, check, found),
                    )),
                    None if self.had_succeeded(dependency, check) => Ok(Observation {
                        state: State::Ready,
                        reason: resource::GONE_AFTER_SUCCESS,
                        message: holds(namespace, check),
                    }),
                    None => Err(not_ready(resource::NOT_FOUND, format!("{objects} does not exist"))),
                }
            }
            Which::Selector(selector) => {
                let selector =
                    selector_text(selector).parse::<LabelSelector>().map_err(|error| Observation {
                        state: State::Invalid,
                        reason: reasons::probe::FAILED,
                        message: error.to_string(),
                    })?;
                let entries = store.list(&Select::namespace(namespace).labels(selector));
                let entries = entries.map_err(|error| unreadable(&store, &error))?;
                if entries.is_empty() {
                    return Err(not_ready(resource::NOT_FOUND, format!("{objects} do not exist")));
                }
                if entries.len() > MAX_SELECTED {
                    let message = format!("{objects} are more than {MAX_SELECTED}; narrow the selector");
                    return Err(blind(resource::TOO_MANY_OBJECTS, message));
                }
                let mut worst = Found::There;
                for entry in &entries {
                    let found = self.judge(&kind, entry, check);
                    worst = worst.max(found.map_err(|failure| explain_failure(namespace, check, &failure))?);
                }
                Ok(tell(namespace, check, worst))
            }
        }
    }

    fn judge(
        &mut self,
        kind: &KindId,
        entry: &Entry<DynamicObject>,
        check: &ResourceCheck,
    ) -> Result<Found, Failure> {
        self.resources.shared.evaluations.judge(check, kind, entry, &mut self.budget)
    }

    /// Returns where to read objects of the kind, if they may be read for the object.
    fn readable(&self, namespace: &str, check: &ResourceCheck) -> Result<Store<DynamicObject>, Blind> {
        let (kind, now, account) = (gvk(check), Instant::now(), &self.account);
        let shared = &self.resources.shared;
        let mut known = shared.known.lock();
        let name = kind_name(&kind);
        if !known.allowed.contains(&name) {
            return Err(Observation {
                state: State::Denied,
                reason: reasons::POLICY_DENIED,
                message: format!("kind {name} is not among probePolicy.resources"),
            });
        }
        let (kind, store) = match known.kinds.open(&kind, now) {
            Ok(open) => (open.kind.clone(), open.store.clone()),
            Err(trouble) => {
                drop(known);
                shared.wake.notify_one();
                return Err(trouble.map_or_else(Observation::unknown, |trouble| explain(check, &trouble)));
            }
        };
        let answer = may_read(&mut known.rights, namespace, account, &kind, check, now);
        drop(known);
        match answer {
            Some(Answer::Yes) => Ok(store),
            Some(Answer::No) => {
                let verb = verb(check);
                Err(blind(
                    resource::ACCESS_DENIED,
                    format!(
                        "ServiceAccount {namespace}/{account} of the template may not {verb} {}; a Role that admits it \
                         lets this be told",
                        Objects { namespace, check }
                    ),
                ))
            }
            Some(Answer::Failed) => Err(blind(
                resource::ACCESS_UNKNOWN,
                format!("the API server does not tell what ServiceAccount {namespace}/{account} may read"),
            )),
            None => {
                shared.wake.notify_one();
                Err(Observation::unknown())
            }
        }
    }

    /// Returns whether what is gone held before, which the status tells, whichever replica wrote it.
    fn had_succeeded(&self, dependency: &PlannedDependency, check: &ResourceCheck) -> bool {
        let Ok(Some(object)) = self.resources.shared.objects.get(self.request) else { return false };
        let Some(status) = object.status.as_ref().filter(|_| is_final(check)) else { return false };
        let held = status.dependencies.iter().find(|entry| entry.name == dependency.name && entry.ready);
        // An edit may have put another object under the name: only the words tell which one it was.
        let words = holds(self.request.namespace().unwrap_or_default(), check);
        held.is_some_and(|entry| entry.message.as_ref() == Some(&words))
    }
}

impl fmt::Debug for Look<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Look").field("request", self.request).finish_non_exhaustive()
    }
}

// === private ===

fn may_read(
    rights: &mut Rights,
    namespace: &str,
    account: &str,
    kind: &KindId,
    check: &ResourceCheck,
    now: Instant,
) -> Option<Answer> {
    let mut last = None;
    for question in questions(namespace, account, kind, check) {
        last = rights.answer(&question, now);
        if last != Some(Answer::No) {
            break;
        }
    }
    last
}
