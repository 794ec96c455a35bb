//! Second half of a decision: the actions of the present phase, given the state after the event.

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
            Phase::Releasing { .. } => self.continue_release(),
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
        let last = match &self.state.known {
            Known::Nothing => None,
            Known::Absent(last) => last.as_ref(),
            Known::Present(record, _) => Some(record),
        };
        self.write_or_get(self.acquiring(last));
    }

    /// Sends a request that writes a record over the known Lease; gets the Lease instead if the known one may
    /// be stale.
    fn write_or_get(&mut self, record: Record) {
        self.send(match &self.state.known {
            Known::Absent(_) if self.state.fresh => Call::Create(record),
            Known::Present(_, version) if self.state.fresh => Call::Update { record, over: version.clone() },
            _ => Call::Get,
        });
    }

    /// Returns the record with which this replica acquires the Lease; `last` is the last record of the Lease,
    /// if any.
    fn acquiring(&self, last: Option<&Record>) -> Record {
        let wall = self.wall_after(last);
        let (acquired, transitions) = match last {
            None => (wall, 0),
            // The Lease still names this replica: its term continues.
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
        let Phase::Leading { renewed_at, suspended, .. } = &mut self.state.phase else { return };
        let over = self.now.boot >= *renewed_at + self.rules.give_up_after_send();
        match holder {
            Some(holder) if holder != self.rules.identity => return self.lose(Ending::Taken(holder)),
            _ if over => return self.lose(Ending::Expired),
            Some(_) => {}
            // The Lease was deleted, or its holder cleared by hand. A replica that starts now has seen no
            // holder and may acquire it at once, so the fence closes.
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
        let Phase::Leading { written, .. } = &self.state.phase else { return };
        let wall = self.wall_after(Some(written));
        self.write_or_get(self.holding(written.acquired.unwrap_or(wall), wall, written.transitions));
    }

    fn lose(&mut self, ending: Ending) {
        self.actions.push(Action::StopLeading(ending.clone()));
        if !self.state.stopping {
            self.actions.push(Action::EndWork);
        }
        self.abandon();
        // Leader-only work takes time to end, so the known Lease will be stale then.
        self.state.fresh = false;
        self.state.phase = Phase::Lost(ending);
    }

    /// Starts to release the Lease. A renewal in flight is awaited first, as it changes the version to
    /// replace.
    pub(super) fn release(&mut self) {
        let give_up = self.now.boot + self.rules.request_timeout();
        let acquired = self.state.last_sent.as_ref().and_then(|record| record.acquired);
        self.state.phase = Phase::Releasing { give_up, acquired };
        self.state.next = self.now.boot;
    }

    fn continue_release(&mut self) {
        let Phase::Releasing { give_up, acquired } = self.state.phase else { return };
        if self.now.boot >= give_up {
            return self.finish(false);
        }
        if self.state.in_flight.is_some() || self.now.boot < self.state.next {
            return;
        }
        match &self.state.known {
            _ if !self.state.fresh => self.send(Call::Get),
            // Release only this replica's own term. If this replica's name was written into the Lease by
            // hand, another replica may be leading.
            Known::Present(record, _)
                if record.holder.as_ref() == Some(&self.rules.identity) && record.acquired == acquired =>
            {
                self.write_or_get(record.released(self.wall_after(Some(record))));
            }
            _ => self.finish(false),
        }
    }

    pub(super) fn is_candidate(&self) -> bool {
        matches!(self.state.phase, Phase::Candidate)
    }

    pub(super) fn live_claim(&self) -> Option<&Claim> {
        self.state.claim.as_ref().filter(|claim| self.now.boot < claim.until)
    }

    /// Returns the renew time for this replica's next record of the Lease, after the record `last`.
    /// Candidates recognize a renewal by its time alone, so if the wall clock stands still or was set back a
    /// little, the time is one microsecond after the last one.
    fn wall_after(&self, last: Option<&Record>) -> Timestamp {
        let wall = self.now.wall;
        let ours = last.filter(|last| last.holder.as_ref() == Some(&self.rules.identity));
        let before = [self.state.last_sent.as_ref(), ours];
        let before = before.into_iter().filter_map(|record| record?.renewed);
        // After a clock was set back further, its time is used as it is: people read it in the Lease.
        let close = before.filter(|before| {
            let ahead = before.duration_since(wall);
            !ahead.is_negative() && ahead.unsigned_abs() <= self.rules.lease_duration
        });
        let next = close.max().and_then(|last| Timestamp::from_microsecond(last.as_microsecond() + 1).ok());
        next.unwrap_or(wall)
    }

    fn send(&mut self, call: Call) {
        if let Call::Create(record) | Call::Update { record, .. } = &call {
            self.state.last_sent = Some(record.clone());
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
