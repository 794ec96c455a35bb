//! Delivers changes to handlers, in order, on the task of the store's reflector.
//!
//! Each store has one queue of deliveries. A change is enqueued in the same step, under the same lock, that
//! changes the table, and only the [`Dispatcher`] takes entries out. So all handlers see the same order of
//! states, including own writes that other tasks enter, and no lock is held while a handler runs.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache::object::{Delta, Origin, View};
use crate::cache::store::{ObjectStore, SubScope, UntypedStore};
use crate::key::panic_text;

/// Time from which a call of a handler counts as slow, because it delays the store's watch; a longer call is
/// counted and logged with the handler's name.
pub const SLOW_HANDLER: Duration = Duration::from_millis(10);

/// Number of handler calls after which the dispatcher yields to the runtime.
const CALLS_PER_YIELD: usize = 256;

/// Handler of the changes of one store, which it receives one at a time and in order.
///
/// Called on the reflector's task, so it must not block. A panic is caught and counted, and only this delta
/// is lost.
pub trait DeltaHandler: Send + Sync + 'static {
    /// Handles one change of an object in the store.
    fn handle(&self, delta: &Delta<'_>);

    /// Returns the name of this handler in logs and metrics.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }
}

/// Keeps a handler subscribed. Dropping the subscription unsubscribes the handler; a call in progress still
/// completes.
#[derive(Debug)]
pub struct Subscription {
    store: Arc<UntypedStore>,
    /// Whether this handler has handled the whole initial list. The subscriber is unsubscribed when this
    /// receiver, the only one of its channel, is dropped.
    synced: watch::Receiver<bool>,
}

/// An entry of a store's delivery queue.
pub(crate) enum Job {
    /// One change of an object: its states before and after it, and the source of the change.
    Change {
        old: Option<View>,
        new: Option<View>,
        origin: Origin,
    },
    /// A new handler subscribes, and receives the present objects first.
    Join {
        subscriber: Subscriber,
        present: Vec<View>,
        /// Whether the store had synced when the handler subscribed, so that `present` is the complete
        /// initial list.
        synced: bool,
    },
    /// The store's initial list is complete: all of its changes were queued before this entry.
    Synced,
    Resync(Vec<View>),
}

/// A handler that is subscribed to the changes of a store.
pub(crate) struct Subscriber {
    handler: Handler,
    /// Name of the handler. Read once, when the handler subscribes: a panic of `DeltaHandler::name` then
    /// reaches the caller.
    name: Box<str>,
    /// Publishes whether the handler has handled the initial list. Closed when the [`Subscription`] is
    /// dropped.
    synced: watch::Sender<bool>,
    /// The part of the store with the changes that the handler receives; `None` = all of the store.
    sub_scope: Option<Arc<SubScope>>,
}

/// A handler that is dropped inside `catch_unwind`: a panic there would end the store's task.
struct Handler(Option<Box<dyn DeltaHandler>>);

/// Owns the handlers of one store and is the only reader of its delivery queue.
pub(crate) struct Dispatcher {
    store: Arc<ObjectStore>,
    subscribers: Vec<Subscriber>,
    /// Number of handler calls since the dispatcher last yielded to the runtime.
    calls: usize,
}

// === impl Subscription ===

impl Subscription {
    pub(in crate::cache) fn new(
        store: Arc<UntypedStore>,
        handler: Box<dyn DeltaHandler>,
    ) -> (Self, Subscriber) {
        let (sender, synced) = watch::channel(false);
        let name = handler.name().into();
        let handler = Handler(Some(handler));
        (Self { store, synced }, Subscriber { handler, name, synced: sender, sub_scope: None })
    }

    /// Waits until this handler has handled the whole initial list. Never returns if the cache stops before
    /// that: race it with the shutdown.
    ///
    /// # Cancel safety
    /// No event is lost; call it again.
    pub async fn synced(&mut self) {
        if self.synced.wait_for(|synced| *synced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns whether this handler has handled the whole initial list.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns the store that the handler is subscribed to.
    pub fn store(&self) -> &Arc<UntypedStore> {
        &self.store
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Drops the receiver first: the dispatcher, woken then, sees a closed channel and drops the handler.
        self.synced = watch::channel(false).1;
        self.store.source().deliveries_queued.notify_one();
    }
}

// === impl Dispatcher ===

impl Dispatcher {
    pub(crate) fn new(store: Arc<ObjectStore>) -> Self {
        Self { store, subscribers: Vec::new(), calls: 0 }
    }

    /// Delivers the changes of the store to its handlers until it is cancelled.
    ///
    /// # Cancel safety
    /// Deliveries that were taken from the queue and not completed are lost: cancel it only at shutdown.
    pub(crate) async fn run(mut self) {
        loop {
            self.store.deliveries_queued.notified().await;
            self.deliver().await;
        }
    }

    /// Delivers the changes of the store to its handlers until the delivery queue is empty.
    pub(crate) async fn deliver(&mut self) {
        loop {
            self.drop_unsubscribed();
            let jobs = self.take_jobs();
            if jobs.is_empty() {
                return;
            }
            for job in jobs {
                self.perform(job).await;
                // Notify only at the end of a batch: entries that arrive meanwhile form the next batch, which
                // ends in another wake-up.
                if self.store.in_delivery.fetch_sub(1, Ordering::Relaxed) == 1 {
                    self.store.freed.notify_waiters();
                }
            }
        }
    }

    fn take_jobs(&self) -> VecDeque<Job> {
        let mut table = self.store.table.write();
        let jobs = std::mem::take(&mut table.jobs);
        // Set under the lock: otherwise `room` could count these entries neither in the queue nor here.
        self.store.in_delivery.store(jobs.len(), Ordering::Relaxed);
        jobs
    }

    fn drop_unsubscribed(&mut self) {
        let gone = self.subscribers.extract_if(.., |subscriber| subscriber.handler().is_none());
        for gone in gone.collect::<Vec<_>>() {
            // The handlers of one controller may share a name.
            if !self.subscribers.iter().any(|subscriber| subscriber.name == gone.name) {
                self.store.counts.forget_handler(&gone.name);
            }
        }
    }

    async fn perform(&mut self, job: Job) {
        match job {
            Job::Change { old, new, origin } => {
                self.deliver_to_all(&Delta::new(old.as_ref(), new.as_ref(), origin)).await;
            }
            Job::Join { subscriber, present, synced } => {
                for view in &present {
                    self.store.deliver_to(&subscriber, &Delta::new(None, Some(view), Origin::Initial));
                    self.count_calls(1).await;
                }
                if synced {
                    subscriber.synced.send_replace(true);
                }
                self.subscribers.push(subscriber);
            }
            Job::Synced => {
                for subscriber in &self.subscribers {
                    subscriber.synced.send_replace(true);
                }
            }
            Job::Resync(present) => {
                for view in present {
                    // A later change of the object has its own entry in the queue, before or behind this one.
                    if self.store.table.read().holds(&view) {
                        self.deliver_to_all(&Delta::new(Some(&view), Some(&view), Origin::Resync)).await;
                    }
                }
            }
        }
    }

    async fn deliver_to_all(&mut self, delta: &Delta<'_>) {
        for subscriber in &self.subscribers {
            self.store.deliver_to(subscriber, delta);
        }
        self.count_calls(self.subscribers.len()).await;
    }

    /// Counts handler calls and yields now and then, so that a long list does not block the thread for other
    /// tasks.
    async fn count_calls(&mut self, calls: usize) {
        self.calls += calls;
        if self.calls >= CALLS_PER_YIELD {
            self.calls = 0;
            tokio::task::yield_now().await;
        }
    }
}

// === impl Subscriber ===

impl Subscriber {
    /// Limits the subscriber to the changes of a part of the store.
    pub(crate) fn within(self, sub_scope: Arc<SubScope>) -> Self {
        Self { sub_scope: Some(sub_scope), ..self }
    }

    /// Returns the delta restricted to this handler's part of the store; `None` if the part is not affected.
    pub(crate) fn restrict<'a>(&self, delta: &Delta<'a>) -> Option<Delta<'a>> {
        self.sub_scope.as_ref().map_or(Some(*delta), |sub_scope| sub_scope.restrict(delta))
    }

    /// Returns the handler of this subscriber; `None` if it has unsubscribed.
    pub(crate) fn handler(&self) -> Option<&dyn DeltaHandler> {
        self.handler.0.as_deref().filter(|_| !self.synced.is_closed())
    }
}

// === impl ObjectStore ===

/// The delivery queue of a store, as the dispatcher uses it.
impl ObjectStore {
    /// Enqueues a resync on the delivery queue: one delta for each stored object.
    pub(crate) fn queue_resync(&self) {
        if self.is_synced() {
            let present = self.everything();
            self.step(|table| table.jobs.push_back(Job::Resync(present)));
        }
    }

    pub(crate) fn deliver_to(&self, subscriber: &Subscriber, delta: &Delta<'_>) {
        if let Some(handler) = subscriber.handler()
            && let Some(delta) = subscriber.restrict(delta)
        {
            self.call(&subscriber.name, handler, &delta);
        }
    }

    /// Calls a handler of the store with one delta. A panic loses this delta only. Panics and slow calls are
    /// counted and logged.
    pub(crate) fn call(&self, name: &str, handler: &dyn DeltaHandler, delta: &Delta<'_>) {
        let began = Instant::now();
        tracing::trace!(kind = %self.kind, handler = name, "delta delivered");
        // The handler may leave only its own state inconsistent after a panic; it has no access to the
        // store's state.
        let outcome = catch_unwind(AssertUnwindSafe(|| handler.handle(delta)));
        let took = began.elapsed();
        let (kind, object) = (&self.kind, || delta.latest().map(|view| view.request().to_string()));
        if let Err(payload) = outcome
            && let Some(panics) = self.counts.count_panic(name)
        {
            let panic = panic_text(&*payload);
            tracing::error!(
                %kind, handler = name, object = object(), panics, panic,
                "handler panicked; the delta was dropped"
            );
        }
        if took > SLOW_HANDLER
            && let Some(calls) = self.counts.count_slow_call(name)
        {
            tracing::warn!(
                %kind, handler = name, object = object(), calls, ?took,
                "handler is slow and delays the watch"
            );
        }
    }
}

// === impl Handler ===

impl Drop for Handler {
    fn drop(&mut self) {
        let handler = self.0.take();
        // The handler has no access to the store's state.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(handler))) {
            tracing::error!(panic = panic_text(&*payload), "handler panicked while it was dropped");
        }
    }
}

#[cfg(test)]
mod tests;
