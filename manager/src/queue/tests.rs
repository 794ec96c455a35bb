#![expect(
    clippy::let_underscore_must_use,
    reason = "most tests here read the next attempt of a failed key from the queue"
)]

mod behaviours;
mod failures;
mod holds;
mod lanes;
mod model;
mod reference;
mod settings;
mod shutdown;
mod table;
mod threads;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::clock::Moment;
use super::waking::{Callers, Signals, Take};
use super::*;
use crate::key::tests::Id;
use crate::key::{Cause, Trigger};
use crate::metrics::{Format, Registry};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Delays are exact: 5, 10, 20 ms and so on.
fn exact() -> QueueSettings {
    with_retry(RetryPolicy::default().with_jitter(0))
}

fn with_retry(retry: RetryPolicy) -> QueueSettings {
    QueueSettings { retry, ..QueueSettings::default() }
}

/// Exact delays, and a rate over all retries.
fn limited(per_second: f64, burst: u32) -> QueueSettings {
    with_retry(exact().retry.with_rate(per_second, burst))
}

fn queue_with(settings: QueueSettings, workers: usize) -> WorkQueue<Id> {
    let metrics = QueueMetrics::register(&Registry::new());
    let queue = WorkQueue::new("test", settings, workers, &metrics);
    queue.shared.with(|inner| inner.random = fastrand::Rng::with_seed(1));
    queue
}

fn queue() -> WorkQueue<Id> {
    queue_with(exact(), 1)
}

fn strong() -> Add {
    Add::strong(Cause::bare(Trigger::Updated))
}

fn weak() -> Add {
    Add::weak(Cause::bare(Trigger::Resync))
}

/// An add after an edit of the spec.
fn new_generation() -> Add {
    Add { new_generation: true, ..strong() }
}

/// An add of a new object.
fn new() -> Add {
    Add { band: Band::New, ..strong() }
}

fn background() -> Add {
    Add::strong(Cause::bare(Trigger::Initial)).in_background()
}

/// Takes a key that must be ready now.
fn take(queue: &WorkQueue<Id>) -> Running<Id> {
    queue.try_get().expect("a key is ready")
}

/// Awaits a future under paused time, so that a lost wake-up fails a test instead of hanging it.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_hours(1), future).await.expect("woken within an hour")
}

async fn get(queue: &WorkQueue<Id>) -> Option<Running<Id>> {
    soon(queue.get()).await
}

/// Runs all ready keys, and returns them in the order in which they were handed out.
fn drain(queue: &WorkQueue<Id>) -> Vec<u32> {
    let next = || queue.try_get().map(|running| (running.key().0, running.done()).0);
    std::iter::from_fn(next).collect()
}

/// Puts a key into the retry lane: it fails, and its backoff ends.
async fn make_retry(queue: &WorkQueue<Id>, id: u32) {
    assert_eq!(queue.add(Id(id), strong()), Added::Queued);
    let running = take(queue);
    assert_eq!(running.key(), &Id(id), "another key was ready already");
    let _: Retried = running.retry("no");
    tokio::time::advance(ms(5)).await;
    assert_eq!(queue.find(&Id(id)).and_then(|key| key.lane), Some(Lane::Retry));
}

/// Returns the snapshots of all keys.
fn snapshots(queue: &WorkQueue<Id>) -> Vec<KeySnapshot<Id>> {
    let mut keys = Vec::new();
    queue.visit(|key| keys.push(key));
    keys
}

fn state(queue: &WorkQueue<Id>, id: u32) -> Option<State> {
    queue.find(&Id(id)).map(|key| key.state)
}
