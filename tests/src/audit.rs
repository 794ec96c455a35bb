//! Reads the audit log of the API server, to prove that two replicas never write at the same time.
//!
//! The server appends a line to its audit log for each write of a ServiceAccount, with its own clock. One
//! account per replica distinguishes the writers.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::cluster::TestCluster;
use crate::wait::PATIENCE;

/// The audit log file of the API server, relative to the folder in which the cluster's programs run.
const LOG: &str = "audit.log";

/// Pause between two reads of the audit log: it is polled.
const POLL_PERIOD: Duration = Duration::from_millis(20);

/// One write request of a ServiceAccount that reached the API server, from the audit log.
#[derive(Clone, Debug)]
pub struct Write {
    /// The ServiceAccount that sent the request, without its namespace.
    pub user: String,
    /// The verb of the request: `create`, `update`, `patch` or `delete`.
    pub verb: String,
    /// Plural of the written kind, with the subresource behind a slash.
    pub resource: String,
    /// Name of the written object.
    pub name: String,
    /// Path and query of the request.
    pub uri: String,
    /// HTTP status code of the response.
    pub code: u64,
    /// When the request arrived, by the clock of the API server.
    pub received: Timestamp,
    /// Body of the request, recorded for Leases only.
    pub body: Value,
}

/// The term for which one replica held the Lease, as recorded by the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The ServiceAccount of the replica, with the writes that made and kept it the holder.
    pub user: String,
    /// The `holderIdentity` of the replica in the Lease.
    pub holder: String,
    /// When the request arrived that made the replica the holder of the Lease.
    pub from: Timestamp,
    /// When the last renewal of the Lease in this term arrived.
    pub renewed: Timestamp,
    /// When a request arrived that gave the Lease another holder or none; `None` if the term has not ended.
    pub until: Option<Timestamp>,
}

/// Reads the writes in the audit log as it grows, each line once.
#[derive(Debug)]
pub struct Tail {
    log: PathBuf,
    namespace: String,
    /// Number of bytes of the log read so far: whole lines.
    offset: usize,
}

// === impl Write ===

impl Write {
    /// Returns whether this is a write of a controller: neither of the Lease nor of an Event, since Events
    /// cause no action.
    pub fn is_work(&self) -> bool {
        !self.is_of_lease() && self.resource != "events"
    }

    /// Returns whether this is a write of the Lease, accepted or not.
    pub fn is_of_lease(&self) -> bool {
        self.resource == "leases"
    }

    /// Returns whether the API server accepted the write.
    pub fn is_accepted(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Returns the holder that a write of the Lease names; empty if it names none.
    pub fn holder(&self) -> &str {
        self.body["spec"]["holderIdentity"].as_str().unwrap_or_default()
    }

    fn parse(line: &str, namespace: &str) -> Option<Self> {
        let (user, event) = event(line, namespace)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &event["objectRef"];
        let resource = match object["subresource"].as_str() {
            Some(subresource) => format!("{}/{subresource}", text(&object["resource"])),
            None => text(&object["resource"]),
        };
        Some(Self {
            user,
            verb: text(&event["verb"]),
            resource,
            name: text(&object["name"]),
            uri: text(&event["requestURI"]),
            code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
            received: event["requestReceivedTimestamp"]
                .as_str()
                .and_then(|at| at.parse().ok())
                .unwrap_or_else(|| panic!("an audit line without a time: {line}")),
            body: event["requestObject"].clone(),
        })
    }
}

// === impl Tail ===

impl Tail {
    /// Returns the writes logged since the last call, in the order of their responses.
    pub fn read(&mut self) -> Vec<Write> {
        let mut text = String::new();
        let read = File::open(&self.log).and_then(|mut log| {
            log.seek(SeekFrom::Start(self.offset as u64))?;
            log.read_to_string(&mut text)
        });
        if let Err(error) = read {
            panic!("{}: {error}", self.log.display());
        }
        // The last line may be half written.
        let whole = text.rfind('\n').map_or(0, |last| last + 1);
        self.offset += whole;
        text[..whole].lines().filter_map(|line| Write::parse(line, &self.namespace)).collect()
    }
}

// === impl TestCluster ===

impl TestCluster {
    /// Returns the writes of this test's ServiceAccounts so far, in the order in which they arrived.
    pub fn writes(&self) -> Vec<Write> {
        let log = std::fs::read_to_string(self.folder().join(LOG)).unwrap_or_default();
        let writes = log.lines().filter_map(|line| Write::parse(line, self.namespace()));
        let mut writes: Vec<Write> = writes.collect();
        writes.sort_by_key(|write| write.received);
        writes
    }

    /// Returns the entries of the audit log about this test's ServiceAccounts so far.
    pub(crate) fn audited(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.folder().join(LOG)).unwrap_or_default();
        log.lines().filter_map(|line| Some(event(line, self.namespace())?.1)).collect()
    }

    /// Returns a reader of the writes in the audit log of this test's ServiceAccounts from the first on, for
    /// long logs: it reads each line once.
    pub fn tail(&self) -> Tail {
        Tail { log: self.folder().join(LOG), namespace: self.namespace().to_owned(), offset: 0 }
    }

    /// Waits until `accepts` returns a value for the writes so far, and returns that value.
    pub async fn until_written<T>(&self, expected: &str, accepts: impl Fn(&[Write]) -> Option<T>) -> T {
        let looking = async {
            loop {
                if let Some(found) = accepts(&self.writes()) {
                    return found;
                }
                tokio::time::sleep(POLL_PERIOD).await;
            }
        };
        match tokio::time::timeout(PATIENCE, looking).await {
            Ok(found) => found,
            Err(elapsed) => {
                let writes = self.writes();
                let last = &writes[writes.len().saturating_sub(20)..];
                panic!("{elapsed}: waited {PATIENCE:?} for {expected}; written last: {last:#?}")
            }
        }
    }
}

/// Parses a line of the audit log. Returns the ServiceAccount and the entry; `None` if it is not about a
/// ServiceAccount of this namespace.
fn event(line: &str, namespace: &str) -> Option<(String, Value)> {
    let accounts = format!("system:serviceaccount:{namespace}:");
    // All tests share the log, and most lines belong to others: parsing them would take many times as long as
    // this search. JSON escapes none of these characters.
    if !line.contains(&accounts) {
        return None;
    }
    // The last line may be half written.
    let event: Value = serde_json::from_str(line).ok()?;
    let user = event["user"]["username"].as_str()?.strip_prefix(&accounts)?.to_owned();
    Some((user, event))
}

/// The requests that an API server writes to its audit log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Detail {
    /// Write requests only, with the bodies of those to Leases.
    Writes,
    /// Every request, without bodies.
    Requests,
}

/// Returns the flags that make an API server keep the audit log.
pub(crate) fn flags(detail: Detail) -> Vec<String> {
    let policy = match detail {
        Detail::Writes => concat!(env!("CARGO_MANIFEST_DIR"), "/audit-policy.yaml"),
        Detail::Requests => concat!(env!("CARGO_MANIFEST_DIR"), "/audit-policy-requests.yaml"),
    };
    // A size in megabytes that is never reached: entries of a rotated file would be missing.
    let size = "--audit-log-maxsize=10240".to_owned();
    vec![format!("--audit-policy-file={policy}"), format!("--audit-log-path={LOG}"), size]
}

/// Returns the terms for which replicas held the Lease, from the first one on.
pub fn terms(writes: &[Write]) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    for write in writes.iter().filter(|write| write.is_of_lease() && write.is_accepted()) {
        let (holder, at) = (write.holder(), write.received);
        let current = terms.last_mut().filter(|term| term.until.is_none());
        if let Some(term) = current {
            if term.holder == holder {
                term.renewed = at;
                continue;
            }
            term.until = Some(at);
        }
        if !holder.is_empty() {
            let (user, holder) = (write.user.clone(), holder.to_owned());
            terms.push(Term { user, holder, from: at, renewed: at, until: None });
        }
    }
    terms
}

/// Returns the writes of controllers that arrived while their writer did not hold the Lease; there must be
/// none. Refused writes count too: the fence should have stopped them.
pub fn outside_of_terms(writes: &[Write]) -> Vec<Write> {
    let terms = terms(writes);
    let allowed = |write: &Write| {
        terms.iter().any(|term| {
            let before_the_end = term.until.is_none_or(|until| write.received < until);
            term.user == write.user && term.from <= write.received && before_the_end
        })
    };
    writes.iter().filter(|write| write.is_work() && !allowed(write)).cloned().collect()
}

#[cfg(test)]
mod tests;
