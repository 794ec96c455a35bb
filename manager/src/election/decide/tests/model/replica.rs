//! One replica of the model: the decision, its clock, its connection and its watch, and what of it can move.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use super::super::*;
use super::world::Move;

/// What the replicas are called. The last one has settings and a wall clock of its own.
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub(super) rules: ElectionSettings,
    /// How fast its clock goes, in thousandths.
    rate: u32,
    /// Its wall clock shows this for as long as its process lives, if anything.
    wall: Option<Timestamp>,
    /// What its next decision draws.
    pub(super) random: f64,
    pub(super) state: State,
    pub(super) fence: Option<BootInstant>,
    pub(super) wire: Option<Wire>,
    /// Writes it no longer waits for, which may still reach the server.
    pub(super) late: Vec<Call>,
    pub(super) watch: VecDeque<Event>,
    pub(super) work: Work,
    pub(super) finished: bool,
}

/// Leader-only work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// There is none, or it has ended.
    Ended,
    Runs,
    /// It was told to end and has not.
    Ending,
    /// It was given up on and may still run.
    GivenUp,
}

#[derive(Clone, Debug, Hash)]
pub(super) enum Wire {
    Sent(Call),
    Served(Answer),
    /// The network lost the request or its answer, and the sender does not know yet.
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
        // Whoever waits for another one waits as long as that one says, not as long as it would hold itself.
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

    /// The first time at which its clock shows this moment.
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
                        assert!(self.fence.is_none(), "the fence is closed before a release leaves");
                        assert_eq!(
                            self.work,
                            Work::Ended,
                            "{}: work ends before a release leaves",
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
                            "{}: a term begins after the last one's work",
                            self.name()
                        );
                        self.work = Work::Runs;
                    }
                    opened = true;
                    self.fence = Some(until);
                    assert!(self.has_open_fence(time), "{}: a right that begins is not over", self.name());
                }
                Action::Suspend | Action::StopLeading(_) => {
                    assert!(!opened, "{}: a right that begins does not end in the same turn", self.name());
                    self.fence = None;
                }
                Action::EndWork => {
                    assert_eq!(self.work, Work::Runs, "{}: what is told to end runs", self.name());
                    self.work = Work::Ending;
                }
                Action::Finish { .. } => {
                    let over = matches!(self.work, Work::Ended | Work::GivenUp);
                    assert!(over, "{}: a replica ends after its work, or gives up on it", self.name());
                    self.finished = true;
                }
                Action::Standby | Action::NewHolder(_) | Action::Mend => {}
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

    /// Its process is killed, and another one started under its name. A clock that stands still has moved on by then: two
    /// processes of one name that use the very same microseconds write the same records.
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

    /// The moves it can make, or the network for it.
    pub(super) fn moves(&self, i: usize, time: Duration, failures: bool, moves: &mut Vec<Move>) {
        match &self.wire {
            Some(Wire::Sent(_)) => moves.push(Move::Serve(i)),
            Some(Wire::Served(_)) => moves.push(Move::Answer(i)),
            // Its deadline is what ends it.
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

/// The rules of a replica and the rate of its clock never change; what it draws is no part of where it stands.
impl Hash for Replica {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.state, self.fence, self.work, self.finished, self.wall).hash(hasher);
        (&self.wire, &self.late, &self.watch).hash(hasher);
    }
}
