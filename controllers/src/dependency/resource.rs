//! Objects of the cluster in a state: the subject of `resource` checks.
//!
//! A kind of `probePolicy.resources` is listed and watched once a check needs it, and a check is answered
//! only about objects that the ServiceAccount of the template may read itself. A reconcile registers its
//! checks ([`Resources::watch`]) and is answered from the cache; the [`ResourceWatch`] sends requests to the
//! API server and enqueues the waiting WaitDeployments when an answer changes.
//!
//! # Invariants
//! 1. No object of a kind that is not listed is read, and no observation depends on an object that the
//!    ServiceAccount may not read.
//! 2. An observation shows whether objects are in the state, and none of their values.
//! 3. The lock is not held while requests are sent, WaitDeployments enqueued or objects decoded.

mod check;
mod driver;
mod kinds;
mod messages;
mod reader;
mod rights;
mod state;

use std::sync::{Arc, Weak};

use kube::core::{DynamicObject, GroupVersionKind};
use mainstay::cache::{Delta, DeltaHandler, Store, View};
use mainstay::key::{Key as _, KindId, NamespacedName};
use mainstay_api::plan::{Objects, ResourceCheck, ResourceState};
use mainstay_api::{Check, Plan, WaitDeployment};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::DropGuard;

use self::check::{gvk, kind_name, select, verb};
use self::kinds::Kinds;
use self::reader::MAX_SELECTED;
use self::rights::{Question, Rights};
use crate::dependency::cycles::Awaited;
use crate::dependency::waiters::Waiters;
use crate::reasons::condition;

pub use driver::ResourceWatch;
pub use reader::ResourceReader;

/// The ServiceAccount of the Pods of a template that names none.
const DEFAULT_ACCOUNT: &str = "default";

/// Observes the objects of `resource` checks in the cache. Cheap to clone; never blocks.
#[derive(Clone, derive_more::Debug)]
#[debug("Resources {{ .. }}")]
pub struct Resources {
    shared: Arc<Shared>,
}

struct Shared {
    objects: Store<WaitDeployment>,
    known: Mutex<Known>,
    /// Wakes the [`ResourceWatch`] when a check needs another kind or access review.
    wake: Notify,
    enqueue: Box<dyn Fn(NamespacedName) + Send + Sync>,
}

#[derive(Default)]
struct Known {
    /// The kinds that checks may read, as `probePolicy.resources` lists them, such as `Job.batch`.
    allowed: Vec<String>,
    kinds: Kinds<Open>,
    rights: Rights,
    waiters: Waiters<Subject>,
}

/// A kind of `resource` checks that is listed and watched.
struct Open {
    kind: KindId,
    store: Store<DynamicObject>,
    /// Ends the subscription to the changes of the kind when it is dropped.
    _stop: DropGuard,
}

/// A subject of `resource` checks, the change of which enqueues the WaitDeployments that wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    /// The discovery of an API group, while a needed kind of it is not open.
    Group(String),
    /// The list and watch of a kind: whether its objects can be read.
    Kind(GroupVersionKind),
    /// One object of a kind.
    Object(GroupVersionKind, NamespacedName),
    /// Any object of a kind in a namespace.
    Namespace(GroupVersionKind, String),
    /// The right of a ServiceAccount to read objects.
    Right(Question),
}

/// Receives the changes of the objects of a kind, and enqueues the WaitDeployments that wait for them.
struct Listener {
    kind: GroupVersionKind,
    shared: Weak<Shared>,
}

// === impl Resources ===

impl Resources {
    /// Makes an observer of objects of the kinds in `allowed`. `enqueue` is called, outside any lock, with
    /// each WaitDeployment for which an observation may have changed; it must not block.
    pub fn new(
        objects: &Store<WaitDeployment>,
        allowed: Vec<String>,
        enqueue: impl Fn(NamespacedName) + Send + Sync + 'static,
    ) -> Self {
        let known = Mutex::new(Known { allowed, ..Known::default() });
        let (wake, enqueue) = (Notify::new(), Box::new(enqueue));
        Self { shared: Arc::new(Shared { objects: objects.clone(), known, wake, enqueue }) }
    }

    /// Applies another list of kinds that checks may read, and enqueues the waiting WaitDeployments. Objects
    /// of a kind that is not in it are not read from now on.
    pub fn reconfigure(&self, allowed: Vec<String>) {
        let waiting = {
            let mut known = self.shared.known.lock();
            if known.allowed == allowed {
                return;
            }
            known.allowed = allowed;
            known.waiters.all()
        };
        waiting.into_iter().for_each(&self.shared.enqueue);
    }

    /// Watches the objects of the `resource` checks in `plan` for the WaitDeployment `request` from now on,
    /// and no others. The returned reader observes each check.
    pub fn watch<'a>(&'a self, request: &'a NamespacedName, plan: &Plan) -> ResourceReader<'a> {
        let namespace = request.namespace().unwrap_or_default();
        let checks = plan.dependencies.iter().filter_map(|dependency| match &dependency.check {
            Check::Resource(check) => Some(check),
            Check::Service(_) | Check::Probe(_) => None,
        });
        let checks: Vec<_> = checks.collect();
        let account = if checks.is_empty() { String::new() } else { self.account_of(request) };
        let mut subjects = Vec::new();
        let mut known = self.shared.known.lock();
        for check in checks {
            let kind = gvk(check);
            subjects.push(Subject::of(namespace, check));
            if !known.allowed.contains(&kind_name(&kind)) {
                continue;
            }
            match known.kinds.get(&kind) {
                Some(open) => {
                    subjects.extend(questions(namespace, &account, &open.kind, check).map(Subject::Right));
                }
                None => subjects.push(Subject::Group(kind.group.clone())),
            }
            subjects.push(Subject::Kind(kind));
        }
        let is_news = known.waiters.set(request, subjects);
        drop(known);
        if is_news {
            self.shared.wake.notify_one();
        }
        ResourceReader::new(self, request, account)
    }

    /// Returns the WaitDeployments that wait for the objects of a `resource` check, in order. With a selector
    /// these are all that wait for a selector of the kind and namespace.
    pub fn waiting(&self, namespace: &str, check: &ResourceCheck) -> Vec<NamespacedName> {
        self.shared.known.lock().waiters.of(&Subject::of(namespace, check))
    }

    /// Returns the WaitDeployments that a `resource` check selects, each with the effect that the check waits
    /// for: its readiness or another state. Empty for a check of another kind.
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
        let found = match &check.objects {
            Objects::Name(name) => vec![NamespacedName::namespaced(namespace, name.as_str())],
            Objects::Selector(selector) => {
                // Before the cache has synced the list is empty; closed gates re-check themselves.
                let select = select(namespace, selector).ok();
                let found = select.and_then(|select| self.shared.objects.list(&select).ok());
                let mut found: Vec<_> =
                    found.into_iter().flatten().map(|entry| entry.view().request().clone()).collect();
                found.sort_unstable();
                found.truncate(MAX_SELECTED);
                found
            }
        };
        found.into_iter().map(await_).collect()
    }

    /// Stops watching the objects of the `resource` checks of the WaitDeployment `request`.
    pub fn forget(&self, request: &NamespacedName) {
        if self.shared.known.lock().waiters.forget(request) {
            self.shared.wake.notify_one();
        }
    }

    /// Returns the name of the ServiceAccount in the Pod template of the WaitDeployment `request`; a broken
    /// template creates no Pods and counts as one with the default.
    fn account_of(&self, request: &NamespacedName) -> String {
        let object = self.shared.objects.get(request).ok().flatten();
        let spec = object.as_ref().and_then(|object| object.spec.template.get("spec"));
        let name = ["serviceAccountName", "serviceAccount"].iter().find_map(|field| {
            spec?.get(field)?.as_str().filter(|name| !name.is_empty()).map(ToOwned::to_owned)
        });
        name.unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned())
    }
}

// === impl Subject ===

impl Subject {
    /// Returns the subject of a check: its one object, or any object of its kind in the namespace.
    fn of(namespace: &str, check: &ResourceCheck) -> Self {
        match &check.objects {
            Objects::Name(name) => {
                Self::Object(gvk(check), NamespacedName::namespaced(namespace, name.as_str()))
            }
            Objects::Selector(_) => Self::Namespace(gvk(check), namespace.to_owned()),
        }
    }
}

// === impl Listener ===

impl DeltaHandler for Listener {
    fn handle(&self, delta: &Delta<'_>) {
        let Some(shared) = self.shared.upgrade() else { return };
        // The driver enqueues the waiting WaitDeployments once the first list is complete.
        if delta.initial || delta.resync {
            return;
        }
        let Some(request) = delta.latest().map(View::request) else { return };
        let waiting = {
            let known = shared.known.lock();
            let namespace = request.namespace().unwrap_or_default().to_owned();
            let mut waiting = known.waiters.of(&Subject::Object(self.kind.clone(), request.clone()));
            waiting.extend(known.waiters.of(&Subject::Namespace(self.kind.clone(), namespace)));
            waiting
        };
        waiting.into_iter().for_each(&shared.enqueue);
    }

    fn name(&self) -> &'static str {
        "resource checks"
    }
}

// === private ===

/// Returns the access questions of a check, for the ServiceAccount `account`: about all objects of the
/// namespace first, then about the one object that the check names.
fn questions<'a>(
    namespace: &'a str,
    account: &'a str,
    kind: &'a KindId,
    check: &'a ResourceCheck,
) -> impl Iterator<Item = Question> + 'a {
    let one = match &check.objects {
        Objects::Name(name) => Some(Some(name.clone())),
        Objects::Selector(_) => None,
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
