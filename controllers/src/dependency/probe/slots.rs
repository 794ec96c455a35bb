//! Permits to start probes: slots and starts per second, shared fairly between namespaces.
//!
//! The task of a target [acquires](Slots::acquire) a [`Slot`] for each probe and holds it until the sockets
//! of the probe are closed. [`Slots::run`] grants the slots; it sleeps until a probe is due, a slot is
//! freed or a token comes.
//!
//! # Invariants
//! 1. Slow targets hold at most half of the slots, slow and untried targets together at most three
//!    quarters. So black holes, new or old, never keep a target that answers quickly from being probed.
//! 2. A namespace holds no more slots of a class than it leaves free, so one namespace never holds them
//!    all.
//! 3. Every waiting namespace that may start a probe starts one before another namespace starts its second.
//! 4. Within a class of a namespace, probes start in the order in which they became due.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mainstay::util::{Limit, TokenBucket};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::address_limits::{AddressLimits, per_second};
use super::describe::StartLimit;
use super::entry::{DueProbe, SlotClass};
use crate::settings::ProbePolicy;

/// The number of classes of targets with their own limit of slots: quick, untried and slow.
const CLASSES: usize = SlotClass::Slow as usize + 1;
/// The longest sleep between two grants of slots; every event that allows one wakes earlier.
const IDLE: Duration = Duration::from_hours(1);

/// Grants slots, the permits to start probes, limited in number and rate and shared fairly between
/// namespaces.
#[derive(Debug)]
pub(super) struct Slots {
    state: Mutex<State>,
    /// Wakes [`Slots::run`] after a change by which a slot may be granted.
    wake: Notify,
    in_flight: Gauge,
}

/// The right to have one probe in flight; dropping it frees the slot.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    namespace: Arc<str>,
    class: usize,
    /// The limit that delayed the start of the probe, if one did.
    pub(super) delayed_by: Option<StartLimit>,
}

#[derive(Debug)]
struct State {
    /// Maximum number of held slots of each class together with the classes after it; the first is the number
    /// of all slots.
    limits: [usize; CLASSES],
    /// Number of held slots of each class.
    held: [usize; CLASSES],
    bucket: TokenBucket,
    address_limits: AddressLimits,
    namespaces: HashMap<Arc<str>, Namespace>,
    /// Queue of the namespaces with waiting probes, each once; the first is the next to start a probe.
    order: VecDeque<Arc<str>>,
    namespace_rate: Limit,
    /// When the probes of all namespaces last had to wait, and for which limit.
    delayed: Option<(Instant, StartLimit)>,
}

#[derive(Debug)]
struct Namespace {
    waiting: [VecDeque<Waiter>; CLASSES],
    held: [usize; CLASSES],
    bucket: TokenBucket,
    is_in_order: bool,
    /// When the probes of this namespace last had to wait, and for which limit.
    delayed: Option<(Instant, StartLimit)>,
}

#[derive(Debug)]
struct Waiter {
    probe: DueProbe,
    /// Whether the probe was postponed to a turn at its address, which has come.
    was_postponed: bool,
    grant: oneshot::Sender<Grant>,
}

/// The answer to a waiting probe: a slot, or the time of its turn at its address.
type Grant = Result<Slot, Instant>;

// === impl Slots ===

impl Slots {
    /// Makes a queue of probes for this number of slots; `in_flight` counts the held slots.
    pub(super) fn new(slots: usize, policy: &ProbePolicy, in_flight: Gauge) -> Self {
        let state = State {
            limits: [slots, slots * 3 / 4, slots / 2].map(|limit| limit.max(1)),
            held: [0; CLASSES],
            bucket: TokenBucket::new(per_second(policy.max_per_second)),
            address_limits: AddressLimits::new(policy.max_per_second_per_address),
            namespaces: HashMap::new(),
            order: VecDeque::new(),
            namespace_rate: per_second(policy.max_per_second_per_namespace),
            delayed: None,
        };
        Self { state: Mutex::new(state), wake: Notify::new(), in_flight }
    }

    /// Applies the rates of another probe policy. Postponed probes have to acquire their slots anew.
    pub(super) fn reconfigure(&self, policy: &ProbePolicy, now: Instant) {
        let mut state = self.state.lock();
        state.bucket.set_limit(per_second(policy.max_per_second), now);
        state.address_limits.set_rate(policy.max_per_second_per_address, now);
        let rate = per_second(policy.max_per_second_per_namespace);
        state.namespace_rate = rate;
        for namespace in state.namespaces.values_mut() {
            namespace.bucket.set_limit(rate, now);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Waits for a slot, the permit to start this probe.
    ///
    /// # Cancel safety
    /// A dropped call leaves the queue.
    pub(super) async fn acquire(&self, probe: DueProbe) -> Slot {
        let mut was_postponed = false;
        loop {
            let (grant, granted) = oneshot::channel();
            self.state.lock().push(Waiter { probe: probe.clone(), was_postponed, grant }, Instant::now());
            self.wake.notify_one();
            match granted.await {
                Ok(Ok(slot)) => return slot,
                Ok(Err(until)) => tokio::time::sleep_until(until).await,
                // The queue is never dropped before its waiters.
                Err(_) => std::future::pending().await,
            }
            was_postponed = true;
        }
    }

    /// Grants slots to waiting probes, for as long as the future is polled.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let next = self.state.lock().next(&self, Instant::now());
            match next {
                // Without the lock: a slot that is not received frees itself.
                Ok((receiver, grant)) => drop(receiver.send(grant)),
                Err(until) => drop(tokio::time::timeout_at(until, self.wake.notified()).await),
            }
        }
    }

    /// Returns the limit that delays a due probe, if one has delayed it so far.
    pub(super) fn delayed_by(&self, probe: &DueProbe, now: Instant) -> Option<StartLimit> {
        let state = self.state.lock();
        if probe.address.as_ref().is_some_and(|address| state.address_limits.has_queue(address, now)) {
            return Some(StartLimit::AddressRate);
        }
        let namespace = state.namespaces.get(&probe.namespace)?;
        latest([state.delayed, namespace.delayed], probe.due)
    }
}

/// Returns the limit of the latest of these delays of a probe, without those before `since`.
fn latest(delays: [Option<(Instant, StartLimit)>; 2], since: Instant) -> Option<StartLimit> {
    let delays = delays.into_iter().flatten().filter(|(at, _)| *at >= since);
    delays.max_by_key(|(at, _)| *at).map(|(_, limit)| limit)
}

// === impl Slot ===

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
        state.held[self.class] -= 1;
        if let Some(namespace) = state.namespaces.get_mut(&self.namespace) {
            namespace.held[self.class] -= 1;
        }
        drop(state);
        self.slots.in_flight.dec();
        self.slots.wake.notify_one();
    }
}

// === impl State ===

impl State {
    fn push(&mut self, waiter: Waiter, now: Instant) {
        let name = &waiter.probe.namespace;
        // The bucket of an idle namespace is kept until it is full: leaving must not refill it.
        if !self.namespaces.contains_key(name) && self.namespaces.len().is_power_of_two() {
            self.namespaces.retain(|_, namespace| !namespace.is_idle(now));
        }
        let namespace = self.namespaces.entry(Arc::clone(name)).or_insert_with(|| Namespace {
            waiting: Default::default(),
            held: [0; CLASSES],
            bucket: TokenBucket::new(self.namespace_rate),
            is_in_order: false,
            delayed: None,
        });
        if !std::mem::replace(&mut namespace.is_in_order, true) {
            self.order.push_back(Arc::clone(name));
        }
        let queue = &mut namespace.waiting[waiter.probe.class as usize];
        // `pop` removes cancelled waiters from the front only; this bounds the ones behind.
        if queue.len().is_power_of_two() {
            queue.retain(|waiter| !waiter.grant.is_closed());
        }
        queue.push_back(waiter);
    }

    /// Returns the answer to the next waiting probe, with its receiver. Fails with the time before which no
    /// probe can start unless a slot is freed, a probe is added or a rate changes.
    fn next(&mut self, slots: &Arc<Slots>, now: Instant) -> Result<(oneshot::Sender<Grant>, Grant), Instant> {
        let mut wake_at = now + IDLE;
        let free = self.room(0);
        let ready_at = self.bucket.ready_at(now);
        if free == 0 || ready_at > now {
            let (limit, at) =
                if free == 0 { (StartLimit::InFlight, wake_at) } else { (StartLimit::Rate, ready_at) };
            self.delayed = Some((now, limit));
            return Err(at);
        }
        for _ in 0..self.order.len() {
            let Some(name) = self.order.pop_front() else { break };
            let room = std::array::from_fn(|class| self.room(class));
            let Some(namespace) = self.namespaces.get_mut(&name) else { continue };
            let Waiter { probe, was_postponed, grant } = match namespace.pop(room, now) {
                Ok(Some(waiter)) => waiter,
                Ok(None) => continue,
                Err(ready_at) => {
                    wake_at = ready_at.map_or(wake_at, |at| at.min(wake_at));
                    self.order.push_back(name);
                    continue;
                }
            };
            if let Some(address) = &probe.address
                && let Err(until) = self.address_limits.take(address, was_postponed, now)
            {
                // The probe has used no slot and no token, so its namespace stays in front.
                self.order.push_front(name);
                return Ok((grant, Err(until)));
            }
            let class = probe.class as usize;
            self.bucket.spend(now);
            namespace.bucket.spend(now);
            namespace.held[class] += 1;
            self.held[class] += 1;
            self.order.push_back(name);
            slots.in_flight.inc();
            let delayed_by = latest([self.delayed, namespace.delayed], probe.due);
            let delayed_by = if was_postponed { Some(StartLimit::AddressRate) } else { delayed_by };
            let (slots, namespace) = (Arc::clone(slots), probe.namespace);
            return Ok((grant, Ok(Slot { slots, namespace, class, delayed_by })));
        }
        Err(wake_at)
    }

    /// Returns the number of free slots for a class: its limit, and those of the classes before it, all
    /// apply.
    fn room(&self, class: usize) -> usize {
        let left = |class: usize| self.limits[class].saturating_sub(self.held[class..].iter().sum());
        (0..=class).map(left).min().unwrap_or(0)
    }
}

// === impl Namespace ===

impl Namespace {
    /// Removes the next waiting probe of the namespace, given the free slots of each class in `room`; `None`
    /// if no probe waits. Fails if no probe can start: with the time of the next token, or `None` if a slot
    /// is missing.
    fn pop(&mut self, room: [usize; CLASSES], now: Instant) -> Result<Option<Waiter>, Option<Instant>> {
        for queue in &mut self.waiting {
            while queue.pop_front_if(|waiter| waiter.grant.is_closed()).is_some() {}
        }
        self.is_in_order = self.waiting.iter().any(|queue| !queue.is_empty());
        let classes = (0..CLASSES).filter(|class| self.held[*class] < room[*class]);
        let first = classes.filter_map(|class| Some((self.waiting[class].front()?.probe.due, class))).min();
        let ready_at = self.bucket.ready_at(now);
        match first {
            Some((_, class)) if ready_at <= now => Ok(self.waiting[class].pop_front()),
            None if !self.is_in_order => Ok(None),
            _ => {
                let limit = if first.is_some() { StartLimit::NamespaceRate } else { StartLimit::InFlight };
                self.delayed = Some((now, limit));
                Err(first.map(|_| ready_at))
            }
        }
    }

    fn is_idle(&self, now: Instant) -> bool {
        !self.is_in_order && self.held.iter().all(|held| *held == 0) && self.bucket.is_full(now)
    }
}

#[cfg(test)]
mod tests;
