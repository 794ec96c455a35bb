//! Objects of the cluster in a state: what `resource` checks wait for.
//!
//! A kind is listed and watched once somebody waits for it, of those that the operator lists in `probePolicy.resources`,
//! and an answer is given only about what the ServiceAccount of the waiting Pods may read itself. A reconcile asks
//! ([`Resources::observe`]) and is answered from the cache; what has to be asked of the server is asked by the
//! [`ResourceWatch`], and who waits is told when there is an answer, or another one.
//!
//! # Invariants
//! 1. Nothing is read that is not listed, and nothing is told about an object that the ServiceAccount may not read.
//! 2. Nothing out of an object is told but whether it is in the state.
//! 3. Nothing is called or sent while the lock is held.

mod check;
mod driver;
mod expression;
mod kinds;
mod rights;
mod state;
mod words;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use kube::core::{DynamicObject, GroupVersionKind};
use mainstay::cache::{Delta, DeltaHandler, Entry, LabelSelector, Select, Store, View};
use mainstay::key::{Key as _, KindId, Request};
use mainstay_api::plan::{ResourceCheck, ResourceState, Which};
use mainstay_api::{Check, Plan, PlannedDependency, WaitDeployment};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use self::check::{gvk, is_final, kind_name, text_of, verb};
use self::expression::{Expression, Failure, MAX_OBJECT_BYTES};
use self::kinds::Kinds;
use self::rights::{Answer, Question, Rights};
use self::state::{Found, ObjectView};
use self::words::{Objects, explain, explain_failure, holds, not_ready, tell, unreadable};
use crate::cycles::Awaited;
use crate::dependencies::{Observation, State, Waiters};
use crate::reasons::{self, resource};

pub use driver::ResourceWatch;

/// Most objects that one selector may pick: each is decoded whenever one of them changes.
const MAX_SELECTED: usize = 500;
/// Most expressions that are kept read.
const MAX_EXPRESSIONS: usize = 512;
/// Whose Pods name no ServiceAccount.
const DEFAULT_ACCOUNT: &str = "default";
/// Finds out about objects. Cheap to clone; never blocks.
#[derive(Clone)]
pub struct Resources {
    shared: Arc<Shared>,
}

struct Shared {
    objects: Store<WaitDeployment>,
    known: Mutex<Known>,
    /// By their text. Emptied when it is full: what is in use is read again.
    expressions: Mutex<HashMap<String, Arc<Result<Expression, Failure>>>>,
    /// Wakes the [`ResourceWatch`].
    wake: Notify,
    tell: Box<dyn Fn(Request) + Send + Sync>,
}

#[derive(Default)]
struct Known {
    /// As `probePolicy.resources` lists them, such as `Job.batch`.
    allowed: Vec<String>,
    kinds: Kinds<Open>,
    rights: Rights,
    waiters: Waiters<Thing>,
}

/// A kind that is listed and watched.
struct Open {
    kind: KindId,
    store: Store<DynamicObject>,
    /// Ends the telling of its changes.
    _stop: DropGuard,
}

/// What a change of wakes somebody.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Thing {
    /// How a kind can be read.
    Kind(GroupVersionKind),
    /// One object.
    Object(GroupVersionKind, Request),
    /// Any object of a namespace.
    Namespace(GroupVersionKind, String),
    /// What a ServiceAccount may.
    Right(Question),
}

/// Hears of every change of a kind.
struct Listener {
    kind: GroupVersionKind,
    shared: Weak<Shared>,
}

/// Why nothing can be said about objects.
type Blind = Observation;

// === impl Resources ===

impl Resources {
    /// Looks at kinds that `allowed` lists. `tell` is called, outside any lock, with who waits for something that may
    /// have changed; it must not block.
    pub fn new(
        objects: &Store<WaitDeployment>,
        allowed: Vec<String>,
        tell: impl Fn(Request) + Send + Sync + 'static,
    ) -> Self {
        let known = Mutex::new(Known { allowed, ..Known::default() });
        let shared = Shared {
            objects: objects.clone(),
            known,
            expressions: Mutex::default(),
            wake: Notify::new(),
            tell: Box::new(tell),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Puts another list of kinds in force. What is not in it any more is not told about from now on.
    pub fn reconfigure(&self, allowed: Vec<String>) {
        let concerned = {
            let mut known = self.shared.known.lock();
            if known.allowed == allowed {
                return;
            }
            known.allowed = allowed;
            known.waiters.all()
        };
        concerned.into_iter().for_each(&self.shared.tell);
    }

    /// Has all objects in `plan` looked at for `request` from now on, and nothing else.
    pub fn watch(&self, request: &Request, plan: &Plan) {
        let namespace = request.namespace().unwrap_or_default();
        let checks = plan.dependencies.iter().filter_map(|dependency| match &dependency.check {
            Check::Resource(check) => Some(check),
            Check::Service(_) | Check::Probe(_) => None,
        });
        let checks: Vec<_> = checks.collect();
        let account = if checks.is_empty() { String::new() } else { self.account_of(request) };
        let mut things = Vec::new();
        let mut known = self.shared.known.lock();
        for check in checks {
            let kind = gvk(check);
            things.push(match &check.which {
                Which::Name(name) => {
                    Thing::Object(kind.clone(), Request::namespaced(namespace, name.as_str()))
                }
                Which::Selector(_) => Thing::Namespace(kind.clone(), namespace.to_owned()),
            });
            if let Some(open) = known.kinds.get(&kind) {
                things.extend(questions(namespace, &account, &open.kind, check).map(Thing::Right));
            }
            things.push(Thing::Kind(kind));
        }
        if known.waiters.set(request, things) {
            drop(known);
            self.shared.wake.notify_one();
        }
    }

    /// Ends the look at everything that `request` waits for.
    pub fn forget(&self, request: &Request) {
        if self.shared.known.lock().waiters.forget(request) {
            self.shared.wake.notify_one();
        }
    }

    /// Returns what is known of a dependency of `request` on objects, which [`Resources::watch`] has named before.
    pub fn observe(
        &self,
        request: &Request,
        dependency: &PlannedDependency,
        check: &ResourceCheck,
    ) -> Observation {
        self.look(request, dependency, check).unwrap_or_else(|blind| blind)
    }

    fn look(
        &self,
        request: &Request,
        dependency: &PlannedDependency,
        check: &ResourceCheck,
    ) -> Result<Observation, Blind> {
        let namespace = request.namespace().unwrap_or_default();
        let store = self.readable(namespace, request, check)?;
        let objects = Objects { namespace, check };
        match &check.which {
            Which::Name(name) => {
                let entry = store.entry(&Request::namespaced(namespace, name.as_str()));
                match entry.map_err(|error| unreadable(&store, &error))? {
                    Some(entry) => Ok(self.judge(&entry, check).map_or_else(
                        |failure| explain_failure(namespace, check, &failure),
                        |found| tell(namespace, check, found),
                    )),
                    None if self.had_succeeded(request, dependency, check) => Ok(Observation {
                        state: State::Ready,
                        reason: resource::GONE_AFTER_SUCCESS,
                        message: holds(namespace, check),
                    }),
                    None => Err(not_ready(resource::NOT_FOUND, format!("{objects} does not exist"))),
                }
            }
            Which::Selector(selector) => {
                let selector = text_of(selector).parse::<LabelSelector>().map_err(|error| Observation {
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
                    return Err(not_ready(resource::TOO_MANY_OBJECTS, message));
                }
                let mut worst = Found::There;
                for entry in &entries {
                    let found = self.judge(entry, check);
                    worst = worst.max(found.map_err(|failure| explain_failure(namespace, check, &failure))?);
                }
                Ok(tell(namespace, check, worst))
            }
        }
    }

    fn judge(&self, entry: &Entry<DynamicObject>, check: &ResourceCheck) -> Result<Found, Failure> {
        match &check.state {
            ResourceState::Condition { type_, status } => Ok(judge_condition(entry, check, type_, status)),
            ResourceState::Expression(text) => {
                let expression = self.expression(text);
                let expression = (*expression).as_ref().map_err(Clone::clone)?;
                let is_short = |body: &Bytes| body.len() <= MAX_OBJECT_BYTES;
                if !entry.view().bytes().is_ok_and(|body| is_short(&body)) {
                    return Err(Failure::TooCostly);
                }
                let object = entry.view().decode::<Value>().map_err(|_| Failure::Failed)?;
                Ok(if expression.is_true(&object)? { Found::There } else { Found::NotThere })
            }
        }
    }

    /// Returns an expression, read once for all who use it.
    fn expression(&self, text: &str) -> Arc<Result<Expression, Failure>> {
        if let Some(known) = self.shared.expressions.lock().get(text) {
            return Arc::clone(known);
        }
        let read = Arc::new(Expression::read(text));
        let mut known = self.shared.expressions.lock();
        if known.len() >= MAX_EXPRESSIONS {
            known.clear();
        }
        known.insert(text.to_owned(), Arc::clone(&read));
        read
    }

    /// Returns where to read objects of the kind, if they may be read for `request`.
    fn readable(
        &self,
        namespace: &str,
        request: &Request,
        check: &ResourceCheck,
    ) -> Result<Store<DynamicObject>, Blind> {
        let (kind, now) = (gvk(check), Instant::now());
        let account = self.account_of(request);
        let mut known = self.shared.known.lock();
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
                let blind = trouble.map_or_else(Observation::unknown, |trouble| explain(check, trouble));
                self.shared.wake.notify_one();
                return Err(blind);
            }
        };
        let answer = may_read(&mut known.rights, namespace, &account, &kind, check, now);
        self.shared.wake.notify_one();
        drop(known);
        match answer {
            Some(Answer::Yes) => Ok(store),
            Some(Answer::No) => {
                let verb = verb(check);
                Err(not_ready(
                    resource::ACCESS_DENIED,
                    format!(
                        "ServiceAccount {namespace}/{account} of the template may not {verb} {}; a Role that admits it \
                         lets this be told",
                        Objects { namespace, check }
                    ),
                ))
            }
            Some(Answer::Failed) => Err(not_ready(
                resource::ACCESS_UNKNOWN,
                format!("the API server does not tell what ServiceAccount {namespace}/{account} may read"),
            )),
            None => Err(Observation::unknown()),
        }
    }

    /// Returns the ServiceAccount of the Pods to come. A template that is broken gets no Pods, and the default.
    fn account_of(&self, request: &Request) -> String {
        let object = self.shared.objects.get(request).ok().flatten();
        let spec = object.as_ref().and_then(|object| object.spec.template.get("spec"));
        let name = ["serviceAccountName", "serviceAccount"].iter().find_map(|field| {
            spec?.get(field)?.as_str().filter(|name| !name.is_empty()).map(ToOwned::to_owned)
        });
        name.unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned())
    }

    /// Returns whether what is gone held before, which the status tells, whichever replica wrote it.
    fn had_succeeded(
        &self,
        request: &Request,
        dependency: &PlannedDependency,
        check: &ResourceCheck,
    ) -> bool {
        let Ok(Some(object)) = self.shared.objects.get(request) else { return false };
        let Some(status) = object.status.as_ref().filter(|_| is_final(check)) else { return false };
        let held = status.dependencies.iter().find(|entry| entry.name == dependency.name && entry.ready);
        // An edit may have put another object under the name: only the words tell which one it was.
        let words = holds(request.namespace().unwrap_or_default(), check);
        held.is_some_and(|entry| entry.message.as_ref() == Some(&words))
    }
}

impl std::fmt::Debug for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resources").finish_non_exhaustive()
    }
}

// === impl Listener ===

impl DeltaHandler for Listener {
    fn handle(&self, delta: &Delta<'_>) {
        let Some(shared) = self.shared.upgrade() else { return };
        // Who waits is told when the first list is complete.
        if delta.initial || delta.resync {
            return;
        }
        let Some(request) = delta.latest().map(View::request) else { return };
        let waiting = {
            let known = shared.known.lock();
            let namespace = request.namespace().unwrap_or_default().to_owned();
            let mut waiting = known.waiters.of(&Thing::Object(self.kind.clone(), request.clone()));
            waiting.extend(known.waiters.of(&Thing::Namespace(self.kind.clone(), namespace)));
            waiting
        };
        waiting.into_iter().for_each(&shared.tell);
    }

    fn name(&self) -> &'static str {
        "who waits for the object"
    }
}

/// Returns the WaitDeployments that a check is about, if it is about such.
pub(crate) fn awaited(namespace: &str, check: &ResourceCheck) -> Option<Awaited> {
    if check.group != mainstay_api::GROUP || check.kind != mainstay_api::KIND {
        return None;
    }
    match &check.which {
        Which::Name(name) => Some(Awaited::Object(Request::namespaced(namespace, name.as_str()))),
        Which::Selector(selector) => {
            let selector = text_of(selector).parse().ok()?;
            Some(Awaited::Selected(namespace.to_owned(), selector))
        }
    }
}

// === private ===

/// Gives what has to be asked, at most: about all objects first, then about the one.
fn questions<'a>(
    namespace: &'a str,
    account: &'a str,
    kind: &'a KindId,
    check: &'a ResourceCheck,
) -> impl Iterator<Item = Question> + 'a {
    let one = match &check.which {
        Which::Name(name) => Some(Some(name.clone())),
        Which::Selector(_) => None,
    };
    [Some(None), one].into_iter().flatten().map(|name| Question {
        namespace: namespace.to_owned(),
        account: account.to_owned(),
        kind: kind.clone(),
        name,
        verb: verb(check),
    })
}

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

fn judge_condition(entry: &Entry<DynamicObject>, check: &ResourceCheck, type_: &str, status: &str) -> Found {
    // With a status of another form it has no such condition.
    let Ok(object) = entry.view().decode::<ObjectView>() else { return Found::NotThere };
    let found = object.judge(type_, status);
    let failed = check.group == "batch" && check.kind == "Job" && object.is("Failed");
    if found == Found::NotThere && failed { Found::Failed } else { found }
}

#[cfg(test)]
mod tests;
