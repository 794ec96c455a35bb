//! One replica of the model: state, clock, connection and watch, and the moves that it can make.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use super::super::*;
use super::moves::Move;

/// Names of the replicas. The last one has other settings and its own wall clock.
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub(super) rules: ElectionSettings,
    /// Rate of its clock, in thousandths of the world's time.
    rate: u32,
    /// A wall clock that stands still at this time while the process lives; `None` for a correct one.
    wall: Option<Timestamp>,
    /// The random number of its next decision.
    pub(super) random: f64,
    pub(super) state: State,
    pub(super) fence: Option<BootInstant>,
    pub(super) wire: Option<Wire>,
    /// Abandoned writes, which may still reach the server.
    pub(super) late: Vec<Call>,
    pub(super) watch: VecDeque<Event>,
    pub(super) work: Work,
    pub(super) finished: bool,
}

/// Leader-only work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// Not started, or ended.
    Ended,
    Runs,
    /// Stopped, and not ended yet.
    Ending,
    /// Its deadline passed, and it may still run.
    GivenUp,
}

#[derive(Clone, Debug, Hash)]
pub(super) enum Wire {
    Sent(Call),
    Served(Answer),
    /// The network lost the request or its answer, and the sender still waits.
    Lost,
}

// === impl Replica ===

impl Replica {
    pub(super) fn new(number: usize, rate: u32, on_lost: OnLost) -> Self {
        let others = ElectionSettings {
            lease_duration: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(6),
            retry_period: Duration::from_secs(2),
            on_lost,
            ..ElectionSettings::new("default", "model", NAMES[number])
        };
        // Another lease duration, as a candidate must wait for the holder's duration and not for its own.
        let own = ElectionSettings {
            lease_duration: Duration::from_secs(7),
            renew_deadline: Duration::from_secs(4),
            ..others.clone()
        };
        let apart = number + 1 == NAMES.len();
        let rules = if apart { own } else { others };
        assert_eq!(rules.validate(), []);
        Self {
            rules,
            rate,
            wall: apart.then_some(Timestamp::UNIX_EPOCH),
            random: [0.5, 1.0, 0.0][number],
            state: State::new(BootInstant::from_boot(Duration::ZERO)),
            fence: None,
            wire: None,
            late: Vec::new(),
            watch: VecDeque::new(),
            work: Work::Ended,
            finished: false,
        }
    }

    pub(super) fn boot(&self, time: Duration) -> BootInstant {
        BootInstant::from_boot(time * self.rate / 1000)
    }

    /// Returns the first time of the world at which this replica's clock shows `moment`.
    pub(super) fn time_of(&self, moment: BootInstant) -> Duration {
        let boot = moment.saturating_since(BootInstant::from_boot(Duration::ZERO));
        let nanos = (boot.as_nanos() * 1000).div_ceil(self.rate.into());
        Duration::from_nanos(u64::try_from(nanos).unwrap())
    }

    fn now(&self, time: Duration) -> Now {
        let wall = Timestamp::from_microsecond(i64::try_from(time.as_micros()).unwrap()).unwrap();
        Now { boot: self.boot(time), wall: self.wall.unwrap_or(wall), random: self.random }
    }

    pub(super) fn has_open_fence(&self, time: Duration) -> bool {
        self.fence.is_some_and(|until| self.boot(time) < until)
    }

    pub(super) fn react(&mut self, time: Duration, event: Event) {
        let now = self.now(time);
        let (state, actions) = decide(&self.rules, self.state.clone(), now, event);
        self.state = state;
        let mut opened = false;
        for action in actions {
            let begins = matches!(action, Action::Lead { .. });
            match action {
                Action::Send(call) => {
                    assert!(self.wire.is_none(), "one request at a time");
                    if matches!(&call, Call::Update { record, .. } if record.is_release()) {
                        assert!(self.fence.is_none(), "the fence is closed before a release is sent");
                        assert_eq!(
                            self.work,
                            Work::Ended,
                            "{}: work ends before a release is sent",
                            self.name()
                        );
                    }
                    self.wire = Some(Wire::Sent(call));
                }
                Action::Abandon => self.give_up_waiting(),
                Action::Lead { until, .. } | Action::Extend { until } => {
                    if begins {
                        assert_eq!(
                            self.work,
                            Work::Ended,
                            "{}: a term starts after the work of the last one",
                            self.name()
                        );
                        self.work = Work::Runs;
                    }
                    opened = true;
                    self.fence = Some(until);
                    assert!(self.has_open_fence(time), "{}: an opened fence ends in the future", self.name());
                }
                Action::Suspend | Action::StopLeading(_) => {
                    assert!(!opened, "{}: one decision does not open and close the fence", self.name());
                    self.fence = None;
                }
                Action::EndWork => {
                    assert_eq!(self.work, Work::Runs, "{}: only running work is stopped", self.name());
                    self.work = Work::Ending;
                }
                Action::Finish { .. } => {
                    let over = matches!(self.work, Work::Ended | Work::GivenUp);
                    assert!(over, "{}: a replica ends after its work or its deadline", self.name());
                    self.finished = true;
                }
                Action::Standby | Action::NewHolder(_) | Action::Rewrite => {}
            }
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.rules.identity
    }

    pub(super) fn give_up_waiting(&mut self) {
        if let Some(Wire::Sent(call)) = self.wire.take()
            && call != Call::Get
            && self.late.len() < 2
        {
            self.late.push(call);
        }
    }

    /// Kills the process and starts another one with the same name. A clock that stands still is moved on:
    /// two processes with one name and the same microseconds would write equal records.
    pub(super) fn restart(&mut self, time: Duration) {
        self.give_up_waiting();
        self.state = State::new(self.boot(time));
        (self.fence, self.work, self.finished) = (None, Work::Ended, false);
        self.watch.clear();
        self.wall = self.wall.map(|wall| wall + Duration::from_secs(1));
    }

    pub(super) fn is_due(&self, time: Duration) -> bool {
        self.state.wake_at(&self.rules).is_some_and(|due| due <= self.boot(time))
    }

    /// Adds the moves that this replica, or the network for it, can make; with `failures` also those that
    /// fail.
    pub(super) fn moves(&self, i: usize, time: Duration, failures: bool, moves: &mut Vec<Move>) {
        match &self.wire {
            Some(Wire::Sent(_)) => moves.push(Move::Serve(i)),
            Some(Wire::Served(_)) => moves.push(Move::Answer(i)),
            // Only the deadline ends a lost request.
            Some(Wire::Lost) => moves.push(Move::Fail(i)),
            None => {}
        }
        if self.is_due(time) {
            moves.push(Move::Tick(i));
        }
        if !self.watch.is_empty() {
            moves.push(Move::Watch(i));
        }
        if !self.state.watching {
            moves.push(Move::WatchUp(i));
        }
        if self.work == Work::Ending {
            moves.push(Move::WorkEnds(i));
        }
        if failures {
            if matches!(self.wire, Some(Wire::Sent(_) | Wire::Served(_))) {
                moves.extend([Move::Fail(i), Move::Lose(i)]);
            }
            if self.state.watching {
                moves.push(Move::WatchDown(i));
            }
            if !self.state.stopping {
                moves.push(Move::Stop(i));
            }
            if self.work == Work::Ending {
                moves.push(Move::GiveWorkUp(i));
            }
        }
    }
}

/// Without the rules and the clock's rate, which never change, and the random number, which is not state.
impl Hash for Replica {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.state, self.fence, self.work, self.finished, self.wall).hash(hasher);
        (&self.wire, &self.late, &self.watch).hash(hasher);
    }
}
