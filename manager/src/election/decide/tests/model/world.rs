//! The world of the model: replicas, the stored Lease, the network between them, and the true time.
//!
//! [`World::check`] is called after each move and checks the invariants.

use k8s_openapi::api::coordination::v1::Lease;

use super::super::*;
use super::moves::{Hand, LENGTHENED, Move};
use super::replica::{NAMES, Replica, Wire, Work};
use crate::election::record::Version;

/// Time passes to the next multiple of this, or to the next timer of a replica if that is sooner. So a
/// replica may act on time or late by any number of steps, and the search compares the earliest action of one
/// with the latest of another, however small the margin between them.
const STEP: Duration = Duration::from_secs(1);

/// Upper bound of moves without failures at one time; more mean a hot loop.
const SPINNING: u32 = 1000;

/// A holder that is not one of the replicas.
const STRANGER: &str = "x";

#[derive(Clone, Debug, Hash)]
pub(super) struct World {
    pub(super) time: Duration,
    /// The stored record and its version.
    lease: Option<(Record, u64)>,
    version: u64,
    /// The last write that acquired or renewed the Lease; `None` after a release.
    pub(super) renewal: Option<Renewal>,
    /// Remaining edits by hand.
    pub(super) hands: u32,
    /// Remaining restarts of replicas.
    pub(super) restarts: u32,
    /// Moves without failures since time last passed.
    busy: u32,
    pub(super) replicas: Vec<Replica>,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Renewal {
    by: usize,
    stored: Duration,
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
        Answer::Stored(record, version)
    }

    /// Stores the record that replica `i` wrote, after a check that the replica may write it.
    fn store_of(&mut self, i: usize, record: Record) -> Answer {
        let writer = &self.replicas[i];
        if let Some(renewal) = self.renewal.as_ref().filter(|renewal| renewal.by != i) {
            let holder = &self.replicas[renewal.by];
            let named = self.lease.as_ref().and_then(|(record, _)| record.holder.as_deref());
            if named == Some(holder.name()) || holder.has_open_fence(self.time) {
                assert!(
                    record.holder.is_some(),
                    "{} releases the Lease of another holder: {self:#?}",
                    writer.name()
                );
                let held = writer.boot(self.time).saturating_since(writer.boot(renewal.stored));
                let states = holder.rules.lease_duration;
                assert!(held >= states, "{} acquires a held Lease after {held:?}: {self:#?}", writer.name());
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
            (Call::Get, Some((record, version))) => Answer::Stored(record, Self::stored(version)),
            (Call::Get | Call::Update { .. }, None) => Answer::Absent,
            (Call::Create(record), None) => self.store_of(i, record),
            (Call::Update { record, over }, Some((_, version))) if over.number() == Some(version) => {
                self.store_of(i, record)
            }
            (Call::Create(_) | Call::Update { .. }, Some(_)) => Answer::Conflict,
        }
    }

    /// Returns whether all replicas have seen the holder's term and its lease duration, and no create is in
    /// flight. Only then does every candidate wait for the holder after an edit by hand; a candidate that has
    /// seen an edit and no renewal since waits as the edit states.
    fn is_known_to_all(&self) -> bool {
        let Some((record, _)) = &self.lease else { return false };
        let Some(holder) = &record.holder else { return record.is_release() };
        let holds = self.replicas.iter().find(|replica| *replica.name() == **holder);
        let holds = holds.map(|replica| replica.rules.lease_duration);
        self.replicas.iter().all(|replica| {
            let claim = replica.state.claim.as_ref();
            let knows = matches!(&replica.state.known, Known::Present(known, _)
                if known.holder.as_ref() == Some(holder) && known.acquired == record.acquired)
                && claim.is_none_or(|claim| holds.is_none_or(|holds| claim.duration == holds));
            let creates = matches!(replica.wire, Some(Wire::Sent(Call::Create(_))))
                || replica.late.iter().any(|call| matches!(call, Call::Create(_)));
            replica.name() == &**holder || (knows && !creates)
        })
    }

    /// Returns whether a restarted replica, which has seen no holder, would read the true record of the
    /// holder. That is not so while the Lease is deleted, cleared or shortened; then a restart could overlap
    /// with the holder.
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

    /// Returns all possible edits, including those after which a candidate may not wait for the holder.
    pub(super) fn all_hands(&self) -> Vec<Hand> {
        let Some((record, _)) = &self.lease else { return Vec::new() };
        let mut hands = vec![Hand::Touch, Hand::Delete, Hand::Clear, Hand::Shorten, Hand::Lengthen];
        let names = NAMES.into_iter().take(self.replicas.len()).chain([STRANGER]);
        hands.extend(names.filter(|name| record.holder.as_deref() != Some(*name)).map(Hand::Name));
        hands
    }

    /// Returns the end of the present step, or the next timer of a replica if that is sooner.
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
                let Some(Wire::Sent(call)) = self.replicas[i].wire.take() else { panic!("no request") };
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
        let Some((mut record, _)) = self.lease.clone() else { panic!("no Lease to edit") };
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

    /// Returns the names of the replicas with an open fence.
    pub(super) fn holders(&self) -> Vec<&str> {
        let open = self.replicas.iter().filter(|replica| replica.has_open_fence(self.time));
        open.map(Replica::name).collect()
    }

    /// Returns the longest time for which a candidate still respects the claim of a holder.
    pub(super) fn longest_wait(&self) -> Duration {
        let candidates =
            self.replicas.iter().filter(|replica| !replica.finished && !replica.state.is_leading());
        let waits = candidates.filter_map(|replica| {
            Some(replica.state.claim.as_ref()?.until.saturating_since(replica.boot(self.time)))
        });
        waits.max().unwrap_or_default()
    }

    /// Checks the invariants that hold after every move.
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
                        return Err(format!("{name} has an open fence and a Lease that does not name it"));
                    }
                    if !open && !suspended && !replica.is_due(self.time) {
                        return Err(format!("{name} leads with a closed fence"));
                    }
                }
                _ if open => return Err(format!("{name} has an open fence and does not lead")),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the next move without failures or delays; time passes only when no other move is possible.
    pub(super) fn step_calmly(&mut self) {
        self.step_without(None);
    }

    /// As [`World::step_calmly`], with one replica frozen.
    fn step_without(&mut self, frozen: Option<usize>) {
        let runs = |step: &Move| frozen.is_none() || step.runs_on() != frozen;
        let busy = self.moves(false).into_iter().find(|step| *step != Move::TimePasses && runs(step));
        self.busy = if busy.is_some() { self.busy + 1 } else { 0 };
        assert!(self.busy < SPINNING, "a hot loop: {self:#?}");
        self.apply(busy.unwrap_or(Move::TimePasses));
        self.check().unwrap_or_else(|wrong| panic!("{wrong}: {self:#?}"));
    }

    /// Steps without failures for this long, as a healthy cluster does.
    pub(super) fn settle(&mut self, time: Duration) {
        let end = self.time + time;
        while self.time < end {
            self.step_calmly();
        }
    }

    /// As [`World::settle`], and restarts replicas that have ended.
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

    /// As [`World::settle`], with one replica frozen.
    pub(super) fn settle_without(&mut self, frozen: usize, time: Duration) {
        let end = self.time + time;
        while self.time < end {
            self.step_without(Some(frozen));
        }
    }

    /// Lets time pass up to `time` without any other move.
    pub(super) fn freeze_until(&mut self, time: Duration) {
        while self.time < time {
            self.apply(Move::TimePasses);
        }
    }
}
