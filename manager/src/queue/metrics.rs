//! What scrapers read about all queues of a manager.
//!
//! One collector walks the registered queues at each scrape, so that no family is printed twice, a gauge is never
//! older than the scrape (client-go refreshes two of them every half second, and stops at shutdown), and the series
//! of a queue end with it. Families and labels are controller-runtime's; ours start with `mainstay_queue_`.
//!
//! Differs from controller-runtime in one count: `workqueue_retries_total` counts failures that are retried, not
//! every add with a delay, so a `RequeueAfter` is no retry.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::clock::Span;
use super::machine::{Inner, Tally};
use super::snapshot::{Counts, unfinished};
use crate::key::Key;
use crate::metrics::Registry;

/// Upper bounds of the buckets in seconds: controller-runtime's, ten times wider from one to the next. Its sums are
/// inexact, and a bound is a label: one that is written otherwise is another series.
#[expect(clippy::unreadable_literal, reason = "what Go prints")]
const BOUNDS: [f64; 12] =
    [1e-8, 1e-7, 1e-6, 9.999999999999999e-6, 9.999999999999999e-5, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0];

const DEPTH: &str = "workqueue_depth";

/// Upper bounds of the buckets by attempts.
const ATTEMPTS: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

/// The metrics of all queues of one manager. Cheap to clone.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    /// A queue that has gone is dropped from the list at the next registration.
    queues: Arc<Mutex<Vec<Weak<dyn Observed>>>>,
}

/// A queue, as its metrics see it. Asked without any lock of this module held by the queue.
pub(super) trait Observed: Send + Sync {
    /// Returns the queue's name: the value of the labels `name` and `controller`.
    fn name(&self) -> &str;
    fn read(&self) -> Reading;
}

/// The figures of one queue at one moment.
#[derive(Debug)]
pub(super) struct Reading {
    counts: Counts,
    tally: Tally,
    keys: usize,
    unfinished: Duration,
    longest: Duration,
}

/// A histogram over [`BOUNDS`], kept under the queue's lock so that observing costs a few comparisons.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread {
    /// Observations per bucket; the last one is for those beyond all bounds.
    buckets: [u64; BOUNDS.len() + 1],
    sum: Span,
}

/// Retries by how often their key had failed in a row: a histogram over [`ATTEMPTS`].
#[derive(Clone, Debug, Default)]
pub(super) struct Retries {
    buckets: [u64; ATTEMPTS.len() + 1],
    failures: u64,
}

// === impl QueueMetrics ===

impl QueueMetrics {
    /// Registers the families. Once per registry: a second call would print them twice.
    pub fn register(registry: &Registry) -> Self {
        let metrics = Self { queues: Arc::default() };
        registry.reserve(FAMILIES.map(|(name, ..)| name));
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// Has the figures of a queue printed for as long as it exists.
    pub(super) fn observe(&self, queue: Weak<dyn Observed>) {
        let mut list = self.queues.lock();
        list.retain(|queue| queue.strong_count() > 0);
        list.push(queue);
    }

    /// Has them printed no more, though somebody may still hold the queue.
    pub(super) fn forget(&self, gone: &Weak<dyn Observed>) {
        self.queues.lock().retain(|queue| !std::ptr::addr_eq(queue.as_ptr(), gone.as_ptr()));
    }
}

impl Collector for QueueMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let queues: Vec<Arc<dyn Observed>> = self.queues.lock().iter().filter_map(Weak::upgrade).collect();
        let mut readings: Vec<(&str, Reading)> =
            queues.iter().map(|queue| (queue.name(), queue.read())).collect();
        readings.sort_by_key(|(name, _)| *name);
        for (family, help, value) in FAMILIES {
            let mut series = encoder.encode_descriptor(family, help, None, value.metric_type())?;
            for (name, reading) in &readings {
                let labels = [("name", *name), ("controller", *name), ("priority", "")];
                // controller-runtime's depth has a third label, which is empty for a queue without priorities.
                let labels = if family == DEPTH { &labels[..] } else { &labels[..2] };
                value.encode(series.encode_family(&labels)?, reading)?;
            }
        }
        Ok(())
    }
}

// === impl Reading ===

impl Reading {
    pub(super) fn of<Q: Key>(inner: &Inner<Q>) -> Self {
        let (unfinished, longest) = unfinished(inner);
        Self {
            counts: inner.counts(),
            tally: inner.tally.clone(),
            keys: inner.slots.len(),
            unfinished,
            longest,
        }
    }

    /// Returns `count` on the replica that leads and 0 on a standby, whose keys nobody waits for.
    fn led(&self, count: usize) -> usize {
        if self.counts.leading { count } else { 0 }
    }
}

// === impl Spread ===

impl Spread {
    pub(super) fn observe(&mut self, span: Span) {
        // The bound of bucket `i` is ten to the power of `i + 1` nanoseconds, and belongs to it.
        let bucket = span.nanos().saturating_sub(1).max(1).ilog10() as usize;
        self.buckets[bucket.min(BOUNDS.len())] += 1;
        self.sum = self.sum.saturating_add(span);
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = BOUNDS.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.buckets).collect();
        let count = self.buckets.iter().sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum.duration().as_secs_f64(), count, &buckets, None)
    }
}

// === impl Retries ===

impl Retries {
    /// Counts a retry of a key that has failed this often in a row.
    pub(super) fn count(&mut self, failures: u32) {
        // The bound of bucket `i` is two to the power of `i`, and belongs to it.
        let bucket = failures.saturating_sub(1).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.buckets[bucket.min(ATTEMPTS.len())] += 1;
        self.failures = self.failures.saturating_add(failures.into());
    }

    fn all(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = ATTEMPTS.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.buckets).collect();
        #[expect(clippy::cast_precision_loss, reason = "a sum that is told as a float")]
        let sum = self.failures as f64;
        encoder.encode_histogram::<NoLabelSet>(sum, self.all(), &buckets, None)
    }
}

/// How a reading's value is found, and what it is.
enum Value {
    Counter(fn(&Reading) -> u64),
    Count(fn(&Reading) -> usize),
    Seconds(fn(&Reading) -> Duration),
    Histogram(fn(&Reading) -> &Spread),
    Attempts(fn(&Reading) -> &Retries),
}

/// Each family's name, help and value.
const FAMILIES: [(&str, &str, Value); 13] = [
    (
        DEPTH,
        "Keys ready for a worker; 0 on a standby replica",
        Value::Count(|reading| reading.led(reading.counts.ready())),
    ),
    (
        "workqueue_adds",
        "Keys that became ready, or were added while they ran",
        Value::Counter(|reading| reading.tally.adds),
    ),
    (
        "workqueue_queue_duration_seconds",
        "How long keys were ready before a worker took them",
        Value::Histogram(|reading| &reading.tally.queued),
    ),
    (
        "workqueue_work_duration_seconds",
        "How long runs took",
        Value::Histogram(|reading| &reading.tally.worked),
    ),
    (
        "workqueue_unfinished_work_seconds",
        "How long the runs under way have taken so far, all together",
        Value::Seconds(|reading| reading.unfinished),
    ),
    (
        "workqueue_longest_running_processor_seconds",
        "How long the longest run under way has taken so far",
        Value::Seconds(|reading| reading.longest),
    ),
    (
        "workqueue_retries",
        "Failed runs that are retried",
        Value::Counter(|reading| reading.tally.retries.all()),
    ),
    (
        "mainstay_queue_retry_attempts",
        "How often a key had failed in a row, for each run that is retried",
        Value::Attempts(|reading| &reading.tally.retries),
    ),
    (
        "mainstay_queue_delayed_keys",
        "Keys that wait for a moment, in backoff or because they asked for it; 0 on a standby replica",
        Value::Count(|reading| reading.led(reading.counts.delayed)),
    ),
    (
        "mainstay_queue_parked_keys",
        "Keys that failed for good, or too often, and wait for something to change",
        Value::Count(|reading| reading.counts.parked - reading.counts.paused),
    ),
    (
        "mainstay_queue_paused_keys",
        "Keys set aside without having failed, since their object is paused",
        Value::Count(|reading| reading.counts.paused),
    ),
    (
        "mainstay_queue_oldest_ready_seconds",
        "How long the oldest ready key has been ready; 0 on a standby replica",
        Value::Seconds(|reading| match reading.counts.oldest_ready {
            Some(oldest) if reading.counts.leading => oldest,
            _ => Duration::ZERO,
        }),
    ),
    (
        "mainstay_queue_warm_keys",
        "Keys a standby replica holds for the moment it leads; 0 on the leader",
        Value::Count(|reading| if reading.counts.leading { 0 } else { reading.keys }),
    ),
];

// === impl Value ===

impl Value {
    fn metric_type(&self) -> MetricType {
        match self {
            Self::Counter(_) => MetricType::Counter,
            Self::Count(_) | Self::Seconds(_) => MetricType::Gauge,
            Self::Histogram(_) | Self::Attempts(_) => MetricType::Histogram,
        }
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>, reading: &Reading) -> fmt::Result {
        match self {
            Self::Counter(value) => encoder.encode_counter::<NoLabelSet, _, u64>(&value(reading), None),
            Self::Count(value) => encoder.encode_gauge(&u64::try_from(value(reading)).unwrap_or(u64::MAX)),
            Self::Seconds(value) => encoder.encode_gauge(&value(reading).as_secs_f64()),
            Self::Histogram(value) => value(reading).encode(encoder),
            Self::Attempts(value) => value(reading).encode(encoder),
        }
    }
}

#[cfg(test)]
mod tests;
