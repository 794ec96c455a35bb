//! All targets, and the objects that wait for them: bookkeeping without clock, sockets, tasks or randomness.
//!
//! # Invariants
//! 1. An entry exists exactly as long as an object waits for it; dropping it ends its task.
//! 2. Of the targets of a namespace the oldest are probed, as many as the policy allows.
//! 3. An admitted entry is either due or has a probe in flight.
//! 4. Results of a target outlive a change of the objects that wait for it, and of their thresholds and
//!    times.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use mainstay::key::NamespacedName;
use tokio::sync::watch;
use tokio::time::Instant;

use super::describe::Description;
use super::entry::{DueProbe, Entry, FinishedProbe, Wait};
use super::judge::judge;
use super::metrics::ProbeMetrics;
use super::outage_guard::OutageGuard;
use super::slots::Slots;
use super::{ProbeResult, Target, Verdict, VerdictState, Want};
use crate::reasons::{self, denial};
use crate::settings::ProbePolicy;

/// All probe targets with their results, and the objects that wait for them.
#[derive(Debug)]
pub(super) struct Targets {
    /// The entries of all targets by id; ids rise with time.
    entries: HashMap<u64, Entry>,
    ids: HashMap<(Target, Duration), u64>,
    /// The ids of the targets of each object, in the order of its wants; never an empty list.
    requests: HashMap<NamespacedName, Vec<u64>>,
    /// The ids of the targets of each namespace; never an empty set.
    namespaces: HashMap<Arc<str>, BTreeSet<u64>>,
    /// The ids of targets, each with the Service that it may connect to.
    services: BTreeSet<(NamespacedName, u64)>,
    /// The ids of targets that have no task yet.
    new: Vec<u64>,
    guard: OutageGuard,
    policy: Arc<ProbePolicy>,
    metrics: ProbeMetrics,
    next_id: u64,
}

// === impl Targets ===

impl Targets {
    pub(super) fn new(policy: Arc<ProbePolicy>, metrics: ProbeMetrics) -> Self {
        Self {
            entries: HashMap::new(),
            ids: HashMap::new(),
            requests: HashMap::new(),
            namespaces: HashMap::new(),
            services: BTreeSet::new(),
            new: Vec::new(),
            guard: OutageGuard::default(),
            policy,
            metrics,
            next_id: 0,
        }
    }

    /// Makes the object `request` wait for the targets of these wants and no others. Returns the objects with
    /// a changed verdict; `None` if `request` already waits for exactly these targets.
    pub(super) fn watch(
        &mut self,
        request: &NamespacedName,
        wants: Vec<Want>,
        now: Instant,
    ) -> Option<Vec<NamespacedName>> {
        let known: Vec<&Wait> = self.waits(request).map(|(_, wait)| wait).collect();
        if known.len() == wants.len() && known.iter().zip(&wants).all(|(wait, want)| wait.want.is_same(want))
        {
            return None;
        }
        let before = self.requests.remove(request).unwrap_or_default();
        let mut earlier: Vec<(u64, Box<Wait>)> = Vec::with_capacity(before.len());
        for (at, id) in before.iter().enumerate() {
            let wait = self.entries.get_mut(id).and_then(|entry| entry.waits.remove(&(request.clone(), at)));
            earlier.extend(wait.map(|wait| (*id, wait)));
        }
        let mut ids = Vec::with_capacity(wants.len());
        let mut wants = wants.into_iter();
        while let Some(want) = wants.next() {
            let same = earlier.iter().position(|(_, wait)| wait.want.is_alike(&want));
            // With another timeout it continues an earlier wait, unless another want continues that one.
            let others = wants.as_slice();
            let is_free = |wait: &Wait| !others.iter().any(|other| wait.want.is_alike(other));
            let like = || earlier.iter().position(|(_, w)| w.want.target == want.target && is_free(w));
            let earlier = same.or_else(like).map(|at| earlier.remove(at));
            let id = self.join((request.clone(), ids.len()), want, earlier, now);
            ids.push(id);
        }
        let changed = before.into_iter().flat_map(|id| self.leave(id, now)).collect();
        if !ids.is_empty() {
            self.requests.insert(request.clone(), ids);
        }
        self.metrics.count_targets(self.entries.len());
        Some(changed)
    }

    /// Applies another probe policy, and makes probes due that the old one denied. Returns the objects with a
    /// changed verdict.
    pub(super) fn reconfigure(&mut self, policy: Arc<ProbePolicy>, now: Instant) -> Vec<NamespacedName> {
        self.policy = policy;
        let limit = self.max_targets();
        let ranked = self.namespaces.values().flat_map(|ids| ids.iter().enumerate());
        let fits: Vec<(u64, bool)> = ranked.map(|(rank, id)| (*id, rank < limit)).collect();
        let mut changed = Vec::new();
        for (id, fits) in fits {
            match self.entries.get(&id).is_some_and(|entry| entry.admitted) {
                false if fits => changed.extend(self.admit(id, now)),
                true if !fits => changed.extend(self.defer(id, now)),
                _ => {}
            }
        }
        for entry in self.entries.values() {
            let Some(due) = entry.due() else { continue };
            if entry.streak.is_denied() {
                entry.set_due(now);
            } else if due <= now {
                // It leaves the queue and takes a new turn, by the new rates.
                entry.set_due(due);
            } else if entry.started.is_some() {
                entry.pull_forward(now, now, *self.policy.min_period);
            }
        }
        changed
    }

    /// Returns whether an object waits for a target that may connect to this Service.
    pub(super) fn connects_to(&self, service: &NamespacedName) -> bool {
        self.of_service(service).next().is_some()
    }

    /// Makes probes of targets that connect to this Service and are not ready due now, or as soon as the
    /// limit of early probes allows.
    pub(super) fn probe_early(&mut self, service: &NamespacedName, now: Instant) {
        let ids: Vec<u64> = self.of_service(service).collect();
        for id in ids {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.probe_early(now, *self.policy.min_period);
            }
        }
    }

    /// Returns the ids of the targets that were added since the last call, each with a receiver of the time
    /// at which it is due.
    pub(super) fn take_new(&mut self) -> Vec<(u64, watch::Receiver<Option<Instant>>)> {
        let new = std::mem::take(&mut self.new).into_iter();
        new.filter_map(|id| Some((id, self.entries.get(&id)?.due.subscribe()))).collect()
    }

    /// Returns the probe of the target `id`, which was due at the time `due`; `None` if the target is gone.
    pub(super) fn due_probe(&self, id: u64, due: Instant) -> Option<DueProbe> {
        self.entries.get(&id).map(|entry| entry.due_probe(due))
    }

    /// Records the start of a probe of the target `id`, and returns the target, its timeout and the policy;
    /// `None` if the target is no longer due.
    pub(super) fn start(&mut self, id: u64, now: Instant) -> Option<(Target, Duration, Arc<ProbePolicy>)> {
        let min_period = *self.policy.min_period;
        let entry = self.entries.get_mut(&id).filter(|entry| entry.due().is_some())?;
        entry.start(now, min_period);
        let timeout = entry.timeout.min(entry.period(min_period));
        Some((entry.target.clone(), timeout, Arc::clone(&self.policy)))
    }

    /// Records the end of a probe of the target `id`, with a random number in [0, 1) for the jitter of the
    /// next one. Returns the objects with a changed verdict.
    pub(super) fn finish(
        &mut self,
        id: u64,
        ended: FinishedProbe,
        now: Instant,
        random: f64,
    ) -> Vec<NamespacedName> {
        let Some(entry) = self.entries.get_mut(&id) else { return Vec::new() };
        entry.is_probed = false;
        if !entry.admitted {
            return Vec::new();
        }
        let was_ready = entry.waits.values().any(|wait| wait.want.was_ready);
        let mut is_loss = false;
        match ended.reachability {
            Some(reachability) => is_loss = entry.contact.record(reachability, was_ready, now),
            None if reasons::is_blind(ended.result.reason()) => {}
            // The result was found without contacting the target.
            None => entry.contact.forget_silence(),
        }
        let is_new = entry.end(ended, now, *self.policy.min_period, random);
        let changed = entry.judge(is_new);
        if is_loss || self.guard.is_alarmed() {
            self.suspects_outage(now);
        }
        changed
    }

    /// Forgets all probe targets. Returns the objects that waited for them.
    pub(super) fn clear(&mut self) -> Vec<NamespacedName> {
        let new = Self::new(Arc::clone(&self.policy), self.metrics.clone());
        self.metrics.count_targets(0);
        self.metrics.outage.set(0);
        std::mem::replace(self, new).requests.into_keys().collect()
    }

    /// Returns whether a fault of the manager's own network is likely, because most targets fell silent
    /// together.
    pub(super) fn suspects_outage(&mut self, now: Instant) -> bool {
        if self.guard.is_current(now) {
            return true;
        }
        let contacts =
            self.entries.values().map(|entry| (entry.target.namespace(), &*entry.host, &entry.contact));
        self.guard.evaluate(contacts, now)
    }

    /// Sets the metric of the outage alarm to the outcome of the last evaluation. Returns the outcome if it
    /// has changed.
    pub(super) fn publish_outage(&self) -> Option<bool> {
        let alarm = self.guard.is_alarmed();
        (self.metrics.outage.set(alarm.into()) != i64::from(alarm)).then_some(alarm)
    }

    /// Returns the verdicts on the targets of the object `request`, in the order of its wants.
    pub(super) fn verdicts(&self, request: &NamespacedName) -> Vec<Verdict> {
        self.waits(request).map(|(entry, wait)| entry.verdict(wait)).collect()
    }

    /// Describes the targets of the object `request`, in the order of its wants.
    pub(super) fn describe(&self, request: &NamespacedName, slots: &Slots, now: Instant) -> Vec<Description> {
        let min_period = *self.policy.min_period;
        let waits = self.waits(request);
        waits.map(|(entry, wait)| entry.describe(request, wait, min_period, slots, now)).collect()
    }

    fn waits<'a>(&'a self, request: &NamespacedName) -> impl Iterator<Item = (&'a Entry, &'a Wait)> {
        let ids = self.requests.get(request).into_iter().flatten().enumerate();
        ids.filter_map(move |(at, id)| {
            let entry = self.entries.get(id)?;
            Some((entry, &**entry.waits.get(&(request.clone(), at))?))
        })
    }

    fn of_service(&self, service: &NamespacedName) -> impl Iterator<Item = u64> {
        let range = (service.clone(), 0)..=(service.clone(), u64::MAX);
        self.services.range(range).map(|(_, id)| *id)
    }

    fn max_targets(&self) -> usize {
        usize::try_from(self.policy.max_targets_per_namespace).unwrap_or(usize::MAX)
    }

    /// Adds the wait of an object for the target of a want; it keeps the state of an earlier wait. Returns
    /// the id of the target's entry.
    fn join(
        &mut self,
        key: (NamespacedName, usize),
        want: Want,
        earlier: Option<(u64, Box<Wait>)>,
        now: Instant,
    ) -> u64 {
        let delay = Some(want.initial_delay).filter(|delay| !delay.is_zero());
        let (entry, from, state) = match earlier {
            Some((id, before)) => (Some(id), before.from, before.state),
            None => (None, delay.map(|delay| now + delay), VerdictState::Pending),
        };
        let due = from.unwrap_or(now);
        let id = self.entry_for(&want, entry, due, now);
        if let Some(entry) = self.entries.get_mut(&id) {
            // Known results count at once, unless the delay is not over.
            let state = if from.is_none() { judge(state, entry.streak, &want) } else { state };
            entry.waits.insert(key, Box::new(Wait { want, from, state }));
            entry.pull_forward(due, now, *self.policy.min_period);
        }
        id
    }

    /// Returns the id of the entry for the target and timeout of a want, and makes the entry if there is
    /// none. If only the timeout of the want has changed and no other object uses its entry `earlier`, that
    /// entry is kept with the new timeout.
    fn entry_for(&mut self, want: &Want, earlier: Option<u64>, due: Instant, now: Instant) -> u64 {
        let key = (want.target.clone(), want.timeout);
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        if let Some(id) = earlier
            && let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.waits.is_empty())
        {
            // No other object waits for the entry, so it keeps its results and its rank in the namespace.
            let before = std::mem::replace(&mut entry.timeout, want.timeout);
            self.ids.remove(&(want.target.clone(), before));
            self.ids.insert(key, id);
            return id;
        }
        let id = self.next_id;
        self.next_id += 1;
        let limit = self.max_targets();
        let mut entry = Entry::new(want.target.clone(), want.timeout);
        if let Some(earlier) = earlier.and_then(|id| self.entries.get(&id)) {
            entry.copy_results(earlier);
        }
        let ids = self.namespaces.entry(Arc::clone(want.target.shared_namespace())).or_default();
        ids.insert(id);
        entry.admitted = ids.len() <= limit;
        if entry.admitted {
            entry.set_due(due);
        }
        let is_admitted = entry.admitted;
        self.services.extend(want.target.service().map(|service| (service, id)));
        self.entries.insert(id, entry);
        self.ids.insert(key, id);
        self.new.push(id);
        if !is_admitted {
            self.defer(id, now);
        }
        id
    }

    /// Removes the entry of a target if no object waits for it. Returns the objects with a changed verdict,
    /// because another target was admitted instead.
    fn leave(&mut self, id: u64, now: Instant) -> Vec<NamespacedName> {
        if self.entries.get(&id).is_none_or(|entry| !entry.waits.is_empty()) {
            return Vec::new();
        }
        let Some(entry) = self.entries.remove(&id) else { return Vec::new() };
        self.ids.remove(&(entry.target.clone(), entry.timeout));
        if let Some(service) = entry.target.service() {
            self.services.remove(&(service, id));
        }
        let (namespace, limit) = (entry.target.shared_namespace(), self.max_targets());
        let Some(ids) = self.namespaces.get_mut(namespace) else { return Vec::new() };
        ids.remove(&id);
        let last = ids.iter().nth(limit.saturating_sub(1)).copied();
        if ids.is_empty() {
            self.namespaces.remove(namespace);
        }
        let next =
            last.filter(|last| limit > 0 && self.entries.get(last).is_some_and(|entry| !entry.admitted));
        next.map(|next| self.admit(next, now)).unwrap_or_default()
    }

    /// Lets a target be probed that was over the limit of its namespace until now. Returns the objects with a
    /// changed verdict.
    fn admit(&mut self, id: u64, now: Instant) -> Vec<NamespacedName> {
        let Some(entry) = self.entries.get_mut(&id) else { return Vec::new() };
        entry.admitted = true;
        entry.reset();
        // The first result will change the verdict. Only objects with a delay are returned now: for them
        // the end of the denial shows before the first probe.
        drop(entry.judge(false));
        let from = entry.waits.values().map(|wait| wait.from.unwrap_or(now)).min();
        // A probe may be in flight since before the target was deferred.
        if !entry.is_probed {
            entry.set_due(from.unwrap_or(now).max(now));
        }
        let delayed = entry.waits.iter().filter(|(_, wait)| wait.from.is_some());
        delayed.map(|((request, _), _)| request.clone()).collect()
    }

    /// Stops the probes of a target that is over the limit of its namespace, and denies it. Returns the
    /// objects with a changed verdict.
    fn defer(&mut self, id: u64, now: Instant) -> Vec<NamespacedName> {
        let limit = self.policy.max_targets_per_namespace;
        let Some(entry) = self.entries.get_mut(&id) else { return Vec::new() };
        entry.admitted = false;
        entry.due.send_replace(None);
        self.metrics.deny(denial::MAX_TARGETS);
        let namespace = entry.target.namespace();
        let message = format!(
            "namespace {namespace} waits for more targets than the {limit} of \
             probePolicy.maxTargetsPerNamespace; this one is probed once fewer are waited for"
        );
        let is_new = entry.record(ProbeResult::Denied { rule: denial::MAX_TARGETS, message }, now);
        entry.judge(is_new)
    }
}
