//! Who waits for what, what is probed next, and what is known: bookkeeping without clock, sockets or randomness.
//!
//! # Invariants
//! 1. Every entry is in exactly one place: waiting for its turn, being probed, or without a place in its namespace.
//! 2. An entry exists exactly as long as somebody waits for it; a probe in flight may outlive it, cancelled, and keeps
//!    its slot until the driver says that the socket is gone.
//! 3. What is known of a target outlives a change of who waits for it, and how.

#[cfg(test)]
mod check;
mod places;
mod view;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use mainstay::key::Request;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::addresses::Addresses;
use super::admission::{Admission, Moved};
use super::entry::Entry;
use super::heard::Heard;
use super::judge::judge;
use super::limits::{Held, Limits};
use super::shaken::Shaken;
use super::turns::{Lane, Turn, Turns};
use super::{ProbeResult, Target, VerdictState, Want};
use crate::reasons;

/// What the driver is to do.
#[derive(Debug)]
pub(super) enum Next {
    /// Start this probe and ask again.
    Start(Start),
    /// Nothing before this time; `None`: nothing until something changes.
    Wait(Option<Instant>),
}

/// A probe to start.
#[derive(Debug)]
pub(super) struct Start {
    /// To be given back to [`Schedule::finish`].
    pub(super) id: u64,
    pub(super) target: Target,
    pub(super) timeout: Duration,
    /// How late it is.
    pub(super) lag: Duration,
    /// What kept it, if anything did.
    pub(super) held: Option<Held>,
    /// Cancelled once nobody waits any more.
    pub(super) cancel: CancellationToken,
}

/// How a probe ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) result: ProbeResult,
    /// `None`: nobody was asked.
    pub(super) heard: Option<Heard>,
    pub(super) took: Duration,
    /// How long it might have taken.
    pub(super) timeout: Duration,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Schedule {
    entries: HashMap<u64, Entry>,
    /// Canonical for which entry belongs to a target and the time that a probe of it may take.
    by_target: HashMap<(Target, Duration), u64>,
    /// Entries by the Service, of this namespace and name, that they may connect to.
    by_service: HashMap<Request, HashSet<u64>>,
    /// Canonical for what a request waits for, in its order; never an empty list.
    waits: HashMap<Request, Vec<Wait>>,
    admission: Admission,
    addresses: Addresses,
    turns: Turns,
    shaken: Shaken,
    min_period: Duration,
    next_id: u64,
    /// How many targets have lost their place, or found none, since somebody asked.
    put_back: u64,
}

#[derive(Debug)]
struct Wait {
    entry: u64,
    want: Want,
    /// Probes that begin earlier do not count for it; `None`: every one counts.
    from: Option<Instant>,
    state: VerdictState,
}

// === impl Schedule ===

impl Schedule {
    /// Makes an empty schedule.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            entries: HashMap::new(),
            by_target: HashMap::new(),
            by_service: HashMap::new(),
            waits: HashMap::new(),
            admission: Admission::new(limits.targets_per_namespace),
            addresses: Addresses::new(limits.per_second_per_address),
            turns: Turns::new(limits),
            shaken: Shaken::default(),
            min_period: limits.min_period,
            next_id: 0,
            put_back: 0,
        }
    }

    /// Notes that `request` waits for these and for nothing else, or for nothing if there are none. `None`: that is
    /// nothing new. Else something may be due earlier now; returns who must be told.
    pub(super) fn watch(
        &mut self,
        request: &Request,
        wants: Vec<Want>,
        now: Instant,
    ) -> Option<Vec<Request>> {
        let mut before = self.waits.remove(request).unwrap_or_default();
        if before.len() == wants.len()
            && before.iter().zip(&wants).all(|(wait, want)| wait.want.is_same(want))
        {
            if !before.is_empty() {
                self.waits.insert(request.clone(), before);
            }
            return None;
        }
        // Joining before leaving keeps what is known of a target while only the order or the times change.
        let entries: Vec<u64> = before.iter().map(|wait| wait.entry).collect();
        let mut joined = Vec::with_capacity(wants.len());
        let mut wants = wants.into_iter();
        while let Some(want) = wants.next() {
            let is_asked_for = |wait: &Wait| wants.as_slice().iter().any(|want| wait.asks_the_same(want));
            let same = before.iter().position(|wait| wait.asks_the_same(&want));
            // With another timeout it goes on from what nobody goes on with as it is.
            let like =
                || before.iter().position(|wait| wait.want.target == want.target && !is_asked_for(wait));
            let earlier = same.or_else(like).map(|at| before.remove(at));
            joined.push(self.join(request, want, earlier.as_ref(), now));
            if let Some(earlier) = earlier {
                self.unask(&earlier);
            }
        }
        let kept: HashSet<u64> = joined.iter().map(|wait| wait.entry).collect();
        let mut admitted = Vec::new();
        for wait in before {
            self.unask(&wait);
        }
        for id in entries.into_iter().filter(|id| !kept.contains(id)) {
            admitted.extend(self.leave(request, id, now));
        }
        if !joined.is_empty() {
            self.waits.insert(request.clone(), joined);
        }
        Some(admitted.into_iter().flat_map(|id| self.admit(id, now)).collect())
    }

    /// Puts other limits in force, and makes due what the old policy denied. Returns who must be told.
    pub(super) fn reconfigure(&mut self, limits: Limits, now: Instant) -> Vec<Request> {
        self.turns.reconfigure(limits, now);
        self.addresses.set_rate(limits.per_second_per_address, now);
        self.min_period = limits.min_period;
        let Moved { admitted, put_back } = self.admission.set_limit(limits.targets_per_namespace);
        let mut told: Vec<_> = admitted.into_iter().flat_map(|id| self.admit(id, now)).collect();
        for id in put_back {
            told.extend(self.put_back(id, now));
        }
        for id in self.entries.keys().copied().collect::<Vec<_>>() {
            let Some(entry) = self.entries.get(&id) else { continue };
            if let Some(first) = entry.postponed {
                // Turns are given anew, in the order of before: the rate may be another one.
                self.set_due(id, first, now);
            } else if entry.row.is_denied() && entry.due.is_some() {
                self.set_due(id, now, now);
            } else if entry.started.is_some() {
                // What was never probed is due as early as anybody has asked for.
                self.pull_forward(id, now, now);
            }
        }
        told
    }

    /// Returns whether somebody waits for a target that may connect to this Service.
    pub(super) fn connects_to(&self, service: &Request) -> bool {
        self.by_service.contains_key(service)
    }

    /// Makes due now what may connect to this Service and is not ready, as far as that is not too often. Returns whether
    /// anything is due earlier.
    pub(super) fn hurry(&mut self, service: &Request, now: Instant) -> bool {
        let ids: Vec<u64> = self.by_service.get(service).into_iter().flatten().copied().collect();
        let mut any = false;
        for id in ids {
            let at = self.entries.get_mut(&id).and_then(|entry| entry.hurry(now, self.min_period));
            if let Some(at) = at {
                self.unset_due(id, now);
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.lane = Lane::New;
                }
                self.set_due(id, at, now);
                any = true;
            }
        }
        any
    }

    /// Says what to do now. A probe that is returned counts as started.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let Self { turns, entries, addresses, .. } = self;
        let turn = turns.next(now, |id, due| {
            let entry = entries.get_mut(&id)?;
            let address = entry.address.as_ref()?;
            let at = addresses.take(address, entry.postponed.is_some(), now).err()?;
            entry.postponed.get_or_insert(due);
            entry.due = Some(at);
            Some(at)
        });
        let (id, mut due, mut held) = match turn {
            Turn::Now { id, due, held } => (id, due, held),
            Turn::At(at) => return Next::Wait(at),
        };
        let Some(entry) = self.entries.get_mut(&id) else { return Next::Wait(Some(now)) };
        if let Some(first) = entry.postponed {
            (due, held) = (first, Some(Held::AddressRate));
        }
        entry.start(now, self.min_period);
        Next::Start(Start {
            id,
            target: entry.target.clone(),
            timeout: entry.timeout(self.min_period),
            lag: now.duration_since(due),
            held,
            cancel: entry.cancel.clone(),
        })
    }

    /// Takes the slot of a probe back, whose sockets are closed. [`finish`](Self::finish) follows, now or later.
    pub(super) fn land(&mut self, id: u64, now: Instant) {
        self.turns.land(id, now);
    }

    /// Notes how a probe ended, `None` for a cancelled one, with a random number in [0, 1). Returns who must be told.
    pub(super) fn finish(
        &mut self,
        id: u64,
        ended: Option<Ended>,
        now: Instant,
        random: f64,
    ) -> Vec<Request> {
        self.land(id, now);
        let (Some(entry), Some(ended)) = (self.entries.get_mut(&id), ended) else {
            return Vec::new();
        };
        entry.is_probed = false;
        if !entry.admitted {
            return Vec::new();
        }
        let (heard, is_blind) = (ended.heard, reasons::is_blind(ended.result.reason()));
        let is_new = entry.end(ended, now);
        let waits = entry.waiting.iter().filter_map(|request| self.waits.get(request)).flatten();
        let held = waits.filter(|wait| wait.entry == id).any(|wait| wait.want.held);
        let due = entry.next_due(now, self.min_period, random);
        match heard {
            Some(heard) => {
                let answered = entry.hear(heard, held);
                self.shaken.note(&entry.host, heard, answered, now);
            }
            // It is known without asking: that it was silent says nothing any more.
            None if !is_blind && entry.forget_silence() => {
                let host = entry.host.clone();
                let silent = self.entries.values().filter(|entry| entry.is_silent());
                self.shaken.forgive(&host, silent.map(|entry| &entry.host));
            }
            None => {}
        }
        self.set_due(id, due, now);
        self.judge(id, is_new)
    }

    /// Forgets who waits for what, and what is known. Limits stay.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.turns.limits());
    }

    /// Returns whether losses have a common cause on our side.
    pub(super) fn is_shaken(&mut self, now: Instant) -> bool {
        self.shaken.is_shaken(now)
    }

    /// Returns that, if it was not what was said last.
    pub(super) fn shaken_news(&mut self, now: Instant) -> Option<bool> {
        self.shaken.news(now)
    }

    /// Returns how many targets were denied for want of a place since it was asked last.
    pub(super) fn take_put_back(&mut self) -> u64 {
        std::mem::take(&mut self.put_back)
    }

    /// Returns how many targets are waited for.
    pub(super) fn targets(&self) -> usize {
        self.entries.len()
    }

    /// Returns how many probes are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.turns.in_flight()
    }

    /// Judges anew for all who wait for an entry. Returns whose verdict has changed.
    fn judge(&mut self, id: u64, is_new: bool) -> Vec<Request> {
        let Some(entry) = self.entries.get(&id) else { return Vec::new() };
        let mut told = Vec::new();
        for request in &entry.waiting {
            let waits = self.waits.get_mut(request).into_iter().flatten();
            // Every one of them is judged, whatever the first comes to.
            let changed = waits.filter(|wait| wait.entry == id).map(|wait| wait.count(entry, is_new));
            if changed.fold(false, |any, one| any | one) {
                told.push(request.clone());
            }
        }
        told
    }

    /// Who asks for less than those before must not wait for the end of their longer period, or of their delay.
    fn pull_forward(&mut self, id: u64, from: Instant, now: Instant) {
        let Some(entry) = self.entries.get(&id) else { return };
        // Who has been given a turn keeps it: there are others in that line.
        let Some(due) = entry.due.filter(|_| entry.postponed.is_none()) else { return };
        let next = entry.started.map_or(from, |started| started + entry.period(self.min_period));
        let at = next.max(from).max(now);
        if at < due {
            self.set_due(id, at, now);
        }
    }

    /// The only place that has an entry wait for its turn.
    fn set_due(&mut self, id: u64, at: Instant, now: Instant) {
        self.unset_due(id, now);
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.due = Some(at);
        self.turns.insert(entry.target.shared_namespace(), id, entry.lane, at, now);
    }

    fn unset_due(&mut self, id: u64, now: Instant) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.postponed = None;
        if let Some(due) = entry.due.take() {
            self.turns.remove(entry.target.shared_namespace(), id, entry.lane, due, now);
        }
    }
}

// === impl Wait ===

impl Wait {
    /// Returns whether this is looked at by the same entry.
    fn asks_the_same(&self, want: &Want) -> bool {
        (&self.want.target, self.want.timeout) == (&want.target, want.timeout)
    }

    /// Takes the latest result of its entry into account. Returns whether its verdict has changed.
    fn count(&mut self, entry: &Entry, is_new: bool) -> bool {
        let first = self.from.is_some();
        if first && !entry.admitted {
            // That it has no place is known without a probe.
            return is_new;
        }
        if self.from.is_some_and(|from| entry.started.is_none_or(|started| started < from)) {
            return false;
        }
        self.from = None;
        let before = self.state;
        self.state = judge(before, entry.row, &self.want);
        first || is_new || before != self.state
    }
}
