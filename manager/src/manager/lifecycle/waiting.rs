//! Runnables that cannot start yet.
//!
//! # Invariants
//! 1. A runnable waits only for stores declared before it was added, so that later ones cannot starve it.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tracing::warn;

use super::{PATIENCE, PendingRunnable};
use crate::manager::clusters::Clusters;
use crate::manager::readiness::check_name;

/// Runnables that wait for the first lists of stores, or for the start of their group.
#[derive(Default)]
pub(super) struct Waiting {
    /// The runnables that still wait for stores, in batches in the order of their addition.
    batches: Vec<Batch>,
    /// Runnables that no longer wait for stores, but have not started.
    listed: Vec<PendingRunnable>,
}

/// Runnables that were added to the manager together.
struct Batch {
    runnables: Vec<PendingRunnable>,
    /// Resolves once every store that was declared before these runnables has been listed, or its wait has
    /// ended.
    listing: BoxFuture<'static, ()>,
    /// The time at which the log reports that these runnables still wait; `None` after the report.
    report_at: Option<Instant>,
}

// === impl Waiting ===

impl Waiting {
    /// Adds runnables that wait until the stores declared now have been listed.
    pub(super) fn enter(&mut self, runnables: Vec<PendingRunnable>, clusters: &Clusters) {
        if runnables.is_empty() {
            return;
        }
        let clusters = clusters.clone();
        let listing = Box::pin(async move { clusters.settled().await });
        let mut batch = Batch { runnables, listing, report_at: Some(Instant::now() + PATIENCE) };
        // Polled now, because the first poll fixes the stores to wait for; most runnables wait for none.
        if batch.is_listed(&mut Context::from_waker(Waker::noop())) {
            self.listed.append(&mut batch.runnables);
        } else {
            self.batches.push(batch);
        }
    }

    /// Waits until the stores of a batch of runnables have been listed; for ever if there is no batch.
    ///
    /// # Cancel safety
    /// Call it again; that does not lengthen the wait.
    pub(super) async fn listed(&mut self) {
        poll_fn(|cx| {
            let listed: Vec<_> = self.batches.extract_if(.., |batch| batch.is_listed(cx)).collect();
            if listed.is_empty() {
                return Poll::Pending;
            }
            self.listed.extend(listed.into_iter().flat_map(|batch| batch.runnables));
            Poll::Ready(())
        })
        .await;
    }

    /// Takes the runnables that no longer wait for stores, so that they can be started.
    pub(super) fn take_listed(&mut self) -> Vec<PendingRunnable> {
        std::mem::take(&mut self.listed)
    }

    /// Puts back a runnable that was taken by [`Waiting::take_listed`], because its group has not started.
    pub(super) fn put_back(&mut self, pending: PendingRunnable) {
        self.listed.push(pending);
    }

    /// Returns the time at which [`Waiting::report`] has to be called next; `None` if no runnable waits
    /// unreported.
    pub(super) fn report_at(&self) -> Option<Instant> {
        self.batches.iter().filter_map(|batch| batch.report_at).min()
    }

    /// Logs the runnables that have waited for stores longer than [`PATIENCE`], once each.
    pub(super) fn report(&mut self, clusters: &Clusters) {
        let now = Instant::now();
        let mut names = Vec::new();
        for batch in &mut self.batches {
            if batch.report_at.take_if(|at| *at <= now).is_some() {
                names.extend(batch.runnables.iter().map(|pending| pending.name.to_string()));
            }
        }
        if names.is_empty() {
            return;
        }
        let stores = clusters.own().cache().kinds_of_all_clusters();
        // For another cluster, a failed list ends the wait.
        let awaited = stores
            .iter()
            .filter(|status| !status.settled && (status.cluster.is_none() || status.last_error.is_none()));
        let checks: Vec<_> = awaited.map(check_name).collect();
        let checks = checks.join(", ");
        let runnables = names.join(", ");
        warn!(
            runnables, checks, after = ?PATIENCE,
            "not started yet: stores declared before have not been listed"
        );
    }
}

// === impl Batch ===

impl Batch {
    fn is_listed(&mut self, cx: &mut Context<'_>) -> bool {
        self.listing.as_mut().poll(cx).is_ready()
    }
}
