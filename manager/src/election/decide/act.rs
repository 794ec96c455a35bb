//! One turn of the decision: what this replica does in its phase, given what it knows.

use std::sync::Arc;

use jiff::Timestamp;

use super::turn::Turn;
use super::{Action, Call, Claim, Ending, InFlight, Known, Phase};
use crate::election::record::Record;

impl Turn<'_> {
    pub(super) fn act(&mut self) {
        match self.state.phase {
            Phase::Candidate => self.campaign(),
            Phase::Leading { .. } => self.lead(),
            Phase::Releasing { .. } => self.go_on_releasing(),
            Phase::Lost(_) | Phase::Over => {}
        }
    }

    fn campaign(&mut self) {
        let writing = self.state.in_flight.as_ref().is_some_and(|request| request.call != Call::Get);
        if self.state.stopping && !writing {
            return self.finish(false);
        }
        if self.state.in_flight.is_some() || self.now.boot < self.state.candidate_acts_at() {
            return;
        }
        let call = match &self.state.known {
            _ if !self.state.fresh => Call::Get,
            Known::Nothing => Call::Get,
            Known::Absent(last) => Call::Create(self.taking(last.as_ref())),
            Known::Present(record, version) => {
                Call::Update { record: self.taking(Some(record)), over: version.clone() }
            }
        };
        self.send(call);
    }

    /// The record with which we take a Lease that was last in this state.
    fn taking(&self, last: Option<&Record>) -> Record {
        let wall = self.wall_after(last);
        let (acquired, transitions) = match last {
            None => (wall, 0),
            // Our own name from before: the term goes on.
            Some(last) if last.holder.as_ref() == Some(&self.rules.identity) => {
                (last.acquired.unwrap_or(wall), last.transitions)
            }
            Some(last) => (wall, last.transitions.saturating_add(1)),
        };
        self.holding(acquired, wall, transitions)
    }

    fn holding(&self, acquired: Timestamp, wall: Timestamp, transitions: i32) -> Record {
        let me = Arc::clone(&self.rules.identity);
        Record::held(me, self.rules.lease_duration, acquired, wall, transitions)
    }

    fn lead(&mut self) {
        let holder = self.state.holder().cloned();
        let Phase::Leading { good, suspended, .. } = &mut self.state.phase else { return };
        let over = self.now.boot >= *good + self.rules.give_up_after_send();
        match holder {
            Some(holder) if holder != self.rules.identity => return self.lose(Ending::Taken(holder)),
            _ if over => return self.lose(Ending::Expired),
            Some(_) => {}
            // Deleted, or cleared by hand. A replica that starts now knows of no claim and may take it at once.
            None => {
                if !std::mem::replace(suspended, true) {
                    self.actions.push(Action::Suspend);
                    self.state.next = self.now.boot;
                }
            }
        }
        if self.state.in_flight.is_none() && self.now.boot >= self.state.next {
            self.renew();
        }
    }

    fn renew(&mut self) {
        let Phase::Leading { mine, .. } = &self.state.phase else { return };
        let wall = self.wall_after(Some(mine));
        let renewed = self.holding(mine.acquired.unwrap_or(wall), wall, mine.transitions);
        let call = match &self.state.known {
            _ if !self.state.fresh => Call::Get,
            Known::Nothing => Call::Get,
            Known::Absent(_) => Call::Create(renewed),
            Known::Present(_, version) => Call::Update { record: renewed, over: version.clone() },
        };
        self.send(call);
    }

    fn lose(&mut self, ending: Ending) {
        self.actions.push(Action::StopLeading(ending.clone()));
        if !self.state.stopping {
            self.actions.push(Action::EndWork);
        }
        self.abandon();
        // Work takes its time to end; what comes after begins with a look.
        self.state.fresh = false;
        self.state.phase = Phase::Lost(ending);
    }

    /// Begins to give the Lease up. A renewal under way is waited for: its outcome decides over which state.
    pub(super) fn release(&mut self) {
        let give_up = self.now.boot + self.rules.request_timeout();
        let acquired = self.state.asked.as_ref().and_then(|record| record.acquired);
        self.state.phase = Phase::Releasing { give_up, acquired };
        self.state.next = self.now.boot;
    }

    fn go_on_releasing(&mut self) {
        let Phase::Releasing { give_up, acquired } = self.state.phase else { return };
        if self.now.boot >= give_up {
            return self.finish(false);
        }
        if self.state.in_flight.is_some() || self.now.boot < self.state.next {
            return;
        }
        match &self.state.known {
            _ if !self.state.fresh => self.send(Call::Get),
            // Only over our own term: never another one's Lease, nor one that somebody wrote our name into while
            // another one may use it.
            Known::Present(record, version)
                if record.holder.as_ref() == Some(&self.rules.identity) && record.acquired == acquired =>
            {
                let record = record.released(self.wall_after(Some(record)));
                let over = version.clone();
                self.send(Call::Update { record, over });
            }
            _ => self.finish(false),
        }
    }

    pub(super) fn is_candidate(&self) -> bool {
        matches!(self.state.phase, Phase::Candidate)
    }

    pub(super) fn standing_claim(&self) -> Option<&Claim> {
        self.state.claim.as_ref().filter(|claim| self.now.boot < claim.until)
    }

    /// The time of a record that follows `last`. A wall clock that stands still, or is set back a little, must not make
    /// it look like one of ours that somebody may remember: renewals are told apart by their times alone.
    fn wall_after(&self, last: Option<&Record>) -> Timestamp {
        let wall = self.now.wall;
        let ours = last.filter(|last| last.holder.as_ref() == Some(&self.rules.identity));
        let before = [self.state.asked.as_ref(), ours];
        let before = before.into_iter().filter_map(|record| record?.renewed);
        // A clock that was set back by more is left alone: people read these times.
        let close = before.filter(|before| {
            let ahead = before.duration_since(wall);
            !ahead.is_negative() && ahead.unsigned_abs() <= self.rules.lease_duration
        });
        let next = close.max().and_then(|last| Timestamp::from_microsecond(last.as_microsecond() + 1).ok());
        next.unwrap_or(wall)
    }

    fn send(&mut self, call: Call) {
        if let Call::Create(record) | Call::Update { record, .. } = &call {
            self.state.asked = Some(record.clone());
        }
        self.state.in_flight = Some(InFlight { call: call.clone(), sent: self.now.boot, overtaken: false });
        self.actions.push(Action::Send(call));
    }

    fn abandon(&mut self) {
        if self.state.in_flight.take().is_some() {
            self.state.fresh = false;
            self.actions.push(Action::Abandon);
        }
    }

    pub(super) fn finish(&mut self, released: bool) {
        self.abandon();
        self.state.phase = Phase::Over;
        self.actions.push(Action::Finish { released });
    }
}
