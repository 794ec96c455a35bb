//! Writes the Events of one manager to the API server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use http::Method;
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::call::{MERGE_PATCH, send};
use crate::client::error::WriteError;
use crate::key::Chain;

use super::Shared;
use super::counts::cause;
use super::series::{EventWrite, WriteResult};

/// Maximum number of Event writes in flight.
pub(super) const MAX_IN_FLIGHT: usize = 16;
/// Interval between removals of ended Event series.
const SWEEP_EVERY: Duration = Duration::from_mins(1);
/// Time limit of one attempt to write an Event.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes the Events of a recorder and all its clones to the API server; made by
/// [`Recorder::new`](super::Recorder::new).
#[derive(derive_more::Debug)]
#[debug("EventWriter {{ .. }}")]
pub struct EventWriter {
    shared: Arc<Shared>,
    client: kube::Client,
    /// Cancelled when the last recorder of this writer is dropped.
    all_dropped: CancellationToken,
    in_flight: FuturesUnordered<BoxFuture<'static, (EventWrite, WriteResult)>>,
    next_sweep: Instant,
}

// === impl EventWriter ===

impl EventWriter {
    pub(super) fn new(shared: Arc<Shared>, client: kube::Client, all_dropped: CancellationToken) -> Self {
        let next_sweep = Instant::now() + SWEEP_EVERY;
        Self { shared, client, all_dropped, in_flight: FuturesUnordered::new(), next_sweep }
    }

    /// Writes Events until `stop`, or until every recorder is dropped; then accepts no more occurrences and
    /// writes the remaining ones for at most `flush`.
    pub async fn run(mut self, stop: CancellationToken, flush: Duration) {
        let all_dropped = self.all_dropped.clone();
        // The order does not matter: dropping a step loses no result.
        tokio::select! {
            () = stop.cancelled() => {}
            () = all_dropped.cancelled() => {}
            () = async { loop { self.step().await } } => {}
        }
        self.shared.table.lock().start_flush(Instant::now());
        let drain = async {
            while self.shared.table.lock().unconfirmed() > 0 {
                self.step().await;
            }
        };
        if timeout(flush, drain).await.is_err() {
            let late = self.shared.table.lock().unconfirmed();
            let event = format_args!("not written within {} s at the end", flush.as_secs_f64());
            self.shared.counts.count_lost(cause::LATE, late, &event);
        }
    }

    /// Starts the Event writes that are due, then waits until one of them ends, another write becomes due, or
    /// a sweep is due.
    async fn step(&mut self) {
        while self.in_flight.len() < MAX_IN_FLIGHT {
            let Some(write) = self.shared.table.lock().take_due(Instant::now()) else { break };
            let client = self.client.clone();
            self.in_flight.push(Box::pin(async move {
                let result = perform(&client, &write).await;
                (write, result)
            }));
        }
        let has_room = self.in_flight.len() < MAX_IN_FLIGHT;
        let due = has_room.then(|| self.shared.table.lock().next_due(Instant::now())).flatten();
        // The order does not matter: each branch changes only the table, or starts the next step.
        tokio::select! {
            Some((write, result)) = self.in_flight.next() => {
                let lost = self.shared.table.lock().finish_write(&write, result, Instant::now());
                if let Some(lost) = lost {
                    self.shared.count_lost(lost);
                }
            }
            () = self.shared.wake.notified() => {}
            () = sleep_until(due.map_or(self.next_sweep, |due| due.min(self.next_sweep))) => {}
        }
        let now = Instant::now();
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_EVERY;
            let swept = self.shared.table.lock().sweep(now);
            drop(swept);
        }
    }
}

impl Drop for EventWriter {
    /// Closes the table of Events: occurrences that are recorded later count as lost.
    fn drop(&mut self) {
        self.shared.table.lock().close();
    }
}

pub(super) async fn perform(client: &kube::Client, write: &EventWrite) -> WriteResult {
    match timeout(WRITE_TIMEOUT, send_event(client, write)).await {
        Ok(Ok(())) => WriteResult::Written(write.count),
        Ok(Err(error)) => classify(write, &error),
        Err(_late) => WriteResult::Retry(None, format!("no answer within {} s", WRITE_TIMEOUT.as_secs())),
    }
}

async fn send_event(
    client: &kube::Client,
    EventWrite { create, event, .. }: &EventWrite,
) -> Result<(), WriteError> {
    let [namespace, name] =
        [&event.metadata.namespace, &event.metadata.name].map(|text| text.as_deref().unwrap_or_default());
    let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let (method, uri, content_type, body) = if *create {
        (Method::POST, events, "application/json", json!(event))
    } else {
        let series = json!({ "series": event.series });
        (Method::PATCH, format!("{events}/{name}"), MERGE_PATCH, series)
    };
    send(client, method, &uri, Some((content_type, body.to_string().into())), "event").await.map(drop)
}

fn classify(write: &EventWrite, error: &WriteError) -> WriteResult {
    let why = Chain(error).to_string();
    match error.code() {
        Some(404) => WriteResult::NotFound,
        // Names contain the time in nanoseconds and random digits, so an earlier attempt without a response
        // has created this Event. A higher count follows as an update.
        Some(409) if write.create => WriteResult::Written(1),
        Some(409 | 429 | 500..) => WriteResult::Retry(error.retry_after(), why),
        None if matches!(error, WriteError::Unanswered { .. }) => WriteResult::Retry(None, why),
        _ => WriteResult::Refused(why),
    }
}
