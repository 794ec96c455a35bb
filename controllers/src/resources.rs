//! Objects of the cluster in a state: what `resource` checks wait for.
//!
//! A kind is listed and watched once somebody waits for it, of those that the operator lists in `probePolicy.resources`,
//! and an answer is given only about what the ServiceAccount of the waiting Pods may read itself. A reconcile asks
//! ([`Resources::watch`]) and is answered from the cache; what has to be asked of the server is asked by the
//! [`ResourceWatch`], and who waits is told when there is an answer, or another one.
//!
//! # Invariants
//! 1. Nothing is read that is not listed, and nothing is told about an object that the ServiceAccount may not read.
//! 2. Nothing out of an object is told but whether it is in the state.
//! 3. Nothing is called or sent while the lock is held.

mod check;
mod driver;
mod evaluations;
mod expression;
mod kinds;
mod look;
mod results;
mod rights;
mod state;
mod words;

use std::sync::{Arc, Weak};

use kube::core::{DynamicObject, GroupVersionKind};
use mainstay::cache::{Delta, DeltaHandler, LabelSelector, Select, Store, View};
use mainstay::key::{Key as _, KindId, Request};
use mainstay_api::plan::{ResourceCheck, ResourceState, Which};
use mainstay_api::{Check, Plan, WaitDeployment};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::DropGuard;

use self::check::{gvk, kind_name, verb};
use self::evaluations::Evaluations;
use self::kinds::Kinds;
use self::look::MAX_SELECTED;
use self::rights::{Question, Rights};
use crate::cycles::Awaited;
use crate::dependencies::Waiters;
use crate::mirror::selector_text;
use crate::reasons::condition;

pub use driver::ResourceWatch;
pub use look::Look;

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
    evaluations: Evaluations,
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
            evaluations: Evaluations::default(),
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

    /// Has all objects in `plan` looked at for `request` from now on, and nothing else. What is returned tells what is known
    /// of each.
    pub fn watch<'a>(&'a self, request: &'a Request, plan: &Plan) -> Look<'a> {
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
            things.push(Thing::of(namespace, check));
            if !known.allowed.contains(&kind_name(&kind)) {
                continue;
            }
            if let Some(open) = known.kinds.get(&kind) {
                things.extend(questions(namespace, &account, &open.kind, check).map(Thing::Right));
            }
            things.push(Thing::Kind(kind));
        }
        let is_news = known.waiters.set(request, things);
        drop(known);
        if is_news {
            self.shared.wake.notify_one();
        }
        Look::new(self, request, account)
    }

    /// Returns who waits for the one object, or for any of the namespace where a selector picks, in no particular order.
    pub fn waiting(&self, namespace: &str, check: &ResourceCheck) -> Vec<Request> {
        self.shared.known.lock().waiters.of(&Thing::of(namespace, check))
    }

    /// Returns the WaitDeployments that a check is about, if it is about such, and for what of them it waits.
    pub fn awaited(&self, namespace: &str, check: &ResourceCheck) -> Vec<Awaited> {
        if check.group != mainstay_api::GROUP || check.kind != mainstay_api::KIND {
            return Vec::new();
        }
        let is_ready = |type_: &str, status: &str| {
            type_.eq_ignore_ascii_case(condition::READY) && status.eq_ignore_ascii_case("True")
        };
        let await_ = match &check.state {
            ResourceState::Condition { type_, status } if is_ready(type_, status) => Awaited::Ready,
            _ => Awaited::Object,
        };
        let found = match &check.which {
            Which::Name(name) => vec![Request::namespaced(namespace, name.as_str())],
            Which::Selector(selector) => {
                let selector = selector_text(selector).parse::<LabelSelector>().ok();
                let select = selector.map(|selector| Select::namespace(namespace).labels(selector));
                // Not synced: nobody can be named yet, and who is closed looks again.
                let found = select.map(|select| self.shared.objects.list(&select).unwrap_or_default());
                let mut found: Vec<_> =
                    found.into_iter().flatten().map(|entry| entry.view().request().clone()).collect();
                found.sort_unstable();
                found.truncate(MAX_SELECTED);
                found
            }
        };
        found.into_iter().map(await_).collect()
    }

    /// Ends the look at everything that `request` waits for.
    pub fn forget(&self, request: &Request) {
        if self.shared.known.lock().waiters.forget(request) {
            self.shared.wake.notify_one();
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
}

impl std::fmt::Debug for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resources").finish_non_exhaustive()
    }
}

// === impl Thing ===

impl Thing {
    /// The objects that a check looks at.
    fn of(namespace: &str, check: &ResourceCheck) -> Self {
        match &check.which {
            Which::Name(name) => Self::Object(gvk(check), Request::namespaced(namespace, name.as_str())),
            Which::Selector(_) => Self::Namespace(gvk(check), namespace.to_owned()),
        }
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

#[cfg(test)]
mod tests;
