//! One task per target: it waits until the target is due, then for a slot, probes, and publishes the verdict.
//!
//! # Invariants
//! 1. At most one probe per target and timeout is in flight, however many objects wait for it.
//! 2. Once the last object has stopped waiting, no probe starts, and one in flight is dropped.
//! 3. A failure at a raw address is published when the time of the probe is over: neither the reason nor the
//!    clock distinguishes a refusal from silence.
//! 4. A panic inside a probe is the result of that probe alone.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::attempt::{Attempt, attempt};
use super::describe::MAX_NAMED;
use super::entry::FinishedProbe;
use super::reachability::Reachability;
use super::slots::Slot;
use super::{ProbeResult, Shared};
use crate::dependency::sleep_until;
use crate::reasons;

/// How late the timeout of a probe may be noticed on a machine that is merely busy; a later notice counts as
/// a fault of the manager's machine.
const LATE: Duration = Duration::from_secs(1);

/// The half of the probe engine that opens sockets; without a [run](Driver::run) no target is probed.
#[derive(derive_more::Debug)]
#[debug("Driver {{ .. }}")]
pub struct Driver {
    pub(super) shared: Arc<Shared>,
}

/// One run of the probe driver. Its end removes all targets and enqueues the objects that wait: the next term
/// may have begun before, and their reconciles in it may be over.
struct Term<'a>(&'a Shared);

// === impl Driver ===

impl Driver {
    /// Probes all targets until `stop` is cancelled. Then connections are dropped, and all targets, results
    /// and waiting objects are forgotten, since the results would be outdated in the next run. The callback
    /// gets these objects, so that they register again.
    ///
    /// # Cancel safety
    /// Dropping the future has the same effect.
    pub async fn run(&self, stop: CancellationToken) {
        let _term = Term(&self.shared);
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&self.shared.slots).run());
        loop {
            let new = self.shared.targets.lock().take_new();
            for (id, due) in new {
                tasks.spawn(Arc::clone(&self.shared).follow(id, due));
            }
            // Biased, so that no new work starts after a stop.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.shared.added.notified() => {}
                Some(ended) = tasks.join_next() => {
                    // The task catches panics of probes, so this one is a bug of the engine.
                    if let Err(error) = ended && let Ok(panic) = error.try_into_panic() {
                        std::panic::resume_unwind(panic);
                    }
                }
            }
        }
        tasks.shutdown().await;
    }
}

// === impl Term ===

impl Drop for Term<'_> {
    fn drop(&mut self) {
        let waiting = self.0.targets.lock().clear();
        self.0.publish(waiting);
    }
}

// === impl Shared ===

impl Shared {
    /// Probes one target again and again, for as long as its entry exists. Removing the entry drops the
    /// sender of `due`.
    async fn follow(self: Arc<Self>, id: u64, mut due: watch::Receiver<Option<Instant>>) {
        while let Some(at) = reached(&mut due).await {
            let Some(probe) = self.targets.lock().due_probe(id, at) else { return };
            // Biased: a target that is no longer due leaves the queue, even if a slot was just granted.
            tokio::select! {
                biased;
                changed = due.changed() => if changed.is_err() { return },
                slot = self.slots.acquire(probe) => {
                    // Boxed, so that the task of a target without a probe in flight is small.
                    let probe = Box::pin(self.probe(id, at, slot));
                    tokio::select! {
                        biased;
                        () = removed(&mut due) => return,
                        () = probe => {}
                    }
                }
            }
        }
    }

    /// Runs one probe of a target and records its result, as soon as the result may be published.
    async fn probe(&self, id: u64, due: Instant, slot: Slot) {
        let began = Instant::now();
        let Some((target, timeout, policy)) = self.targets.lock().start(id, began) else { return };
        self.metrics.begin(began.duration_since(due), slot.delayed_by);
        let attempt = attempt(&target, timeout, &policy, &self.seams);
        // No state of an attempt outlives it, so a panic cannot leave a broken state.
        let ended = AssertUnwindSafe(attempt).catch_unwind().await;
        let Attempt { result, reachability } = ended.unwrap_or_else(|_| {
            let (namespace, kind) = (target.namespace(), target.check().kind());
            let address = target.address().map(tracing::field::display);
            error!(namespace, kind, address, "a probe panicked; it is tried again at its next time");
            self.metrics.panics.inc();
            let message = "the probe panicked; see the log of the manager";
            let result = ProbeResult::not_ready(reasons::probe::PROBE_PANICKED, message);
            Attempt { result, reachability: None }
        });
        let took = began.elapsed();
        // A machine that notices the timeout this late was too busy to receive an answer.
        let least = if took > timeout + LATE { Reachability::LocalFault } else { Reachability::Silent };
        let reachability = reachability.map(|reachability| reachability.max(least));
        drop(slot);
        if result.is_coarse() {
            // Without the slot, or a refusal would hold one as long as a black hole does.
            tokio::time::sleep_until(began + timeout).await;
        }
        // The duration, too, must not distinguish a refusal from silence.
        self.metrics.count(&target, &result, began.elapsed());
        self.finish(id, FinishedProbe { result, reachability, took, timeout });
    }

    fn finish(&self, id: u64, ended: FinishedProbe) {
        let denied = match &ended.result {
            ProbeResult::Denied { rule, message } => Some((*rule, message.clone())),
            _ => None,
        };
        let (random, now) = ((self.seams.random)(), Instant::now());
        let (changed, outage) = {
            let mut targets = self.targets.lock();
            (targets.finish(id, ended, now, random), targets.publish_outage())
        };
        if let Some((rule, message)) = denied.filter(|_| !changed.is_empty()) {
            let objects: Vec<String> = changed.iter().take(MAX_NAMED).map(ToString::to_string).collect();
            info!(?objects, rule, "a probe is denied: {message}");
        }
        self.publish(changed);
        match outage {
            Some(true) => warn!(
                "most targets that answered fell silent together; a fault of the manager's own network or \
                 machine is assumed"
            ),
            Some(false) => info!("targets that had fallen silent together answer again"),
            None => {}
        }
    }
}

/// Waits until the entry of a target is removed, which drops the sender of `due`.
async fn removed(due: &mut watch::Receiver<Option<Instant>>) {
    while due.changed().await.is_ok() {}
}

/// Waits until a target is due, and returns the time at which it became due; `None` once its entry is gone.
async fn reached(due: &mut watch::Receiver<Option<Instant>>) -> Option<Instant> {
    loop {
        let at = *due.borrow_and_update();
        tokio::select! {
            biased;
            changed = due.changed() => changed.ok()?,
            () = sleep_until(at) => return at,
        }
    }
}
