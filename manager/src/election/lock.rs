//! Requests for one Lease: get, create, update over a known version, watch.
//!
//! The client is one of `client::Role::Lease`, with a connection of its own and without retries: the election
//! decides when to send a request again, so a failure must be returned at once. Every request has a deadline.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, GetParams, PostParams, Request as Requests, WatchEvent, WatchParams};
use kube::core::request::Error as RequestError;
use kube::{Client, Error};
use tokio::time::{sleep, timeout};

use super::decide::{Answer, Call, Event};
use super::notice::Notice;
use super::record::{Record, Version};
use super::trouble::{Trouble, log_trouble, trouble_log};
use crate::client::connect::DeadlineExceeded;
use crate::client::error::links;
use crate::util::LogOnce;

/// `timeoutSeconds` of a watch: below the five minutes after which many middleboxes drop an idle connection.
const WATCH_SECONDS: u32 = 290;

/// Hint in errors about a response that no API server sends to the request.
const SUSPECT: &str = "a proxy between here and the API server may have sent it";

/// Sends requests about one Lease, each with a deadline. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct LeaseLock {
    api: Api<Lease>,
    namespace: Arc<str>,
    name: Arc<str>,
    /// Deadline of each request; for a watch, until its response starts.
    deadline: Duration,
    pub(super) notice: Notice,
}

/// A request that failed. A retry may help unless the server refused the request.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct LockError {
    text: String,
    /// Failures of equal `trouble` are logged once.
    pub(super) trouble: Trouble,
    #[source]
    source: Option<Box<Error>>,
}

/// A watch that restarts forever.
struct Watching<P> {
    lock: LeaseLock,
    /// A watch without an event for this long is restarted: a leader renews far more often.
    silence: Duration,
    /// Returns the wait before the next watch after one that delivered no event.
    pause: P,
    now: Phase,
    logged: LogOnce<Trouble>,
}

enum Phase {
    Pausing,
    Beginning,
    Open {
        events: BoxStream<'static, Result<WatchEvent<Lease>, Error>>,
        /// Whether this watch has delivered an event.
        delivered: bool,
    },
}

// === impl LeaseLock ===

impl LeaseLock {
    pub(super) fn new(client: Client, namespace: &str, name: &str, deadline: Duration) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.into(),
            name: name.into(),
            deadline,
            notice: Notice::default(),
        }
    }

    /// Sends one request and returns its outcome.
    ///
    /// # Cancel safety
    /// After the future is dropped, a write may still be applied.
    pub(super) async fn call(&self, call: Call) -> Result<Answer, LockError> {
        let (client, requests) = (self.api.clone().into_client(), Requests::new(self.api.resource_url()));
        let post = PostParams::default();
        let sent = match &call {
            Call::Get => None,
            Call::Create(record) | Call::Update { record, .. } => Some(record.clone()),
        };
        let (verb, request) = match call {
            Call::Get => ("get", requests.get(&self.name, &GetParams::default())),
            Call::Create(record) => {
                let mut lease = Lease::default();
                lease.metadata.name = Some(self.name.as_ref().to_owned());
                lease.metadata.namespace = Some(self.namespace.as_ref().to_owned());
                record.write_into(&mut lease);
                self.notice.write_into(&mut lease, record.holder.is_some());
                ("create", json(&lease).and_then(|lease| requests.create(&post, lease)))
            }
            Call::Update { record, over } => {
                let mut lease = over.with(&record);
                self.notice.write_into(&mut lease, record.holder.is_some());
                ("update", json(&lease).and_then(|lease| requests.replace(&self.name, &post, lease)))
            }
        };
        let request = request.map_err(|error| self.error(verb, Error::BuildRequest(error)))?;
        // Decoded here and not by the client, which would log the whole body of each response that is not
        // JSON.
        let text = self.within(verb, client.request_text(request)).await?;
        match text.and_then(|text| serde_json::from_str::<Lease>(&text).map_err(Error::SerdeError)) {
            Ok(lease) => {
                let record = self.read(verb, &lease)?;
                // Candidates wait as long as the stored record states, so the leader may rely on no other
                // record.
                if sent.is_some_and(|sent| sent != record) {
                    let other = format_args!(
                        "the answer to {verb} differs from the record that was sent; {SUSPECT}, or an \
                         admission webhook changes Leases"
                    );
                    return Err(self.failed(other, Trouble::Strange("changed")));
                }
                Ok(Answer::Stored(record, Version::of(lease)))
            }
            // The reason separates the API server's answer from the 404 page of a proxy.
            Err(Error::Api(status)) if status.reason == "NotFound" && verb != "create" => Ok(Answer::Absent),
            Err(Error::Api(status)) if status.code == 409 => Ok(Answer::Conflict),
            Err(error) => Err(self.error(verb, error)),
        }
    }

    async fn within<T>(&self, verb: &'static str, request: impl Future<Output = T>) -> Result<T, LockError> {
        timeout(self.deadline, request).await.map_err(|_| self.late(verb))
    }

    /// Returns the record of a received Lease; fails if it has another name or no resourceVersion.
    fn read(&self, verb: &'static str, lease: &Lease) -> Result<Record, LockError> {
        let of = |found: &Option<String>, own: &str| found.as_deref() == Some(own);
        let metadata = &lease.metadata;
        if !of(&metadata.name, &self.name) || !of(&metadata.namespace, &self.namespace) {
            return Err(self.strange(verb, "is not the requested Lease"));
        }
        if metadata.resource_version.as_deref().is_none_or(str::is_empty) {
            return Err(self.strange(verb, "has no metadata.resourceVersion"));
        }
        self.notice.read(lease);
        Ok(Record::of(lease))
    }

    fn error(&self, verb: &'static str, error: Error) -> LockError {
        match error {
            Error::Api(status) if status.code == 403 => LockError {
                text: format!(
                    "not allowed to {verb} lease {self}: the role needs create on leases, and get, watch and \
                     update on this one"
                ),
                trouble: Trouble::Refused(403),
                source: Some(Box::new(Error::Api(status))),
            },
            Error::Api(status) => {
                let (code, text) = (status.code, first_words(&status.message));
                self.failed(format_args!("{verb} was refused: {code} {text}"), Trouble::Refused(code))
            }
            Error::SerdeError(_) => self.strange(verb, "is not a Lease"),
            // The connection has the same deadline and may report it first.
            error if is_late(&error) => self.late(verb),
            error => {
                let failed = self.failed(format_args!("{verb} failed"), Trouble::Unreachable);
                LockError { source: Some(Box::new(error)), ..failed }
            }
        }
    }

    fn late(&self, verb: &str) -> LockError {
        self.failed(format_args!("no answer to {verb} within {:?}", self.deadline), Trouble::Late)
    }

    /// Returns the error for a response that is not an API server's; its content is ignored. `defect`
    /// continues the sentence "the answer to get".
    fn strange(&self, verb: &str, defect: &'static str) -> LockError {
        self.failed(format_args!("the answer to {verb} {defect}; {SUSPECT}"), Trouble::Strange(defect))
    }

    fn failed(&self, text: fmt::Arguments<'_>, trouble: Trouble) -> LockError {
        LockError { text: format!("lease {self}: {text}"), trouble, source: None }
    }

    /// Watches the Lease forever. A watch that fails, ends, or delivers no event for `silence` is restarted:
    /// at once if it delivered an event, after `pause()` otherwise.
    pub(super) fn watch(
        self,
        silence: Duration,
        pause: impl Fn() -> Duration + Send + 'static,
    ) -> BoxStream<'static, Event> {
        let watching = Watching { lock: self, silence, pause, now: Phase::Beginning, logged: trouble_log() };
        stream::unfold(watching, |watching| async { Some(watching.next().await) }).boxed()
    }

    /// Returns the decision's event for an event of the watch; `None` for a bookmark. An error event, such as
    /// `410 Gone`, ends the watch as a broken connection does.
    fn seen(&self, event: WatchEvent<Lease>) -> Result<Option<Event>, Option<LockError>> {
        let read = |lease: &Lease| self.read("watch", lease).map_err(Some);
        Ok(match event {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                Some(Event::Seen(read(&lease)?, Version::of(lease)))
            }
            WatchEvent::Deleted(lease) => Some(Event::Gone(read(&lease)?, Version::of(lease))),
            WatchEvent::Bookmark(_) => None,
            WatchEvent::Error(status) => return Err(Some(self.error("watch", Error::Api(status)))),
        })
    }

    async fn begin_watch(&self) -> Result<BoxStream<'static, Result<WatchEvent<Lease>, Error>>, LockError> {
        // A role restricted to one resource name may watch only with this field selector.
        let only_this = WatchParams::default()
            .fields(&format!("metadata.name={}", self.name))
            .timeout(WATCH_SECONDS)
            .disable_bookmarks();
        // Without a resourceVersion the watch starts with the present Lease, read from etcd and not from a
        // cache.
        let begun = self.within("watch", self.api.watch(&only_this, "")).await?;
        Ok(begun.map_err(|error| self.error("watch", error))?.boxed())
    }
}

/// Displays as `namespace/name`.
impl fmt::Display for LeaseLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

// === impl Watching ===

impl<P: Fn() -> Duration> Watching<P> {
    /// Waits for the next event of the decision.
    async fn next(mut self) -> (Event, Self) {
        loop {
            match &mut self.now {
                Phase::Pausing => {
                    sleep((self.pause)()).await;
                    self.now = Phase::Beginning;
                }
                Phase::Beginning => match self.lock.begin_watch().await {
                    Ok(events) => {
                        self.now = Phase::Open { events, delivered: false };
                        return (Event::WatchUp, self);
                    }
                    Err(error) => {
                        self.log_failure(&error);
                        self.now = Phase::Pausing;
                        return (Event::WatchDown, self);
                    }
                },
                Phase::Open { events, delivered } => {
                    let seen = match timeout(self.silence, events.next()).await {
                        Ok(Some(Ok(event))) => self.lock.seen(event),
                        Ok(Some(Err(error))) => Err(Some(self.lock.error("watch", error))),
                        // The watch ended, or delivered no event for `silence`.
                        Ok(None) | Err(_) => Err(None),
                    };
                    match seen {
                        Ok(None) => {}
                        Ok(Some(event)) => {
                            *delivered = true;
                            return (event, self);
                        }
                        Err(error) => {
                            // The end of a working watch is normal and not logged.
                            if *delivered {
                                self.now = Phase::Beginning;
                            } else {
                                self.now = Phase::Pausing;
                                if let Some(error) = &error {
                                    self.log_failure(error);
                                }
                            }
                            return (Event::WatchDown, self);
                        }
                    }
                }
            }
        }
    }

    fn log_failure(&mut self, error: &LockError) {
        let text = "cannot watch the lease; polling it instead";
        log_trouble(&mut self.logged, &self.lock, error.trouble, Some(error), text);
    }
}

fn is_late(error: &Error) -> bool {
    links(error).any(<dyn std::error::Error>::is::<DeadlineExceeded>)
}

fn json(lease: &Lease) -> Result<Vec<u8>, RequestError> {
    serde_json::to_vec(lease).map_err(RequestError::SerializeBody)
}

/// Returns the start of a refusal's message on one line; a proxy may send a whole page as its message.
fn first_words(text: &str) -> String {
    const MAX_CHARS: usize = 200;
    let words: Vec<_> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
