//! The answers of `/debug`, serialized by the manager and deserialized by `mainstay inspect`.
//!
//! Times are seconds relative to the answer; an unknown value is `null`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A text in the JSON of a page that is one of a fixed set.
type Word = Cow<'static, str>;

/// The JSON of `/debug/controllers`: every running controller, by name.
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
    /// Whether the controller may work here: this replica leads, or the controller needs no Lease.
    pub(crate) leading: bool,
    /// Whether every source of the controller has handled its initial list. Reconciles run if `leading` and
    /// `synced`.
    pub(crate) synced: bool,
    /// Whether the controller is enabled; if `false`, the configuration disables it, so it runs neither
    /// sources nor workers.
    pub(crate) enabled: bool,
    /// Whether the controller is paused: its workers take no keys from the queue.
    pub(crate) paused: bool,
    pub(crate) queue: Counts,
}

/// How many keys of a controller's queue are in each state.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counts {
    pub(crate) ready: Ready,
    /// Number of keys that wait for a delay to pass: keys in backoff and requeued keys.
    pub(crate) delayed: usize,
    /// Number of keys that a worker reconciles, dirty keys included.
    pub(crate) running: usize,
    /// Number of keys that a worker reconciles and that were enqueued again since.
    pub(crate) dirty: usize,
    /// Number of parked keys, which wait for a change of their object; paused keys included.
    pub(crate) parked: usize,
    /// Number of keys that are parked without a failure.
    pub(crate) paused: usize,
    pub(crate) oldest_ready_seconds: Option<f64>,
    pub(crate) shutting_down: bool,
}

/// How many keys of a queue are ready to be reconciled, by lane.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) live: usize,
    /// Number of ready keys in the lane `new`; absent in answers of older versions.
    #[serde(default)]
    pub(crate) new: usize,
    pub(crate) background: usize,
    pub(crate) retry: usize,
}

/// The JSON of `/debug/controllers/NAME/queue`: the keys of one controller's queue.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Queued {
    pub(crate) controller: Word,
    /// Whether the controller may work here: this replica leads, or the controller needs no Lease. If
    /// `false`, the keys are kept but not reconciled.
    pub(crate) leading: bool,
    /// The number of keys in each state in the whole queue, independent of the query.
    pub(crate) queue: Counts,
    /// How many keys of the queue match the query, listed here or not.
    pub(crate) matched: usize,
    /// Whether the limit leaves out some of the matching keys.
    pub(crate) truncated: bool,
    /// The key to give as `after` to get the next page of keys; `null` on the last page, and unless the order
    /// is by name.
    pub(crate) next: Option<String>,
    pub(crate) keys: Vec<Row>,
}

/// One key of a controller's queue in the JSON of `/debug/controllers/NAME/queue`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) state: Word,
    /// The lane of the queue that the key is in; `null` while the key is delayed or parked.
    pub(crate) lane: Option<Word>,
    /// Number of consecutive failed reconciles of the key.
    pub(crate) attempts: u32,
    /// Seconds for which the key has been in its state.
    pub(crate) since_seconds: f64,
    pub(crate) next_run_seconds: Option<f64>,
    /// The reason that the key is parked without a failure, such as a pause; `null` for other keys.
    pub(crate) reason: Option<Word>,
    pub(crate) last_error: Option<String>,
    pub(crate) last_duration_seconds: Option<f64>,
    /// The event that last enqueued the key. A delayed key keeps its cause until its delay has passed.
    pub(crate) cause: String,
}

/// The JSON of `/debug/caches`: every store of the cache, by cluster, kind and scope; the manager's own
/// cluster first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Caches {
    pub(crate) caches: Vec<Store>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Store {
    /// The name of the cluster of the store; `null` for the manager's own cluster.
    pub(crate) cluster: Option<String>,
    /// The kind of the objects in the store, in kubectl's form, such as `Deployment.apps`.
    pub(crate) kind: String,
    pub(crate) version: String,
    pub(crate) scope: String,
    /// The cached part of the objects: `full`, or `metadata` if only metadata is cached.
    pub(crate) projection: Word,
    pub(crate) synced: bool,
    /// Seconds for which a list or watch of the store has been failing; `null` while all work.
    pub(crate) down_seconds: Option<f64>,
    pub(crate) last_error: Option<String>,
    /// Whether the kind of the store is not served or not readable, so that an operator has to act.
    pub(crate) absent: bool,
    pub(crate) objects: usize,
    pub(crate) bytes: usize,
    /// Number of objects above the size limit, which are cached as metadata only.
    pub(crate) too_large: usize,
    /// The packed (compressed) objects of the store; `null` if no object is packed.
    pub(crate) packed: Option<Packed>,
    pub(crate) restarts: u64,
    pub(crate) relists: u64,
    pub(crate) events: u64,
    pub(crate) last_event_seconds: Option<f64>,
    pub(crate) decode_errors: u64,
    /// Objects that the cache serves in an older version, or not at all, each with the reason; only some if
    /// there are many.
    pub(crate) left_out: BTreeMap<String, String>,
    /// Event handlers of the store that panicked or were slow, by name of the handler.
    pub(crate) handlers: BTreeMap<String, Trouble>,
    /// Number of object versions that each index lacks because its function failed, by name of the index.
    pub(crate) unindexed: BTreeMap<String, u64>,
}

/// The packed (compressed) objects of a store.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Packed {
    pub(crate) objects: usize,
    /// The size of all packed bodies of objects, in bytes.
    pub(crate) bytes: usize,
    /// The size that the packed bodies of objects have unpacked, in bytes.
    pub(crate) plain_bytes: usize,
    /// The ratio of compression: `plain_bytes` divided by `bytes`.
    pub(crate) ratio: f64,
    pub(crate) dictionaries: usize,
    pub(crate) dictionary_bytes: usize,
}

/// How often an event handler of a store panicked, and how often it was slow.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Trouble {
    pub(crate) panics: u64,
    pub(crate) slow: u64,
}

/// The JSON of `/debug/watches`: every list and watch of the stores, failing watches first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Watches {
    pub(crate) watches: Vec<Watch>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Watch {
    /// The name of the cluster of the watch; `null` for the manager's own cluster.
    pub(crate) cluster: Option<String>,
    /// The kind of the watched objects, in kubectl's form, such as `Deployment.apps`.
    pub(crate) kind: String,
    /// The scope of the store that the watch belongs to, such as its namespaces.
    pub(crate) scope: String,
    /// The cached part of the objects: `full`, or `metadata` if only metadata is cached.
    pub(crate) projection: Word,
    /// The namespace that the watch is limited to; `null` for all namespaces, and for cluster-scoped kinds.
    pub(crate) namespace: Option<String>,
    pub(crate) working: bool,
    /// Seconds for which the watch has been working, or has been failing.
    pub(crate) since_seconds: f64,
    /// Number of lists of this store completed since the start.
    pub(crate) lists: u64,
    /// Number of watch requests of this store opened since the start.
    pub(crate) watches: u64,
    /// The last error of the list or watch; `null` while the watch works, and before the first answer.
    pub(crate) last_error: Option<String>,
    /// Whether the kind of the watch is not served or not readable, so that an operator has to act.
    pub(crate) absent: bool,
}

/// The JSON of `/debug/leader`: whether this replica leads, the holder of the Lease as far as it is known,
/// and the Lease's history.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Leader {
    pub(crate) identity: String,
    /// The Lease of the leader election; `null` without an election.
    pub(crate) lease: Option<Lease>,
    pub(crate) leading: bool,
    /// The identity of the Lease's holder; `null` if the Lease has no holder, if the holder is unknown, and
    /// without an election.
    pub(crate) holder: Option<String>,
    /// How often the Lease changed its holder; `null` unless this replica leads.
    pub(crate) transitions: Option<i32>,
    /// The reason that the last term of this replica ended, until the next candidacy: `stopped`, `expired` or
    /// `taken`.
    pub(crate) lost: Option<Word>,
    pub(crate) fence_open: bool,
    /// Seconds for which leader-only writes may be sent without another renewal; `null` if none may be sent,
    /// and without an election.
    pub(crate) fence_seconds: Option<f64>,
    /// Seconds for which this replica has known the present holder of the Lease.
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
    /// The event of the Lease: `becameLeader` or `stoppedLeading` for this replica; `newHolder` for any
    /// replica.
    pub(crate) event: Word,
    /// The identity of the replica that the event is about; `null` for a Lease without a holder.
    pub(crate) identity: Option<String>,
    /// The reason that this replica stopped leading: `stopped`, `expired` or `taken`; `null` for other
    /// events.
    pub(crate) reason: Option<Word>,
}

/// The JSON of the header that a standby adds to every answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Standby {
    pub(crate) identity: String,
    /// The identity of the Lease's holder; `null` if the Lease has no holder or the holder is unknown.
    pub(crate) leader: Option<String>,
    /// The name of the leader's Pod; `null` if the leader's identity does not start with a Pod name.
    pub(crate) pod: Option<String>,
    /// The namespace of the replicas' Pods; `null` outside a cluster.
    pub(crate) namespace: Option<String>,
    /// Whether the answer is the leader's, because the standby forwarded the request.
    #[serde(default)]
    pub(crate) forwarded: bool,
    /// The error of a forwarded request that the leader did not answer; the answer is then the standby's own.
    #[serde(default)]
    pub(crate) trouble: Option<String>,
}

/// The JSON answer to `POST /debug/controllers/NAME/reconcile`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reconciled {
    /// How many keys were enqueued by the request.
    pub(crate) matched: usize,
}

/// The JSON body of `POST /debug/log`, and of its answer, which has the filter now in force.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogLevel {
    pub(crate) level: String,
}

/// The JSON body of an error response of the debug pages.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Error {
    pub(crate) error: String,
}
