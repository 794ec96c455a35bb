//! Start and stop, in order.
//!
//! Start: servers; runnables that stand with them; caches, until every kind that can be read has been listed; what needs
//! no Lease; the election, and what needs the Lease, whose controllers are warm but idle until then. A runnable that
//! declares its readiness holds up what comes after its group until it is ready. Stop: leader-only work; the Lease, which is
//! released only if that work has ended; everything else; caches; the runnables that stand with the servers; servers;
//! last the Events that are still to be written.
//!
//! # Invariants
//! 1. The Lease is never released while leader-only work is running.
//! 2. Every task spawned here is awaited here, or named as late.
//! 3. What a runnable waits for holds up those behind it and nothing else: a stop, a failure and the probes are seen to at
//!    every stage of the start.

mod group;
mod outcome;
mod stop;
mod waiting;

use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::candidate::{Candidate, ELECTION};
use super::control::{ControlThread, Timers};
use super::readiness::{self, Heartbeat};
use super::runnable::Recruit;
use super::{Manager, ManagerError, Member, Newcomer, RunnableGroup, Shared, StopError, Unstarted};
use crate::election::{Leadership, OnLost};

use group::Group;
use outcome::{End, Problems};
use waiting::Waiting;

/// What the Events still to be written get, even if the grace period is over.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What those get at least who are told to end after others: they are not to be named as late for being behind
/// somebody who was. Five of these and the last words fit between the grace period (30 s) and the kubelet's (45 s).
pub(super) const OWN_TURN: Duration = Duration::from_secs(1);

/// How long a runnable may take to be ready before the log says that it is waited for: longer than a healthy start.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running manager: who runs, and how they are told to end.
struct Running<'a> {
    shared: &'a Shared,
    stage: Stage,
    /// When the log says who holds up this stage; `None` once it has.
    tell_at: Option<Instant>,
    /// In the order of the start.
    servers: Group,
    caches: Group,
    others: Group,
    leader_only: Group,
    /// Until the last word of all the others.
    events: Group,
    waiting: Waiting,
}

/// What the start has come to. Each stage begins when the one before it is ready.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Servers,
    Caches,
    Others,
    /// This replica stands for election, or leads without one.
    LeaderElection,
}

/// Takes members and clusters in for as long as it exists.
struct Intake<'a>(&'a Shared);

// === impl Manager ===

impl Manager {
    /// Runs everything until [`Manager::stop`], a signal, the loss of the Lease, or the first failure, and then stops
    /// everything in order. When it returns, nothing of this manager runs any more, except what the error names as late.
    ///
    /// Starts its servers, then each [group](crate::manager::RunnableGroup) once the one before it is ready, with the caches after
    /// `Servers` and the election before `LeaderElection`; stops them in the opposite order. Controllers start at once and
    /// work when their sources have synced and their group has begun.
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
        readiness::add_checks(&shared.checks, &heartbeat);
        readiness::survey(&shared.checks, &shared.clusters, &shared.gates, shared.options.watch_down_limit);

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
        jobs.extend(shared.follower(&shared.stops.begun));
        let signals = shared.options.signals.then(|| shared.stop.clone());
        let mut control = ControlThread::spawn(jobs, signals).map_err(ManagerError::ControlThread)?;
        shared.runtimes.add("control", &control.runtime);

        let end = running.live(&mut control, candidate.as_mut()).await;
        drop(intake);
        info!("stopping");
        let grace = *shared.members.configuration().shutdown.grace_period;
        let deadline = Instant::now() + grace;
        let timers = control.timers();
        let mut problems = Problems::default();
        running.stop_members(&end, candidate, &timers, deadline, &mut problems).await;
        servers_stop.cancel();
        if timers.until(own_turn(deadline), control.jobs_ended()).await.is_none() {
            problems.late.push("servers".to_owned());
        }
        while let Ok((name, failure)) = control.failures.try_recv() {
            problems.fail(name, failure);
        }
        running.stop_events(&timers, deadline, &mut problems).await;
        info!("stopped");
        problems.conclude(end, grace)
    }
}

// === impl Running ===

impl<'a> Running<'a> {
    fn new(shared: &'a Shared) -> Self {
        let mut events = Group::new(CancellationToken::new());
        let writers = shared.clusters.clone().run_writers(events.stop.clone(), LAST_WORDS);
        events.spawn("events", async move {
            writers.await;
            Ok(())
        });
        Self {
            shared,
            stage: Stage::Servers,
            tell_at: Some(Instant::now() + PATIENCE),
            servers: Group::new(CancellationToken::new()),
            caches: Group::new(CancellationToken::new()),
            others: Group::new(shared.stops.others.clone()),
            leader_only: Group::new(shared.stops.leader_only.clone()),
            events,
            waiting: Waiting::default(),
        }
    }

    /// Starts members as they come and follows the election, until there is a reason to stop.
    async fn live(&mut self, control: &mut ControlThread, mut candidate: Option<&mut Candidate>) -> End {
        let shared = self.shared;
        if shared.stop.is_cancelled() {
            return End::Asked;
        }
        loop {
            self.advance(candidate.as_deref_mut());
            let (listing, tell_at) = (self.stage == Stage::Caches, self.tell_at());
            // Biased: a request to stop should not wait behind a busy intake, and nothing starts after a failure. Of two
            // members that have failed, the one on which more depends is the cause.
            tokio::select! {
                biased;
                () = shared.stop.cancelled() => return End::Asked,
                Some((name, failure)) = control.failures.recv() => return End::Failed(name.into(), failure),
                Some((name, failure)) = self.events.failure() => return End::Failed(name, failure),
                Some((name, failure)) = self.servers.failure() => return End::Failed(name, failure),
                Some((name, failure)) = self.caches.failure() => return End::Failed(name, failure),
                Some((name, failure)) = self.others.failure() => return End::Failed(name, failure),
                Some((name, failure)) = self.leader_only.failure() => return End::Failed(name, failure),
                Some(leadership) = OptionFuture::from(candidate.as_deref_mut().map(Candidate::news)) => {
                    if let Some(end) = self.follow(&leadership) {
                        return end;
                    }
                }
                members = shared.members.arrivals() => self.take_in(members),
                () = shared.gates.changed() => {}
                () = shared.clusters.settled(), if listing => self.enter(Stage::Others),
                () = self.waiting.listed() => self.start_waiting(),
                Some(()) = OptionFuture::from(tell_at.map(sleep_until)) => self.tell(),
            }
        }
    }

    /// Begins the stages that nobody holds up.
    fn advance(&mut self, mut candidate: Option<&mut Candidate>) {
        loop {
            // Who was added before a gate opened starts before those behind it do.
            self.take_in(self.shared.members.take());
            let shut = |group| !self.shared.gates.shut(group).is_empty();
            match self.stage {
                Stage::Servers if !shut(RunnableGroup::Servers) => {
                    self.start_caches();
                    self.enter(Stage::Caches);
                }
                Stage::Others if !shut(RunnableGroup::Others) => {
                    self.enter(Stage::LeaderElection);
                    match candidate.as_deref_mut() {
                        Some(candidate) => candidate.campaign(),
                        None => self.lead(),
                    }
                }
                _ => return,
            }
        }
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.tell_at = Some(Instant::now() + PATIENCE);
        if stage == Stage::Others {
            self.shared.clusters.on_start();
            self.shared.always.begin();
        }
        self.start_waiting();
    }

    /// When there is something to say about who waits.
    fn tell_at(&self) -> Option<Instant> {
        // Before, the caches hold up everybody and say so for themselves.
        let waiting = self.waiting.tell_at().filter(|_| self.stage >= Stage::Others);
        [self.tell_at, waiting].into_iter().flatten().min()
    }

    /// Says who holds up the start, or is held up by stores that came before it.
    fn tell(&mut self) {
        if self.stage >= Stage::Others {
            self.waiting.tell(&self.shared.clusters);
        }
        if self.tell_at.take_if(|at| *at <= Instant::now()).is_none() {
            return;
        }
        let (group, behind) = match self.stage {
            Stage::Servers => (RunnableGroup::Servers, "the caches and all that starts after them wait"),
            Stage::Others => (RunnableGroup::Others, "the election waits"),
            Stage::Caches | Stage::LeaderElection => return,
        };
        let names = self.shared.gates.shut(group).join(", ");
        warn!(runnables = names, after = ?PATIENCE, "not ready yet: {behind}");
    }

    fn take_in(&mut self, members: Vec<Member>) {
        if members.is_empty() {
            return;
        }
        let mut recruits = Vec::new();
        for member in members {
            match member {
                Member::Controller(newcomer) => self.start_controller(*newcomer),
                Member::Runnable(recruit) if recruit.group == RunnableGroup::Servers => {
                    self.servers.start(recruit, self.shared, None);
                }
                Member::Runnable(recruit) => recruits.push(recruit),
            }
        }
        self.waiting.enter(recruits, &self.shared.clusters);
        self.start_waiting();
    }

    fn start_caches(&mut self) {
        let caches = self.shared.clusters.clone().run_caches(self.caches.stop.clone());
        self.caches.spawn("caches", async move {
            caches.await;
            Ok(())
        });
    }

    /// Starts a controller, whose sources wait for the caches by themselves, and whose workers wait for the term.
    fn start_controller(&mut self, newcomer: Newcomer) {
        let Newcomer { needs_lease, future, seat, .. } = newcomer;
        debug!(name = &*seat.name, "starting");
        let group = if needs_lease { &mut self.leader_only } else { &mut self.others };
        group.spawn(seat.name.clone(), async move {
            // The last thing to go: what is left of the future goes before it, also if this task is aborted.
            let _seat = seat;
            Ok(future.await?)
        });
    }

    /// Starts the runnables whose group has begun.
    fn start_waiting(&mut self) {
        for recruit in self.waiting.take_listed() {
            match recruit.group {
                RunnableGroup::Others if self.stage >= Stage::Others => {
                    self.others.start(recruit, self.shared, None);
                }
                RunnableGroup::LeaderElection => match self.shared.term.enter(recruit.name.clone()) {
                    Some(work) => self.leader_only.start(recruit, self.shared, Some(work)),
                    None => self.waiting.put_back(recruit),
                },
                // Servers never come here: they wait for nothing.
                RunnableGroup::Servers | RunnableGroup::Others => self.waiting.put_back(recruit),
            }
        }
    }

    fn lead(&mut self) {
        self.shared.term.begin();
        self.start_waiting();
    }

    /// Acts on what the elector says, which may be over by the time it is heard. So this ends no term: the elector has by
    /// itself, and the one that runs now may be the next.
    fn follow(&mut self, leadership: &Leadership) -> Option<End> {
        match leadership {
            Leadership::Leading { .. } => {
                if self.shared.term.begin_granted() {
                    self.start_waiting();
                }
            }
            Leadership::Lost(_) if self.shared.on_lost() == Some(OnLost::Exit) => {
                return Some(End::LeaseLost);
            }
            Leadership::Lost(_) | Leadership::Standby { .. } => {}
        }
        None
    }
}

impl Drop for Running<'_> {
    /// Where `run` was dropped instead of stopped, nobody leads or works here any more either, and tasks of others that
    /// listen for the stop hear of it.
    fn drop(&mut self) {
        self.shared.term.lose();
        self.shared.always.lose();
        self.shared.stops.begun.cancel();
        for group in [&self.leader_only, &self.others, &self.caches, &self.servers, &self.events] {
            group.stop.cancel();
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

/// When the turn ends of somebody who is told only now.
pub(super) fn own_turn(deadline: Instant) -> Instant {
    deadline.max(Instant::now() + OWN_TURN)
}

#[cfg(test)]
pub(super) mod tests;
