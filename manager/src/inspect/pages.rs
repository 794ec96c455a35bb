//! The answers of `/debug`, serialized by the manager and deserialized by `mainstay inspect`.
//!
//! Times are seconds relative to the answer; an unknown value is `null`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A text that is one of a fixed set.
type Word = Cow<'static, str>;

/// `/debug/controllers`: every running controller, by name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Controllers {
    pub(crate) controllers: Vec<Controller>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a value of the JSON")]
pub(crate) struct Controller {
    pub(crate) name: Word,
    pub(crate) workers: usize,
    pub(crate) needs_lease: bool,
    /// This replica leads, or the controller needs no Lease.
    pub(crate) leading: bool,
    /// Every source has handled its initial list. Reconciles run if `leading` and `synced`.
    pub(crate) synced: bool,
    /// `false`: the configuration disables the controller, so it runs neither sources nor workers.
    pub(crate) enabled: bool,
    /// The workers take no keys from the queue.
    pub(crate) paused: bool,
    pub(crate) queue: Counts,
}

/// How many keys of a queue are in each state.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counts {
    pub(crate) ready: Ready,
    /// In backoff or requeued.
    pub(crate) delayed: usize,
    /// With a worker, dirty keys included.
    pub(crate) running: usize,
    /// With a worker, and enqueued again since.
    pub(crate) dirty: usize,
    /// Paused keys included.
    pub(crate) parked: usize,
    /// Parked without a failure.
    pub(crate) paused: usize,
    pub(crate) oldest_ready_seconds: Option<f64>,
    pub(crate) shutting_down: bool,
}

/// How many keys are ready, by lane.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) live: usize,
    /// Absent in answers of older versions.
    #[serde(default)]
    pub(crate) new: usize,
    pub(crate) background: usize,
    pub(crate) retry: usize,
}

/// `/debug/controllers/NAME/queue`: the keys of one queue.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Queued {
    pub(crate) controller: Word,
    /// This replica leads, or the controller needs no Lease. If `false`, the keys are kept but not
    /// reconciled.
    pub(crate) leading: bool,
    /// The counts of the whole queue, independent of the query.
    pub(crate) queue: Counts,
    /// How many keys match the query, listed or not.
    pub(crate) matched: usize,
    /// The limit leaves out some of the matching keys.
    pub(crate) truncated: bool,
    /// The key to continue behind for the next page; `null` on the last page, and unless the order is by
    /// name.
    pub(crate) next: Option<String>,
    pub(crate) keys: Vec<Row>,
}

/// One key of a queue.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) state: Word,
    /// `null` while the key is delayed or parked.
    pub(crate) lane: Option<Word>,
    /// Consecutive failed reconciles.
    pub(crate) attempts: u32,
    /// How long the key has been in its state.
    pub(crate) since_seconds: f64,
    pub(crate) next_run_seconds: Option<f64>,
    /// The reason that the key is parked without a failure, such as a pause.
    pub(crate) reason: Option<Word>,
    pub(crate) last_error: Option<String>,
    pub(crate) last_duration_seconds: Option<f64>,
    /// The event that last enqueued the key. A delayed key keeps its cause until its delay has passed.
    pub(crate) cause: String,
}

/// `/debug/caches`: every store of the cache, by cluster, kind and scope; the manager's own cluster first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Caches {
    pub(crate) caches: Vec<Store>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Store {
    /// `null` for the manager's own cluster.
    pub(crate) cluster: Option<String>,
    /// In kubectl's form, such as `Deployment.apps`.
    pub(crate) kind: String,
    pub(crate) version: String,
    pub(crate) scope: String,
    /// `full`, or `metadata` if only metadata is cached.
    pub(crate) projection: Word,
    pub(crate) synced: bool,
    /// How long a list or watch of the store has been failing; `null` while all work.
    pub(crate) down_seconds: Option<f64>,
    pub(crate) last_error: Option<String>,
    /// The kind is not served or not readable; an operator has to act.
    pub(crate) absent: bool,
    pub(crate) objects: usize,
    pub(crate) bytes: usize,
    /// Objects above the size limit, cached as metadata only.
    pub(crate) too_large: usize,
    /// `null` if no object is packed.
    pub(crate) packed: Option<Packed>,
    pub(crate) restarts: u64,
    pub(crate) relists: u64,
    pub(crate) events: u64,
    pub(crate) last_event_seconds: Option<f64>,
    pub(crate) decode_errors: u64,
    /// Objects that the cache serves in an older version, or not at all, with the reason; only some if there
    /// are many.
    pub(crate) left_out: BTreeMap<String, String>,
    /// Event handlers that panicked or were slow, by name.
    pub(crate) handlers: BTreeMap<String, Trouble>,
    /// By index: object versions that it lacks because its function failed.
    pub(crate) unindexed: BTreeMap<String, u64>,
}

/// The packed objects of a store.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Packed {
    pub(crate) objects: usize,
    /// The size of the packed bodies.
    pub(crate) bytes: usize,
    /// The size of the same bodies unpacked.
    pub(crate) plain_bytes: usize,
    /// `plain_bytes` per byte.
    pub(crate) ratio: f64,
    pub(crate) dictionaries: usize,
    pub(crate) dictionary_bytes: usize,
}

/// How often an event handler panicked, and how often it was slow.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Trouble {
    pub(crate) panics: u64,
    pub(crate) slow: u64,
}

/// `/debug/watches`: every list and watch of the stores, failing watches first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Watches {
    pub(crate) watches: Vec<Watch>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Watch {
    /// `null` for the manager's own cluster.
    pub(crate) cluster: Option<String>,
    /// In kubectl's form, such as `Deployment.apps`.
    pub(crate) kind: String,
    /// The scope of the store.
    pub(crate) scope: String,
    /// `full`, or `metadata` if only metadata is cached.
    pub(crate) projection: Word,
    /// `null` for all namespaces, and for cluster-scoped kinds.
    pub(crate) namespace: Option<String>,
    pub(crate) working: bool,
    /// How long the watch has been working or failing.
    pub(crate) since_seconds: f64,
    /// Lists completed.
    pub(crate) lists: u64,
    /// Watches opened.
    pub(crate) watches: u64,
    /// `null` while the watch works, and before the first answer.
    pub(crate) last_error: Option<String>,
    /// The kind is not served or not readable; an operator has to act.
    pub(crate) absent: bool,
}

/// `/debug/leader`: whether this replica leads, the holder of the Lease as far as it is known, and the
/// Lease's history.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Leader {
    pub(crate) identity: String,
    /// `null` without an election.
    pub(crate) lease: Option<Lease>,
    pub(crate) leading: bool,
    /// `null` if the Lease has no holder, if the holder is unknown, and without an election.
    pub(crate) holder: Option<String>,
    /// How often the Lease changed its holder; `null` on a standby.
    pub(crate) transitions: Option<i32>,
    /// The reason that the last term ended, until the next candidacy: `stopped`, `expired` or `taken`.
    pub(crate) lost: Option<Word>,
    pub(crate) fence_open: bool,
    /// How long writes may be sent without another renewal; `null` if none may be sent, and without an
    /// election.
    pub(crate) fence_seconds: Option<f64>,
    /// How long this replica has known the holder.
    pub(crate) holder_seconds: Option<f64>,
    /// Changes of the Lease that this replica has seen, the newest first; at most 32.
    pub(crate) history: Vec<LeaseChange>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeaseChange {
    pub(crate) seconds_ago: f64,
    /// `becameLeader` or `stoppedLeading` for this replica; `newHolder` for any replica.
    pub(crate) event: Word,
    /// `null` for a Lease without a holder.
    pub(crate) identity: Option<String>,
    /// The reason that this replica stopped leading, as in `lost`.
    pub(crate) reason: Option<Word>,
}

/// The header of every answer of a standby.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Standby {
    pub(crate) identity: String,
    /// The holder of the Lease; `null` if the Lease has no holder or the holder is unknown.
    pub(crate) leader: Option<String>,
    /// The Pod of the leader; `null` if the leader's identity does not start with a Pod name.
    pub(crate) pod: Option<String>,
    /// The namespace of the Pods; `null` outside a cluster.
    pub(crate) namespace: Option<String>,
    /// The answer is the leader's; the standby forwarded the request.
    #[serde(default)]
    pub(crate) forwarded: bool,
    /// The error of a request to the leader that failed; the answer is the standby's own.
    #[serde(default)]
    pub(crate) trouble: Option<String>,
}

/// The answer to `POST /debug/controllers/NAME/reconcile`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reconciled {
    /// How many keys were enqueued.
    pub(crate) matched: usize,
}

/// The body of `POST /debug/log`, and its answer with the filter now in force.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogLevel {
    pub(crate) level: String,
}

/// The body of an error response.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Error {
    pub(crate) error: String,
}
