//! One Lease on the server: read, created, replaced over a known state, and watched.
//!
//! The connection is one of its own without hidden retries (`client::Role::Lease`): what we send late must be our
//! decision, and what fails must be told at once. Every request has a deadline.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, GetParams, PostParams, Request as Requests, WatchEvent, WatchParams};
use kube::core::request::Error as RequestError;
use kube::{Client, Error};
use tokio::time::{Instant, sleep, timeout};

use super::decide::{Answer, Call, Event};
use super::notice::Notice;
use super::record::{Record, Version};
use super::trouble::{Trouble, trouble_log};
use crate::client::connect::DeadlineExceeded;
use crate::client::error::links;
use crate::key::Chain;
use crate::util::LogOnce;

/// How long the server is asked to keep a watch: under five minutes, so that a middlebox that drops it is noticed.
const WATCH_SECONDS: u32 = 290;

/// What to suspect of an answer that no API server gives to the request.
const SUSPECT: &str = "something between here and the API server answers in its place";

/// A Lease by namespace and name. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct LeaseLock {
    api: Api<Lease>,
    namespace: Arc<str>,
    name: Arc<str>,
    /// Deadline of each request; of a watch, until it begins.
    deadline: Duration,
    pub(super) notice: Notice,
}

/// A request that told nothing about the Lease. Trying again helps unless the server refused it.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct LockError {
    text: String,
    /// The same trouble is logged once.
    pub(super) trouble: Trouble,
    #[source]
    source: Option<Box<Error>>,
}

/// A watch that is begun anew for ever, step by step.
struct Watching<P> {
    lock: LeaseLock,
    /// A watch that tells nothing for so long is taken for dead: a leader renews far more often.
    silence: Duration,
    /// Wait before the next try after a watch that told nothing.
    pause: P,
    now: Phase,
    logged: LogOnce<Trouble>,
}

enum Phase {
    Pausing,
    Beginning,
    Open {
        events: BoxStream<'static, Result<WatchEvent<Lease>, Error>>,
        /// Whether it told anything yet.
        told: bool,
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

    /// Sends one request and returns what its answer says about the Lease.
    ///
    /// # Cancel safety
    /// Dropped, a write may or may not be done.
    pub(super) async fn call(&self, call: Call) -> Result<Answer, LockError> {
        let (client, requests) = (self.api.clone().into_client(), Requests::new(self.api.resource_url()));
        let post = PostParams::default();
        let asked = match &call {
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
        // Not by the client: it logs the whole of what it cannot read, each time.
        let text = self.within(verb, client.request_text(request)).await?;
        match text.and_then(|text| serde_json::from_str::<Lease>(&text).map_err(Error::SerdeError)) {
            Ok(lease) => {
                let record = self.read(verb, &lease)?;
                // Whoever waits for us goes by what is stored: we must not go by anything else.
                if asked.is_some_and(|asked| asked != record) {
                    let other = format_args!(
                        "what {verb} stored is not what was sent; {SUSPECT}, or an admission webhook changes Leases"
                    );
                    return Err(self.failed(other, Trouble::Strange("changed")));
                }
                Ok(Answer::Is(record, Version::of(lease)))
            }
            // Only an API server gives this reason: it is not the page of a proxy that knows no such path.
            Err(Error::Api(status)) if status.reason == "NotFound" && verb != "create" => Ok(Answer::Absent),
            Err(Error::Api(status)) if status.code == 409 => Ok(Answer::Conflict),
            Err(error) => Err(self.error(verb, error)),
        }
    }

    async fn within<T>(&self, verb: &'static str, request: impl Future<Output = T>) -> Result<T, LockError> {
        timeout(self.deadline, request).await.map_err(|_| self.late(verb))
    }

    /// Reads an answer, if it is one: what stands for the Lease has its name and a version to write over.
    fn read(&self, verb: &'static str, lease: &Lease) -> Result<Record, LockError> {
        let strange = |what| Err(self.strange(verb, what));
        let of = |found: &Option<String>, own: &str| found.as_deref() == Some(own);
        let metadata = &lease.metadata;
        if !of(&metadata.name, &self.name) || !of(&metadata.namespace, &self.namespace) {
            return strange("is of another Lease, or of none");
        }
        if metadata.resource_version.as_deref().is_none_or(str::is_empty) {
            return strange("has no metadata.resourceVersion");
        }
        self.notice.read(lease);
        Ok(Record::of(lease))
    }

    fn error(&self, verb: &'static str, error: Error) -> LockError {
        match error {
            Error::Api(status) if status.code == 403 => LockError {
                text: format!(
                    "not allowed to {verb} lease {self}: the role needs create on leases, and get, watch and update \
                     on this one"
                ),
                trouble: Trouble::Refused(403),
                source: Some(Box::new(Error::Api(status))),
            },
            Error::Api(status) => {
                let (code, text) = (status.code, first_words(&status.message));
                self.failed(format_args!("{verb} was refused: {code} {text}"), Trouble::Refused(code))
            }
            Error::SerdeError(_) => self.strange(verb, "is no Lease"),
            // The connection has the same deadline as we, and may be the first to say so.
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

    /// An answer that is not an API server's answer to this request. Nothing in it is believed.
    fn strange(&self, verb: &str, what: &'static str) -> LockError {
        self.failed(format_args!("the answer to {verb} {what}; {SUSPECT}"), Trouble::Strange(what))
    }

    fn failed(&self, what: fmt::Arguments<'_>, trouble: Trouble) -> LockError {
        LockError { text: format!("lease {self}: {what}"), trouble, source: None }
    }

    /// Watches for ever, beginning anew whenever a watch fails, ends, or is silent for `silence`. A watch that
    /// told nothing is followed by the next after `pause()`.
    pub(super) fn watch(
        self,
        silence: Duration,
        pause: impl Fn() -> Duration + Send + 'static,
    ) -> BoxStream<'static, Event> {
        let watching = Watching { lock: self, silence, pause, now: Phase::Beginning, logged: trouble_log() };
        stream::unfold(watching, |watching| async { Some(watching.next().await) }).boxed()
    }

    /// Returns what an event of the watch tells, if anything. An error told as an event (`410 Gone` and its like) ends
    /// the watch, as one that is no event does.
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
        // By field selector: that is what a role restricted to one name may watch.
        let only_this = WatchParams::default()
            .fields(&format!("metadata.name={}", self.name))
            .timeout(WATCH_SECONDS)
            .disable_bookmarks();
        // No version: begin with the present state, read from the store and not from a cache that lags.
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
    /// Goes on until there is something to tell.
    async fn next(mut self) -> (Event, Self) {
        loop {
            match &mut self.now {
                Phase::Pausing => {
                    sleep((self.pause)()).await;
                    self.now = Phase::Beginning;
                }
                Phase::Beginning => match self.lock.begin_watch().await {
                    Ok(events) => {
                        self.now = Phase::Open { events, told: false };
                        return (Event::WatchUp, self);
                    }
                    Err(error) => {
                        self.complain(&error);
                        self.now = Phase::Pausing;
                        return (Event::WatchDown, self);
                    }
                },
                Phase::Open { events, told } => {
                    let seen = match timeout(self.silence, events.next()).await {
                        Ok(Some(Ok(event))) => self.lock.seen(event),
                        Ok(Some(Err(error))) => Err(Some(self.lock.error("watch", error))),
                        // Its end, or silence.
                        Ok(None) | Err(_) => Err(None),
                    };
                    match seen {
                        Ok(None) => {}
                        Ok(Some(event)) => {
                            *told = true;
                            return (event, self);
                        }
                        Err(error) => {
                            // A watch that has told something may break.
                            let broken = error.filter(|_| !*told);
                            self.now = if *told { Phase::Beginning } else { Phase::Pausing };
                            if let Some(error) = broken {
                                self.complain(&error);
                            }
                            return (Event::WatchDown, self);
                        }
                    }
                }
            }
        }
    }

    fn complain(&mut self, error: &LockError) {
        let news = self.logged.is_first(error.trouble, Instant::now());
        let (lease, error) = (&self.lock, Chain(error));
        if news {
            tracing::warn!(%lease, %error, "cannot watch the lease; looking at it from time to time instead");
        } else {
            tracing::debug!(%lease, %error, "cannot watch the lease");
        }
    }
}

fn is_late(error: &Error) -> bool {
    links(error).any(<dyn std::error::Error>::is::<DeadlineExceeded>)
}

fn json(lease: &Lease) -> Result<Vec<u8>, RequestError> {
    serde_json::to_vec(lease).map_err(RequestError::SerializeBody)
}

/// What a server says of a refusal may be a whole page of something that is no API server.
fn first_words(text: &str) -> String {
    const MOST: usize = 200;
    let words: Vec<_> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
