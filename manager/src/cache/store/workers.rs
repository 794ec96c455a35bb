//! The store as its own two workers see it: the deliverer, who tells of changes, and the packer, who takes bodies.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::Core;
use crate::cache::deliver::{Delta, DeltaHandler, Job, Member, SLOW_HANDLER};
use crate::cache::pack::{Intake, Packed};
use crate::cache::select::Select;
use crate::cache::view::View;
use crate::key::panic_text;

// === impl Core ===

/// What the deliverer needs.
impl Core {
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
}

/// What the packer needs.
impl Core {
    /// Waits for the intake's next call; one that came before is not missed.
    pub(in crate::cache) async fn called(&self) {
        self.unpacked.notified().await;
    }

    /// Does something with the intake; told the bytes of everything stored, as they are kept.
    pub(in crate::cache) fn intake<T>(&self, act: impl FnOnce(&mut Intake, usize) -> T) -> T {
        let mut table = self.table.write();
        let bytes = table.bytes();
        let outcome = act(&mut table.intake, bytes);
        drop(table);
        self.freed.notify_waiters();
        outcome
    }

    /// Gives versions that are still stored their packed form, and `taken` bytes back to the intake.
    pub(in crate::cache) fn packed(&self, turn: Vec<(View, Packed)>, taken: usize) {
        let mut table = self.table.write();
        let replaced = table.pack(turn);
        table.intake.done(taken);
        drop(table);
        self.freed.notify_waiters();
        // Bodies are given back to the allocator without the lock.
        drop(replaced);
    }

    /// Returns what is stored, whether it has synced or not.
    pub(in crate::cache) fn everything(&self) -> Vec<View> {
        let (mut walk, everything) = (self.table.read().walk(), Select::all());
        let mut views = Vec::new();
        while self.table.read().stride(&mut walk, &everything, &mut views) {}
        views
    }
}
