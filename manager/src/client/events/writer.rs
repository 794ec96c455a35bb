//! Writes the Events of one manager to the API server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use http::Method;
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::call::{call, request};
use crate::client::error::WriteError;
use crate::key::Chain;

use super::Shared;
use super::counts::cause;
use super::series::{Answer, Write};

/// Writes in flight at most.
pub(super) const MAX_IN_FLIGHT: usize = 16;
/// Between removals of ended series.
const SWEEP_EVERY: Duration = Duration::from_mins(1);
/// For one attempt.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes the Events of a recorder and all its clones; made by [`Recorder::new`](super::Recorder::new).
pub struct EventWriter {
    shared: Arc<Shared>,
    client: kube::Client,
    /// Cancelled when every recorder is gone.
    deserted: CancellationToken,
    in_flight: FuturesUnordered<BoxFuture<'static, (Write, Answer)>>,
    next_sweep: Instant,
}

// === impl EventWriter ===

impl EventWriter {
    pub(super) fn new(shared: Arc<Shared>, client: kube::Client, deserted: CancellationToken) -> Self {
        let next_sweep = Instant::now() + SWEEP_EVERY;
        Self { shared, client, deserted, in_flight: FuturesUnordered::new(), next_sweep }
    }

    /// Writes until `stop`, or until every recorder is dropped; then accepts no more occurrences and writes the remaining
    /// ones for at most `flush`.
    pub async fn run(mut self, stop: CancellationToken, flush: Duration) {
        let deserted = self.deserted.clone();
        // Any order serves: a step that is dropped has lost no answer.
        tokio::select! {
            () = stop.cancelled() => {}
            () = deserted.cancelled() => {}
            () = async { loop { self.step().await } } => {}
        }
        self.shared.ledger.lock().hurry(Instant::now());
        let drain = async {
            while self.shared.ledger.lock().unconfirmed() > 0 {
                self.step().await;
            }
        };
        if timeout(flush, drain).await.is_err() {
            let late = self.shared.ledger.lock().unconfirmed();
            let event = format_args!("not written within {} s at the end", flush.as_secs_f64());
            self.shared.counts.lost(cause::LATE, late, &event);
        }
    }

    /// Starts the writes that are due, and waits for an answer or for the next moment at which there may be more to do.
    async fn step(&mut self) {
        while self.in_flight.len() < MAX_IN_FLIGHT {
            let Some(write) = self.shared.ledger.lock().take_due(Instant::now()) else { break };
            let client = self.client.clone();
            self.in_flight.push(Box::pin(async move {
                let answer = perform(&client, &write).await;
                (write, answer)
            }));
        }
        let has_room = self.in_flight.len() < MAX_IN_FLIGHT;
        let due = has_room.then(|| self.shared.ledger.lock().next_due(Instant::now())).flatten();
        // Any order serves: each branch only changes the ledger, or lets the next step look at it.
        tokio::select! {
            Some((write, answer)) = self.in_flight.next() => {
                let lost = self.shared.ledger.lock().answered(&write, answer, Instant::now());
                if let Some(lost) = lost {
                    self.shared.lost(lost);
                }
            }
            () = self.shared.wake.notified() => {}
            () = sleep_until(due.map_or(self.next_sweep, |due| due.min(self.next_sweep))) => {}
        }
        let now = Instant::now();
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_EVERY;
            let swept = self.shared.ledger.lock().sweep(now);
            drop(swept);
        }
    }
}

impl Drop for EventWriter {
    /// However the writer ended, later occurrences count as lost.
    fn drop(&mut self) {
        self.shared.ledger.lock().close();
    }
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWriter").finish_non_exhaustive()
    }
}

pub(super) async fn perform(client: &kube::Client, write: &Write) -> Answer {
    match timeout(WRITE_TIMEOUT, send(client, write)).await {
        Ok(Ok(())) => Answer::Done(write.count),
        Ok(Err(error)) => judge(write, &error),
        Err(_late) => Answer::Again(None, format!("no answer within {} s", WRITE_TIMEOUT.as_secs())),
    }
}

async fn send(client: &kube::Client, Write { create, event, .. }: &Write) -> Result<(), WriteError> {
    let [namespace, name] =
        [&event.metadata.namespace, &event.metadata.name].map(|text| text.as_deref().unwrap_or_default());
    let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let (method, uri, content_type, body) = if *create {
        (Method::POST, events, "application/json", json!(event))
    } else {
        let series = json!({ "series": event.series });
        (Method::PATCH, format!("{events}/{name}"), "application/merge-patch+json", series)
    };
    let request = request(method, &uri, Some(content_type), body.to_string().into(), "event")?;
    call(client, request, "event").await.map(drop)
}

fn judge(write: &Write, error: &WriteError) -> Answer {
    let why = Chain(error).to_string();
    match error.code() {
        Some(404) => Answer::Gone,
        // Names hold the time in nanoseconds and random digits: an earlier attempt, whose answer was lost, has made it.
        // A higher count follows as an update.
        Some(409) if write.create => Answer::Done(1),
        Some(409 | 429 | 500..) => Answer::Again(error.retry_after(), why),
        None if matches!(error, WriteError::Unanswered { .. }) => Answer::Again(None, why),
        _ => Answer::Refused(why),
    }
}
