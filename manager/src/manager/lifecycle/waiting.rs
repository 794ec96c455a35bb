//! Runnables that cannot start yet.
//!
//! # Invariants
//! 1. Who comes waits for the stores that were declared by then, and for none that is declared later: however many more come,
//!    and whether those can ever be listed, it starts in the end.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tracing::warn;

use super::{PATIENCE, Recruit};
use crate::manager::clusters::Clusters;
use crate::manager::readiness::check_name;

/// Runnables whose stores have not been listed, or whose group has not begun.
#[derive(Default)]
pub(super) struct Waiting {
    /// In the order they came.
    parties: Vec<Party>,
    /// Those that wait for nothing but their group.
    listed: Vec<Recruit>,
}

/// Runnables that came together.
struct Party {
    recruits: Vec<Recruit>,
    /// Ends once every store has been listed, as far as it can be, that was declared when they came.
    listing: BoxFuture<'static, ()>,
    /// When the log says that they wait; `None` once it has.
    tell_at: Option<Instant>,
}

// === impl Waiting ===

impl Waiting {
    /// Takes in who has just come.
    pub(super) fn enter(&mut self, recruits: Vec<Recruit>, clusters: &Clusters) {
        if recruits.is_empty() {
            return;
        }
        let clusters = clusters.clone();
        let listing = Box::pin(async move { clusters.settled().await });
        let mut party = Party { recruits, listing, tell_at: Some(Instant::now() + PATIENCE) };
        // Polled now: what it waits for is fixed by the first poll, and most have nothing to wait for.
        if party.is_listed(&mut Context::from_waker(Waker::noop())) {
            self.listed.append(&mut party.recruits);
        } else {
            self.parties.push(party);
        }
    }

    /// Waits until the stores of somebody have been listed; for ever if there is nobody who waits for any.
    ///
    /// # Cancel safety
    /// Nobody is lost, nor waits for longer, if it is called again.
    pub(super) async fn listed(&mut self) {
        poll_fn(|cx| {
            let listed: Vec<_> = self.parties.extract_if(.., |party| party.is_listed(cx)).collect();
            if listed.is_empty() {
                return Poll::Pending;
            }
            self.listed.extend(listed.into_iter().flat_map(|party| party.recruits));
            Poll::Ready(())
        })
        .await;
    }

    /// Takes those out that wait for no store.
    pub(super) fn take_listed(&mut self) -> Vec<Recruit> {
        std::mem::take(&mut self.listed)
    }

    /// Puts one back whose group has not begun.
    pub(super) fn put_back(&mut self, recruit: Recruit) {
        self.listed.push(recruit);
    }

    /// When [`Waiting::tell`] has something to say; `None` if it has not.
    pub(super) fn tell_at(&self) -> Option<Instant> {
        self.parties.iter().filter_map(|party| party.tell_at).min()
    }

    /// Says who has waited long for stores, once each.
    pub(super) fn tell(&mut self, clusters: &Clusters) {
        let now = Instant::now();
        let mut names = Vec::new();
        for party in &mut self.parties {
            if party.tell_at.take_if(|at| *at <= now).is_some() {
                names.extend(party.recruits.iter().map(|recruit| recruit.name.to_string()));
            }
        }
        if names.is_empty() {
            return;
        }
        let stores = clusters.own().cache().kinds_of_all_clusters();
        // Elsewhere one that was tried is waited for no longer.
        let awaited = stores
            .iter()
            .filter(|status| !status.settled && (status.cluster.is_none() || status.last_error.is_none()));
        let checks: Vec<_> = awaited.map(check_name).collect();
        let checks = checks.join(", ");
        let runnables = names.join(", ");
        warn!(
            runnables, checks, after = ?PATIENCE,
            "not started yet: stores that were declared before have not been listed"
        );
    }
}

// === impl Party ===

impl Party {
    fn is_listed(&mut self, cx: &mut Context<'_>) -> bool {
        self.listing.as_mut().poll(cx).is_ready()
    }
}
