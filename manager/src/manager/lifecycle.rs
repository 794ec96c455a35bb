//! Start and stop, in order.
//!
//! Start: servers; the review of rights; the runnables of their group; caches, until every readable kind has
//! been listed; members without the Lease; the election, and members with the Lease: controllers among them
//! have synced and wait idle until then. A runnable that declares its readiness blocks later groups until it
//! is ready. Stop: leader-only work; the Lease, which is released only if that work has ended; all other
//! members; caches; the runnables of the servers' group; servers; last the remaining Events.
//!
//! # Invariants
//! 1. The Lease is never released while leader-only work is running.
//! 2. Every task spawned here is awaited here, or named as late.
//! 3. A runnable that never becomes ready blocks later start groups, but neither a stop, nor the handling of
//!    a failure, nor the probes.

mod group;
mod outcome;
mod stop;
mod waiting;

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::OptionFuture;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::candidate::{Candidate, ELECTION};
use super::control::{ControlThread, Timers};
use super::readiness::Heartbeat;
use super::runnable::PendingRunnable;
use super::{Manager, ManagerError, Member, PendingController, RunnableGroup, Shared, StopError, Unstarted};
use crate::election::{Leadership, OnLost};

use group::Group;
use outcome::{End, Problems};
use waiting::Waiting;

/// Time to write the remaining Events at the end of a stop, even after the grace period.
const EVENTS_TIME: Duration = Duration::from_secs(2);

/// Least time to end for members of a manager that are stopped after others, so that a late member does not
/// make those after it late. Five of these and [`EVENTS_TIME`] fit between the grace period, 30 s, and that
/// of the kubelet, 45 s.
pub(super) const OWN_TURN: Duration = Duration::from_secs(1);

/// Time after which the log reports a runnable that is not ready yet: longer than a healthy start.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running manager: its groups of members, and the stage of its start.
struct Running<'a> {
    shared: &'a Shared,
    stage: Stage,
    /// The time at which the log reports the runnables that block the present stage of the start; `None`
    /// after the report.
    report_at: Option<Instant>,
    /// The runnables that start first, such as webhook servers. The groups follow in the order of the start.
    servers: Group,
    caches: Group,
    others: Group,
    leader_only: Group,
    /// The writers of Events, which are stopped after all other groups.
    events: Group,
    waiting: Waiting,
}

/// A stage of the start of a manager. Each begins when the one before it is ready.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Servers,
    Caches,
    Others,
    /// The last stage: this replica takes part in the election, or leads without one.
    LeaderElection,
}

// === impl Manager ===

impl Manager {
    /// Runs the manager until [`Manager::stop`], a signal, the loss of the Lease, or the first failure, and
    /// then stops everything in order. When it returns, all parts of this manager have ended, except those
    /// that the error names as late.
    ///
    /// Starts its servers, then each [group](crate::manager::RunnableGroup) once the one before it is ready,
    /// with the caches after `Servers` and the election before `LeaderElection`; stops them in the opposite
    /// order. Controllers start at once and reconcile when their sources have synced and their group has
    /// started.
    ///
    /// # Errors
    /// The first failure, with all failures of the stop attached.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the members and leaves the Lease to expire, unless they ended at once; stop
    /// the manager instead.
    pub async fn run(&self) -> Result<(), ManagerError> {
        let shared = &*self.shared;
        let Unstarted { probes, metrics, inspect } =
            shared.unstarted.lock().take().ok_or(ManagerError::AlreadyRun)?;
        let heartbeat = Heartbeat::new();
        let mut beats = JoinSet::new();
        beats.spawn(heartbeat.clone().beat());
        shared.add_checks(&heartbeat);

        let servers_stop = CancellationToken::new();
        // The control thread ends with this future, also if it is dropped.
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
        shared.runtimes.add("control", &control.timers.0);

        if shared.options.preflight {
            shared.stop.run_until_cancelled(self.review_at_start()).await;
            beats.spawn(self.clone().review_until_granted());
        }
        let end = running.live(&mut control, candidate.as_mut()).await;
        shared.close();
        info!("stopping");
        let grace = *shared.members.configuration().shutdown.grace_period;
        let deadline = Instant::now() + grace;
        let timers = control.timers.clone();
        let mut problems = Problems::default();
        running.stop_members(&end, candidate, &timers, deadline, &mut problems).await;
        servers_stop.cancel();
        if timers.until(own_turn(deadline), control.jobs_ended()).await.is_none() {
            problems.late.push("servers".to_owned());
        }
        while let Ok(failure) = control.failures.try_recv() {
            problems.fail(failure);
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
        let writers = shared.clusters.clone().run_writers(events.stop.clone(), EVENTS_TIME);
        events.tasks.spawn("events".into(), writers.map(Ok));
        Self {
            shared,
            stage: Stage::Servers,
            report_at: Some(Instant::now() + PATIENCE),
            servers: Group::new(CancellationToken::new()),
            caches: Group::new(CancellationToken::new()),
            others: Group::new(shared.stops.others.clone()),
            leader_only: Group::new(shared.stops.leader_only.clone()),
            events,
            waiting: Waiting::default(),
        }
    }

    /// Starts members of the manager when they are added and follows the election, until there is a reason to
    /// stop, which it returns.
    async fn live(&mut self, control: &mut ControlThread, mut candidate: Option<&mut Candidate>) -> End {
        let shared = self.shared;
        if shared.stop.is_cancelled() {
            return End::Asked;
        }
        loop {
            self.advance(candidate.as_deref());
            let (listing, report_at) = (self.stage == Stage::Caches, self.report_at());
            // Biased: a stop does not wait behind many additions, and no member starts after a failure. Of
            // two failed members, the one on which more depends is the cause.
            tokio::select! {
                biased;
                () = shared.stop.cancelled() => return End::Asked,
                Some(failure) = control.failures.recv() => return End::Failed(failure),
                Some(failure) = self.events.tasks.failure() => return End::Failed(failure),
                Some(failure) = self.servers.tasks.failure() => return End::Failed(failure),
                Some(failure) = self.caches.tasks.failure() => return End::Failed(failure),
                Some(failure) = self.others.tasks.failure() => return End::Failed(failure),
                Some(failure) = self.leader_only.tasks.failure() => return End::Failed(failure),
                Some(leadership) = OptionFuture::from(candidate.as_deref_mut().map(Candidate::news)) => {
                    if let Some(end) = self.follow(&leadership) {
                        return end;
                    }
                }
                members = shared.members.arrivals() => self.take_in(members),
                () = shared.readiness_list.changed() => {}
                () = shared.clusters.settled(), if listing => self.enter(Stage::Others),
                () = self.waiting.listed() => self.start_waiting(),
                Some(()) = OptionFuture::from(report_at.map(sleep_until)) => self.report(),
            }
        }
    }

    /// Begins every next stage of the start that no runnable blocks.
    fn advance(&mut self, candidate: Option<&Candidate>) {
        loop {
            // A member that was added before a runnable became ready starts before later groups do.
            self.take_in(self.shared.members.take());
            let shut = |group| !self.shared.readiness_list.shut(group).is_empty();
            match self.stage {
                Stage::Servers if !shut(RunnableGroup::Servers) => {
                    let caches = self.shared.clusters.clone().run_caches(self.caches.stop.clone());
                    self.caches.tasks.spawn("caches".into(), caches.map(Ok));
                    self.enter(Stage::Caches);
                }
                Stage::Others if !shut(RunnableGroup::Others) => {
                    self.enter(Stage::LeaderElection);
                    if let Some(candidate) = candidate {
                        candidate.campaign();
                    } else {
                        self.shared.term.begin();
                        self.start_waiting();
                    }
                }
                _ => return,
            }
        }
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.report_at = Some(Instant::now() + PATIENCE);
        if stage == Stage::Others {
            self.shared.clusters.on_start();
            self.shared.always.begin();
        }
        self.start_waiting();
    }

    /// Returns the time of the next log report about runnables that block the start or wait for stores;
    /// `None` if none is due.
    fn report_at(&self) -> Option<Instant> {
        // In earlier stages all members wait for the caches, which report that themselves.
        let waiting = self.waiting.report_at().filter(|_| self.stage >= Stage::Others);
        [self.report_at, waiting].into_iter().flatten().min()
    }

    /// Logs the runnables that block the next stage of the start, and those that wait for stores, if a report
    /// is due.
    fn report(&mut self) {
        if self.stage >= Stage::Others {
            self.waiting.report(&self.shared.clusters);
        }
        if self.report_at.take_if(|at| *at <= Instant::now()).is_none() {
            return;
        }
        let (group, behind) = match self.stage {
            Stage::Servers => (RunnableGroup::Servers, "the caches and later groups wait"),
            Stage::Others => (RunnableGroup::Others, "the election waits"),
            Stage::Caches | Stage::LeaderElection => return,
        };
        let names = self.shared.readiness_list.shut(group).join(", ");
        warn!(runnables = names, after = ?PATIENCE, "not ready yet: {behind}");
    }

    fn take_in(&mut self, members: Vec<Member>) {
        if members.is_empty() {
            return;
        }
        let mut runnables = Vec::new();
        for member in members {
            match member {
                Member::Controller(pending) => self.start_controller(*pending),
                Member::Runnable(pending) if pending.group == RunnableGroup::Servers => {
                    self.servers.start(pending, self.shared, None);
                }
                Member::Runnable(pending) => runnables.push(pending),
            }
        }
        self.waiting.enter(runnables, &self.shared.clusters);
        self.start_waiting();
    }

    /// Starts a controller. Its sources run at once. Its workers start when all sources have synced and its
    /// term has begun: after the caches are listed, and with `needs_lease` only while this replica leads.
    fn start_controller(&mut self, pending: PendingController) {
        let PendingController { needs_lease, future, name_guard, .. } = pending;
        debug!(name = &*name_guard.name, "starting");
        let group = if needs_lease { &mut self.leader_only } else { &mut self.others };
        group.tasks.spawn(name_guard.name.clone(), async move {
            // Dropped last, after everything of the controller, also if this task is aborted.
            let _name_guard = name_guard;
            Ok(future.await?)
        });
    }

    /// Starts those waiting runnables that no longer wait for stores and belong to a group that has started.
    fn start_waiting(&mut self) {
        for pending in self.waiting.take_listed() {
            match pending.group {
                RunnableGroup::Others if self.stage >= Stage::Others => {
                    self.others.start(pending, self.shared, None);
                }
                RunnableGroup::LeaderElection => match self.shared.term.enter(pending.name.clone()) {
                    Some(work) => self.leader_only.start(pending, self.shared, Some(work)),
                    None => self.waiting.put_back(pending),
                },
                // Servers start at once and are never here.
                RunnableGroup::Servers | RunnableGroup::Others => self.waiting.put_back(pending),
            }
        }
    }

    /// Handles a change of the leadership, which may be outdated. So this ends no term: the elector has ended
    /// it by itself, and the present term may be a later one. Returns the reason to stop if the Lease is lost
    /// and the process has to exit.
    fn follow(&mut self, leadership: &Leadership) -> Option<End> {
        match leadership {
            Leadership::Leading { .. } if self.shared.term.begin_granted() => self.start_waiting(),
            Leadership::Lost(_) if self.shared.on_lost() == Some(OnLost::Exit) => {
                return Some(End::LeaseLost);
            }
            _ => {}
        }
        None
    }
}

impl Drop for Running<'_> {
    /// Refuses registrations, ends leadership and its work, and cancels the tokens of user code, also if
    /// `run` is dropped instead of stopped.
    fn drop(&mut self) {
        self.shared.close();
        self.shared.term.lose();
        self.shared.always.lose();
        self.shared.stops.begun.cancel();
        for group in [&self.leader_only, &self.others, &self.caches, &self.servers, &self.events] {
            group.stop.cancel();
        }
    }
}

/// Returns the deadline of a member of the manager that is stopped only now: `deadline`, or [`OWN_TURN`] from
/// now if that is later.
pub(super) fn own_turn(deadline: Instant) -> Instant {
    deadline.max(Instant::now() + OWN_TURN)
}

#[cfg(test)]
pub(super) mod tests;
