//! How a target comes to have an entry and a place in its namespace, and how it loses them.

use std::time::Duration;

use mainstay::key::Request;
use tokio::time::Instant;

use super::{Schedule, Wait};
use crate::probe::entry::Entry;
use crate::probe::judge::judge;
use crate::probe::{ProbeResult, Target, VerdictState, Want};
use crate::reasons::denial;

impl Schedule {
    /// Has `request` wait for one target, with what was judged of it before.
    pub(super) fn join(
        &mut self,
        request: &Request,
        want: Want,
        earlier: Option<&Wait>,
        now: Instant,
    ) -> Wait {
        let delayed = || (!want.initial_delay.is_zero()).then(|| now + want.initial_delay);
        let from = earlier.map_or_else(delayed, |wait| wait.from);
        let id = self.entry_for(&want, earlier, from.unwrap_or(now), now);
        let mut state = earlier.map_or(VerdictState::Pending, |wait| wait.state);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.waiting.insert(request.clone());
            entry.periods.add(want.period);
            // What is known is known at once, unless it is not to be looked at yet.
            if from.is_none() {
                state = judge(state, entry.row, &want);
            }
        }
        self.pull_forward(id, from.unwrap_or(now), now);
        Wait { entry: id, want, from, state }
    }

    /// Ends what a wait asked of its entry. The request itself stays in `waiting`.
    pub(super) fn unask(&mut self, wait: &Wait) {
        if let Some(entry) = self.entries.get_mut(&wait.entry) {
            entry.periods.remove(wait.want.period);
        }
    }

    /// Ends the wait of `request` for an entry. Returns who has its place if that was the last one.
    pub(super) fn leave(&mut self, request: &Request, id: u64, now: Instant) -> Option<u64> {
        let entry = self.entries.get_mut(&id)?;
        entry.waiting.remove(request);
        if !entry.waiting.is_empty() {
            return None;
        }
        self.unset_due(id, now);
        let Entry { target, timeout, host, cancel, .. } = self.entries.remove(&id)?;
        cancel.cancel();
        self.shaken.remove(&host);
        self.by_target.remove(&(target.clone(), timeout));
        if let Some(service) = target.service()
            && let Some(ids) = self.by_service.get_mut(&service)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_service.remove(&service);
            }
        }
        self.admission.remove(target.shared_namespace(), id)
    }

    fn entry_for(&mut self, want: &Want, earlier: Option<&Wait>, due: Instant, now: Instant) -> u64 {
        let target = &want.target;
        let key = (target.clone(), want.timeout);
        if let Some(id) = self.by_target.get(&key) {
            return *id;
        }
        // Nobody else asks for it as before: it is the same place, with another patience.
        let alone = |id: &u64| self.entries.get(id).is_some_and(|entry| entry.periods.count() == 1);
        if let Some(id) = earlier.map(|wait| wait.entry).filter(alone) {
            self.retime(id, key);
            return id;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.by_target.insert(key, id);
        if let Some(service) = target.service() {
            self.by_service.entry(service).or_default().insert(id);
        }
        let mut entry = Entry::new(target.clone(), want.timeout);
        if let Some(other) = earlier.and_then(|earlier| self.entries.get(&earlier.entry)) {
            entry.learn(other);
        }
        self.shaken.insert(&entry.host);
        self.entries.insert(id, entry);
        if self.admission.insert(target.shared_namespace(), id) {
            self.set_due(id, due, now);
        } else {
            self.put_back(id, now);
        }
        id
    }

    fn retime(&mut self, id: u64, key: (Target, Duration)) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let before = std::mem::replace(&mut entry.timeout, key.1);
        self.by_target.remove(&(entry.target.clone(), before));
        self.by_target.insert(key, id);
    }

    /// Gives an entry the place of its namespace that it has waited for. Returns who must be told.
    pub(super) fn admit(&mut self, id: u64, now: Instant) -> Vec<Request> {
        let Some(entry) = self.entries.get_mut(&id) else { return Vec::new() };
        entry.admitted = true;
        entry.reset();
        // Since before it lost its place.
        let is_probed = entry.is_probed;
        let waits = entry.waiting.iter().filter_map(|request| self.waits.get_key_value(request));
        let waits = waits.flat_map(|(request, waits)| waits.iter().map(move |wait| (request, wait)));
        let waits = waits.filter(|(_, wait)| wait.entry == id);
        let delays: Vec<_> = waits.map(|(request, wait)| (request.clone(), wait.from)).collect();
        // The first result is the news: it comes at once, or as early as anybody has asked for. Who has asked for a delay
        // has nothing until then but the word that there is no place.
        drop(self.judge(id, false));
        let from = delays.iter().map(|(_, from)| from.unwrap_or(now)).min();
        if !is_probed {
            self.set_due(id, from.unwrap_or(now).max(now), now);
        }
        delays.into_iter().filter(|(_, from)| from.is_some()).map(|(request, _)| request).collect()
    }

    /// Has an entry wait for a place in its namespace. Returns who must be told.
    pub(super) fn put_back(&mut self, id: u64, now: Instant) -> Vec<Request> {
        let limit = self.admission.limit();
        self.unset_due(id, now);
        let Some(entry) = self.entries.get_mut(&id) else { return Vec::new() };
        entry.admitted = false;
        self.put_back += 1;
        let namespace = entry.target.shared_namespace();
        let message = format!(
            "namespace {namespace} waits for more targets than the {limit} of probePolicy.maxTargetsPerNamespace; \
             this one is probed once another is not waited for any more"
        );
        let is_new = entry.note(ProbeResult::Denied { rule: denial::MAX_TARGETS, message }, now);
        self.judge(id, is_new)
    }
}
