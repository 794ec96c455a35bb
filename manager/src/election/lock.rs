//! One Lease on the server: read, created, replaced over a known state, and watched.
//!
//! The connection is one of its own without hidden retries (`client::Role::Lease`): what we send late must be our
//! decision, and what fails must be told at once. Every request has a deadline.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use kube::{Client, Error};
use tokio::time::{sleep, timeout};

use super::decide::{Answer, Call, Event};
use super::record::{Record, Version};

/// How long the server is asked to keep a watch: under five minutes, so that a middlebox that drops it is noticed.
const WATCH_SECONDS: u32 = 290;

/// A Lease by namespace and name. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct LeaseLock {
    api: Api<Lease>,
    namespace: Arc<str>,
    name: Arc<str>,
    /// Deadline of each request; of a watch, until it begins.
    deadline: Duration,
}

/// A request that told nothing about the Lease. Trying again helps unless the server refused it.
#[derive(Debug, thiserror::Error)]
pub(super) enum LockError {
    #[error(
        "not allowed to {verb} lease {lease}: the role needs create on leases, and get, list, watch, update and \
         patch on this one"
    )]
    Forbidden {
        verb: &'static str,
        lease: String,
        #[source]
        source: Box<Error>,
    },
    #[error("lease {lease}: no answer to {verb} within {deadline:?}")]
    Late { verb: &'static str, lease: String, deadline: Duration },
    #[error("lease {lease}: {verb} failed")]
    Failed {
        verb: &'static str,
        lease: String,
        #[source]
        source: Box<Error>,
    },
}

/// A watch that is begun anew for ever, step by step.
struct Watching<P> {
    lock: LeaseLock,
    /// A watch that tells nothing for so long is taken for dead: a leader renews far more often.
    silence: Duration,
    /// Wait before the next try after a watch that told nothing.
    pause: P,
    now: Phase,
    /// Whether the last try failed, so that only the first failure is a warning.
    failing: bool,
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
        }
    }

    /// Sends one request and returns what its answer says about the Lease.
    ///
    /// # Cancel safety
    /// Dropped, a write may or may not be done.
    pub(super) async fn call(&self, call: Call) -> Result<Answer, LockError> {
        let post = PostParams::default();
        let (verb, outcome) = match call {
            Call::Get => ("get", self.within("get", self.api.get(&self.name)).await?),
            Call::Create(record) => {
                let mut lease = Lease::default();
                lease.metadata.name = Some(self.name.as_ref().to_owned());
                lease.metadata.namespace = Some(self.namespace.as_ref().to_owned());
                record.write_into(&mut lease);
                ("create", self.within("create", self.api.create(&post, &lease)).await?)
            }
            Call::Update { record, over } => {
                let lease = over.with(&record);
                ("update", self.within("update", self.api.replace(&self.name, &post, &lease)).await?)
            }
        };
        match outcome {
            Ok(lease) => Ok(Answer::Is(Record::of(&lease), Version::of(lease))),
            Err(Error::Api(status)) if status.code == 404 && verb != "create" => Ok(Answer::Absent),
            Err(Error::Api(status)) if status.code == 409 => Ok(Answer::Conflict),
            Err(error) => Err(self.error(verb, error)),
        }
    }

    async fn within<T>(&self, verb: &'static str, request: impl Future<Output = T>) -> Result<T, LockError> {
        let late = |_| LockError::Late { verb, lease: self.to_string(), deadline: self.deadline };
        timeout(self.deadline, request).await.map_err(late)
    }

    fn error(&self, verb: &'static str, source: Error) -> LockError {
        let (lease, forbidden) =
            (self.to_string(), matches!(&source, Error::Api(status) if status.code == 403));
        let source = Box::new(source);
        if forbidden {
            LockError::Forbidden { verb, lease, source }
        } else {
            LockError::Failed { verb, lease, source }
        }
    }

    /// Watches for ever, beginning anew whenever a watch fails, ends, or is silent for `silence`. A watch that
    /// told nothing is followed by the next after `pause()`.
    pub(super) fn watch(
        self,
        silence: Duration,
        pause: impl Fn() -> Duration + Send + 'static,
    ) -> BoxStream<'static, Event> {
        let watching = Watching { lock: self, silence, pause, now: Phase::Beginning, failing: false };
        stream::unfold(watching, |watching| async { Some(watching.next().await) }).boxed()
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
                    let event = timeout(self.silence, events.next()).await;
                    if let Ok(Some(Ok(event))) = event {
                        if let Some(event) = state_of(event) {
                            *told = true;
                            self.failing = false;
                            return (event, self);
                        }
                    } else {
                        self.now = if *told { Phase::Beginning } else { Phase::Pausing };
                    }
                    // An error as an event (`410 Gone` and its like) is followed by the end of the stream.
                    if !matches!(self.now, Phase::Open { .. }) {
                        return (Event::WatchDown, self);
                    }
                }
            }
        }
    }

    fn complain(&mut self, error: &LockError) {
        if std::mem::replace(&mut self.failing, true) {
            tracing::debug!(error = error as &dyn std::error::Error, "cannot watch the lease");
        } else {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "cannot watch the lease; looking at it from time to time instead"
            );
        }
    }
}

fn state_of(event: WatchEvent<Lease>) -> Option<Event> {
    match event {
        WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
            Some(Event::Seen(Record::of(&lease), Version::of(lease)))
        }
        WatchEvent::Deleted(lease) => Some(Event::Gone(Record::of(&lease), Version::of(lease))),
        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => None,
    }
}
