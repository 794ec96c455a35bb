//! One leader among many replicas, by a Lease.
//!
//! [`decide`] says what to do, a pure function; [`Elector`] does it: it sends what was decided, waits for what was
//! decided, moves the [`Fence`] and publishes [`Leadership`]. It runs on the control thread, so that no work can
//! keep it from renewing.
//!
//! # Invariants
//! 1. The fence is open only while a decision said so: it is closed before anybody is told of a loss, before a
//!    release is sent, and when the elector is dropped.
//! 2. While stopping it renews until leader-only work has ended; only then is the Lease given up.

pub mod decide;
mod lock;
mod metrics;
mod notice;
mod record;
mod settings;
mod task;
mod trouble;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::decide::Now;
use self::lock::LeaseLock;
use self::metrics::Metrics;
use crate::key::{BootInstant, Fence};
use crate::metrics::Registry;

pub use self::decide::Ending;
pub use self::notice::{NOTICE, Notice};
pub use self::record::{LONGEST_LEASE, Record, Version};
pub use self::settings::{
    DEFAULT_LEASE_DURATION, DEFAULT_RENEW_DEADLINE, DEFAULT_RETRY_PERIOD, ElectionSettings, Invalid, OnLost,
    unique_identity,
};

/// Reason of the Events that tell of leadership, as client-go's.
pub const EVENT_REASON: &str = "LeaderElection";

/// Gives the moment of a decision; tests put a clock in its place that they can pause.
type Clock = Arc<dyn Fn() -> Now + Send + Sync>;

/// Is told what happens around the Lease, in order. Called by the elector's task: it must not wait.
pub type OnEvent = Arc<dyn Fn(LeaseEvent) + Send + Sync>;

/// Whether this replica leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Not leading, now or any more.
    Standby {
        /// Who leads as far as is known.
        holder: Option<Arc<str>>,
    },
    /// Leading: leader-only work runs.
    Leading {
        /// Number of the term; rises with each holder of the Lease.
        transitions: i32,
    },
    /// Was leading, and leader-only work has to end now.
    Lost(Ending),
}

/// Something worth telling about the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// This replica leads.
    BecameLeader {
        /// Its identity.
        identity: Arc<str>,
    },
    /// This replica leads no longer.
    StoppedLeading {
        /// Its identity.
        identity: Arc<str>,
        /// Why.
        ending: Ending,
    },
    /// The Lease names another holder than before, this replica included, or none.
    NewLeader {
        /// The holder.
        holder: Option<Arc<str>>,
    },
}

/// How an elector ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whether it gave the Lease up, so that another replica can lead at once.
    pub released: bool,
    /// Why leadership was lost before; `None` if it ended because it was asked to.
    pub lost: Option<Ending>,
}

/// Settings that cannot work, all at once.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct InvalidSettings(pub Vec<Invalid>);

/// Stands for election until it is stopped.
pub struct Elector {
    settings: ElectionSettings,
    lock: LeaseLock,
    fence: Fence,
    metrics: Metrics,
    on_event: OnEvent,
    clock: Clock,
    leadership: watch::Sender<Leadership>,
}

// === impl LeaseEvent ===

impl LeaseEvent {
    /// Returns the text of the Event to record on the Lease, if it is one that client-go records.
    pub fn note(&self) -> Option<String> {
        match self {
            Self::BecameLeader { identity } => Some(format!("{identity} became leader")),
            Self::StoppedLeading { identity, .. } => Some(format!("{identity} stopped leading")),
            Self::NewLeader { .. } => None,
        }
    }

    /// Returns what the Event says was done: without it the end of a term would be counted as its begin once more.
    pub fn action(&self) -> &'static str {
        match self {
            Self::BecameLeader { .. } => "Lead",
            Self::StoppedLeading { .. } => "StopLeading",
            Self::NewLeader { .. } => "Follow",
        }
    }
}

// === impl Elector ===

impl Elector {
    /// Makes an elector that does nothing until [`Elector::run`]. `client` is the Lease's own
    /// (`client::Role::Lease`), with no retries in it; `fence` is closed until the Lease is ours.
    ///
    /// # Errors
    /// Fails if the settings cannot work, with all that is wrong with them.
    pub fn new(
        settings: ElectionSettings,
        client: Client,
        fence: Fence,
        registry: &Registry,
        on_event: OnEvent,
    ) -> Result<Self, InvalidSettings> {
        let found = settings.validate();
        if !found.is_empty() {
            return Err(InvalidSettings(found));
        }
        let lock =
            LeaseLock::new(client, &settings.namespace, &settings.lease_name, settings.request_timeout());
        Ok(Self {
            lock,
            metrics: Metrics::register(registry, &settings.lease_name, &fence),
            fence,
            on_event,
            clock: Arc::new(system_clock),
            leadership: watch::Sender::new(Leadership::Standby { holder: None }),
            settings,
        })
    }

    /// Writes this notice into the Lease while it is ours, and reads those of others.
    #[must_use]
    pub fn with_notice(mut self, notice: Notice) -> Self {
        self.lock.notice = notice;
        self
    }

    /// Returns a view of whether this replica leads, from now on.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// Stands for election until `stop`, or until a loss with [`OnLost::Exit`].
    ///
    /// `end_work` is called once for every term that is to end, by a stop or a loss, and resolves once leader-only
    /// work has ended (`true`), or was given up on and may still run (`false`): then the Lease is left to run out.
    /// While it is awaited after a stop, the Lease is renewed.
    ///
    /// # Cancel safety
    /// Dropped, it closes the fence; the Lease then runs out by itself.
    pub async fn run<W>(self, stop: CancellationToken, end_work: impl FnMut() -> W) -> Ended
    where
        W: Future<Output = bool>,
    {
        let _closed_at_the_end = CloseOnDrop(self.fence.clone());
        let (settings, clock) = (self.settings.clone(), Arc::clone(&self.clock));
        let pause = move || settings.candidate_wait(clock().random);
        // A leader renews every retry period: twice the time others wait for it is silence enough.
        let watch = self.lock.clone().watch(self.settings.lease_duration * 2, pause);
        task::run(self, watch, end_work, stop).await
    }
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn system_clock() -> Now {
    Now { boot: BootInstant::now(), wall: Timestamp::now(), random: fastrand::f64() }
}

struct CloseOnDrop(Fence);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests;
