//! Probes prerequisites over the network, beside the reconciles.
//!
//! A reconcile only registers the targets of its object ([`Engine::watch`]) and reads the last verdicts
//! ([`Engine::verdicts`]); the [`Driver`] opens the sockets. When a verdict changes, a callback gets every
//! object that waits for the target, and enqueues it. So a black hole costs a socket and never a worker.
//!
//! `targets` holds the state of all targets under one lock; `driver` runs a task per target; `slots` grants
//! the permits to start a probe. The lock of `slots` may be taken under that of `targets`, not the other
//! way round. Neither is held during a callback, a log call or an await. Time and randomness come from
//! outside.
//!
//! # Invariants
//! 1. The period never grows: it is the shortest that a waiting object asks for, or that the policy allows,
//!    less up to a tenth of jitter.
//! 2. A verdict is published on its first appearance and on change only.
//! 3. A probe dials only addresses that the policy in force at its start has admitted. It resolves a name
//!    once and dials exactly the addresses that were checked.
//!
//! The invariants of the tasks are listed in `driver`, those of fairness in `slots`.

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
pub(crate) mod tests;
mod want;

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
pub use cluster_info::{AddressOwner, ClusterInfo};
pub use describe::{Description, MAX_NAMED, NextProbe, StartLimit};
pub use dial::{Connection, Dial, DialFuture, Stream, TokioDial};
pub use driver::Driver;
#[cfg(any(test, fuzzing))]
pub use kinds::fuzz;
pub use resolve::{Resolve, ResolveFuture, ServicesFuture, TokioResolve};
pub use services::{Backends, Endpoint, ServiceAnswer, Services};
pub use want::{Target, Verdict, VerdictState, Want};

/// Maximum number of probes in flight at one time: well below the 1,024 file descriptors that a process often
/// may have open.
pub const MAX_IN_FLIGHT: usize = 128;

/// The outcome of the last probe of a target. Equal outcomes are equal values: it holds no times and no
/// counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The target accepted a connection, and the check needs no more.
    Connected,
    /// The target answered as the check expects.
    Answered,
    /// The probe failed, or could not be sent.
    NotReady {
        /// Reason of the failed probe: one of the words in [`reasons::probe`].
        reason: &'static str,
        /// Text for people that describes the failure of the probe.
        message: String,
    },
    /// The probe policy denies the probe. The denial is checked again every period, since the policy can
    /// change.
    Denied {
        /// The rule of the probe policy that denies the probe: one of the words in [`reasons::denial`].
        rule: &'static str,
        /// Text for people that describes the denial. It names the configuration key that would admit the
        /// probe, if there is one.
        message: String,
    },
}

/// The interfaces of the probe engine to network, cluster and random numbers, replaced in tests.
#[derive(Clone, derive_more::Debug)]
#[debug("Seams {{ .. }}")]
pub struct Seams {
    /// Opens network connections to the targets of probes.
    pub dial: Arc<dyn Dial>,
    /// Resolves by DNS the host names that are not those of Services.
    pub resolve: Arc<dyn Resolve>,
    /// Finds the addresses of Services in the cache.
    pub services: Arc<dyn Services>,
    /// Reads facts about the cluster other than Services, such as the addresses of the API server.
    pub cluster: Arc<dyn ClusterInfo>,
    /// Returns random numbers in [0, 1), for the jitter of probe times.
    pub random: Arc<dyn Fn() -> f64 + Send + Sync>,
}

/// The handle of the probe engine, by which reconciles register targets and read verdicts. Cheap to clone;
/// never blocks.
#[derive(Clone, derive_more::Debug)]
#[debug("Engine {{ .. }}")]
pub struct Engine {
    shared: Arc<Shared>,
    /// Whether this replica leads; `None` without leader election.
    leading: Option<watch::Receiver<bool>>,
}

struct Shared {
    targets: Mutex<Targets>,
    slots: Arc<Slots>,
    seams: Seams,
    metrics: ProbeMetrics,
    /// Wakes the driver of the probe engine after targets were added.
    added: Notify,
    /// Callback for each WaitDeployment with a new or changed verdict on one of its targets.
    changed: Box<dyn Fn(NamespacedName) + Send + Sync>,
}

// === impl ProbeResult ===

impl ProbeResult {
    /// Returns the result of a probe with a successful check: `Connected` for a TCP check, otherwise
    /// `Answered`.
    pub fn good(check: &ProbeCheck) -> Self {
        if matches!(check, ProbeCheck::Tcp(_)) { Self::Connected } else { Self::Answered }
    }

    pub(super) fn not_ready(reason: &'static str, message: impl Into<String>) -> Self {
        Self::NotReady { reason, message: message.into() }
    }

    /// Returns whether this is the result of a successful probe.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Connected | Self::Answered)
    }

    /// Returns whether the result of the probe hides the kind of failure, as for raw addresses.
    fn is_coarse(&self) -> bool {
        matches!(self, Self::NotReady { reason: reasons::probe::NOT_READY, .. })
    }

    /// Returns the reason of the probe result for a status: one of the CamelCase words in [`reasons`].
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Connected => reasons::probe::CONNECTED,
            Self::Answered => reasons::probe::ANSWERED,
            Self::NotReady { reason, .. } => reason,
            Self::Denied { .. } => reasons::POLICY_DENIED,
        }
    }

    /// Returns a text for people that describes the probe result.
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
    /// Makes a probe engine and its driver, with at most `max_in_flight` probes at one time. `changed` is
    /// called, outside any lock, with each object that gets a new or changed verdict; it must not block.
    pub fn new(
        max_in_flight: usize,
        policy: ProbePolicy,
        seams: Seams,
        changed: impl Fn(NamespacedName) + Send + Sync + 'static,
        registry: &Registry,
    ) -> (Self, Driver) {
        let metrics = ProbeMetrics::register(registry);
        let shared = Arc::new(Shared {
            slots: Arc::new(Slots::new(max_in_flight, &policy, metrics.in_flight.clone())),
            targets: Mutex::new(Targets::new(Arc::new(policy), metrics.clone())),
            seams,
            metrics,
            added: Notify::new(),
            changed: Box::new(changed),
        });
        let driver = Driver { shared: Arc::clone(&shared) };
        (Self { shared, leading: None }, driver)
    }

    /// Makes the engine ignore probe targets that are registered while this replica does not lead. A
    /// reconcile may outlast its term, and its targets would stay registered until the end of the next one.
    /// Stop the driver only once `leading` is false.
    #[must_use]
    pub fn while_leading(self, leading: watch::Receiver<bool>) -> Self {
        Self { leading: Some(leading), ..self }
    }

    /// Probes these targets, and no others, for the object `request` until it is [forgotten](Self::forget):
    /// each now if it is new, or after its initial delay, then every period. An empty list forgets the
    /// object.
    ///
    /// Repeating a call changes nothing. A target keeps its results while times or thresholds change. If
    /// other objects wait for a target already, its known results give a verdict at once.
    pub fn watch(&self, request: &NamespacedName, wants: Vec<Want>) {
        let mut targets = self.shared.targets.lock();
        // Checked under the lock: the end of a term clears the targets that were registered before it.
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

    /// Stops probing targets for the object `request`; targets that no other object waits for are removed.
    pub fn forget(&self, request: &NamespacedName) {
        self.watch(request, Vec::new());
    }

    /// Returns the verdict on each probe target that the object `request` waits for, in the order of its
    /// wants; empty if it waits for none.
    pub fn verdicts(&self, request: &NamespacedName) -> Vec<Verdict> {
        self.shared.targets.lock().verdicts(request)
    }

    /// Describes each probe target that the object `request` waits for, in the order of
    /// [`verdicts`](Self::verdicts): its known results, its next probe and the other objects that wait for
    /// it.
    pub fn describe(&self, request: &NamespacedName) -> Vec<Description> {
        self.shared.targets.lock().describe(request, &self.shared.slots, Instant::now())
    }

    /// Returns whether any object waits for a probe target that connects to this Service.
    pub fn connects_to(&self, service: &NamespacedName) -> bool {
        self.shared.targets.lock().connects_to(service)
    }

    /// Makes probes of the targets that connect to this Service and are not ready due now, because the
    /// endpoints of the Service have changed.
    ///
    /// A Service with endpoints that change all the time at most doubles the rate of its probes, apart from a
    /// burst of three. All limits apply to these probes too.
    pub fn probe_now(&self, namespace: &str, service: &str) {
        let service = NamespacedName::namespaced(namespace, service);
        self.shared.targets.lock().probe_early(&service, Instant::now());
    }

    /// Returns whether recent losses of probe targets have a common cause on the manager's side, such as its
    /// network: then a loss is no evidence against its target. Stays true for half a minute longer, so that
    /// every target is probed again.
    ///
    /// Reads all probe targets; meant to be called before acting on a loss.
    pub fn suspects_outage(&self) -> bool {
        self.shared.targets.lock().suspects_outage(Instant::now())
    }

    /// Applies another probe policy. Probes in flight end under the old policy; targets that it denied are
    /// probed now.
    pub fn reconfigure(&self, policy: ProbePolicy) {
        let now = Instant::now();
        self.shared.slots.reconfigure(&policy, now);
        let changed = self.shared.targets.lock().reconfigure(Arc::new(policy), now);
        self.shared.publish(changed);
    }
}

// === impl Shared ===

impl Shared {
    /// Calls the callback `changed` for objects with a changed verdict. Must not be called under a lock.
    fn publish(&self, requests: Vec<NamespacedName>) {
        requests.into_iter().for_each(&self.changed);
    }
}
