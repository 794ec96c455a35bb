//! Requests for one Lease: get, create, update over a known version, watch.
//!
//! The client is one of `client::Role::Lease`, with a connection of its own and without retries: the election
//! decides when to send a request again, so a failure must be returned at once. Every request has a deadline.

use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, GetParams, PostParams, Request as Requests, WatchEvent, WatchParams};
use kube::core::request::Error as RequestError;
use kube::{Client, Error};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::decide::{Answer, Call, Event};
use super::notice::Notice;
use super::record::{Record, Version};
use super::trouble::{Trouble, TroubleLog};
use crate::client::connect::DeadlineExceeded;
use crate::client::error::links;
use crate::key::{Key as _, NamespacedName};

/// `timeoutSeconds` of a watch of the Lease: below the five minutes after which many middleboxes drop an idle
/// connection.
const WATCH_SECONDS: u32 = 290;

/// Hint in the text of an error about a response that an API server would not send to a request about the
/// Lease.
const SUSPECT: &str = "a proxy between here and the API server may have sent it";

/// A client that sends requests about one Lease, each with a deadline. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct LeaseLock {
    api: Api<Lease>,
    /// Namespace and name of the Lease.
    pub(super) name: NamespacedName,
    /// Time limit of each request about the Lease; for a watch, until its response starts.
    deadline: Duration,
    pub(super) notice: Notice,
}

/// The error of a failed request about the Lease. A retry may help unless the server refused the request.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct LockError {
    text: String,
    /// The kind of the failure; repeated failures of one kind are logged once.
    pub(super) trouble: Trouble,
    #[source]
    source: Option<Box<Error>>,
}

// === impl LeaseLock ===

impl LeaseLock {
    pub(super) fn new(client: Client, namespace: &str, name: &str, deadline: Duration) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: NamespacedName::namespaced(namespace, name),
            deadline,
            notice: Notice::default(),
        }
    }

    /// Sends one request about the Lease and returns the API server's answer.
    ///
    /// # Cancel safety
    /// After the future is dropped, a write may still be applied.
    pub(super) async fn call(&self, call: Call) -> Result<Answer, LockError> {
        let (client, requests) = (self.api.clone().into_client(), Requests::new(self.api.resource_url()));
        let post = PostParams::default();
        let (verb, request, sent) = match call {
            Call::Get => ("get", requests.get(self.name.name(), &GetParams::default()), None),
            Call::Create(record) => {
                let mut lease = Lease::default();
                lease.metadata.name = Some(self.name.name().to_owned());
                lease.metadata.namespace = self.name.namespace().map(str::to_owned);
                let body = self.body(lease, &record);
                ("create", body.and_then(|body| requests.create(&post, body)), Some(record))
            }
            Call::Update { record, over } => {
                let body = self.body(over.lease(), &record);
                (
                    "update",
                    body.and_then(|body| requests.replace(self.name.name(), &post, body)),
                    Some(record),
                )
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

    /// Returns the request body that stores a record in a Lease and keeps the Lease's other fields.
    fn body(&self, mut lease: Lease, record: &Record) -> Result<Vec<u8>, RequestError> {
        record.write_into(&mut lease);
        self.notice.write_into(&mut lease, record.holder.is_some());
        serde_json::to_vec(&lease).map_err(RequestError::SerializeBody)
    }

    async fn within<T>(&self, verb: &'static str, request: impl Future<Output = T>) -> Result<T, LockError> {
        timeout(self.deadline, request).await.map_err(|_| self.late(verb))
    }

    /// Returns the record of a received Lease and takes over its notice. Fails if the Lease has another name
    /// or no resourceVersion.
    fn read(&self, verb: &'static str, lease: &Lease) -> Result<Record, LockError> {
        if NamespacedName::of(lease) != self.name {
            return Err(self.strange(verb, "is not the requested Lease"));
        }
        if lease.metadata.resource_version.as_deref().is_none_or(str::is_empty) {
            return Err(self.strange(verb, "has no metadata.resourceVersion"));
        }
        self.notice.read(lease);
        Ok(Record::of(lease))
    }

    fn error(&self, verb: &'static str, error: Error) -> LockError {
        match error {
            Error::Api(status) if status.code == 403 => LockError {
                text: format!(
                    "not allowed to {verb} lease {}: the role needs create on leases, and get, watch and \
                     update on this one",
                    self.name,
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

    /// Returns the error for a response about the Lease that no API server would send; its content is
    /// ignored. `defect` continues the sentence "the answer to get".
    fn strange(&self, verb: &str, defect: &'static str) -> LockError {
        self.failed(format_args!("the answer to {verb} {defect}; {SUSPECT}"), Trouble::Strange(defect))
    }

    fn failed(&self, text: fmt::Arguments<'_>, trouble: Trouble) -> LockError {
        LockError { text: format!("lease {}: {text}", self.name), trouble, source: None }
    }

    /// Watches the Lease forever and sends each change to `events`. A watch that fails, ends, or delivers no
    /// event for `silence` is restarted: at once if it delivered an event, after `pause()` otherwise.
    pub(super) async fn watch(
        self,
        silence: Duration,
        pause: impl Fn() -> Duration,
        events: mpsc::Sender<Event>,
    ) -> Infallible {
        let mut logged = TroubleLog::new(self.name.clone());
        loop {
            let mut delivered = false;
            let ended = self.watch_once(silence, &events, &mut delivered).await;
            // The end of a working watch is normal and not logged.
            if let Some(error) = ended.err().filter(|_| !delivered) {
                logged.log(error.trouble, Some(&error), "cannot watch the lease; polling it instead");
            }
            send(&events, Event::WatchDown).await;
            if !delivered {
                sleep(pause()).await;
            }
        }
    }

    /// Watches the Lease and sends each change to `events`, until the watch ends or delivers no event for
    /// `silence`: a leader renews far more often.
    async fn watch_once(
        &self,
        silence: Duration,
        events: &mpsc::Sender<Event>,
        delivered: &mut bool,
    ) -> Result<(), LockError> {
        // A role restricted to one resource name may watch only with this field selector.
        let only_this = WatchParams::default()
            .fields(&format!("metadata.name={}", self.name.name()))
            .timeout(WATCH_SECONDS)
            .disable_bookmarks();
        // Without a resourceVersion the watch starts with the present Lease, read from etcd and not from a
        // cache.
        let begun = self.within("watch", self.api.watch(&only_this, "")).await?;
        let mut watch = pin!(begun.map_err(|error| self.error("watch", error))?);
        send(events, Event::WatchUp).await;
        while let Ok(Some(event)) = timeout(silence, watch.next()).await {
            if let Some(event) = self.seen(event.map_err(|error| self.error("watch", error))?)? {
                *delivered = true;
                send(events, event).await;
            }
        }
        Ok(())
    }

    /// Returns the election's event for a watch event of the Lease; `None` for a bookmark. An error event,
    /// such as `410 Gone`, ends the watch as a broken connection does.
    fn seen(&self, event: WatchEvent<Lease>) -> Result<Option<Event>, LockError> {
        let read = |lease: &Lease| self.read("watch", lease);
        Ok(match event {
            WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                Some(Event::Seen(read(&lease)?, Version::of(lease)))
            }
            WatchEvent::Deleted(lease) => Some(Event::Gone(read(&lease)?, Version::of(lease))),
            WatchEvent::Bookmark(_) => None,
            WatchEvent::Error(status) => return Err(self.error("watch", Error::Api(status))),
        })
    }
}

/// Sends an event to the task of the elector, which outlives the watch.
async fn send(events: &mpsc::Sender<Event>, event: Event) {
    drop(events.send(event).await);
}

fn is_late(error: &Error) -> bool {
    links(error).any(<dyn std::error::Error>::is::<DeadlineExceeded>)
}

/// Returns the first 200 characters of a refusal's message on one line; a proxy may send a whole page as its
/// message.
fn first_words(text: &str) -> String {
    const MAX_CHARS: usize = 200;
    let words: Vec<_> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
