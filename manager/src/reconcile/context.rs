//! The context of one run of a reconciler: client, Events, cause, attempt, deadline.

use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{Authority, Recorder, Writer};
use crate::key::{Cause, Key, Trigger};

use super::writes::Writes;

/// The clients, Event recorder and stop token that all reconciles of one controller share.
#[derive(Clone, derive_more::Debug)]
#[debug("RunEnvironment {{ .. }}")]
pub struct RunEnvironment {
    /// The writer that the controller's requests are attributed to, in every cluster.
    writer: Writer,
    /// The tokio runtime on which the clients of single reconciles run; `None` outside of a controller.
    runtime: Option<Handle>,
    /// Whether the controller's writes are stopped when the Lease is lost, in every cluster.
    pub(crate) fenced: bool,
    /// The environments of the same controller in other clusters, each made at its first use. Locked for a
    /// look-up, and while one is made, which never awaits.
    elsewhere: Arc<Mutex<Vec<Elsewhere>>>,
    /// The kinds that the controller writes, with its appliers for this cluster.
    pub(crate) writes: Arc<Writes>,
    /// Client for the controller's requests, fenced by the Lease if the controller needs it. Its requests are
    /// not attributed to a single reconcile.
    pub client: kube::Client,
    /// Records the Events of the controller.
    pub events: Recorder,
    /// Cancelled when the manager begins to stop or the removal of the controller begins; a long reconcile
    /// may end early then.
    pub stopping: CancellationToken,
}

/// The name of another cluster, and the controller's environment there.
type Elsewhere = (Arc<str>, Arc<RunEnvironment>);

/// The context of one reconcile: its client, Event recorder, attempt, cause and deadline. Cheap to clone.
#[derive(Clone, derive_more::Debug)]
#[debug("Context {{ attempt: {:?}, cause: {:?}, id: {:?}, .. }}", self.attempt, self.cause, self.id)]
pub struct Context {
    run_environment: Arc<RunEnvironment>,
    attempt: u32,
    cause: Cause,
    deadline: Option<Instant>,
    /// Number of the term of leadership of this reconcile; 0 outside of a controller.
    term: u64,
    id: ReconcileId,
    /// The writer that requests of this reconcile carry: controller and key.
    writer: Writer,
    /// The client that attributes its requests to this reconcile. Made at its first use, because most runs do
    /// not write.
    client: OnceLock<kube::Client>,
}

/// Id of one reconcile in logs and traces: 128 random bits, displayed as a UUID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, derive_more::Debug)]
#[debug("{self}")]
pub struct ReconcileId(u128);

// === impl Context ===

impl Context {
    pub(crate) fn new(run_environment: Arc<RunEnvironment>, attempt: u32, cause: Cause) -> Self {
        let (id, writer) = (ReconcileId(fastrand::u128(..)), run_environment.writer);
        let client = OnceLock::new();
        Self { run_environment, attempt, cause, deadline: None, term: 0, id, writer, client }
    }

    /// Returns the same context for a reconcile of this key, so that the reconcile's own writes do not end
    /// the backoff of the key.
    #[must_use]
    pub(crate) fn with_key(self, key: &impl Key) -> Self {
        Self { writer: self.writer.in_run_of(key), ..self }
    }

    /// Returns the same context for a reconcile in this term of leadership, with this deadline.
    #[must_use]
    pub(crate) fn within(self, term: u64, deadline: Option<Instant>) -> Self {
        Self { deadline, term, ..self }
    }

    /// Returns the context of the same reconcile in another cluster. `move_to` is called once for each
    /// controller, with the environment here, and returns the client and the recorder there.
    pub(crate) fn elsewhere(
        &self,
        cluster: &Arc<str>,
        move_to: impl FnOnce(&RunEnvironment) -> (kube::Client, Recorder),
    ) -> Self {
        let here = &self.run_environment;
        let mut known = here.elsewhere.lock();
        let found = known.iter().find(|(name, _)| Arc::ptr_eq(name, cluster));
        let run_environment = if let Some((_, there)) = found {
            Arc::clone(there)
        } else {
            let (client, events) = move_to(here);
            let name = Some(cluster).filter(|name| !name.is_empty());
            let (elsewhere, writes) = (Arc::default(), Arc::new(here.writes.within(name)));
            let there = RunEnvironment { elsewhere, writes, client, events, ..RunEnvironment::clone(here) };
            let there = Arc::new(there);
            known.push((Arc::clone(cluster), Arc::clone(&there)));
            there
        };
        drop(known);
        Self { run_environment, client: OnceLock::new(), ..self.clone() }
    }

    pub(super) fn writes(&self) -> &Writes {
        &self.run_environment.writes
    }

    /// Returns the client with which this reconcile reads live and writes. If this controller needs the
    /// Lease, no request of it leaves this replica later than the Lease allows.
    ///
    /// The client belongs to this reconcile: its writes do not end the backoff of the key. Take the client
    /// from the context of each run, and keep none.
    pub fn client(&self) -> &kube::Client {
        let RunEnvironment { client, runtime: Some(runtime), .. } = &*self.run_environment else {
            return &self.run_environment.client;
        };
        if !self.writer.is_run() {
            return client;
        }
        self.client.get_or_init(|| {
            // On this runtime, whichever thread calls, so that the client does not end before the run.
            let _entered = runtime.enter();
            self.writer.sign(client)
        })
    }

    /// Returns the recorder of Kubernetes Events, which users see with the object.
    pub fn events(&self) -> &Recorder {
        &self.run_environment.events
    }

    /// Returns the number of this attempt to reconcile the key: 1 unless the last reconcile of the key
    /// failed.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the cause by which the key was enqueued, for logs and metrics. A reconciler must not decide by
    /// it.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Returns the time at which this reconcile is dropped, if `reconcileTimeout` is set.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the number of the term of leadership of this reconcile, counted from 1 for this replica.
    /// Another replica may have led and written between two terms, so memory of an earlier term must not save
    /// a write.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Returns a token that is cancelled when the manager begins to stop, or the removal of the controller
    /// begins. A long reconcile may end early then.
    pub fn stopping(&self) -> &CancellationToken {
        &self.run_environment.stopping
    }

    /// Returns the id of this reconcile in logs and traces.
    pub fn reconcile_id(&self) -> ReconcileId {
        self.id
    }
}

impl Authority for Context {
    fn client(&self) -> &kube::Client {
        Context::client(self)
    }

    fn term(&self) -> u64 {
        Context::term(self)
    }
}

impl RunEnvironment {
    /// Makes an environment for reconciles without a fence; its writes are attributed to no controller.
    pub(crate) fn new(client: kube::Client, events: Recorder, stopping: CancellationToken) -> Self {
        let (writer, runtime, elsewhere) = (Writer::default(), None, Arc::default());
        Self { writer, runtime, fenced: false, elsewhere, writes: Arc::default(), client, events, stopping }
    }

    /// Returns the environment for the reconciles of one controller: requests carry `writer`, and it writes
    /// the declared kinds. Call it on the tokio runtime of the reconciles.
    #[must_use]
    pub(crate) fn signed(self, writer: Writer, declared: Arc<Writes>) -> Self {
        Self { writer, writes: declared, runtime: Some(Handle::current()), elsewhere: Arc::default(), ..self }
    }

    /// Makes a context for work outside of a queue, such as for a runnable that writes.
    pub fn context(&self) -> Context {
        Context::new(Arc::new(self.clone()), 1, Cause::bare(Trigger::Generic))
    }
}

// === impl ReconcileId ===

impl fmt::Display for ReconcileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = format!("{:032x}", self.0);
        write!(f, "{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..])
    }
}

#[cfg(test)]
mod tests;
