//! One turn of the decision: what happened changes what is known and in which phase this replica is.
//!
//! What the phase then calls for is in `act`.

use std::sync::Arc;
use std::time::Duration;

use super::{Action, Answer, Call, Claim, Ending, Event, InFlight, Known, Now, Phase, State};
use crate::election::record::{Record, Version};
use crate::election::{ElectionSettings, OnLost};
use crate::key::BootInstant;

/// A decision in the making.
pub(super) struct Turn<'a> {
    pub(super) rules: &'a ElectionSettings,
    pub(super) now: Now,
    pub(super) state: State,
    pub(super) actions: Vec<Action>,
}

pub(super) fn take(rules: &ElectionSettings, state: State, now: Now, event: Event) -> (State, Vec<Action>) {
    let mut turn = Turn { rules, now, state, actions: Vec::new() };
    turn.take_in(event);
    turn.act();
    (turn.state, turn.actions)
}

// === impl Turn: what happened ===

impl Turn<'_> {
    fn take_in(&mut self, event: Event) {
        match event {
            Event::Tick => {}
            Event::Answered(answer) => {
                if let Some(request) = self.state.in_flight.take() {
                    self.answered(&request, answer);
                }
            }
            Event::Seen(record, version) => self.seen(record, version, false),
            Event::Gone(record, version) => self.seen(record, version, true),
            Event::WatchUp => {
                self.state.watching = true;
                // A change between the last look and the first event would be told by nobody. A leader needs no
                // look: its next renewal finds out.
                if self.is_candidate() {
                    self.distrust();
                }
            }
            Event::WatchDown => {
                self.state.watching = false;
                if self.is_candidate() {
                    self.look_later();
                }
            }
            Event::Stop => self.stop(),
            Event::WorkEnded(ended) => self.work_ended(ended),
        }
    }

    fn is_news(&self, version: &Version) -> bool {
        version.number() > self.state.newest
    }

    fn learn(&mut self, record: Record, version: Version) {
        self.state.newest = version.number();
        self.note_claim(&record);
        self.report(record.holder.clone());
        if let Phase::Leading { mine, .. } = &self.state.phase
            && record.holder == mine.holder
            && record != *mine
            // The event of a renewal may come before its answer.
            && Some(&record) != self.state.asked.as_ref()
        {
            self.actions.push(Action::Mend);
            // A replica that starts now goes by what it reads. Not at once: who edits each write would make us spin.
            if record.duration(Duration::ZERO) < mine.duration(Duration::ZERO) {
                let runs_out = record.duration(self.rules.lease_duration);
                let soon = self.now.boot + (self.rules.retry_period / 4).min(runs_out / 2);
                self.state.next = self.state.next.min(soon);
            }
        }
        self.state.known = Known::Present(record, version);
    }

    /// Notes whom to wait for. A record that differs in neither holder nor renewal was changed by hand: the claim
    /// stays what its holder wrote.
    fn note_claim(&mut self, record: &Record) {
        let renewed = |claim: &Claim| claim.renewed != record.renewed;
        match &record.holder {
            Some(holder) if *holder != self.rules.identity => {
                let known = |claim: &&Claim| claim.holder == *holder;
                if self.state.claim.as_ref().filter(known).is_none_or(renewed) {
                    self.state.claim = Some(self.claim_of(Arc::clone(holder), record));
                }
            }
            None if record.is_release() => self.state.claim = None,
            // What we asked for ourselves: an earlier claim was over by then.
            Some(_) if self.state.asked.as_ref() == Some(record) => {}
            // Cleared by hand, or our name put there by hand: whoever was seen before believes in its time, and may
            // have renewed since.
            None | Some(_) => {
                let claim = self.state.claim.as_ref().filter(|claim| renewed(claim));
                if let Some(holder) = claim.map(|claim| Arc::clone(&claim.holder)) {
                    self.state.claim = Some(self.claim_of(holder, record));
                }
            }
        }
    }

    /// A claim that begins now. A holder states one duration in all its term: where two records differ somebody has
    /// edited one, so the longer one is believed, and the claim ends no sooner than before. Two renewals in a row that
    /// agree are what the holder says, however long a duration stood there by hand before; one that is less than what
    /// stood there is still not believed below our own, as both may have been edited.
    fn claim_of(&self, holder: Arc<str>, record: &Record) -> Claim {
        let Record { renewed, acquired, .. } = *record;
        let (states, now) = (record.duration(self.rules.lease_duration), self.now.boot);
        let claim = Claim { holder, renewed, acquired, states, longest: states, until: now + states };
        let Some(before) = &self.state.claim else { return claim };
        let one_holder = before.holder == claim.holder;
        if !one_holder && before.acquired != acquired {
            return Claim { until: claim.until.max(before.until), ..claim };
        }
        let longest = states.max(before.longest);
        let renews = one_holder && record.holder.is_some() && before.renewed != renewed;
        let until = if renews && states == before.states {
            now + self.rules.lease_duration.clamp(states, longest)
        } else {
            before.until.max(now + states.max(before.states))
        };
        Claim { longest, until, ..claim }
    }

    pub(super) fn report(&mut self, holder: Option<Arc<str>>) {
        if self.state.reported != holder {
            self.state.reported.clone_from(&holder);
            self.actions.push(Action::NewHolder(holder));
        }
    }

    /// Notes that the Lease is gone. A candidate waits a whole duration from here: the holder may have renewed
    /// after it was last seen.
    fn forget_lease(&mut self) {
        let known = std::mem::replace(&mut self.state.known, Known::Nothing);
        self.state.known = Known::Absent(match known {
            Known::Present(record, _) => {
                // Cleared by hand: whoever was seen before may have taken it again since.
                let before = self.state.claim.as_ref().filter(|_| !record.is_release());
                let holder = record.holder.clone().or_else(|| before.map(|claim| Arc::clone(&claim.holder)));
                if let Some(holder) = holder.filter(|_| !self.state.is_leading()) {
                    self.state.claim = Some(self.claim_of(holder, &record));
                }
                Some(record)
            }
            Known::Absent(last) => last,
            Known::Nothing => None,
        });
        self.report(None);
    }

    /// Takes in a state of the Lease that the watch reported, or its last one if it is gone. A leader goes on at its own
    /// pace; `lead` decides whether it has to act.
    fn seen(&mut self, record: Record, version: Version, gone: bool) {
        // Without an order among states an event may be older than what we wrote: it is a hint to look.
        if version.number().is_none() {
            return self.distrust();
        }
        if !self.is_news(&version) {
            return;
        }
        self.learn(record, version);
        if gone {
            self.forget_lease();
        }
        if let Some(request) = &mut self.state.in_flight {
            request.overtaken = true;
        }
        self.state.fresh = true;
        if !self.state.is_leading() {
            self.state.next = self.now.boot;
        }
    }

    /// What is known may be old: look now.
    fn distrust(&mut self) {
        self.state.fresh = false;
        self.state.next = self.now.boot;
    }

    /// What is known may be old: look in a while, or when the holder's time is over if that is sooner.
    fn look_later(&mut self) {
        self.state.fresh = false;
        self.state.next = self.now.boot + self.rules.candidate_wait(self.now.random);
        if let Some(claim) = self.standing_claim() {
            self.state.next = self.state.next.min(claim.until);
        }
    }

    fn answered(&mut self, request: &InFlight, answer: Answer) {
        let (call, sent) = (&request.call, request.sent);
        match (call, answer) {
            (Call::Get, Answer::Is(record, version)) => {
                // Lower than what was known before it was sent: the server was restored from a backup.
                if !request.overtaken || self.is_news(&version) {
                    self.learn(record, version);
                }
                self.looked();
            }
            (Call::Get | Call::Update { .. }, Answer::Absent) => {
                self.forget_lease();
                self.looked();
            }
            (Call::Create(record) | Call::Update { record, .. }, Answer::Is(_, version)) => {
                // If the watch was quicker and told what came after this write, that is how things are.
                if !request.overtaken || version.number() >= self.state.newest {
                    self.state.newest = version.number();
                    self.state.known = Known::Present(record.clone(), version);
                    self.report(record.holder.clone());
                }
                self.state.fresh = true;
                self.state.conflicts = 0;
                self.written(record, sent);
            }
            (_, Answer::Conflict) => self.conflicted(call),
            // Not found on create is a missing namespace: a failure like any other.
            (_, Answer::Failed | Answer::Absent) => self.failed(call, sent),
        }
    }

    /// A look told how things are now; without a watch that is all we will hear.
    fn looked(&mut self) {
        self.state.fresh = true;
        self.state.next = self.now.boot;
        if self.is_candidate() && !self.state.watching && self.standing_claim().is_some() {
            self.look_later();
        }
    }

    fn written(&mut self, record: &Record, sent: BootInstant) {
        let me = Some(&self.rules.identity);
        if record.holder.as_ref() != me {
            return self.finish(true);
        }
        let named = self.state.holder() == me;
        let in_time = self.now.boot < sent + self.rules.give_up_after_send();
        let until = sent + self.rules.fence_after_send();
        self.state.next = sent + self.rules.retry_period;
        match &mut self.state.phase {
            // The claim ended before this was sent, or it would not have been.
            Phase::Candidate if named => {
                self.state.claim = None;
                if self.state.stopping {
                    self.release();
                } else if in_time {
                    self.state.phase = Phase::Leading { good: sent, mine: record.clone(), suspended: false };
                    self.actions.push(Action::Lead { until, transitions: record.transitions });
                } else {
                    // Held, but the answer took so long that the time is over: renew first.
                    self.state.next = self.now.boot;
                }
            }
            Phase::Leading { good, mine, suspended } => {
                *good = sent;
                mine.clone_from(record);
                *suspended &= !named;
                // If not in time the turn goes on to give up, and must not open the fence before.
                if in_time && named {
                    self.actions.push(Action::Extend { until });
                }
            }
            Phase::Candidate | Phase::Releasing { .. } => self.state.next = self.now.boot,
            Phase::Lost(_) | Phase::Over => {}
        }
    }

    fn conflicted(&mut self, call: &Call) {
        self.state.conflicts = self.state.conflicts.saturating_add(1);
        // The watch may have told already what came between.
        self.state.fresh = match call {
            Call::Get => false,
            Call::Create(_) => self.state.version().is_some(),
            Call::Update { over, .. } => self.state.version().is_some_and(|version| version != over),
        };
        if self.is_candidate() && !self.state.fresh {
            // Somebody else was quicker; the watch, or a look later on, tells who.
            self.look_later();
        } else {
            self.state.next = self.now.boot + self.rules.conflict_wait(self.state.conflicts);
        }
    }

    fn failed(&mut self, call: &Call, sent: BootInstant) {
        self.state.fresh = false;
        match self.state.phase {
            // A last write that may have made us the holder is looked after before we go.
            Phase::Candidate if self.state.stopping && *call != Call::Get => self.release(),
            Phase::Candidate => self.look_later(),
            Phase::Releasing { .. } => self.state.next = self.now.boot + self.rules.retry_period / 4,
            // A try that used up its period is followed by the next at once.
            _ => self.state.next = sent + self.rules.retry_period,
        }
    }

    fn stop(&mut self) {
        if !std::mem::replace(&mut self.state.stopping, true) && self.state.is_leading() {
            self.actions.push(Action::EndWork);
        }
    }

    fn work_ended(&mut self, ended: bool) {
        match &self.state.phase {
            Phase::Leading { .. } if self.state.stopping => {
                self.actions.push(Action::StopLeading(Ending::Stopped));
                if ended { self.release() } else { self.finish(false) }
            }
            Phase::Lost(_) if !ended => self.finish(false),
            Phase::Lost(_) if !self.state.stopping && self.rules.on_lost == OnLost::Campaign => {
                self.state.phase = Phase::Candidate;
                self.actions.push(Action::Standby);
                self.distrust();
            }
            // The Lease may still be ours by record: the next one need not wait it out.
            Phase::Lost(Ending::Expired) => self.release(),
            Phase::Lost(_) => self.finish(false),
            _ => {}
        }
    }
}
