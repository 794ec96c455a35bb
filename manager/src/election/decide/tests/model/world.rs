//! The world of the model: replicas, one Lease, what lies between them, and every move that one of them can make.
//!
//! It tells the truth that no replica knows: the one time, what is stored, and when. After each move it checks what has
//! to hold ([`World::check`]).

use k8s_openapi::api::coordination::v1::Lease;

use super::super::*;
use super::replica::{NAMES, Replica, Wire, Work};
use crate::election::record::Version;

/// Time passes up to the next whole one of these, or to the next moment at which a replica has something due. So a
/// replica may act late by any number of steps, and by nothing at all: the earliest moment of one is held against the
/// latest of another however small the margin between them.
const STEP: Duration = Duration::from_secs(1);

/// More calm moves than anybody needs at one moment.
const SPINNING: u32 = 1000;

/// For how long a Lease holds that somebody lengthened, in seconds.
pub(super) const LENGTHENED: i32 = 300;

/// Someone who holds by record and is not there.
const STRANGER: &str = "x";

#[derive(Clone, Debug, Hash)]
pub(super) struct World {
    pub(super) time: Duration,
    /// The stored record and its version.
    lease: Option<(Record, u64)>,
    version: u64,
    /// The last write of a replica that made or kept it the holder; none once it was released.
    pub(super) renewal: Option<Renewal>,
    /// How often the Lease may still be changed by hand.
    pub(super) hands: u32,
    /// How often a replica may still be restarted.
    pub(super) restarts: u32,
    /// Calm moves since time passed.
    busy: u32,
    pub(super) replicas: Vec<Replica>,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Renewal {
    by: usize,
    stored: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    TimePasses,
    Serve(usize),
    Answer(usize),
    Fail(usize),
    /// The network loses a request or its answer: nobody has to run for that, and nobody is told.
    Lose(usize),
    ServeLate(usize),
    Watch(usize),
    Tick(usize),
    WatchDown(usize),
    WatchUp(usize),
    Stop(usize),
    WorkEnds(usize),
    GiveWorkUp(usize),
    Restart(usize),
    ByHand(Hand),
}

/// What somebody does to the Lease who is no elector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hand {
    Delete,
    /// Takes the holder out.
    Clear,
    /// Writes in another holder, and leaves the rest as it is.
    Name(&'static str),
    /// Has it run out after two seconds. One, with the holder taken out, would be a release: whoever writes that by
    /// hand gives the Lease up for its holder.
    Shorten,
    /// Has it hold for [`LENGTHENED`].
    Lengthen,
    /// Changes nothing of the record, such as a label.
    Touch,
}

// === impl Move ===

impl Move {
    /// The replica whose process has to run for this, if one has to.
    pub(super) fn runs_on(self) -> Option<usize> {
        match self {
            Self::Answer(i)
            | Self::Fail(i)
            | Self::Watch(i)
            | Self::Tick(i)
            | Self::WatchDown(i)
            | Self::WatchUp(i)
            | Self::Stop(i)
            | Self::WorkEnds(i)
            | Self::GiveWorkUp(i) => Some(i),
            Self::TimePasses
            | Self::Serve(_)
            | Self::Lose(_)
            | Self::ServeLate(_)
            | Self::Restart(_)
            | Self::ByHand(_) => None,
        }
    }
}

// === impl World ===

impl World {
    pub(super) fn new(rates: &[u32], on_lost: OnLost) -> Self {
        let replicas = rates.iter().enumerate();
        let replicas = replicas.map(|(number, rate)| Replica::new(number, *rate, on_lost)).collect();
        Self {
            time: Duration::ZERO,
            lease: None,
            version: 0,
            renewal: None,
            hands: 1,
            restarts: 1,
            busy: 0,
            replicas,
        }
    }

    fn stored(version: u64) -> Version {
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some(version.to_string());
        Version::of(lease)
    }

    fn store(&mut self, record: Record) -> Answer {
        self.version += 1;
        let version = Self::stored(self.version);
        self.lease = Some((record.clone(), self.version));
        for replica in self.replicas.iter_mut().filter(|replica| replica.state.watching) {
            replica.watch.push_back(Event::Seen(record.clone(), version.clone()));
        }
        Answer::Is(record, version)
    }

    /// Stores what a replica wrote, which has to have the right to.
    fn store_of(&mut self, i: usize, record: Record) -> Answer {
        let writer = &self.replicas[i];
        if let Some(renewal) = self.renewal.as_ref().filter(|renewal| renewal.by != i) {
            let holder = &self.replicas[renewal.by];
            let named = self.lease.as_ref().and_then(|(record, _)| record.holder.as_deref());
            if named == Some(holder.name()) || holder.has_open_fence(self.time) {
                assert!(
                    record.holder.is_some(),
                    "{} releases what another one holds: {self:#?}",
                    writer.name()
                );
                let held = writer.boot(self.time).saturating_since(writer.boot(renewal.stored));
                let states = holder.rules.lease_duration;
                assert!(held >= states, "{} takes what is held, after {held:?}: {self:#?}", writer.name());
            }
        }
        self.renewal = record.holder.is_some().then_some(Renewal { by: i, stored: self.time });
        self.store(record)
    }

    pub(super) fn delete(&mut self) {
        if let Some((record, _)) = self.lease.take() {
            self.version += 1;
            let version = Self::stored(self.version);
            for replica in self.replicas.iter_mut().filter(|replica| replica.state.watching) {
                replica.watch.push_back(Event::Gone(record.clone(), version.clone()));
            }
        }
    }

    fn serve(&mut self, i: usize, call: Call) -> Answer {
        match (call, self.lease.clone()) {
            (Call::Get, Some((record, version))) => Answer::Is(record, Self::stored(version)),
            (Call::Get | Call::Update { .. }, None) => Answer::Absent,
            (Call::Create(record), None) => self.store_of(i, record),
            (Call::Update { record, over }, Some((_, version))) if over.number() == Some(version) => {
                self.store_of(i, record)
            }
            (Call::Create(_) | Call::Update { .. }, Some(_)) => Answer::Conflict,
        }
    }

    /// Whether everybody has seen the holder's term, and how long it holds, and nobody's create is on its way: the case
    /// in which nobody takes a Lease that was changed by hand while its holder may write. A candidate that has seen one
    /// edit and no renewal since goes by that edit.
    fn is_known_to_all(&self) -> bool {
        let Some((record, _)) = &self.lease else { return false };
        let Some(holder) = &record.holder else { return record.is_release() };
        let holds = self.replicas.iter().find(|replica| *replica.name() == **holder);
        let holds = holds.map(|replica| replica.rules.lease_duration);
        self.replicas.iter().all(|replica| {
            let claim = replica.state.claim.as_ref();
            let knows = matches!(&replica.state.known, Known::Present(known, _)
                if known.holder.as_ref() == Some(holder) && known.acquired == record.acquired)
                && claim.is_none_or(|claim| holds.is_none_or(|holds| claim.states == holds));
            let creates = matches!(replica.wire, Some(Wire::Sent(Call::Create(_))))
                || replica.late.iter().any(|call| matches!(call, Call::Create(_)));
            replica.name() == &**holder || (knows && !creates)
        })
    }

    /// Whether a replica that has seen nothing yet finds what another one goes by that may write: the case in which it
    /// takes nothing that is in use. Not while the Lease is missing, cleared or shortened.
    pub(super) fn may_restart(&self, i: usize) -> bool {
        let Some(renewal) = self.renewal.as_ref().filter(|renewal| renewal.by != i) else { return true };
        let holder = &self.replicas[renewal.by];
        let holds = holder.rules.lease_duration;
        holder.boot(self.time).saturating_since(holder.boot(renewal.stored)) >= holds
            || self.lease.as_ref().is_some_and(|(record, _)| {
                record.holder.as_deref() == Some(holder.name()) && record.duration(Duration::ZERO) >= holds
            })
    }

    pub(super) fn moves(&self, failures: bool) -> Vec<Move> {
        let mut moves = vec![Move::TimePasses];
        for (i, replica) in self.replicas.iter().enumerate() {
            if !replica.finished {
                replica.moves(i, self.time, failures, &mut moves);
            }
            if failures && !replica.late.is_empty() {
                moves.push(Move::ServeLate(i));
            }
            if failures && self.restarts > 0 && self.may_restart(i) {
                moves.push(Move::Restart(i));
            }
        }
        if failures && self.hands > 0 {
            moves.extend(self.hands().into_iter().map(Move::ByHand));
        }
        moves
    }

    fn hands(&self) -> Vec<Hand> {
        if self.is_known_to_all() {
            self.all_hands()
        } else if self.lease.is_some() {
            vec![Hand::Touch]
        } else {
            Vec::new()
        }
    }

    /// All that can be changed by hand, whoever knows of it.
    pub(super) fn all_hands(&self) -> Vec<Hand> {
        let Some((record, _)) = &self.lease else { return Vec::new() };
        let mut hands = vec![Hand::Touch, Hand::Delete, Hand::Clear, Hand::Shorten, Hand::Lengthen];
        let names = NAMES.into_iter().take(self.replicas.len()).chain([STRANGER]);
        hands.extend(names.filter(|name| record.holder.as_deref() != Some(*name)).map(Hand::Name));
        hands
    }

    /// The end of the present step, or the next moment at which a replica has something due.
    fn next_moment(&self) -> Duration {
        let step = STEP * (u32::try_from(self.time.as_secs() / STEP.as_secs()).unwrap() + 1);
        let running = self.replicas.iter().filter(|replica| !replica.finished);
        let due = running.filter_map(|replica| Some(replica.time_of(replica.state.wake_at(&replica.rules)?)));
        due.filter(|due| *due > self.time).fold(step, Duration::min)
    }

    pub(super) fn apply(&mut self, step: Move) {
        let time = self.time;
        match step {
            Move::TimePasses => self.time = self.next_moment(),
            Move::Serve(i) => {
                let Some(Wire::Sent(call)) = self.replicas[i].wire.take() else { panic!("nothing to serve") };
                self.replicas[i].wire = Some(Wire::Served(self.serve(i, call)));
            }
            Move::ServeLate(i) => {
                let call = self.replicas[i].late.remove(0);
                drop(self.serve(i, call));
            }
            Move::Answer(i) => {
                let Some(Wire::Served(answer)) = self.replicas[i].wire.take() else { panic!("no answer") };
                self.replicas[i].react(time, Event::Answered(answer));
            }
            Move::Lose(i) => self.replicas[i].wire = Some(Wire::Lost),
            Move::Fail(i) => {
                self.replicas[i].give_up_waiting();
                self.replicas[i].react(time, Event::Answered(Answer::Failed));
            }
            Move::Watch(i) => {
                let event = self.replicas[i].watch.pop_front().unwrap();
                self.replicas[i].react(time, event);
            }
            Move::Tick(i) => self.replicas[i].react(time, Event::Tick),
            Move::WatchUp(i) => {
                let present = self.lease.clone();
                self.replicas[i].react(time, Event::WatchUp);
                let first = present.map(|(record, version)| Event::Seen(record, Self::stored(version)));
                self.replicas[i].watch.extend(first);
            }
            Move::WatchDown(i) => {
                self.replicas[i].watch.clear();
                self.replicas[i].react(time, Event::WatchDown);
            }
            Move::Stop(i) => self.replicas[i].react(time, Event::Stop),
            Move::WorkEnds(i) => {
                self.replicas[i].work = Work::Ended;
                self.replicas[i].react(time, Event::WorkEnded(true));
            }
            Move::GiveWorkUp(i) => {
                self.replicas[i].work = Work::GivenUp;
                self.replicas[i].react(time, Event::WorkEnded(false));
            }
            Move::Restart(i) => {
                self.restarts -= 1;
                self.replicas[i].restart(time);
            }
            Move::ByHand(hand) => self.change_by_hand(hand),
        }
    }

    fn change_by_hand(&mut self, hand: Hand) {
        self.hands -= 1;
        let Some((mut record, _)) = self.lease.clone() else { panic!("nothing to change") };
        match hand {
            Hand::Delete => return self.delete(),
            Hand::Clear => record.holder = None,
            Hand::Name(name) => record.holder = Some(name.into()),
            Hand::Shorten => record.duration_seconds = Some(2),
            Hand::Lengthen => record.duration_seconds = Some(LENGTHENED),
            Hand::Touch => {}
        }
        drop(self.store(record));
    }

    /// Returns who may write now.
    pub(super) fn holders(&self) -> Vec<&str> {
        let open = self.replicas.iter().filter(|replica| replica.has_open_fence(self.time));
        open.map(Replica::name).collect()
    }

    /// How long the most patient candidate waits for whoever it knows to hold.
    pub(super) fn longest_wait(&self) -> Duration {
        let candidates =
            self.replicas.iter().filter(|replica| !replica.finished && !replica.state.is_leading());
        let waits = candidates.filter_map(|replica| {
            Some(replica.state.claim.as_ref()?.until.saturating_since(replica.boot(self.time)))
        });
        waits.max().unwrap_or_default()
    }

    /// Checks what has to hold at every moment.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.holders().len() > 1 {
            return Err(format!("two open fences: {:?}", self.holders()));
        }
        for replica in self.replicas.iter().filter(|replica| !replica.finished) {
            let (name, open) = (replica.name(), replica.has_open_fence(self.time));
            let named = replica.state.holder() == Some(&replica.rules.identity);
            match &replica.state.phase {
                Phase::Leading { suspended, .. } => {
                    if open && !named {
                        return Err(format!(
                            "{name} may write although it knows that the Lease does not name it"
                        ));
                    }
                    if !open && !suspended && !replica.is_due(self.time) {
                        return Err(format!("{name} believes that it leads and may not write"));
                    }
                }
                _ if open => return Err(format!("{name} may write and does not lead")),
                _ => {}
            }
        }
        Ok(())
    }

    /// Does what comes next where nothing is slow and nothing fails; time passes only when nothing else is to be done.
    pub(super) fn step_calmly(&mut self) {
        self.step_without(None);
    }

    /// The same with one replica frozen.
    fn step_without(&mut self, frozen: Option<usize>) {
        let runs = |step: &Move| frozen.is_none() || step.runs_on() != frozen;
        let busy = self.moves(false).into_iter().find(|step| *step != Move::TimePasses && runs(step));
        self.busy = if busy.is_some() { self.busy + 1 } else { 0 };
        assert!(self.busy < SPINNING, "somebody spins: {self:#?}");
        self.apply(busy.unwrap_or(Move::TimePasses));
        self.check().unwrap_or_else(|wrong| panic!("{wrong}: {self:#?}"));
    }

    /// Lets everything happen in good time for a while: what a healthy cluster does.
    pub(super) fn settle(&mut self, time: Duration) {
        let end = self.time + time;
        while self.time < end {
            self.step_calmly();
        }
    }

    /// The same, with what has ended started again.
    pub(super) fn settle_with_restarts(&mut self, time: Duration) {
        let end = self.time + time;
        while self.time < end {
            for i in 0..self.replicas.len() {
                if self.replicas[i].finished && self.may_restart(i) {
                    self.replicas[i].restart(self.time);
                }
            }
            self.step_calmly();
        }
    }

    /// The same with one replica frozen all the while.
    pub(super) fn settle_without(&mut self, frozen: usize, time: Duration) {
        let end = self.time + time;
        while self.time < end {
            self.step_without(Some(frozen));
        }
    }

    /// Lets nobody do anything until then.
    pub(super) fn freeze_until(&mut self, time: Duration) {
        while self.time < time {
            self.apply(Move::TimePasses);
        }
    }
}
