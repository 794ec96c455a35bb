//! Start and stop, in order.
//!
//! Start: servers; caches, until every kind that can be read has been listed; what needs no Lease; the controllers that
//! need it, warm but idle; the election. Stop: leader-only work; the Lease, which is released only if that work
//! has ended; everything else; caches; servers; last the Events that are still to be written.
//!
//! # Invariants
//! 1. The Lease is never released while leader-only work is running.
//! 2. Every task spawned here is awaited here, or named as late.

mod group;
mod outcome;

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::candidate::{Candidate, ELECTION};
use super::control::{ControlThread, Timers};
use super::readiness::{self, Heartbeat};
use super::{Manager, ManagerError, Member, Newcomer, RunContext, Runnable, Shared, Unstarted};
use crate::controller::{ControllerSettings, Departure, Environment};
use crate::election::{Leadership, OnLost};
use crate::inspect::{self, Leader};
use crate::reconcile::Surroundings;

use group::Group;
use outcome::{End, Problems};

/// What the Events still to be written get, even if the grace period is over.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What those get at least who are told to end after others: they are not to be named as late for being behind
/// somebody who was. Three of these and the last words fit between the grace period (30 s) and the kubelet's (45 s).
pub(super) const OWN_TURN: Duration = Duration::from_secs(1);

/// A running manager: who runs, and how they are told to end.
struct Running<'a> {
    shared: &'a Shared,
    leader_only: Group,
    others: Group,
    /// Whether the caches have been listed, as far as they can be, that were declared before the latest member came.
    settled: bool,
    /// Whether this replica stands for election, or leads without one. It begins to when the caches first settle.
    standing: bool,
    /// Runnables that wait for what they need: the caches, and most of them the Lease.
    waiting: Vec<Box<dyn Runnable>>,
}

/// Takes members and clusters in for as long as it exists.
struct Intake<'a>(&'a Shared);

// === impl Manager ===

impl Manager {
    /// Runs everything until [`Manager::stop`], a signal, the loss of the Lease, or the first failure, and then stops
    /// everything in order. When it returns, nothing of this manager runs any more, except what the error names as late.
    ///
    /// # Errors
    /// The first failure is the error; what went wrong while stopping is attached to it.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the members and leaves the Lease to expire, unless they ended at once; stop the
    /// manager instead.
    pub async fn run(&self) -> Result<(), ManagerError> {
        let shared = &*self.shared;
        let Unstarted { probes, metrics, inspect } =
            shared.unstarted.lock().take().ok_or(ManagerError::AlreadyRun)?;
        // Whichever way this ends, nobody is let wait for a start that will not come.
        let intake = Intake(shared);

        let heartbeat = Heartbeat::new();
        let mut beats = JoinSet::new();
        beats.spawn(heartbeat.clone().beat());
        readiness::add_checks(&shared.checks, &heartbeat, &shared.clusters);

        let servers_stop = CancellationToken::new();
        // The control thread ends with this future, also if that is dropped.
        let _servers_stop_on_drop = servers_stop.clone().drop_guard();
        let mut running = Running::new(shared);
        let election = shared.election.clone();
        let (mut candidate, election) =
            election.map(|settings| Candidate::prepare(shared, settings, shared.stops.begun.clone())).unzip();
        let leader = shared.leader(candidate.as_ref());
        let mut jobs = shared.servers(probes, metrics, inspect.map(|bound| (bound, leader)), &servers_stop);
        jobs.extend(election);
        let signals = shared.options.signals.then(|| shared.stop.clone());
        let mut control = ControlThread::spawn(jobs, signals).map_err(ManagerError::ControlThread)?;

        let caches_stop = CancellationToken::new();
        let mut caches = JoinSet::new();
        caches.spawn(shared.clusters.clone().run_caches(caches_stop.clone()));

        let events_stop = CancellationToken::new();
        let mut events = JoinSet::new();
        events.spawn(shared.clusters.clone().run_writers(events_stop.clone(), LAST_WORDS));

        let end = running.live(&mut control, candidate.as_mut()).await;
        drop(intake);
        info!("stopping");
        let deadline = Instant::now() + shared.configuration.shutdown.grace_period;
        let timers = control.timers();
        let mut problems = running.stop(&end, candidate, &timers, deadline).await;

        caches_stop.cancel();
        if timers
            .until(own_turn(deadline), async { while caches.join_next().await.is_some() {} })
            .await
            .is_none()
        {
            problems.late.push("caches".to_owned());
        }
        servers_stop.cancel();
        if timers.until(own_turn(deadline), control.jobs_ended()).await.is_none() {
            problems.late.push("servers".to_owned());
        }
        events_stop.cancel();
        // The writer bounds itself by its last words, if it finds a thread to run on.
        let written = async { while events.join_next().await.is_some() {} };
        if timers
            .until(own_turn(deadline).max(Instant::now() + LAST_WORDS + OWN_TURN), written)
            .await
            .is_none()
        {
            problems.late.push("events".to_owned());
        }
        info!("stopped");
        problems.conclude(end, shared.configuration.shutdown.grace_period)
    }
}

// === impl Running ===

impl<'a> Running<'a> {
    fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            leader_only: Group::new(shared.stops.leader_only.clone()),
            others: Group::new(shared.stops.others.clone()),
            settled: false,
            standing: false,
            waiting: Vec::new(),
        }
    }

    /// Starts members as they come and follows the election, until there is a reason to stop.
    async fn live(&mut self, control: &mut ControlThread, mut candidate: Option<&mut Candidate>) -> End {
        // Members registered before `run` start in the order they came; their sources wait for the cache by themselves.
        self.start(self.shared.members.take());
        loop {
            // Biased: who asked for the end should not wait behind a busy intake.
            tokio::select! {
                biased;
                () = self.shared.stop.cancelled() => return End::Asked,
                Some((name, failure)) = control.failures.recv() => return End::Failed(name, failure),
                Some((name, failure)) = self.leader_only.failure() => return End::Failed(name, failure),
                Some((name, failure)) = self.others.failure() => return End::Failed(name, failure),
                leadership = news(candidate.as_deref_mut()) => {
                    if let Some(end) = self.follow(&leadership) {
                        return end;
                    }
                }
                members = self.shared.members.arrivals() => self.start(members),
                () = self.shared.clusters.settled(), if !self.settled => {
                    self.settled = true;
                    self.start_waiting();
                    if !std::mem::replace(&mut self.standing, true) {
                        match candidate.as_deref_mut() {
                            Some(candidate) => candidate.campaign(),
                            None => self.lead(),
                        }
                    }
                }
            }
        }
    }

    fn start(&mut self, members: Vec<Member>) {
        // Somebody may have come with a store or a whole cluster that nobody has waited for yet.
        self.settled &= self.shared.clusters.are_settled();
        for member in members {
            debug!(name = member.name(), "starting");
            match member {
                Member::Controller(newcomer) => self.start_controller(*newcomer),
                Member::Runnable(runnable) => self.waiting.push(runnable),
            }
        }
        self.start_waiting();
    }

    fn start_controller(&mut self, newcomer: Newcomer) {
        let Newcomer { needs_lease, life, seat, .. } = newcomer;
        let group = if needs_lease { &mut self.leader_only } else { &mut self.others };
        group.spawn(
            seat.name,
            Box::pin(async move {
                // The last thing to go: what is left of the life goes before it, also if this task is aborted.
                let _seat = seat;
                Ok(life.await?)
            }),
        );
    }

    /// Starts the runnables that have what they need. Those that need the Lease count as work of the term.
    fn start_waiting(&mut self) {
        if !self.settled {
            return;
        }
        for runnable in std::mem::take(&mut self.waiting) {
            let name = runnable.name();
            if !runnable.needs_lease() {
                let cx = self.run_context(name, &self.others, None);
                self.others.spawn(name, runnable.run(cx));
                continue;
            }
            let Some(work) = self.shared.term.enter(name) else {
                self.waiting.push(runnable);
                continue;
            };
            let cx = self.run_context(name, &self.leader_only, Some(work.term()));
            let run = runnable.run(cx);
            let run = async move {
                // Order matters little: a runnable that ends as the Lease goes has ended.
                tokio::select! {
                    result = run => result,
                    () = work.lost() => Ok(()),
                }
            };
            self.leader_only.spawn(name, Box::pin(run));
        }
    }

    /// `term` is that of the Lease; without one it needs no Lease, and all its life is one term.
    fn run_context(&self, name: &'static str, group: &Group, term: Option<u64>) -> RunContext {
        let surroundings = self.shared.surroundings(name, term.is_some());
        let (stop, leading) = (group.stop.child_token(), self.shared.term.subscribe());
        RunContext::new(stop, leading, surroundings, term.unwrap_or(1))
    }

    fn lead(&mut self) {
        self.shared.term.begin();
        self.start_waiting();
    }

    /// Acts on what the elector says.
    fn follow(&mut self, leadership: &Leadership) -> Option<End> {
        let leading = *self.shared.term.subscribe().borrow();
        match leadership {
            Leadership::Leading { .. } if !leading => self.lead(),
            // A loss that was published and taken back before it was seen here.
            Leadership::Standby { .. } if leading => self.shared.term.lose(),
            Leadership::Lost(_) => {
                self.shared.term.lose();
                if self.shared.configuration.leader_election.on_lost == OnLost::Exit {
                    return Some(End::LeaseLost);
                }
            }
            _ => {}
        }
        None
    }

    /// Stops all members: leader-only ones first, then the Lease, then the others.
    async fn stop(
        &mut self,
        end: &End,
        candidate: Option<Candidate>,
        timers: &Timers,
        deadline: Instant,
    ) -> Problems {
        let mut problems = Problems::default();
        self.shared.stops.begun.cancel();
        // Without an elector nobody renews: the term is as good as lost.
        if matches!(end, End::LeaseLost | End::Failed(ELECTION, _)) {
            self.shared.term.lose();
        } else {
            self.shared.term.end();
        }
        self.leader_only.stop.cancel();
        // What a late worker still holds must not be repeated by the next leader: then the Lease runs out by itself.
        let in_time = match candidate {
            Some(candidate) => candidate.finish(&self.shared.term, timers, deadline).await,
            None => timers.until(deadline, self.shared.term.ended()).await.is_some(),
        };
        if !in_time {
            problems.late.extend(self.shared.term.late().into_iter().map(str::to_owned));
        }
        self.leader_only.end(timers, deadline, &mut problems).await;
        self.shared.always.end();
        self.others.stop.cancel();
        self.others.end(timers, own_turn(deadline), &mut problems).await;
        problems
    }
}

impl Shared {
    /// What the inspection may say about who leads.
    fn leader(&self, candidate: Option<&Candidate>) -> Leader {
        let election = self.election.as_ref().zip(candidate);
        Leader {
            identity: self.options.identity.clone(),
            election: election.map(|(settings, candidate)| inspect::Election {
                namespace: settings.namespace.clone(),
                lease_name: settings.lease_name.clone(),
                leadership: candidate.leadership(),
            }),
            term: self.term.clone(),
            fence: self.fence.clone(),
        }
    }

    pub(super) fn surroundings(&self, name: &'static str, needs_lease: bool) -> Surroundings {
        let own = self.clusters.own();
        let events = own.events().for_controller(&format!("{}/{name}", self.options.name));
        let surroundings =
            Surroundings::new(own.client(needs_lease).clone(), events, self.stops.begun.clone());
        if needs_lease { surroundings.fenced() } else { surroundings }
    }

    /// What a controller gets to live in.
    pub(super) fn environment(
        &self,
        name: &'static str,
        needs_lease: bool,
        settings: watch::Receiver<ControllerSettings>,
        departure: Departure,
    ) -> Environment {
        let (term, stop) = if needs_lease {
            (&self.term, &self.stops.leader_only)
        } else {
            (&self.always, &self.stops.others)
        };
        Environment {
            settings,
            surroundings: self.surroundings(name, needs_lease),
            needs_lease,
            term: term.clone(),
            directory: self.directory.clone(),
            metrics: self.controller_metrics.clone(),
            queue_metrics: self.queue_metrics.clone(),
            stop: stop.child_token(),
            departure,
        }
    }
}

// === impl Intake ===

impl Drop for Intake<'_> {
    fn drop(&mut self) {
        self.0.members.close();
        self.0.clusters.close();
    }
}

/// Waits for news of the election; for ever without one.
async fn news(candidate: Option<&mut Candidate>) -> Leadership {
    match candidate {
        Some(candidate) => candidate.news().await,
        None => std::future::pending().await,
    }
}

/// When the turn ends of somebody who is told only now.
pub(super) fn own_turn(deadline: Instant) -> Instant {
    deadline.max(Instant::now() + OWN_TURN)
}

#[cfg(test)]
mod tests;
