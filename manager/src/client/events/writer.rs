//! Writes what the recorders of one manager recorded.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use http::{Method, Request, header};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::call::call;
use crate::client::error::WriteError;

use super::series::{Answer, Ledger, Observed, Operation, ServerAction};
use super::{EventCounts, Occurrence};

/// Writes that may be under way at once: a namespace that answers slowly must not hold up the others.
const MAX_IN_FLIGHT: usize = 8;
/// Between looks for series that ended.
const SWEEP_EVERY: Duration = Duration::from_mins(1);
/// For one write; the server is asked again after it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The one that writes for a recorder and all its clones; made by [`Recorder::new`](super::Recorder::new).
pub struct EventWriter {
    inbox: mpsc::Receiver<Occurrence>,
    client: kube::Client,
    instance: String,
    counts: EventCounts,
    ledger: Ledger,
    in_flight: FuturesUnordered<BoxFuture<'static, (Operation, Answer)>>,
}

// === impl EventWriter ===

impl EventWriter {
    pub(super) fn new(
        inbox: mpsc::Receiver<Occurrence>,
        client: kube::Client,
        instance: String,
        counts: EventCounts,
    ) -> Self {
        Self {
            inbox,
            client,
            instance,
            counts,
            ledger: Ledger::default(),
            in_flight: FuturesUnordered::new(),
        }
    }

    /// Writes until `stop`, or until every recorder is gone; then takes no more occurrences and writes what is left for
    /// at most `flush`.
    pub async fn run(mut self, stop: CancellationToken, flush: Duration) {
        let mut sweep = Instant::now() + SWEEP_EVERY;
        loop {
            self.start_due();
            let wake = self.next_start().map_or(sweep, |due| due.min(sweep));
            // Any order serves: each branch only changes the ledger.
            tokio::select! {
                () = stop.cancelled() => break,
                Some((operation, answer)) = self.in_flight.next() => self.settle(&operation, answer),
                received = self.inbox.recv() => match received {
                    Some(occurrence) => self.observe(&occurrence),
                    // Every recorder is gone.
                    None => break,
                },
                () = sleep_until(wake) => {}
            }
            if Instant::now() >= sweep {
                self.ledger.sweep(Instant::now());
                sweep = Instant::now() + SWEEP_EVERY;
            }
        }
        self.flush(flush).await;
    }

    async fn flush(mut self, limit: Duration) {
        self.inbox.close();
        while let Ok(occurrence) = self.inbox.try_recv() {
            self.observe(&occurrence);
        }
        self.ledger.hurry(Instant::now());
        let late = timeout(limit, self.drain()).await.is_err();
        if late {
            let left = self.ledger.pending();
            tracing::warn!(left, limit_seconds = limit.as_secs_f64(), "events not written before the end");
        }
    }

    async fn drain(&mut self) {
        loop {
            self.start_due();
            let due = self.next_start();
            if due.is_none() && self.in_flight.is_empty() {
                return;
            }
            tokio::select! {
                Some((operation, answer)) = self.in_flight.next() => self.settle(&operation, answer),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
    }

    fn observe(&mut self, occurrence: &Occurrence) {
        let outcome = match self.ledger.observe(occurrence, &self.instance, Instant::now()) {
            Observed::New => "new",
            Observed::Repeated => "repeated",
            Observed::Limited => "limited",
        };
        self.counts.count(outcome);
    }

    fn start_due(&mut self) {
        while self.in_flight.len() < MAX_IN_FLIGHT
            && let Some(operation) = self.ledger.take_due(Instant::now())
        {
            let client = self.client.clone();
            self.in_flight.push(Box::pin(async move {
                let answer = perform(&client, &operation.action).await;
                (operation, answer)
            }));
        }
    }

    /// When an operation could start; `None` also while all places are taken, since then an answer comes first.
    fn next_start(&self) -> Option<Instant> {
        self.ledger.next_due().filter(|_| self.in_flight.len() < MAX_IN_FLIGHT)
    }

    fn settle(&mut self, operation: &Operation, answer: Answer) {
        if self.ledger.answered(operation, answer, Instant::now()) {
            self.counts.count("failed");
        }
    }
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWriter").field("instance", &self.instance).finish_non_exhaustive()
    }
}

async fn perform(client: &kube::Client, action: &ServerAction) -> Answer {
    let request = match request(action) {
        Ok(request) => request,
        Err(error) => {
            tracing::warn!(%error, "event cannot be sent");
            return Answer::Refused;
        }
    };
    let creating = matches!(action, ServerAction::Create(_));
    let sent = timeout(WRITE_TIMEOUT, call(client, request, "event")).await;
    let Ok(sent) = sent else { return Answer::Again(None) };
    match sent {
        Ok(_) => Answer::Done,
        // A create whose answer was lost and which was then repeated.
        Err(error) if creating && error.is_conflict() => Answer::Done,
        Err(error) if error.is_not_found() => Answer::Gone,
        Err(error @ WriteError::Refused { .. }) => {
            let code = error.code().unwrap_or_default();
            if code == 429 || code >= 500 {
                return Answer::Again(error.retry_after());
            }
            // A namespace on its way out refuses new events; nobody will read them.
            tracing::debug!(%error, "event refused");
            Answer::Refused
        }
        Err(WriteError::Unanswered { .. }) => Answer::Again(None),
        Err(error) => {
            tracing::warn!(%error, "event cannot be written");
            Answer::Refused
        }
    }
}

fn request(action: &ServerAction) -> Result<Request<Bytes>, http::Error> {
    let collection = |namespace: &str| format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let (method, uri, content_type, body) = match action {
        ServerAction::Create(event) => {
            let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
            (Method::POST, collection(namespace), "application/json", json!(event))
        }
        ServerAction::Count { namespace, name, series } => {
            let uri = format!("{}/{name}", collection(namespace));
            (Method::PATCH, uri, "application/merge-patch+json", json!({ "series": series }))
        }
    };
    Request::builder()
        .method(method)
        .uri(uri)
        .header(header::CONTENT_TYPE, content_type)
        .header(header::ACCEPT, "application/json")
        .body(Bytes::from(body.to_string()))
}
