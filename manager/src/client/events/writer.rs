//! Writes what the recorders of one manager recorded.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::call::call;
use crate::client::error::WriteError;
use crate::key::Chain;

use super::drops::Cause;
use super::series::{Answer, Lost, Operation};
use super::wire::ServerAction;
use super::{Described, Shared};

/// Writes that may be under way at once: a namespace that answers slowly must not hold up the others.
const MAX_IN_FLIGHT: usize = 8;
/// Between looks for series that ended.
const SWEEP_EVERY: Duration = Duration::from_mins(1);
/// For one write; the server is asked again after it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The one that writes for a recorder and all its clones; made by [`Recorder::new`](super::Recorder::new).
pub struct EventWriter {
    shared: Arc<Shared>,
    client: kube::Client,
    /// Cancelled when every recorder is gone.
    deserted: CancellationToken,
    in_flight: FuturesUnordered<BoxFuture<'static, (Operation, Answer)>>,
}

// === impl EventWriter ===

impl EventWriter {
    pub(super) fn new(shared: Arc<Shared>, client: kube::Client, deserted: CancellationToken) -> Self {
        Self { shared, client, deserted, in_flight: FuturesUnordered::new() }
    }

    /// Writes until `stop`, or until every recorder is gone; then takes no more occurrences and writes what is left for
    /// at most `flush`.
    pub async fn run(mut self, stop: CancellationToken, flush: Duration) {
        let mut sweep = Instant::now() + SWEEP_EVERY;
        loop {
            self.start_due();
            let wake = self.next_start().map_or(sweep, |due| due.min(sweep));
            // Any order serves: each branch only changes the ledger, or makes the loop look at it.
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.deserted.cancelled() => break,
                Some((operation, answer)) = self.in_flight.next() => self.settle(&operation, answer),
                () = self.shared.wake.notified() => {}
                () = sleep_until(wake) => {}
            }
            let now = Instant::now();
            if now >= sweep {
                // One at a time: recorders wait for the lock.
                while self.shared.ledger.lock().end_idle(now) {}
                sweep = now + SWEEP_EVERY;
            }
        }
        self.flush(flush).await;
    }

    async fn flush(mut self, limit: Duration) {
        self.shared.ledger.lock().hurry(Instant::now());
        if timeout(limit, self.drain()).await.is_err() {
            let late = self.shared.ledger.lock().unconfirmed();
            let what = format_args!("not written within {} s at the end", limit.as_secs_f64());
            self.shared.counts.lost(Cause::Late, late, &what);
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

    fn start_due(&mut self) {
        while self.in_flight.len() < MAX_IN_FLIGHT {
            let Some(operation) = self.shared.ledger.lock().take_due(Instant::now()) else { return };
            let client = self.client.clone();
            self.in_flight.push(Box::pin(async move {
                let answer = perform(&client, &operation.action).await;
                (operation, answer)
            }));
        }
    }

    /// When an operation could start; `None` also while all places are taken, since then an answer comes first.
    fn next_start(&self) -> Option<Instant> {
        let free = self.in_flight.len() < MAX_IN_FLIGHT;
        if free { self.shared.ledger.lock().next_due(Instant::now()) } else { None }
    }

    fn settle(&self, operation: &Operation, answer: Answer) {
        let lost = self.shared.ledger.lock().answered(operation, answer, Instant::now());
        if let Some(Lost { cause, count, event, why }) = lost {
            let regarding = event.regarding.unwrap_or_default();
            let reason = event.reason.unwrap_or_default();
            let described = Described { reason: &reason, regarding: &regarding };
            self.shared.counts.lost(cause, count, &format_args!("{described}: {why}"));
        }
    }
}

impl Drop for EventWriter {
    /// Nobody will write any more, however the writer ended.
    fn drop(&mut self) {
        self.shared.ledger.lock().close();
    }
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWriter").finish_non_exhaustive()
    }
}

pub(super) async fn perform(client: &kube::Client, action: &ServerAction) -> Answer {
    let request = match action.request() {
        Ok(request) => request,
        Err(error) => return Answer::Refused(Chain(&error).to_string()),
    };
    match timeout(WRITE_TIMEOUT, call(client, request, "event")).await {
        Ok(Ok(_)) => Answer::Done,
        Ok(Err(error)) => judge(action, &error),
        Err(_late) => Answer::Again(None, format!("no answer within {} s", WRITE_TIMEOUT.as_secs())),
    }
}

fn judge(action: &ServerAction, error: &WriteError) -> Answer {
    let why = Chain(error).to_string();
    match (action, error.code()) {
        (_, Some(404)) => Answer::Gone,
        (ServerAction::Create(_), Some(409)) => Answer::Exists,
        // What the server says when a `test` of the patch fails.
        (ServerAction::Adopt(_), Some(422)) => Answer::Foreign,
        (_, Some(409 | 429 | 500..)) => Answer::Again(error.retry_after(), why),
        (_, None) if matches!(error, WriteError::Unanswered { .. }) => Answer::Again(None, why),
        _ => Answer::Refused(why),
    }
}
