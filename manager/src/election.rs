//! Leader election among replicas, by a Lease.
//!
//! The pure function [`decide`] returns actions; [`Elector`] performs them: it sends requests, waits, moves
//! the end of the [`Fence`] and publishes [`Leadership`]. The elector runs on the control thread, so that no
//! reconcile can delay a renewal.
//!
//! # Invariants
//! 1. Only a decision opens the fence. The fence is closed before a loss is published, before a release is
//!    sent, and when the elector is dropped.
//! 2. A stopping leader renews until leader-only work has ended, and only then releases the Lease.

pub mod decide;
mod lock;
mod metrics;
mod notice;
mod record;
mod settings;
mod task;
mod trouble;

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

/// Value of `reason` in the Events about leadership, the same as client-go's.
pub const EVENT_REASON: &str = "LeaderElection";

/// A function that returns the current time for a decision of the elector; tests replace it by a clock that
/// they can pause.
type Clock = Arc<dyn Fn() -> Now + Send + Sync>;

/// Callback for each [`LeaseEvent`], in order. The elector's task calls it, so it must not block.
pub type OnEvent = Arc<dyn Fn(LeaseEvent) + Send + Sync>;

/// The leadership of this replica: standby, leading, or lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// This replica does not lead: it is a candidate, or a leader that was stopped.
    Standby {
        /// Holder named in the Lease when it was last read; `None` before the first read or if it names none.
        holder: Option<Arc<str>>,
    },
    /// This replica leads: leader-only work runs.
    Leading {
        /// `leaseTransitions` of the Lease, which counts its changes of holder and so numbers this term of
        /// leadership.
        transitions: i32,
    },
    /// This replica lost the Lease while leading, for this reason: leader-only work must end now.
    Lost(Ending),
}

/// A change of leadership, as an Event or a log line reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// This replica became the leader.
    BecameLeader {
        /// Identity of this replica in the Lease.
        identity: Arc<str>,
    },
    /// This replica no longer leads.
    StoppedLeading {
        /// Identity of this replica in the Lease.
        identity: Arc<str>,
        /// Reason for which the term of leadership ended.
        ending: Ending,
    },
    /// The holder named in the Lease changed; the new holder may be this replica.
    NewLeader {
        /// The new holder of the Lease; `None` if the Lease names no holder.
        holder: Option<Arc<str>>,
    },
}

/// Result of [`Elector::run`] after the election has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whether the elector released the Lease, so that another replica can lead at once.
    pub released: bool,
    /// Reason of the last loss of leadership; `None` if the elector was stopped without a loss.
    pub lost: Option<Ending>,
}

/// All invalid settings of an elector.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct InvalidSettings(pub Vec<Invalid>);

/// The leader election of one replica: campaigns for the Lease and renews it until stopped.
#[derive(derive_more::Debug)]
#[debug("Elector {{ settings: {:?}, .. }}", self.settings)]
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
    /// Returns `action` and message of the Event to record on the Lease; `None` for events that client-go
    /// does not record. Events with equal reason and action are counted as one series, so the start and the
    /// end of a term have different actions.
    pub fn action_and_note(&self) -> Option<(&'static str, String)> {
        match self {
            Self::BecameLeader { identity } => Some(("Lead", format!("{identity} became leader"))),
            Self::StoppedLeading { identity, .. } => {
                Some(("StopLeading", format!("{identity} stopped leading")))
            }
            Self::NewLeader { .. } => None,
        }
    }
}

// === impl Elector ===

impl Elector {
    /// Makes an elector that is idle until [`Elector::run`]. `client` is a client of `client::Role::Lease`,
    /// which does not retry; `fence` stays closed until this replica holds the Lease.
    ///
    /// # Errors
    /// Fails if any setting is invalid; the error lists all of them.
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

    /// Sets the notice: its text is written into the Lease while this replica holds the Lease, and the texts
    /// of other holders are read.
    #[must_use]
    pub fn with_notice(mut self, notice: Notice) -> Self {
        self.lock.notice = notice;
        self
    }

    /// Returns a receiver of this replica's [`Leadership`].
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// Campaigns for the Lease and renews it until `stop`, or until the Lease is lost with [`OnLost::Exit`].
    ///
    /// `end_work` is called once at the end of each term, after a stop or a loss. Its future resolves to
    /// `true` once leader-only work has ended, or to `false` if a deadline passed and work may still run;
    /// then the Lease is not released and expires. After a stop the Lease is renewed while that future is
    /// pending.
    ///
    /// # Cancel safety
    /// Dropping the future closes the fence; the Lease then expires.
    pub async fn run<W>(
        self,
        stop: CancellationToken,
        mut end_work: impl FnMut() -> W + Send + 'static,
    ) -> Ended
    where
        W: Future<Output = bool> + Send + 'static,
    {
        task::run(self, Box::new(move || Box::pin(end_work())), stop).await
    }
}

impl Drop for Elector {
    fn drop(&mut self) {
        self.fence.close();
    }
}

fn system_clock() -> Now {
    Now { boot: BootInstant::now(), wall: Timestamp::now(), random: fastrand::f64() }
}

#[cfg(test)]
mod tests;
