//! The answers of `/debug`, as the manager writes them and `mainstay inspect` reads them.
//!
//! Times are seconds counted from the answer; an unknown value is `null`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One of a fixed set of words.
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
    /// Every source has handled its initial list. Reconciles run if it leads and has synced.
    pub(crate) synced: bool,
    /// `false`: disabled by the configuration, so it runs neither sources nor workers.
    pub(crate) enabled: bool,
    /// Its workers take no key.
    pub(crate) paused: bool,
    pub(crate) queue: Counts,
}

/// How many keys are in which state.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counts {
    pub(crate) ready: Ready,
    /// Waiting for a moment, keys in backoff included.
    pub(crate) delayed: usize,
    /// With a worker, dirty ones included.
    pub(crate) running: usize,
    pub(crate) dirty: usize,
    /// Paused ones included.
    pub(crate) parked: usize,
    /// Parked without having failed.
    pub(crate) paused: usize,
    pub(crate) oldest_ready_seconds: Option<f64>,
    pub(crate) shutting_down: bool,
}

/// By lane.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) live: usize,
    /// Missing in an answer of an older version.
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
    /// This replica leads, or the controller needs no Lease. If not, its keys are kept warm and do not run.
    pub(crate) leading: bool,
    /// Of the whole queue, whatever the query.
    pub(crate) queue: Counts,
    /// How many keys fit the query, listed or not.
    pub(crate) matched: usize,
    /// Some of these are not listed, for the limit.
    pub(crate) truncated: bool,
    /// The next page is behind this key; `null` if there is none, or the order is another than that of names.
    pub(crate) next: Option<String>,
    pub(crate) keys: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) state: Word,
    /// `null` while it waits for a moment or is parked.
    pub(crate) lane: Option<Word>,
    /// Runs that failed in a row.
    pub(crate) attempts: u32,
    /// In this state.
    pub(crate) since_seconds: f64,
    pub(crate) next_run_seconds: Option<f64>,
    /// Why it is parked without having failed, such as a pause.
    pub(crate) reason: Option<Word>,
    pub(crate) last_error: Option<String>,
    pub(crate) last_duration_seconds: Option<f64>,
    /// The event that last put it on the queue. A key that waits keeps it until its wait is over.
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
    /// `null` for the manager's own.
    pub(crate) cluster: Option<String>,
    /// As kubectl takes it.
    pub(crate) kind: String,
    pub(crate) version: String,
    pub(crate) scope: String,
    /// `full`, or `metadata` for metadata only.
    pub(crate) projection: Word,
    pub(crate) synced: bool,
    /// `null` while every list and watch of it works.
    pub(crate) down_seconds: Option<f64>,
    pub(crate) last_error: Option<String>,
    /// The kind is not served or not readable: somebody has to act.
    pub(crate) absent: bool,
    pub(crate) objects: usize,
    pub(crate) bytes: usize,
    /// Objects of which only metadata is kept.
    pub(crate) too_large: usize,
    /// `null` where no object is packed.
    pub(crate) packed: Option<Packed>,
    pub(crate) restarts: u64,
    pub(crate) relists: u64,
    pub(crate) events: u64,
    pub(crate) last_event_seconds: Option<f64>,
    pub(crate) decode_errors: u64,
    /// Objects served as they were before, or not at all, and why: some of them, if they are many.
    pub(crate) left_out: BTreeMap<String, String>,
    /// Handlers that had trouble, by name.
    pub(crate) handlers: BTreeMap<String, Trouble>,
    /// Versions left out of an index whose function failed, by index.
    pub(crate) unindexed: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Packed {
    pub(crate) objects: usize,
    /// Of their bodies as they are kept, and as they are read.
    pub(crate) bytes: usize,
    pub(crate) plain_bytes: usize,
    /// How many bytes one stands for.
    pub(crate) ratio: f64,
    pub(crate) dictionaries: usize,
    pub(crate) dictionary_bytes: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Trouble {
    pub(crate) panics: u64,
    pub(crate) slow: u64,
}

/// `/debug/watches`: every list and watch that the stores are made of; those that do not work first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Watches {
    pub(crate) watches: Vec<Watch>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Watch {
    /// `null` for the manager's own.
    pub(crate) cluster: Option<String>,
    /// As kubectl takes it.
    pub(crate) kind: String,
    /// Of the store it is for.
    pub(crate) scope: String,
    /// `full`, or `metadata` for metadata only.
    pub(crate) projection: Word,
    /// `null` for all namespaces, and for kinds without.
    pub(crate) namespace: Option<String>,
    pub(crate) working: bool,
    /// For how long it has worked, or has not.
    pub(crate) since_seconds: f64,
    /// Lists completed.
    pub(crate) lists: u64,
    /// Watches opened.
    pub(crate) watches: u64,
    /// `null` while it works, and before the first answer.
    pub(crate) last_error: Option<String>,
    /// The kind is not served or not readable: somebody has to act.
    pub(crate) absent: bool,
}

/// `/debug/leader`: whether this replica leads, which one does as far as it knows, and the history of the Lease.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Leader {
    pub(crate) identity: String,
    /// `null` without an election.
    pub(crate) lease: Option<Lease>,
    pub(crate) leading: bool,
    /// `null` if the Lease has no holder or none is known, and without an election.
    pub(crate) holder: Option<String>,
    /// How often the Lease changed hands; only the leader knows.
    pub(crate) transitions: Option<i32>,
    /// Why the last term ended, until the next candidacy: `stopped`, `expired` or `taken`.
    pub(crate) lost: Option<Word>,
    pub(crate) fence_open: bool,
    /// How long writes may leave without another renewal; `null` while they may not, and without an election.
    pub(crate) fence_seconds: Option<f64>,
    /// For how long this replica has known the holder as the holder.
    pub(crate) holder_seconds: Option<f64>,
    /// Changes of the Lease as far as this replica saw them, the newest first; at most 32.
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
    /// `becameLeader`, `stoppedLeading` of this replica; `newHolder` of any.
    pub(crate) event: Word,
    /// `null` for a Lease without a holder.
    pub(crate) identity: Option<String>,
    /// Why this replica stopped, as in `lost`.
    pub(crate) reason: Option<Word>,
}

/// The header of every answer of a standby.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Standby {
    pub(crate) identity: String,
    /// The holder of the Lease; `null` if it has none or none is known.
    pub(crate) leader: Option<String>,
    /// Its Pod; `null` if its identity does not begin with one.
    pub(crate) pod: Option<String>,
    /// Of the Pods; `null` outside a cluster.
    pub(crate) namespace: Option<String>,
    /// The answer is not its own: it is the leader's.
    #[serde(default)]
    pub(crate) forwarded: bool,
    /// Why it is its own, although the leader was to answer.
    #[serde(default)]
    pub(crate) trouble: Option<String>,
}

/// The answer to a reconcile.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reconciled {
    /// How many keys were enqueued.
    pub(crate) matched: usize,
}

/// Sets the log level; the answer has the filter now in force.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogLevel {
    pub(crate) level: String,
}
