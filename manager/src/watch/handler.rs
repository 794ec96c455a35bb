//! From a delta to the keys it concerns.

use crate::cache::{Delta, View};
use crate::key::{Key, KindId, Request};

/// Turns what happened to an object into the keys that should be looked at again.
///
/// Called with both the old and the new state, so that a key named only by the old one is not forgotten. Runs in the
/// task that delivers deltas: quick and without decoding; expensive mapping belongs in an index.
pub trait EventHandler<Q: Key>: Send + Sync + 'static {
    /// Adds the concerned keys to `out`. Adding one twice is the same as adding it once.
    fn handle(&self, delta: &Delta<'_>, out: &mut Enqueue<Q>);
}

/// The keys that one delta concerns, each once.
#[derive(Debug)]
pub struct Enqueue<Q> {
    keys: Vec<Q>,
}

/// Enqueues the object itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnqueueForObject;

/// Enqueues the owner of the object, if it is of one kind.
///
/// The version of the reference is ignored: an owner written as `v1alpha1` is the same object as `v1`.
#[derive(Clone, Debug)]
pub struct EnqueueForOwner {
    owner: KindId,
    only_controller: bool,
}

struct Mapped<F>(F);

// === impl Enqueue ===

impl<Q: Key> Enqueue<Q> {
    pub(super) fn new() -> Self {
        Self { keys: Vec::new() }
    }

    /// Names a key to be looked at again.
    pub fn add(&mut self, key: Q) {
        // A delta concerns a handful of keys at most; a set would cost more than it saves.
        if !self.keys.contains(&key) {
            self.keys.push(key);
        }
    }

    pub(super) fn into_keys(self) -> Vec<Q> {
        self.keys
    }
}

// === impl EnqueueForObject ===

impl EventHandler<Request> for EnqueueForObject {
    fn handle(&self, delta: &Delta<'_>, out: &mut Enqueue<Request>) {
        if let Some(view) = delta.new.or(delta.old) {
            out.add(view.meta().request.clone());
        }
    }
}

// === impl EnqueueForOwner ===

impl EnqueueForOwner {
    /// Enqueues the one owner marked as controller.
    pub fn controller(owner: KindId) -> Self {
        Self { owner, only_controller: true }
    }

    /// Enqueues every owner of the kind.
    pub fn any(owner: KindId) -> Self {
        Self { owner, only_controller: false }
    }
}

impl EventHandler<Request> for EnqueueForOwner {
    fn handle(&self, delta: &Delta<'_>, out: &mut Enqueue<Request>) {
        for meta in delta.old.into_iter().chain(delta.new).map(View::meta) {
            for owner in meta.owners.iter().filter(|owner| owner.controller || !self.only_controller) {
                let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
                if group != self.owner.group() || &*owner.kind != self.owner.kind() {
                    continue;
                }
                // An owner lives in the namespace of what it owns, or in none.
                let namespace = meta.request.namespace().filter(|_| self.owner.is_namespaced());
                out.add(Request::new(namespace, &owner.name));
            }
        }
    }
}

// === impl Mapped ===

/// Enqueues what a function answers for the old and for the new state of an object.
pub fn enqueue_mapped<Q: Key>(map: impl Fn(&View) -> Vec<Q> + Send + Sync + 'static) -> impl EventHandler<Q> {
    Mapped(map)
}

impl<Q: Key, F: Fn(&View) -> Vec<Q> + Send + Sync + 'static> EventHandler<Q> for Mapped<F> {
    fn handle(&self, delta: &Delta<'_>, out: &mut Enqueue<Q>) {
        for view in delta.old.into_iter().chain(delta.new) {
            for key in (self.0)(view) {
                out.add(key);
            }
        }
    }
}
