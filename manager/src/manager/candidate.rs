//! The manager's part in the election: when to become a candidate, what ends with a term, when to release the
//! Lease.
//!
//! The elector runs on the control thread, leader-only work on the caller's runtime. They share the signal
//! to begin, the state of leadership and the [`Term`]. The elector grants the term and ends it by itself, so
//! that neither waits for a free thread of the caller's runtime; news of a term that arrives there after its
//! end is ignored.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use super::Shared;
use super::control::{Job, Timers};
use super::lifecycle::own_turn;
use crate::client::connect::Role;
use crate::client::{EventType, Recorder};
use crate::controller::Term;
use crate::election::{EVENT_REASON, ElectionSettings, Elector, Leadership, LeaseEvent, OnEvent};
use crate::inspect::LeaseHistory;

/// The name of the leader election in errors.
pub(super) const ELECTION: &str = "leader election";

/// The candidacy of this replica in the leader election, with the published state of the election.
pub(super) struct Candidate {
    /// Publishes whether this replica leads, or which other replica does.
    pub(super) leadership: watch::Receiver<Leadership>,
    /// The history of the Lease that this replica has seen, for the debug pages.
    pub(super) history: LeaseHistory,
    campaign: CancellationToken,
    /// Dropped to end the candidacy of this replica. A manager that is dropped instead of stopped must not
    /// renew the Lease, because its work has ended.
    stop: DropGuard,
    /// Dropped when the wait for the end of the leader-only work ends early, also if the manager is dropped.
    gave_up: DropGuard,
    ended: oneshot::Receiver<()>,
}

// === impl Candidate ===

impl Candidate {
    /// Makes the candidate and its job for the control thread. The job takes part in the election only after
    /// [`Candidate::campaign`].
    pub(super) fn prepare(
        shared: &Shared,
        settings: ElectionSettings,
        stopping: CancellationToken,
    ) -> (Self, Job) {
        let campaign = CancellationToken::new();
        let may_begin = campaign.clone();
        let (publish, leadership) = watch::channel(Leadership::Standby { holder: None });
        let (end_guard, ended) = oneshot::channel();
        let (stop, gave_up) = (CancellationToken::new(), CancellationToken::new());
        let (term, work_is_late) = (shared.term.clone(), gave_up.clone());

        let (connections, fence, registry) =
            (shared.clusters.own().connections().clone(), shared.fence.clone(), shared.registry.clone());
        let record = record_on_lease(shared.clusters.own().events().clone(), &settings);
        let (elected, history) = (shared.term.clone(), LeaseHistory::default());
        let (noted, notice) = (history.clone(), shared.notice.clone());
        let on_event: OnEvent = Arc::new(move |event: LeaseEvent| {
            // Before the news is forwarded, and so before `begin_granted` is called.
            if matches!(event, LeaseEvent::BecameLeader { .. }) {
                elected.grant();
            }
            noted.add(&event);
            record(event);
        });
        let stop_election = stop.clone();
        let job = Job::new(ELECTION, move || async move {
            // Dropped at every end.
            let _ended = end_guard;
            let client = connections.client(Role::Lease { request_timeout: settings.request_timeout() })?;
            let elector = Elector::new(settings, client, fence, &registry, on_event)?.with_notice(notice);
            tokio::select! {
                () = stop_election.cancelled() => return Ok(()),
                () = may_begin.cancelled() => {}
            }
            let mut state = elector.leadership();
            let end_work = move || end_work(term.clone(), stopping.clone(), work_is_late.clone());
            let forward = async {
                while state.changed().await.is_ok() {
                    publish.send_replace(state.borrow_and_update().clone());
                }
            };
            // Forwarding ends with the elector; joined, so that its last news is forwarded.
            tokio::join!(elector.run(stop_election, end_work), forward);
            Ok(())
        });
        let (stop, gave_up) = (stop.drop_guard(), gave_up.drop_guard());
        (Self { leadership, history, campaign, stop, gave_up, ended }, job)
    }

    /// Makes this replica take part in the leader election from now on.
    pub(super) fn campaign(&self) {
        self.campaign.cancel();
    }

    /// Waits for a change of the leadership and returns the new state.
    ///
    /// # Cancel safety
    /// No news is lost.
    pub(super) async fn news(&mut self) -> Leadership {
        if self.leadership.changed().await.is_err() {
            // An elector that has ended publishes no news; its job returns a failure.
            std::future::pending::<()>().await;
        }
        self.leadership.borrow_and_update().clone()
    }

    /// Ends the candidacy of this replica: the Lease is renewed while leader-only work of the term runs, and
    /// released once it has ended. If work still runs at `deadline`, the Lease is not released and expires;
    /// if the Lease is lost before, work is dropped at once. Returns whether the work ended in time.
    pub(super) async fn finish(self, term: &Term, timers: &Timers, deadline: Instant) -> bool {
        let Self { mut leadership, stop, gave_up, ended, .. } = self;
        drop(stop);
        let lost = async {
            // An elector that has ended cannot lose the Lease.
            if leadership.wait_for(|state| matches!(state, Leadership::Lost(_))).await.is_ok() {
                term.lose();
            }
            std::future::pending::<()>().await;
        };
        let work = async {
            tokio::select! {
                () = term.ended() => {}
                () = lost => {}
            }
        };
        let in_time = timers.until(deadline, work).await.is_some();
        if !in_time {
            drop(gave_up);
        }
        // The elector bounds its last requests itself, by less than a lease. An error means that its thread
        // has ended.
        if timers.until(own_turn(deadline), ended).await.is_none() {
            warn!("the Lease could not be released in time; it expires by itself");
        }
        in_time
    }
}

/// Ends the term of leadership: in order if the manager stops, at once otherwise. Returns true once the work
/// of the term has ended, false if `gave_up` is cancelled before.
async fn end_work(term: Term, stopping: CancellationToken, gave_up: CancellationToken) -> bool {
    if stopping.is_cancelled() {
        term.end();
    } else {
        term.lose();
    }
    // Biased: work that has ended in time was not given up on.
    tokio::select! {
        biased;
        () = term.ended() => true,
        () = gave_up.cancelled() => false,
    }
}

/// Returns a callback that records an Event on the Lease when the leader changes, as client-go does.
fn record_on_lease(events: Recorder, settings: &ElectionSettings) -> OnEvent {
    let lease = ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        name: Some(settings.lease_name.clone()),
        namespace: Some(settings.namespace.clone()),
        ..ObjectReference::default()
    };
    Arc::new(move |event: LeaseEvent| {
        if let Some((action, note)) = event.action_and_note() {
            events.event(&lease, EventType::Normal, EVENT_REASON, action, &note);
        }
    })
}
