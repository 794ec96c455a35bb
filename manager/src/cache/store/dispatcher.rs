//! Tells handlers what changed, in order, on the task of the store's reflector.
//!
//! One lane per store: whoever changes the table queues the change in the same step, under the same lock, and only
//! the [`Dispatcher`] takes from the queue. So every handler sees one order, the order of states, also for own writes
//! that enter from other tasks; and no lock is held while a handler runs.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache::object::delta::{Delta, Origin};
use crate::cache::object::view::View;
use crate::cache::store::kind_store::KindStore;
use crate::cache::store::lens::Lens;
use crate::cache::store::object_store::ObjectStore;
use crate::cache::store::table::Change;
use crate::key::panic_text;

/// A handler that takes longer holds up its store's watch; it is counted and named.
pub const SLOW_HANDLER: Duration = Duration::from_millis(10);

/// Calls between two chances for other work of the same thread.
const CALLS_PER_TURN: usize = 256;

/// Is told every change of one store, one at a time and in order.
///
/// Called on the reflector's task, so it must not block. A panic is caught and counted and costs the one delta.
pub trait DeltaHandler: Send + Sync + 'static {
    /// Takes one change.
    fn handle(&self, delta: &Delta<'_>);

    /// Returns what logs and metrics call this handler.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }
}

/// Keeps a handler subscribed; dropping it ends that, after a call that may be under way.
#[derive(Debug)]
pub struct Subscription {
    store: Arc<KindStore>,
    gone: Arc<AtomicBool>,
    synced: watch::Receiver<bool>,
}

/// Something to do in the lane.
pub(in crate::cache) enum Job {
    Change(Change),
    /// A handler joins, with what was present at that point.
    Join {
        member: Member,
        present: Vec<View>,
        /// Whether the store had synced, so that `present` is the whole initial list.
        synced: bool,
    },
    /// The store's initial list is complete.
    Synced,
    Resync(Vec<View>),
}

/// One subscribed handler.
pub(in crate::cache) struct Member {
    handler: Handler,
    /// Asked for once, where the handler joins: a panic in it is the caller's.
    name: Box<str>,
    /// Set when the [`Subscription`] is dropped.
    gone: Arc<AtomicBool>,
    synced: watch::Sender<bool>,
    /// The part of the store it is told of; `None` is all of it.
    lens: Option<Arc<Lens>>,
}

/// A handler that may panic when it is dropped: that would end the task of its store.
struct Handler(Option<Box<dyn DeltaHandler>>);

/// Owns the handlers of one store and the only reading end of its lane.
pub(in crate::cache) struct Dispatcher {
    store: Arc<ObjectStore>,
    members: Vec<Member>,
    /// Calls since the last turn given away.
    calls: usize,
}

// === impl Subscription ===

impl Subscription {
    pub(in crate::cache) fn new(store: Arc<KindStore>, handler: Box<dyn DeltaHandler>) -> (Self, Member) {
        let gone = Arc::new(AtomicBool::new(false));
        let (sender, synced) = watch::channel(false);
        let name = handler.name().into();
        let handler = Handler(Some(handler));
        let member = Member { handler, name, gone: gone.clone(), synced: sender, lens: None };
        (Self { store, gone, synced }, member)
    }

    /// Waits until this handler has handled the whole initial list. Never returns if the cache stops before: race it
    /// with the stop.
    ///
    /// # Cancel safety
    /// Nothing is lost; call it again.
    pub async fn synced(&mut self) {
        if self.synced.wait_for(|synced| *synced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns whether this handler has handled the whole initial list.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns the store it belongs to.
    pub fn store(&self) -> &Arc<KindStore> {
        &self.store
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Pairs with the load in `Member::present`; the lane is woken so that the handler is dropped soon.
        self.gone.store(true, Ordering::Release);
        self.store.source().wake();
    }
}

// === impl Dispatcher ===

impl Dispatcher {
    pub(in crate::cache) fn new(store: Arc<ObjectStore>) -> Self {
        Self { store, members: Vec::new(), calls: 0 }
    }

    /// Delivers for ever.
    ///
    /// # Cancel safety
    /// What was taken from the lane and not delivered is lost: cancel it only for good.
    pub(in crate::cache) async fn run(mut self) {
        loop {
            self.store.woken().await;
            self.deliver().await;
        }
    }

    /// Delivers what is queued now, and what comes in meanwhile.
    pub(in crate::cache) async fn deliver(&mut self) {
        loop {
            self.dismiss_leavers();
            let jobs: VecDeque<Job> = self.store.take_jobs();
            if jobs.is_empty() {
                return;
            }
            for job in jobs {
                self.perform(job).await;
                self.store.job_done();
            }
        }
    }

    fn dismiss_leavers(&mut self) {
        for gone in self.members.extract_if(.., |member| member.present().is_none()).collect::<Vec<_>>() {
            // Those of one controller may share a name.
            if !self.members.iter().any(|member| member.name() == gone.name()) {
                self.store.forget_handler(gone.name());
            }
        }
    }

    async fn perform(&mut self, job: Job) {
        match job {
            Job::Change(Change { old, new, origin }) => {
                self.tell_all(&Delta::new(old.as_ref(), new.as_ref(), origin)).await;
            }
            Job::Join { member, present, synced } => {
                for view in &present {
                    self.store.tell(&member, &Delta::new(None, Some(view), Origin::Initial));
                    self.turn(1).await;
                }
                if synced {
                    member.synced.send_replace(true);
                }
                self.members.push(member);
            }
            Job::Synced => {
                for member in &self.members {
                    member.synced.send_replace(true);
                }
            }
            Job::Resync(present) => {
                for view in present {
                    // What has changed since is told by its change, before or after this.
                    if self.store.holds(&view) {
                        self.tell_all(&Delta::new(Some(&view), Some(&view), Origin::Resync)).await;
                    }
                }
            }
        }
    }

    async fn tell_all(&mut self, delta: &Delta<'_>) {
        for member in &self.members {
            self.store.tell(member, delta);
        }
        self.turn(self.members.len()).await;
    }

    /// Lets others run once in a while: a long list must not hold the thread.
    async fn turn(&mut self, calls: usize) {
        self.calls += calls;
        if self.calls >= CALLS_PER_TURN {
            self.calls = 0;
            tokio::task::yield_now().await;
        }
    }
}

// === impl Member ===

impl Member {
    /// Is told of a part only.
    pub(in crate::cache) fn through(self, lens: Arc<Lens>) -> Self {
        Self { lens: Some(lens), ..self }
    }

    /// Returns a delta as this handler sees it.
    pub(in crate::cache) fn sees<'a>(&self, delta: &Delta<'a>) -> Option<Delta<'a>> {
        self.lens.as_ref().map_or(Some(*delta), |lens| lens.sees(delta))
    }

    /// Returns the handler; `None` if it has left.
    pub(in crate::cache) fn present(&self) -> Option<&dyn DeltaHandler> {
        self.handler.0.as_deref().filter(|_| !self.gone.load(Ordering::Acquire))
    }

    pub(in crate::cache) fn name(&self) -> &str {
        &self.name
    }
}

// === impl ObjectStore ===

/// The queue of changes, as the dispatcher sees it.
impl ObjectStore {
    pub(in crate::cache) fn wake(&self) {
        self.queued.notify_one();
    }

    pub(in crate::cache) async fn woken(&self) {
        self.queued.notified().await;
    }

    pub(in crate::cache) fn take_jobs(&self) -> VecDeque<Job> {
        let mut table = self.table.write();
        let jobs = std::mem::take(&mut table.jobs);
        // Set under the lock: `room` must not see them in neither place.
        self.in_delivery.store(jobs.len(), Ordering::Relaxed);
        drop(table);
        jobs
    }

    pub(in crate::cache) fn job_done(&self) {
        // At the end of a batch only: what came in meanwhile is taken next, and ends in another wake-up.
        if self.in_delivery.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.freed.notify_waiters();
        }
    }

    /// Counts no longer what this handler did: it has left.
    pub(in crate::cache) fn forget_handler(&self, handler: &str) {
        self.counts.forget(handler);
    }

    /// Queues one look at everything, as it is found little by little.
    pub(in crate::cache) fn queue_resync(&self) {
        if self.is_synced() {
            let present = self.everything();
            self.step(|table| table.jobs.push_back(Job::Resync(present)));
        }
    }

    /// Returns whether a version is the one stored.
    pub(in crate::cache) fn holds(&self, view: &View) -> bool {
        self.table.read().holds(view)
    }

    pub(in crate::cache) fn tell(&self, member: &Member, delta: &Delta<'_>) {
        if let Some(handler) = member.present()
            && let Some(delta) = member.sees(delta)
        {
            self.call(member.name(), handler, &delta);
        }
    }

    /// Calls a handler with a delta of this store. A panic costs the one delta and is counted and named, as is a call
    /// that takes too long.
    pub(in crate::cache) fn call(&self, name: &str, handler: &dyn DeltaHandler, delta: &Delta<'_>) {
        let began = Instant::now();
        // The handler sees the panic's effects on its own state alone; the store's is not reachable from it.
        let outcome = catch_unwind(AssertUnwindSafe(|| handler.handle(delta)));
        let took = began.elapsed();
        let (kind, object) = (&self.kind, || delta.latest().map(|view| view.request().to_string()));
        if let Err(payload) = outcome
            && let Some(panics) = self.counts.panicked(name)
        {
            let panic = panic_text(&*payload);
            tracing::error!(%kind, handler = name, object = object(), panics, panic, "handler panicked; deltas are lost to it");
        }
        if took > SLOW_HANDLER
            && let Some(calls) = self.counts.slow(name)
        {
            tracing::warn!(%kind, handler = name, object = object(), calls, ?took, "handler holds up the watch");
        }
    }
}

// === impl Handler ===

impl Drop for Handler {
    fn drop(&mut self) {
        let handler = self.0.take();
        // Nothing of the store is reachable from it.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(handler))) {
            tracing::error!(panic = panic_text(&*payload), "handler panicked when it was dropped");
        }
    }
}

#[cfg(test)]
mod tests;
