//! First half of a decision: applies an event to the state. The second half, in `act`, returns the phase's
//! actions.

use std::sync::Arc;
use std::time::Duration;

use super::{Action, Answer, Call, Claim, Ending, Event, InFlight, Known, Now, Phase, State};
use crate::election::record::{Record, Version};
use crate::election::{ElectionSettings, OnLost};
use crate::key::BootInstant;

/// A decision of the election in progress: its inputs, the changing state and the actions so far.
pub(super) struct Turn<'a> {
    pub(super) rules: &'a ElectionSettings,
    pub(super) now: Now,
    pub(super) state: State,
    pub(super) actions: Vec<Action>,
}

/// Decides on one event of the election: returns the state after it and the actions to perform.
pub fn decide(rules: &ElectionSettings, state: State, now: Now, event: Event) -> (State, Vec<Action>) {
    let mut turn = Turn { rules, now, state, actions: Vec::new() };
    turn.apply(event);
    turn.act();
    (turn.state, turn.actions)
}

// === impl Turn: events ===

impl Turn<'_> {
    fn apply(&mut self, event: Event) {
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
                // A change between the last get and the first event of the watch would go unnoticed. A leader
                // needs no get: its next renewal would conflict.
                if self.is_candidate() {
                    self.get_now();
                }
            }
            Event::WatchDown => {
                self.state.watching = false;
                if self.is_candidate() {
                    self.get_later();
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
        if let Phase::Leading { written, .. } = &self.state.phase
            && record.holder == written.holder
            && record != *written
            // The watch event of a renewal may arrive before the response.
            && Some(&record) != self.state.last_sent.as_ref()
        {
            self.actions.push(Action::Rewrite);
            // A replica that starts now uses the duration that it reads, so a shortened one is overwritten
            // early. Not immediately, or a webhook that edits each write would cause a hot loop.
            if record.duration(Duration::ZERO) < written.duration(Duration::ZERO) {
                let runs_out = record.duration(self.rules.lease_duration);
                let soon = self.now.boot + (self.rules.retry_period / 4).min(runs_out / 2);
                self.state.next = self.state.next.min(soon);
            }
        }
        self.state.known = Known::Present(record, version);
    }

    /// Updates the claim of another holder from a record of the Lease. A record with the same holder and
    /// renew time was edited by hand; the claim then stays as its holder wrote it.
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
            // This replica's own write, sent only after an earlier claim had ended.
            Some(_) if self.state.last_sent.as_ref() == Some(record) => {}
            // The holder was cleared, or replaced by this replica's name, by hand: the previous holder still
            // leads for its lease duration, and may have renewed since.
            None | Some(_) => {
                let claim = self.state.claim.as_ref().filter(|claim| renewed(claim));
                if let Some(holder) = claim.map(|claim| Arc::clone(&claim.holder)) {
                    self.state.claim = Some(self.claim_of(holder, record));
                }
            }
        }
    }

    /// Returns the claim of a holder with this record; it starts now. A holder states one lease duration
    /// during its term, so if two records differ, one was edited by hand: the longer duration counts, and the
    /// claim ends no sooner than before. Two successive renewals that agree replace any longer duration seen
    /// before, but not by less than this replica's own setting, as both may have been edited.
    fn claim_of(&self, holder: Arc<str>, record: &Record) -> Claim {
        let Record { renewed, acquired, .. } = *record;
        let (duration, now) = (record.duration(self.rules.lease_duration), self.now.boot);
        let claim = Claim { holder, renewed, acquired, duration, longest: duration, until: now + duration };
        let Some(before) = &self.state.claim else { return claim };
        let one_holder = before.holder == claim.holder;
        if !one_holder && before.acquired != acquired {
            return Claim { until: claim.until.max(before.until), ..claim };
        }
        let longest = duration.max(before.longest);
        let renews = one_holder && record.holder.is_some() && before.renewed != renewed;
        let until = if renews && duration == before.duration {
            now + self.rules.lease_duration.clamp(duration, longest)
        } else {
            before.until.max(now + duration.max(before.duration))
        };
        Claim { longest, until, ..claim }
    }

    pub(super) fn report(&mut self, holder: Option<Arc<str>>) {
        if self.state.reported != holder {
            self.state.reported.clone_from(&holder);
            self.actions.push(Action::NewHolder(holder));
        }
    }

    /// Records that the Lease does not exist. A candidate then waits a whole lease duration, since the holder
    /// may have renewed after the last version that was read.
    fn forget_lease(&mut self) {
        let known = std::mem::replace(&mut self.state.known, Known::Nothing);
        self.state.known = Known::Absent(match known {
            Known::Present(record, _) => {
                // The holder was cleared by hand: the previous holder may have acquired the Lease again
                // since.
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

    /// Applies a version of the Lease from the watch; with `gone`, the last one of a deleted Lease. A leader
    /// keeps its schedule of renewals; `lead` decides whether it has to act.
    fn seen(&mut self, record: Record, version: Version, gone: bool) {
        // A version without a number cannot be ordered, and the event may be older than the last write: get
        // the Lease.
        if version.number().is_none() {
            return self.get_now();
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

    /// Marks the known Lease as stale, so that it is read again at once.
    fn get_now(&mut self) {
        self.state.fresh = false;
        self.state.next = self.now.boot;
    }

    /// Marks the known Lease as stale, so that it is read again after the candidate's wait, or at the end of
    /// the claim if that is sooner.
    fn get_later(&mut self) {
        self.state.fresh = false;
        self.state.next = self.now.boot + self.rules.candidate_wait(self.now.random);
        if let Some(claim) = self.live_claim() {
            self.state.next = self.state.next.min(claim.until);
        }
    }

    fn answered(&mut self, request: &InFlight, answer: Answer) {
        let (call, sent) = (&request.call, request.sent);
        match (call, answer) {
            (Call::Get, Answer::Stored(record, version)) => {
                // A number below the newest known before the get means that the server was restored from a
                // backup.
                if !request.overtaken || self.is_news(&version) {
                    self.learn(record, version);
                }
                self.get_done();
            }
            (Call::Get | Call::Update { .. }, Answer::Absent) => {
                self.forget_lease();
                self.get_done();
            }
            (Call::Create(record) | Call::Update { record, .. }, Answer::Stored(_, version)) => {
                // If the watch has already delivered a version after this write, that version stays.
                if !request.overtaken || version.number() >= self.state.newest {
                    self.state.newest = version.number();
                    self.state.known = Known::Present(record.clone(), version);
                    self.report(record.holder.clone());
                }
                self.state.fresh = true;
                self.state.conflicts = 0;
                self.write_done(record, sent);
            }
            (_, Answer::Conflict) => self.conflicted(call),
            // Not found on create means a missing namespace, which is an ordinary failure.
            (_, Answer::Failed | Answer::Absent) => self.failed(call, sent),
        }
    }

    /// Applies the end of a get of the Lease: the known Lease is current. Without a watch, a candidate
    /// schedules the next get.
    fn get_done(&mut self) {
        self.state.fresh = true;
        self.state.next = self.now.boot;
        if self.is_candidate() && !self.state.watching && self.live_claim().is_some() {
            self.get_later();
        }
    }

    fn write_done(&mut self, record: &Record, sent: BootInstant) {
        let me = Some(&self.rules.identity);
        if record.holder.as_ref() != me {
            return self.finish(true);
        }
        let named = self.state.holder() == me;
        let in_time = self.now.boot < sent + self.rules.give_up_after_send();
        let until = sent + self.rules.fence_after_send();
        self.state.next = sent + self.rules.retry_period;
        match &mut self.state.phase {
            // This write was sent after the end of the claim.
            Phase::Candidate if named => {
                self.state.claim = None;
                if self.state.stopping {
                    self.release();
                } else if in_time {
                    self.state.phase =
                        Phase::Leading { renewed_at: sent, written: record.clone(), suspended: false };
                    self.actions.push(Action::Lead { until, transitions: record.transitions });
                } else {
                    // The Lease is held, but the response took longer than the time to lead: renew first.
                    self.state.next = self.now.boot;
                }
            }
            Phase::Leading { renewed_at, written, suspended } => {
                *renewed_at = sent;
                written.clone_from(record);
                *suspended &= !named;
                // A late renewal must not open the fence: `lead` ends the term later in this turn.
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
        // The watch may have delivered the conflicting write already.
        self.state.fresh = match call {
            Call::Get => false,
            Call::Create(_) => self.state.version().is_some(),
            Call::Update { over, .. } => self.state.version().is_some_and(|version| version != over),
        };
        if self.is_candidate() && !self.state.fresh {
            // Another replica wrote first; the watch or a later get returns its record.
            self.get_later();
        } else {
            self.state.next = self.now.boot + self.rules.conflict_wait(self.state.conflicts);
        }
    }

    fn failed(&mut self, call: &Call, sent: BootInstant) {
        self.state.fresh = false;
        match self.state.phase {
            // The failed write may have been applied: release the Lease before stopping.
            Phase::Candidate if self.state.stopping && *call != Call::Get => self.release(),
            Phase::Candidate => self.get_later(),
            Phase::Releasing { .. } => self.state.next = self.now.boot + self.rules.retry_period / 4,
            // A request that took a whole retry period is followed by the next at once.
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
                self.get_now();
            }
            // The Lease may still name this replica: release it, so that no candidate waits for it to expire.
            Phase::Lost(Ending::Expired) => self.release(),
            Phase::Lost(_) => self.finish(false),
            _ => {}
        }
    }
}
