//! The source that most controllers live on: the deltas of one kind in the cache.
//!
//! # Invariants
//! 1. A key the queue refused for being full is owed: once the queue has drained, the store is swept, and the sweep
//!    goes on where it was refused until it has come to the end. So memory stays bounded and nothing is lost.
//! 2. A sweep says nothing new: it makes an absent key ready and leaves one in its backoff alone.
//! 3. What says nothing new never ends a backoff: a resync, to a key what its own run wrote, and of its own primary also a
//!    change of nothing but status. Everything else counts in full.
//! 4. Failures belong to what failed: a new generation of the primary, or another object of its name, begins without.
//!    One that the run of the key wrote itself does not: see 3.
//! 5. A pause, its end and a request for a reconcile by annotation pass every predicate and count in full. That an object
//!    becomes too large to be decoded, or is so no longer, counts in full too.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::predicate::changes_readability;
use super::{Enqueue, EventHandler, Predicate, Sink, Source, SourceError};
use crate::cache::{Aspect, Changes, Delta, DeltaHandler, KindStore, ReadError, Select, Store, View};
use crate::key::{Cause, Key, NamespacedName, ObjectKey, Subject, Trigger};
use crate::queue::{Add, Added, Band, Strength};

/// A store, and the predicates that a delta has to pass before a controller sees it.
///
/// `&store` becomes one without predicates, [`Store::when`] makes one with a predicate.
#[must_use = "it does nothing until a controller watches it"]
pub struct Watched {
    store: Arc<KindStore>,
    predicates: Vec<Box<dyn Predicate>>,
}

/// Turns the deltas of one store into keys: predicates, then handler, then queue.
pub struct StoreSource<Q: Key> {
    store: Arc<KindStore>,
    feed: Feed<Q>,
}

struct Feed<Q: Key> {
    handler: Box<dyn EventHandler<Q>>,
    predicates: Vec<Box<dyn Predicate>>,
    /// Whether the store holds the very objects the queue is keyed by.
    primary: bool,
    /// What most causes are about, once for all of them.
    namesake: Arc<Subject>,
}

/// What the reflector's task and the source's task share.
struct Shared<Q: Key> {
    feed: Feed<Q>,
    sink: Sink<Q>,
    /// Controller and handler, for logs and metrics.
    name: String,
    /// Permit = a sweep is owed.
    owed: Notify,
}

/// Offers single objects again, and keeps what the queue refuses.
struct Sweeper<Q: Key> {
    shared: Arc<Shared<Q>>,
    refused: Mutex<Vec<(Q, Add)>>,
}

/// Objects offered by a sweep between two chances for other work of the same thread.
const SWEPT_PER_TURN: usize = 256;

// === impl Watched ===

impl<K> Store<K> {
    /// Watches this store for the deltas that `predicate` admits: for [`Controller::reconciles`] and its kin.
    ///
    /// ```
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use mainstay::cache::Store;
    /// # use mainstay::controller::Controller;
    /// use mainstay::watch::GenerationChanged;
    ///
    /// # fn wire(deployments: &Store<Deployment>) {
    /// let controller = Controller::new("restarter").reconciles(deployments.when(GenerationChanged));
    /// # }
    /// ```
    ///
    /// [`Controller::reconciles`]: crate::controller::Controller::reconciles
    pub fn when(&self, predicate: impl Predicate) -> Watched {
        Watched::from(self).when(predicate)
    }
}

impl Watched {
    /// Restricts the deltas further, to those that `predicate` admits too.
    pub fn when(mut self, predicate: impl Predicate) -> Self {
        self.predicates.push(Box::new(predicate));
        self
    }

    pub(crate) fn store(&self) -> &Arc<KindStore> {
        &self.store
    }
}

impl<K> From<&Store<K>> for Watched {
    fn from(store: &Store<K>) -> Self {
        Arc::clone(store.kind_store()).into()
    }
}

impl From<Arc<KindStore>> for Watched {
    fn from(store: Arc<KindStore>) -> Self {
        Self { store, predicates: Vec::new() }
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("kind", self.store.kind()).finish_non_exhaustive()
    }
}

// === impl StoreSource ===

impl<Q: Key> StoreSource<Q> {
    /// Makes a source of the keys that `handler` returns for the deltas of a store.
    pub fn new(watched: impl Into<Watched>, handler: impl EventHandler<Q>) -> Self {
        let Watched { store, predicates } = watched.into();
        let namesake = Arc::new(Subject::Namesake(store.kind().clone()));
        Self { store, feed: Feed { handler: Box::new(handler), predicates, primary: false, namesake } }
    }

    /// Says that the queue is keyed by the objects of this store: a change of nothing but their status is then weak,
    /// and a new generation, or a new object of the name, forgets earlier failures.
    #[must_use]
    pub fn primary(mut self) -> Self {
        self.feed.primary = true;
        self
    }
}

impl<Q: Key> Source<Q> for StoreSource<Q> {
    fn run(
        self: Box<Self>,
        sink: Sink<Q>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SourceError>> {
        let called = Source::name(&*self);
        let Self { store, feed } = *self;
        let name = format!("{}: {}", sink.queue().name(), feed.handler.name());
        let shared = Arc::new(Shared { feed, sink, name, owed: Notify::new() });
        Box::pin(async move {
            let mut subscription = store.subscribe(Box::new(Arc::clone(&shared)));
            // Order does not matter: a controller that is ending does nothing with the sync.
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = subscription.synced() => shared.sink.synced(),
            }
            let sweeper = Sweeper { shared: Arc::clone(&shared), refused: Mutex::default() };
            let pay_debts = async {
                loop {
                    shared.owed.notified().await;
                    if let Err(failure) = sweeper.sweep(&store).await {
                        return failure;
                    }
                }
            };
            // Biased: nothing is owed to a controller that is ending.
            tokio::select! {
                biased;
                () = stop.cancelled() => Ok(()),
                failure = pay_debts => Err(SourceError { name: called, source: failure.into() }),
            }
        })
    }

    fn name(&self) -> String {
        format!("store {}", self.store.kind())
    }
}

impl<Q: Key> std::fmt::Debug for StoreSource<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreSource").field("kind", self.store.kind()).finish_non_exhaustive()
    }
}

// === impl Shared ===

impl<Q: Key> Shared<Q> {
    /// Gives the keys the delta concerns, and how each is to be added.
    fn adds(&self, delta: &Delta<'_>) -> impl Iterator<Item = (Q, Add)> {
        let controller = self.sink.queue().name();
        let own = delta.own_write.filter(|writer| writer.is_controller(controller) && writer.is_run());
        let own = own.map(|writer| (writer, self.feed.add(delta, true)));
        let mut keys = Enqueue::new(self.feed.add(delta, false), own);
        if self.feed.admits(delta) {
            self.feed.handler.handle(delta, &mut keys);
        }
        // Made when the first key of another name comes, and shared by all of them.
        let mut other = None;
        keys.into_adds().map(move |(key, mut add)| {
            if add.cause.object.is_none() {
                add.cause.object = self.feed.subject(delta, &key, &mut other);
            }
            (key, add)
        })
    }
}

impl<Q: Key> DeltaHandler for Arc<Shared<Q>> {
    fn handle(&self, delta: &Delta<'_>) {
        for (key, add) in self.adds(delta) {
            if matches!(self.sink.offer(key, add), Added::Refused) {
                self.owed.notify_one();
            }
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

// === impl Sweeper ===

impl<Q: Key> Sweeper<Q> {
    /// Offers every object of the store again, as if it had just been listed, and waits wherever the queue is full.
    ///
    /// Starting over instead would offer the same first objects again each time, and never come to the last ones.
    async fn sweep(&self, store: &KindStore) -> Result<(), ReadError> {
        self.wait_for_room().await;
        // Names, not views: this may take long, and each object counts as it is when its turn has come.
        let views = store.list(&Select::all())?;
        let names: Vec<NamespacedName> = views.iter().map(|view| view.request().clone()).collect();
        drop(views);
        for (at, name) in names.iter().enumerate() {
            if let Some(view) = store.get(name)? {
                let (old, new) = (None, Some(&view));
                store.call(self, &Delta { old, new, initial: true, resync: false, own_write: None });
            }
            self.insist().await;
            if at % SWEPT_PER_TURN == SWEPT_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Offers what was refused until nothing is.
    async fn insist(&self) {
        loop {
            let refused = std::mem::take(&mut *self.refused.lock());
            if refused.is_empty() {
                return;
            }
            self.wait_for_room().await;
            for (key, add) in refused {
                self.offer(key, add);
            }
        }
    }

    async fn wait_for_room(&self) {
        self.shared.sink.queue().drained().await;
    }

    fn offer(&self, key: Q, add: Add) {
        if matches!(self.shared.sink.offer(key.clone(), add.clone()), Added::Refused) {
            self.refused.lock().push((key, add));
        }
    }
}

/// A sweep calls the handler as the cache does: a panic costs the one object.
impl<Q: Key> DeltaHandler for Sweeper<Q> {
    fn handle(&self, delta: &Delta<'_>) {
        for (key, add) in self.shared.adds(delta) {
            self.offer(key, Add { strength: Strength::Weak, new_generation: false, ..add });
        }
    }

    fn name(&self) -> &str {
        &self.shared.name
    }
}

// === impl Feed ===

impl<Q: Key> Feed<Q> {
    fn admits(&self, delta: &Delta<'_>) -> bool {
        is_steered(delta) || self.predicates.iter().all(|predicate| predicate.verdict(delta).passes())
    }

    /// How a key is added; `own` if its run wrote the delta.
    fn add(&self, delta: &Delta<'_>, own: bool) -> Add {
        let strength = strength(delta, self.primary, own);
        let band = match delta.old {
            _ if delta.initial || delta.resync => Band::Background,
            // A burst of creations must not delay changes.
            None if self.primary => Band::New,
            _ => Band::Live,
        };
        Add {
            strength,
            band,
            // Of a weak one it would end the backoff after all: the run wrote the spec itself, and then failed.
            new_generation: self.primary && strength == Strength::Strong && asks_anew(delta),
            ..Add::strong(Cause::bare(trigger(delta)))
        }
    }

    /// Names the delta's object as the cause for `key`.
    fn subject(&self, delta: &Delta<'_>, key: &Q, other: &mut Option<Arc<Subject>>) -> Option<Arc<Subject>> {
        let request = &delta.new.or(delta.old)?.meta().request;
        if (request.namespace(), request.name()) == (key.namespace(), key.name()) {
            return Some(Arc::clone(&self.namesake));
        }
        let kind = self.namesake.kind();
        let named = || Subject::Other(ObjectKey { kind: kind.clone(), request: request.clone() });
        Some(Arc::clone(other.get_or_insert_with(|| Arc::new(named()))))
    }
}

fn trigger(delta: &Delta<'_>) -> Trigger {
    match (delta.old, delta.new) {
        _ if delta.resync => Trigger::Resync,
        _ if delta.initial => Trigger::Initial,
        (None, _) => Trigger::Created,
        (Some(_), Some(_)) => Trigger::Updated,
        (Some(_), None) => Trigger::Deleted,
    }
}

/// The object asks for something that was never tried: it has a new generation, or is not the one that was there.
fn asks_anew(delta: &Delta<'_>) -> bool {
    match (delta.old.map(View::meta), delta.new.map(View::meta)) {
        (Some(old), Some(new)) => old.generation != new.generation || old.uid != new.uid,
        (None, Some(_)) => !delta.initial && !delta.resync,
        (_, None) => false,
    }
}

/// A person has paused the object, ended its pause or asked for a look at it.
fn is_steered(delta: &Delta<'_>) -> bool {
    let (Some(old), Some(new)) = (delta.old.map(View::meta), delta.new.map(View::meta)) else { return false };
    let asked = new.reconcile_at_hash != 0 && old.reconcile_at_hash != new.reconcile_at_hash;
    asked || old.paused != new.paused
}

/// How much a delta counts for a key; `own` if the run of the key wrote it. The first case that holds decides:
///
/// | case | strength |
/// |---|---|
/// | by annotation `mainstay.dev/paused` begins or ends, or `mainstay.dev/reconcile-at` asks, whoever wrote it | strong |
/// | the object becomes too large to be decoded, or is so no longer | strong |
/// | a resync | weak |
/// | the run's own write of the primary, whose answer may also show edits by others | strong |
/// | any other write of its own: a run that writes a child and then fails must not undo its own backoff | weak |
/// | a change of nothing but status and managedFields, of a primary that counts generations | weak |
/// | everything else, also what the run of another key or another controller of this process wrote | strong |
///
/// Of kinds without generations every update by others counts: they have no status apart.
pub(super) fn strength(delta: &Delta<'_>, primary: bool, own: bool) -> Strength {
    let weak = match (delta.old, delta.new) {
        _ if is_steered(delta) || changes_readability(delta) => false,
        _ if delta.resync => true,
        _ if own => !(primary && may_show_foreign_edits(delta)),
        (Some(old), Some(new)) => primary && new.meta().generation.is_some() && same_but_status(old, new),
        _ => false,
    };
    if weak { Strength::Weak } else { Strength::Strong }
}

/// Returns whether the answer to an own write may also show edits by others, which no later event shows again: another
/// generation (where there is none, other content) or other finalizers, unless the write was for the very version that was
/// stored. Never another status, which a failing run reports each time. The beginning of a deletion always counts,
/// because the object may have something to clean up.
fn may_show_foreign_edits(delta: &Delta<'_>) -> bool {
    let (old, Some(new)) = (delta.old.map(View::meta), delta.new.map(View::meta)) else { return false };
    let Some(old) = old else { return new.deleting };
    let asks = old.finalizers != new.finalizers
        || match new.generation {
            Some(_) => old.generation != new.generation,
            None => old.content_hash != new.content_hash,
        };
    let alone = || delta.own_write.is_some_and(|writer| writer.was_on(old.resource_version.number()));
    old.deleting != new.deleting || (asks && !alone())
}

/// Of a kind that counts generations: content that changes without one is a status by another name.
fn same_but_status(old: &View, new: &View) -> bool {
    let says_nothing = |aspect| matches!(aspect, Aspect::Status | Aspect::Content);
    old.meta().uid == new.meta().uid && Changes::between(old, new).iter().all(says_nothing)
}
