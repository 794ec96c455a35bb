//! Whether prerequisites answer, found out beside the reconciles.
//!
//! A reconcile only says what it waits for ([`Engine::watch`]) and reads what is known ([`Engine::verdicts`]); the
//! [`Driver`] opens the sockets. When a verdict changes, everybody whose it is is named to a callback, which
//! feeds the queue. A black hole so costs a socket and never a worker.
//!
//! The one mutable thing is a `schedule::Schedule` under a lock; everything that needs it is a method on it, and
//! nothing is called, sent or awaited while it is held. Time and randomness come from outside.
//!
//! # Invariants
//! 1. At most one probe per target and timeout is in flight, however many wait for it.
//! 2. The period never grows: it is the shortest that one of the waiting asked for, or that the policy allows, less up
//!    to a tenth of jitter.
//! 3. A verdict is told on its first appearance and on change only.
//! 4. Nothing is dialled that the policy in force when the probe began had not checked, and exactly the checked
//!    addresses are dialled: there is no second look-up.
//! 5. After [`Engine::forget`] of the last who waits, no probe starts, and one in flight is dropped.
//! 6. Of a raw address a failure is told when the time of the probe is over, whatever it was: a refusal must not be told
//!    from silence by the clock either. That its name cannot be looked up says nothing of it, and is told as it is.
//! 7. A panic inside a probe is the result of that probe alone: whoever answers it must not end the manager of all.

mod addresses;
mod admission;
mod attempt;
mod authorities;
mod bucket;
mod describe;
mod dial;
mod entry;
mod heard;
mod judge;
mod kinds;
mod limits;
mod metrics;
mod policy;
mod ranges;
mod resolve;
mod schedule;
mod services;
mod shaken;
mod surroundings;
#[cfg(test)]
mod tests;
mod turns;
mod want;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt};
use mainstay::config::ProbePolicy;
use mainstay::key::Request;
use mainstay::metrics::Registry;
use mainstay_api::ProbeCheck;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::reasons;
use describe::first;
use heard::{Ear, Heard};
use limits::Limits;
use metrics::ProbeMetrics;
use schedule::{Ended, Next, Schedule};

pub use authorities::{Authorities, NoAuthorities, authorities};
pub use describe::{Description, MAX_NAMED, NextProbe};
pub use dial::{Connection, Dial, DialFuture, Stream, TokioDial};
pub use limits::Held;
pub use resolve::{Resolve, ResolveFuture, ServicesFuture, TokioResolve};
pub use services::{Behind, Endpoint, NoServices, ServiceAnswer, Services};
pub use surroundings::{NoSurroundings, Owner, Surroundings};
pub use want::{Target, Verdict, VerdictState, Want};

/// Most probes in flight at one time: well below the 1,024 descriptors that a process often may have open.
pub const MAX_IN_FLIGHT: usize = 128;
/// How late a timeout may be noticed on a machine that is merely busy.
const LATE: Duration = Duration::from_secs(1);

/// How the last probe of a target ended. Equal for equal outcomes: it holds no times and no counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// It accepted a connection, and nothing more was asked of it.
    Connected,
    /// It answered as it should.
    Answered,
    /// It did not do so.
    NotReady {
        /// One of [`reasons::probe`].
        reason: &'static str,
        /// For people.
        message: String,
    },
    /// The policy forbids to try. Looked at again every period, since the policy can change.
    Denied {
        /// One of [`reasons::denial`].
        rule: &'static str,
        /// Names the configuration key that would allow it, if there is one.
        message: String,
    },
}

/// The outside world, as the engine sees it.
#[derive(Clone)]
pub struct Seams {
    /// Opens connections.
    pub dial: Arc<dyn Dial>,
    /// Looks names up that are no Services.
    pub resolve: Arc<dyn Resolve>,
    /// Finds Services.
    pub services: Arc<dyn Services>,
    /// Knows the rest of the cluster.
    pub surroundings: Arc<dyn Surroundings>,
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

/// The half that opens sockets; nothing is probed unless it [runs](Driver::run).
pub struct Driver {
    shared: Arc<Shared>,
    seams: Seams,
    metrics: ProbeMetrics,
}

/// One run of a driver. What it has learned ends with it.
struct Term<'a>(&'a Driver);

struct Shared {
    schedule: Mutex<Schedule>,
    policy: Mutex<Arc<ProbePolicy>>,
    /// Wakes the driver after the schedule has changed from outside.
    wake: Notify,
    /// Told whose verdict has changed.
    changed: Box<dyn Fn(Request) + Send + Sync>,
}

// === impl ProbeResult ===

impl ProbeResult {
    /// Returns the one that holds of this check.
    pub fn good(check: &ProbeCheck) -> Self {
        if matches!(check, ProbeCheck::Tcp(_)) { Self::Connected } else { Self::Answered }
    }

    /// Returns whether it is such a one.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Connected | Self::Answered)
    }

    /// Returns whether it keeps back how it failed.
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
            Self::Answered => "it answers as it should",
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
        changed: impl Fn(Request) + Send + Sync + 'static,
        registry: &Registry,
    ) -> (Self, Driver) {
        Self::with_slots(MAX_IN_FLIGHT, policy, seams, changed, registry)
    }

    fn with_slots(
        slots: usize,
        policy: ProbePolicy,
        seams: Seams,
        changed: impl Fn(Request) + Send + Sync + 'static,
        registry: &Registry,
    ) -> (Self, Driver) {
        let shared = Arc::new(Shared {
            schedule: Mutex::new(Schedule::new(Limits::new(slots, &policy))),
            policy: Mutex::new(Arc::new(policy)),
            wake: Notify::new(),
            changed: Box::new(changed),
        });
        let metrics = ProbeMetrics::register(registry);
        let driver = Driver { shared: Arc::clone(&shared), seams, metrics };
        (Self { shared, leading: None }, driver)
    }

    /// Has what is asked for while this replica does not lead come to nothing: a reconcile may end after its term, and
    /// nobody would end what it waits for in the next one. The driver is to be stopped only once `leading` says so.
    #[must_use]
    pub fn while_leading(self, leading: watch::Receiver<bool>) -> Self {
        Self { leading: Some(leading), ..self }
    }

    /// Has these targets, and no others, probed for `request` until it is [forgotten](Self::forget): each now if it is
    /// new, or after its delay, then every period. An empty list forgets.
    ///
    /// Saying the same again changes nothing. What is known of a target stays known while its times or thresholds
    /// change; one that others wait for already is judged at once by what is known.
    pub fn watch(&self, request: &Request, wants: Vec<Want>) {
        let mut schedule = self.shared.schedule.lock();
        // Under the lock: what comes before the end of a term is cleared by it.
        if self.leading.as_ref().is_some_and(|leading| !*leading.borrow()) {
            return;
        }
        let told = schedule.watch(request, wants, Instant::now());
        drop(schedule);
        if let Some(told) = told {
            self.shared.wake.notify_one();
            self.shared.tell(told);
        }
    }

    /// Ends the wait of `request`, if there is one.
    pub fn forget(&self, request: &Request) {
        self.watch(request, Vec::new());
    }

    /// Returns what is known of each target that `request` waits for, in the order in which it named them; empty if it
    /// waits for nothing.
    pub fn verdicts(&self, request: &Request) -> Vec<Verdict> {
        self.shared.schedule.lock().verdicts(request)
    }

    /// Returns what is known of each target that `request` waits for, when each is probed next and who else waits for it,
    /// in the order of [`verdicts`](Self::verdicts).
    pub fn describe(&self, request: &Request) -> Vec<Description> {
        self.shared.schedule.lock().describe(request, Instant::now())
    }

    /// Returns whether somebody waits for a connection to this Service.
    pub fn connects_to(&self, service: &Request) -> bool {
        self.shared.schedule.lock().connects_to(service)
    }

    /// Has everything that connects to this Service, and is not ready, probed now: its endpoints have changed.
    ///
    /// A Service whose endpoints change all the time raises the rate by little: a few such probes can follow each other,
    /// in the long run there are at most as many as there are others. All limits hold for them too.
    pub fn probe_now(&self, namespace: &str, service: &str) {
        let service = Request::namespaced(namespace, service);
        if self.shared.schedule.lock().hurry(&service, Instant::now()) {
            self.shared.wake.notify_one();
        }
    }

    /// Returns whether what was lost lately has a common cause on our side, such as the network of the manager, so far as
    /// can be told: then a loss says nothing about what is waited for. Stays true for half a minute after, in which
    /// everything is seen again.
    ///
    /// Looks through all hosts that are waited for; to be asked before a loss is acted on.
    pub fn is_shaken(&self) -> bool {
        self.shared.schedule.lock().is_shaken(Instant::now())
    }

    /// Puts another policy in force. Probes in flight end under the old one; targets it had denied are looked at now.
    pub fn reconfigure(&self, policy: ProbePolicy) {
        let limits = Limits::new(MAX_IN_FLIGHT, &policy);
        *self.shared.policy.lock() = Arc::new(policy);
        let told = self.shared.schedule.lock().reconfigure(limits, Instant::now());
        self.shared.wake.notify_one();
        self.shared.tell(told);
    }
}

// === impl Driver ===

impl Driver {
    /// Probes until `stop` is cancelled. Connections being opened are dropped then, and everything is forgotten, who waits
    /// included: by the time of another run it would be old news, and who still waits says so again.
    ///
    /// # Cancel safety
    /// May be dropped, to the same effect.
    pub async fn run(&self, stop: CancellationToken) {
        let _term = Term(self);
        let mut in_flight = FuturesUnordered::new();
        loop {
            let wake_at = loop {
                match self.next() {
                    Next::Start(start) => {
                        self.metrics.begin(&start);
                        in_flight.push(self.fly(start));
                    }
                    Next::Wait(until) => break until,
                }
            };
            // Biased: a stop goes before new work, and results free slots before timers ask for them.
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some((id, ended)) = in_flight.next() => self.finish(id, ended),
                () = self.shared.wake.notified() => {}
                () = sleep_until(wake_at) => {}
            }
        }
    }

    fn next(&self) -> Next {
        let mut schedule = self.shared.schedule.lock();
        let next = schedule.next(Instant::now());
        self.metrics.observe(&mut schedule);
        next
    }

    /// Runs one probe until its result may be told, or until nobody waits for it any more.
    async fn fly(&self, start: schedule::Start) -> (u64, Option<Ended>) {
        let policy = Arc::clone(&self.shared.policy.lock());
        let began = Instant::now();
        let ear = Ear::default();
        let seams = ear.listen(&self.seams);
        let attempt = attempt::attempt(&start.target, start.timeout, &policy, &seams);
        // Nothing of an attempt outlives it, so nothing broken is seen by others.
        let attempt = AssertUnwindSafe(attempt).catch_unwind();
        let Some(ended) = start.cancel.run_until_cancelled(attempt).await else { return (start.id, None) };
        let result = ended.unwrap_or_else(|_| {
            let (namespace, kind) = (start.target.namespace(), start.target.check().kind());
            let address = start.target.address().map(tracing::field::display);
            error!(namespace, kind, address, "a probe panicked; it is tried again at its next time");
            self.metrics.panicked();
            ProbeResult::NotReady {
                reason: reasons::probe::PROBE_PANICKED,
                message: "the manager failed at looking; its log says more".to_owned(),
            }
        });
        let took = began.elapsed();
        // Whoever gets to a timeout so late was too busy to hear an answer.
        let is_late = took > start.timeout + LATE;
        let heard =
            ear.heard(&start.target).map(|heard| if is_late { heard.max(Heard::OwnFault) } else { heard });
        if result.is_coarse() {
            // Others have its slot meanwhile: what refuses would cost as much as a black hole.
            self.shared.schedule.lock().land(start.id, Instant::now());
            self.shared.wake.notify_one();
            let over = tokio::time::sleep_until(began + start.timeout);
            if start.cancel.run_until_cancelled(over).await.is_none() {
                return (start.id, None);
            }
        }
        // Not before, and with the time until now: neither tells what the words do not.
        self.metrics.count(&start.target, &result, began.elapsed());
        (start.id, Some(Ended { result, heard, took, timeout: start.timeout }))
    }

    fn finish(&self, id: u64, ended: Option<Ended>) {
        let (random, now) = ((self.seams.random)(), Instant::now());
        let denied = match &ended {
            Some(Ended { result: ProbeResult::Denied { rule, message }, .. }) => {
                Some((*rule, message.clone()))
            }
            _ => None,
        };
        let (told, shaken) = {
            let mut schedule = self.shared.schedule.lock();
            (schedule.finish(id, ended, now, random), schedule.shaken_news(now))
        };
        if let Some((rule, message)) = denied.filter(|_| !told.is_empty()) {
            let objects: Vec<String> = first(told.iter()).iter().map(ToString::to_string).collect();
            info!(?objects, rule, "a probe is denied: {message}");
        }
        self.shared.tell(told);
        match shaken {
            Some(true) => warn!(
                "most of what answered has fallen silent together: taken for a fault of the manager's own network or machine"
            ),
            Some(false) => info!("what had fallen silent together answers again"),
            None => {}
        }
        if let Some(shaken) = shaken {
            self.metrics.shaken(shaken);
        }
    }
}

// === impl Term ===

impl Drop for Term<'_> {
    fn drop(&mut self) {
        let mut schedule = self.0.shared.schedule.lock();
        schedule.clear();
        self.0.metrics.observe(&mut schedule);
        self.0.metrics.shaken(false);
    }
}

// === impl Shared ===

impl Shared {
    /// To be called without a lock.
    fn tell(&self, requests: Vec<Request>) {
        for request in requests {
            (self.changed)(request);
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
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

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}
