//! The manager's half of the election: when to stand, what to end when a term ends, when to let go.
//!
//! The elector lives on the control thread, leader-only work on the caller's runtime. The word to begin, the state of
//! leadership and the [`Term`] join them. The elector grants the term and ends it by itself: nothing of that may have to wait
//! for a free thread of the caller's runtime, and word of a term that arrives there after its end begins nothing.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, warn};

use super::Shared;
use super::control::{Job, Timers};
use super::lifecycle::own_turn;
use crate::client::connect::Role;
use crate::client::{EventType, Recorder};
use crate::controller::Term;
use crate::election::{EVENT_REASON, ElectionSettings, Elector, Leadership, LeaseEvent, OnEvent};
use crate::inspect::LeaseHistory;

/// What the election is called when it fails.
pub(super) const ELECTION: &str = "leader election";

/// A replica that stands for election.
pub(super) struct Candidate {
    /// Whether this replica leads, and which one does otherwise.
    pub(super) leadership: watch::Receiver<Leadership>,
    /// What has happened to the Lease, for people.
    pub(super) history: LeaseHistory,
    campaign: Option<oneshot::Sender<()>>,
    /// Dropped to end the candidacy. A manager that is dropped instead of stopped must not go on renewing: nobody would
    /// answer for its work.
    stop: DropGuard,
    /// Dropped when work of the term is given up on. A manager that is dropped does not wait for its work either.
    gave_up: DropGuard,
    ended: oneshot::Receiver<()>,
}

// === impl Candidate ===

impl Candidate {
    /// Makes the candidate and the job it runs as; it does nothing until [`Candidate::campaign`].
    pub(super) fn prepare(
        shared: &Shared,
        settings: ElectionSettings,
        stopping: CancellationToken,
    ) -> (Self, Job) {
        let (campaign, may_begin) = oneshot::channel();
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
            // Before this is forwarded as news, and so before anybody asks for the term to begin.
            if matches!(event, LeaseEvent::BecameLeader { .. }) {
                elected.grant();
            }
            noted.add(&event);
            record(event);
        });
        let stop_election = stop.clone();
        let job = Job::new(ELECTION, move || async move {
            // Dropped at the end, whichever way that comes.
            let _ended = end_guard;
            let client = connections.client(Role::Lease { request_timeout: settings.request_timeout() })?;
            let elector = Elector::new(settings, client, fence, &registry, on_event)?.with_notice(notice);
            tokio::select! {
                () = stop_election.cancelled() => return Ok(()),
                begun = may_begin => if begun.is_err() { return Ok(()) },
            }
            let mut state = elector.leadership();
            let end_work = move || end_work(term.clone(), stopping.clone(), work_is_late.clone());
            let forward = async {
                while state.changed().await.is_ok() {
                    publish.send_replace(state.borrow_and_update().clone());
                }
            };
            // Forwarding ends when the elector does; joined, not raced, so that its last word gets through.
            tokio::join!(elector.run(stop_election, end_work), forward);
            Ok(())
        });
        (
            Self {
                leadership,
                history,
                campaign: Some(campaign),
                stop: stop.drop_guard(),
                gave_up: gave_up.drop_guard(),
                ended,
            },
            job,
        )
    }

    /// Stands for election from now on.
    pub(super) fn campaign(&mut self) {
        if self.campaign.take().is_some_and(|campaign| campaign.send(()).is_err()) {
            debug!("the control thread was gone before the election began");
        }
    }

    /// Waits for news of the election.
    ///
    /// # Cancel safety
    /// News is taken only when it is returned.
    pub(super) async fn news(&mut self) -> Leadership {
        if self.leadership.changed().await.is_err() {
            // An elector that has ended has no news; if it failed, its job says so.
            std::future::pending::<()>().await;
        }
        self.leadership.borrow_and_update().clone()
    }

    /// Ends the candidacy: the Lease is renewed while the work of the term goes on, and released once that has ended.
    /// Work that has not by `deadline` is given up on, and the Lease left to run out; if the Lease is lost meanwhile,
    /// work is dropped at once. Returns whether the work ended in time.
    pub(super) async fn finish(self, term: &Term, timers: &Timers, deadline: Instant) -> bool {
        let Self { mut leadership, stop, gave_up, ended, .. } = self;
        drop(stop);
        let lost = async {
            // An elector that has ended can lose nothing any more.
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
        // The elector bounds its last requests itself, by less than a lease. An error means that its thread is gone.
        if timers.until(own_turn(deadline), ended).await.is_none() {
            warn!("the lease could not be released in time and is left to run out");
        }
        in_time
    }
}

/// Ends the term, and answers once its work is over (`true`) or given up on.
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

/// Tells on the Lease who leads, as client-go does.
fn record_on_lease(events: Recorder, settings: &ElectionSettings) -> OnEvent {
    let lease = ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        name: Some(settings.lease_name.clone()),
        namespace: Some(settings.namespace.clone()),
        ..ObjectReference::default()
    };
    Arc::new(move |event: LeaseEvent| {
        if let Some(note) = event.note() {
            events.event(&lease, EventType::Normal, EVENT_REASON, event.action(), &note);
        }
    })
}
