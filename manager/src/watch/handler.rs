//! From a delta to the keys it concerns.

use std::any::type_name;
use std::collections::HashSet;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tracing::{trace, warn};

use crate::cache::{Delta, View};
use crate::client::Writer;
use crate::key::{Key, KindId, NamespacedName};
use crate::queue::Add;

/// Largest number of keys for which comparing with each is faster than a set: most events concern one or two
/// keys.
const FEW: usize = 16;

/// Event handler: turns a delta of an object into the keys to reconcile.
///
/// The delta has both the old and the new state, so that a key that only the old state names is enqueued too.
/// Runs in the dispatcher of the store, so it has to be quick: an expensive mapping belongs in an index. A
/// panic loses this one delta, and is counted and logged under the names of the controller and of the
/// handler.
///
/// Any `Fn(&Delta<'_>, &mut Enqueue<Q>)` is an event handler.
pub trait EventHandler<Q: Key>: Send + Sync + 'static {
    /// Adds the keys to reconcile because of `delta` to `out`. [`Enqueue::add`] ignores a key that it has
    /// added before; of other repeated adds the queue merges those of a key that still waits.
    fn handle(&self, delta: &Delta<'_>, out: &mut Enqueue<Q>);

    /// Returns the name of this event handler in logs and metrics, where it follows the name of the
    /// controller.
    fn name(&self) -> &str {
        type_name::<Self>()
    }
}

/// Collects the keys to enqueue because of one delta; an event handler adds them.
#[derive(Debug)]
pub struct Enqueue<Q> {
    usual: Add,
    /// The writer of the delta, and the add for the key of its run; `None` unless a run of this controller
    /// wrote the delta.
    own: Option<(Writer, Add)>,
    /// The collected keys in the order of the calls, with the add that the handler chose. `None` stands for
    /// the add that follows from the delta; such a key is there once.
    keys: Vec<(Q, Option<Add>)>,
    /// The collected keys without an add that the handler chose; empty while there are at most [`FEW`].
    seen: HashSet<Q>,
}

/// Event handler that enqueues the object of the delta itself, by its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnqueueForObject;

/// Event handler that enqueues the owners of the object that have a given kind: all of them, or only the
/// managing controller.
///
/// The version of the reference is ignored: an owner written as `v1alpha1` is the same object as `v1`.
#[derive(Clone, Debug)]
pub struct EnqueueForOwner {
    owner: KindId,
    only_controller: bool,
}

/// A function as an event handler, under the name of the function that the user gave.
struct Named<F> {
    name: &'static str,
    handle: F,
}

// === impl Enqueue ===

impl<Q: Key> Enqueue<Q> {
    pub(super) fn new(usual: Add, own: Option<(Writer, Add)>) -> Self {
        Self { usual, own, keys: Vec::new(), seen: HashSet::new() }
    }

    /// Enqueues a key with the strength and urgency that follow from the delta. A repeated call has no
    /// effect.
    pub fn add(&mut self, key: Q) {
        if self.is_new(&key) {
            trace!(%key, "key named by the handler");
            self.keys.push((key, None));
        }
    }

    /// Enqueues a key with a delay of `wait`. A key that is due earlier stays due earlier.
    pub fn add_after(&mut self, key: Q, wait: Duration) {
        let add = usual_of(&self.usual, self.own.as_ref(), &key).clone().after(wait);
        self.add_with(key, add);
    }

    /// Enqueues a key with strength, band, cause and delay of the handler's choice. A cause without an object
    /// gets the object of the delta. Of several adds of one key the queue takes the strongest and earliest.
    pub fn add_with(&mut self, key: Q, add: Add) {
        self.keys.push((key, Some(add)));
    }

    /// Returns the add that [`Enqueue::add`] uses, with strength and band by the delta. If the run of a key
    /// wrote the delta, the add of that key is weak instead and ends no backoff, unless the answer of the API
    /// server may also show edits by others.
    pub fn usual(&self) -> &Add {
        &self.usual
    }

    /// Returns the collected keys in the order of the calls, each with its add.
    pub(super) fn into_adds(self) -> impl Iterator<Item = (Q, Add)> {
        let Self { usual, own, keys, .. } = self;
        keys.into_iter().map(move |(key, add)| {
            let add = add.unwrap_or_else(|| usual_of(&usual, own.as_ref(), &key).clone());
            (key, add)
        })
    }

    fn is_new(&mut self, key: &Q) -> bool {
        let as_usual = || self.keys.iter().filter(|(_, add)| add.is_none()).map(|(key, _)| key);
        if self.keys.len() < FEW {
            return as_usual().all(|known| known != key);
        }
        if self.seen.is_empty() {
            self.seen = as_usual().cloned().collect();
        }
        self.seen.insert(key.clone())
    }
}

fn usual_of<'a>(usual: &'a Add, own: Option<&'a (Writer, Add)>, key: &impl Key) -> &'a Add {
    own.filter(|(writer, _)| writer.is_run_of(key)).map_or(usual, |(_, add)| add)
}

// === impl EnqueueForObject ===

impl EventHandler<NamespacedName> for EnqueueForObject {
    fn handle(&self, delta: &Delta<'_>, out: &mut Enqueue<NamespacedName>) {
        if let Some(view) = delta.new.or(delta.old) {
            out.add(view.meta().request.clone());
        }
    }

    fn name(&self) -> &'static str {
        "the object itself"
    }
}

// === impl EnqueueForOwner ===

impl EnqueueForOwner {
    /// Makes an event handler that enqueues the one owner marked as controller, if it is of the kind `owner`.
    pub fn controller(owner: KindId) -> Self {
        Self { owner, only_controller: true }
    }

    /// Makes an event handler that enqueues every owner of the kind `owner`.
    pub fn any(owner: KindId) -> Self {
        Self { owner, only_controller: false }
    }
}

impl EventHandler<NamespacedName> for EnqueueForOwner {
    fn handle(&self, delta: &Delta<'_>, out: &mut Enqueue<NamespacedName>) {
        for meta in delta.old.into_iter().chain(delta.new).map(View::meta) {
            for owner in meta.owners.iter().filter(|owner| owner.controller || !self.only_controller) {
                if group(&owner.api_version) != Some(self.owner.group()) || &*owner.kind != self.owner.kind()
                {
                    continue;
                }
                // An owner is in the namespace of the object that it owns, or is cluster-scoped.
                let namespace = meta.request.namespace().filter(|_| self.owner.is_namespaced());
                out.add(NamespacedName::new(namespace, &owner.name));
            }
        }
    }

    fn name(&self) -> &'static str {
        if self.only_controller { "the controller owner" } else { "every owner" }
    }
}

/// Returns the API group of an `apiVersion`, empty for the core group; `None` if the text has more than one
/// slash, which no server accepts.
fn group(api_version: &str) -> Option<&str> {
    match api_version.split_once('/') {
        None => Some(""),
        Some((group, version)) => (!version.contains('/')).then_some(group),
    }
}

// === impl Named ===

/// Makes an event handler that enqueues the keys that a function returns for the old and for the new state of
/// an object, from its metadata alone.
///
/// [`map`] passes the object itself to the function, which has to be decoded first.
pub fn map_view<Q, I, F>(function: F) -> impl EventHandler<Q>
where
    Q: Key,
    I: IntoIterator<Item = Q>,
    F: Fn(&View) -> I + Send + Sync + 'static,
{
    let handle = move |delta: &Delta<'_>, out: &mut Enqueue<Q>| {
        for view in delta.old.into_iter().chain(delta.new) {
            function(view).into_iter().for_each(|key| out.add(key));
        }
    };
    Named { name: type_name::<F>(), handle }
}

/// Makes an event handler that enqueues the keys that a function returns for the old and for the new state of
/// an object, decoded as a `K`.
///
/// ```
/// use k8s_openapi::api::core::v1::Secret;
/// use mainstay::cache::Store;
/// use mainstay::controller::Controller;
/// use mainstay::key::NamespacedName;
/// use mainstay::watch::map;
///
/// /// The order that a Secret of this type pays for has the name of the Secret.
/// fn order_of(secret: &Secret) -> Option<NamespacedName> {
///     let name = secret.metadata.name.as_deref()?;
///     let pays = secret.type_.as_deref() == Some("shop.example.com/payment");
///     pays.then(|| NamespacedName::new(secret.metadata.namespace.as_deref(), name))
/// }
///
/// # fn wire(secrets: &Store<Secret>) {
/// let controller = Controller::new("orders").watches(secrets, map(order_of));
/// # }
/// ```
///
/// An object that is no `K`, or is longer than `cache.maxObjectBytes`, enqueues no key, and the log names
/// it. Where metadata is enough, [`map_view`] costs less.
pub fn map<K, Q, I, F>(function: F) -> impl EventHandler<Q>
where
    K: DeserializeOwned + Send + Sync + 'static,
    Q: Key,
    I: IntoIterator<Item = Q>,
    F: Fn(&K) -> I + Send + Sync + 'static,
{
    let handle = move |delta: &Delta<'_>, out: &mut Enqueue<Q>| {
        for view in delta.old.into_iter().chain(delta.new) {
            match view.decode::<K>() {
                Ok(object) => function(&object).into_iter().for_each(|key| out.add(key)),
                Err(error) => {
                    let object = view.request();
                    warn!(handler = type_name::<F>(), %object, %error, "an object cannot be mapped to keys");
                }
            }
        }
    };
    Named { name: type_name::<F>(), handle }
}

impl<Q: Key, F: Fn(&Delta<'_>, &mut Enqueue<Q>) + Send + Sync + 'static> EventHandler<Q> for Named<F> {
    fn handle(&self, delta: &Delta<'_>, out: &mut Enqueue<Q>) {
        (self.handle)(delta, out);
    }

    fn name(&self) -> &str {
        self.name
    }
}

impl<Q: Key, F: Fn(&Delta<'_>, &mut Enqueue<Q>) + Send + Sync + 'static> EventHandler<Q> for F {
    fn handle(&self, delta: &Delta<'_>, out: &mut Enqueue<Q>) {
        self(delta, out);
    }
}
