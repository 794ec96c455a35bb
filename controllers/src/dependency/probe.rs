//! Probes prerequisites over the network, beside the reconciles.
//!
//! A reconcile only declares the targets of its object ([`Engine::watch`]) and reads the last verdicts
//! ([`Engine::verdicts`]); the [`Driver`] opens the sockets. When a verdict changes, a callback gets every
//! object that waits for the target, and feeds the queue. So a black hole costs a socket and never a worker.
//!
//! `targets` holds the state of all targets under one lock; `driver` runs a task per target; `turns` grants
//! the permits to start a probe. The lock of `turns` may be taken under that of `targets`, not the other way
//! round. No callback, log line or await happens under either. Time and randomness come from outside.
//!
//! # Invariants
//! 1. The period never grows: it is the shortest that a waiting object asks for, or that the policy allows,
//!    less up to a tenth of jitter.
//! 2. A verdict is published on its first appearance and on change only.
//! 3. No address is dialled that the policy in force at the start of the probe had not checked, and exactly
//!    the checked addresses are dialled: there is no second look-up.
//!
//! Those of the tasks stand in `driver`, those of fairness in `turns`.

mod address_limits;
mod attempt;
mod authorities;
mod cluster_info;
mod describe;
mod dial;
mod driver;
mod entry;
mod judge;
mod kinds;
mod metrics;
mod outage_guard;
mod policy;
mod ranges;
mod reachability;
mod resolve;
mod services;
mod slots;
mod targets;
#[cfg(test)]
mod tests;
mod want;

use std::fmt;
use std::sync::Arc;

use mainstay::key::NamespacedName;
use mainstay::metrics::Registry;
use mainstay_api::ProbeCheck;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::reasons;
use crate::settings::ProbePolicy;
use metrics::ProbeMetrics;
use slots::Slots;
use targets::Targets;

pub use authorities::{Authorities, NoAuthorities, authorities};
pub use cluster_info::{AddressOwner, ClusterInfo, NoCluster};
pub use describe::{Description, MAX_NAMED, NextProbe, StartLimit};
pub use dial::{Connection, Dial, DialFuture, Stream, TokioDial};
pub use driver::Driver;
#[cfg(any(test, fuzzing))]
pub use kinds::fuzz;
pub use resolve::{Resolve, ResolveFuture, ServicesFuture, TokioResolve};
pub use services::{Backends, Endpoint, NoServices, ServiceAnswer, Services};
pub use want::{Target, Verdict, VerdictState, Want};

/// Most probes in flight at one time: well below the 1,024 descriptors that a process often may have open.
pub const MAX_IN_FLIGHT: usize = 128;

/// How the last probe of a target ended. Equal for equal outcomes: it holds no times and no counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// It accepted a connection, and the check needs no more.
    Connected,
    /// It answered as the check expects.
    Answered,
    /// It did neither.
    NotReady {
        /// One of [`reasons::probe`].
        reason: &'static str,
        /// For people.
        message: String,
    },
    /// The policy forbids the probe. Checked again every period, since the policy can change.
    Denied {
        /// One of [`reasons::denial`].
        rule: &'static str,
        /// Names the configuration key that would allow it, if there is one.
        message: String,
    },
}

/// The outside world, as far as the engine uses it.
#[derive(Clone)]
pub struct Seams {
    /// Opens connections.
    pub dial: Arc<dyn Dial>,
    /// Looks names up that are no Services.
    pub resolve: Arc<dyn Resolve>,
    /// Finds Services.
    pub services: Arc<dyn Services>,
    /// Finds out about the rest of the cluster.
    pub cluster: Arc<dyn ClusterInfo>,
    /// Gives numbers in [0, 1) for the jitter.
    pub random: Arc<dyn Fn() -> f64 + Send + Sync>,
}

/// The handle reconciles use. Cheap to clone; never blocks.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
    /// Whether this replica leads; `None`: there is no other.
    leading: Option<watch::Receiver<bool>>,
}

struct Shared {
    targets: Mutex<Targets>,
    slots: Arc<Slots>,
    seams: Seams,
    metrics: ProbeMetrics,
    /// Wakes the driver after targets were added.
    added: Notify,
    /// Called for each object of which a verdict has changed.
    changed: Box<dyn Fn(NamespacedName) + Send + Sync>,
}

// === impl ProbeResult ===

impl ProbeResult {
    /// Returns the result of a success of this check.
    pub fn good(check: &ProbeCheck) -> Self {
        if matches!(check, ProbeCheck::Tcp(_)) { Self::Connected } else { Self::Answered }
    }

    /// Returns whether it is a success.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Connected | Self::Answered)
    }

    /// Returns whether it withholds the kind of failure.
    fn is_coarse(&self) -> bool {
        matches!(self, Self::NotReady { reason: reasons::probe::NOT_READY, .. })
    }

    /// Returns one CamelCase word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Connected => reasons::probe::CONNECTED,
            Self::Answered => reasons::probe::ANSWERED,
            Self::NotReady { reason, .. } => reason,
            Self::Denied { .. } => reasons::POLICY_DENIED,
        }
    }

    /// Returns a few words for people.
    pub fn message(&self) -> &str {
        match self {
            Self::Connected => "connected",
            Self::Answered => "it answers as expected",
            Self::NotReady { message, .. } | Self::Denied { message, .. } => message,
        }
    }
}

// === impl Engine ===

impl Engine {
    /// Makes an engine and its driver. `changed` is called outside any lock, for each request of which a
    /// verdict is new or has changed; it must not block.
    pub fn new(
        policy: ProbePolicy,
        seams: Seams,
        changed: impl Fn(NamespacedName) + Send + Sync + 'static,
        registry: &Registry,
    ) -> (Self, Driver) {
        Self::with_slots(MAX_IN_FLIGHT, policy, seams, changed, registry)
    }

    fn with_slots(
        slots: usize,
        policy: ProbePolicy,
        seams: Seams,
        changed: impl Fn(NamespacedName) + Send + Sync + 'static,
        registry: &Registry,
    ) -> (Self, Driver) {
        let metrics = ProbeMetrics::register(registry);
        let shared = Arc::new(Shared {
            slots: Arc::new(Slots::new(slots, &policy, metrics.in_flight.clone())),
            targets: Mutex::new(Targets::new(Arc::new(policy), metrics.clone())),
            seams,
            metrics,
            added: Notify::new(),
            changed: Box::new(changed),
        });
        let driver = Driver { shared: Arc::clone(&shared) };
        (Self { shared, leading: None }, driver)
    }

    /// Ignores targets that are declared while this replica does not lead: a reconcile may end after its
    /// term, and its object would wait until the end of the next one. Stop the driver only once `leading` is
    /// false.
    #[must_use]
    pub fn while_leading(self, leading: watch::Receiver<bool>) -> Self {
        Self { leading: Some(leading), ..self }
    }

    /// Probes these targets, and no others, for `request` until it is [forgotten](Self::forget): each now if
    /// it is new, or after its delay, then every period. An empty list forgets.
    ///
    /// Repeating a call changes nothing. Results of a target stay known while its times or thresholds change;
    /// a target that other objects wait for already is judged at once by its known results.
    pub fn watch(&self, request: &NamespacedName, wants: Vec<Want>) {
        let mut targets = self.shared.targets.lock();
        // Under the lock: targets declared before the end of a term are cleared by it.
        if self.leading.as_ref().is_some_and(|leading| !*leading.borrow()) {
            return;
        }
        let changed = targets.watch(request, wants, Instant::now());
        drop(targets);
        if let Some(changed) = changed {
            self.shared.added.notify_one();
            self.shared.publish(changed);
        }
    }

    /// Ends the wait of `request`, if there is one.
    pub fn forget(&self, request: &NamespacedName) {
        self.watch(request, Vec::new());
    }

    /// Returns the verdict on each target that `request` waits for, in the order in which it named them;
    /// empty if it waits for none.
    pub fn verdicts(&self, request: &NamespacedName) -> Vec<Verdict> {
        self.shared.targets.lock().verdicts(request)
    }

    /// Returns the known results of each target that `request` waits for, its next probe and the other
    /// objects that wait for it, in the order of [`verdicts`](Self::verdicts).
    pub fn describe(&self, request: &NamespacedName) -> Vec<Description> {
        self.shared.targets.lock().describe(request, &self.shared.slots, Instant::now())
    }

    /// Returns whether an object waits for a connection to this Service.
    pub fn connects_to(&self, service: &NamespacedName) -> bool {
        self.shared.targets.lock().connects_to(service)
    }

    /// Probes all targets now that connect to this Service and are not ready: its endpoints have changed.
    ///
    /// A Service whose endpoints change all the time raises the rate by little: a few such probes can follow
    /// each other, in the long run there are at most as many as there are others. All limits hold for them
    /// too.
    pub fn probe_now(&self, namespace: &str, service: &str) {
        let service = NamespacedName::namespaced(namespace, service);
        self.shared.targets.lock().hurry(&service, Instant::now());
    }

    /// Returns whether targets lost lately have a common cause on our side, such as the network of the
    /// manager: then a loss proves nothing about its target. Stays true for half a minute after, in which
    /// every target is probed again.
    ///
    /// Looks through all targets; call it before a loss is acted on.
    pub fn suspects_outage(&self) -> bool {
        self.shared.targets.lock().suspects_outage(Instant::now())
    }

    /// Puts another policy in force. Probes in flight end under the old one; targets it had denied are probed
    /// now.
    pub fn reconfigure(&self, policy: ProbePolicy) {
        let now = Instant::now();
        self.shared.slots.reconfigure(&policy, now);
        let changed = self.shared.targets.lock().reconfigure(Arc::new(policy), now);
        self.shared.publish(changed);
    }
}

// === impl Shared ===

impl Shared {
    /// Calls back for objects with a changed verdict; not under a lock.
    fn publish(&self, requests: Vec<NamespacedName>) {
        for request in requests {
            (self.changed)(request);
        }
    }
}

impl fmt::Debug for Seams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seams").finish_non_exhaustive()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
