//! The metrics of all queues of a manager.
//!
//! One collector reads the registered queues at each scrape, so that no family is printed twice, a gauge is
//! never older than the scrape (client-go refreshes two of them every half second, and stops at shutdown),
//! and the series of a queue end with it. Families and labels are controller-runtime's; families of mainstay
//! start with `mainstay_queue_`.
//!
//! Differs from controller-runtime in one count: `workqueue_retries_total` counts failures that are retried,
//! not every add with a delay, so a `RequeueAfter` is no retry.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::clock::Span;
use super::machine::{Inner, Totals};
use super::slots::SlotState;
use super::snapshot::Counts;
use crate::key::Key;
use crate::metrics::Registry;

/// Upper bounds of the buckets of the duration histograms, in seconds: controller-runtime's, each ten times
/// the one before. Its products are inexact, and a bound is the value of a label: another spelling would be
/// another series.
#[expect(clippy::unreadable_literal, reason = "the spelling of Go")]
const BOUNDS: [f64; 12] =
    [1e-8, 1e-7, 1e-6, 9.999999999999999e-6, 9.999999999999999e-5, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0];

/// Upper bounds of the buckets of the histogram of retries, in failures of the key in a row.
const ATTEMPTS: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

const DEPTH: &str = "workqueue_depth";

/// The metrics of all queues of one manager. Cheap to clone.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    /// The queues with figures to print. The next registration removes queues that no longer exist.
    queues: Arc<Mutex<Vec<Weak<dyn Observed>>>>,
}

/// A queue with keys of any type, of which the metrics read the figures. Its methods take the queue's lock,
/// and no lock of this module is taken under that one.
pub(super) trait Observed: Send + Sync {
    fn read(&self) -> Reading;
}

/// The figures of one queue at one moment, from which its metrics are printed.
#[derive(Debug)]
pub(super) struct Reading {
    /// The queue's name: the value of the labels `name` and `controller`.
    name: Arc<str>,
    counts: Counts,
    totals: Totals,
    keys: usize,
    unfinished: Duration,
    longest: Duration,
}

/// A histogram over [`BOUNDS`] or [`ATTEMPTS`], updated under the queue's lock, so that an observation costs
/// a few comparisons.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// Number of observations per bucket of the histogram; the one after the last bound is for those beyond
    /// all bounds.
    buckets: [u64; BOUNDS.len() + 1],
    /// Sum of all observations of the histogram, in nanoseconds or attempts.
    sum: u64,
}

/// The type of a metric family, with the function that computes its value from the figures of a queue.
enum Value {
    Counter(fn(&Reading) -> u64),
    Count(fn(&Reading) -> usize),
    Seconds(fn(&Reading) -> Duration),
    Durations(fn(&Reading) -> &Histogram),
    Attempts(fn(&Reading) -> &Histogram),
}

use Value::{Attempts, Count, Counter, Durations, Seconds};

/// The name, help text and value of each metric family of the queues.
const FAMILIES: [(&str, &str, Value); 13] = [
    (DEPTH, "Keys ready for a worker; 0 on a standby replica", Count(|it| it.led(it.counts.ready()))),
    ("workqueue_adds", "Keys that became ready, or were added while they ran", Counter(|it| it.totals.adds)),
    (
        "workqueue_queue_duration_seconds",
        "How long keys were ready before a worker took them",
        Durations(|it| &it.totals.queued),
    ),
    ("workqueue_work_duration_seconds", "How long runs took", Durations(|it| &it.totals.worked)),
    (
        "workqueue_unfinished_work_seconds",
        "How long the runs under way have taken so far, all together",
        Seconds(|it| it.unfinished),
    ),
    (
        "workqueue_longest_running_processor_seconds",
        "How long the longest run under way has taken so far",
        Seconds(|it| it.longest),
    ),
    ("workqueue_retries", "Failed runs that are retried", Counter(|it| it.totals.retries.all())),
    (
        "mainstay_queue_retry_attempts",
        "How often a key had failed in a row, for each run that is retried",
        Attempts(|it| &it.totals.retries),
    ),
    (
        "mainstay_queue_delayed_keys",
        "Keys that wait for a moment, in backoff or because they asked for it; 0 on a standby replica",
        Count(|it| it.led(it.counts.delayed)),
    ),
    (
        "mainstay_queue_parked_keys",
        "Keys that failed for good, or too often, and wait for something to change",
        Count(|it| it.counts.parked - it.counts.paused),
    ),
    (
        "mainstay_queue_paused_keys",
        "Keys set aside without having failed, since their object is paused",
        Count(|it| it.counts.paused),
    ),
    (
        "mainstay_queue_oldest_ready_seconds",
        "How long the oldest ready key has been ready; 0 on a standby replica",
        Seconds(|it| it.led(it.counts.oldest_ready.unwrap_or_default())),
    ),
    (
        "mainstay_queue_warm_keys",
        "Keys a standby replica holds for the moment it leads; 0 on the leader",
        Count(|it| if it.counts.leading { 0 } else { it.keys }),
    ),
];

// === impl QueueMetrics ===

impl QueueMetrics {
    /// Registers the metric families of the queues in `registry`. Call it once per registry: a second call
    /// would print them twice.
    pub fn register(registry: &Registry) -> Self {
        let metrics = Self { queues: Arc::default() };
        registry.reserve(FAMILIES.map(|(name, ..)| name));
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// Adds a queue to the metrics: each scrape prints its figures, for as long as the queue exists.
    pub(super) fn observe<T: Observed + 'static>(&self, queue: &Arc<T>) {
        let mut list = self.queues.lock();
        list.retain(|queue| queue.strong_count() > 0);
        list.push(Arc::downgrade(queue) as Weak<dyn Observed>);
    }

    /// Removes a queue from the metrics: its figures are no longer printed, even if it still exists.
    pub(super) fn forget<T>(&self, gone: &Arc<T>) {
        self.queues.lock().retain(|queue| !std::ptr::addr_eq(queue.as_ptr(), Arc::as_ptr(gone)));
    }
}

impl Collector for QueueMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let queues: Vec<Arc<dyn Observed>> = self.queues.lock().iter().filter_map(Weak::upgrade).collect();
        let mut readings: Vec<Reading> = queues.iter().map(|queue| queue.read()).collect();
        readings.sort_by(|one, other| one.name.cmp(&other.name));
        for (family, help, value) in FAMILIES {
            let mut series = encoder.encode_descriptor(family, help, None, value.metric_type())?;
            for reading in &readings {
                let labels = [("name", &*reading.name), ("controller", &*reading.name), ("priority", "")];
                // controller-runtime's depth has a third label, which is empty for a queue without
                // priorities.
                let labels = if family == DEPTH { &labels[..] } else { &labels[..2] };
                value.encode(series.encode_family(&labels)?, reading)?;
            }
        }
        Ok(())
    }
}

// === impl Reading ===

impl Reading {
    pub(super) fn of<Q: Key>(name: Arc<str>, inner: &Inner<Q>) -> Self {
        let runs = || {
            inner.running.iter().map(|slot| match inner.slots.get(*slot).state {
                SlotState::Running(run) => inner.now - run.since,
                _ => Duration::ZERO,
            })
        };
        Self {
            name,
            counts: inner.counts(),
            totals: inner.totals.clone(),
            keys: inner.slots.pages.len(),
            unfinished: runs().sum(),
            longest: runs().max().unwrap_or_default(),
        }
    }

    /// Returns `value` if the replica of this queue leads, and zero on a standby replica, where waiting keys
    /// are no backlog.
    fn led<T: Default>(&self, value: T) -> T {
        if self.counts.leading { value } else { T::default() }
    }
}

// === impl Histogram ===

impl Histogram {
    /// Records a duration in a histogram over [`BOUNDS`].
    pub(super) fn observe(&mut self, span: Span) {
        // The bound of bucket `i` is ten to the power of `i + 1` nanoseconds, and belongs to it.
        let bucket = span.nanos().saturating_sub(1).max(1).ilog10() as usize;
        self.buckets[bucket.min(BOUNDS.len())] += 1;
        self.sum = self.sum.saturating_add(span.nanos());
    }

    /// Records the retry of a key that has failed `failures` times in a row, in a histogram over
    /// [`ATTEMPTS`].
    pub(super) fn count(&mut self, failures: u32) {
        // The bound of bucket `i` is two to the power of `i`, and belongs to it.
        let bucket = failures.saturating_sub(1).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.buckets[bucket.min(ATTEMPTS.len())] += 1;
        self.sum = self.sum.saturating_add(failures.into());
    }

    fn all(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>, bounds: &[f64], sum: f64) -> fmt::Result {
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(self.buckets).collect();
        encoder.encode_histogram::<NoLabelSet>(sum, self.all(), &buckets, None)
    }
}

// === impl Value ===

impl Value {
    fn metric_type(&self) -> MetricType {
        match self {
            Self::Counter(_) => MetricType::Counter,
            Self::Count(_) | Self::Seconds(_) => MetricType::Gauge,
            Self::Durations(_) | Self::Attempts(_) => MetricType::Histogram,
        }
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>, reading: &Reading) -> fmt::Result {
        match self {
            Self::Counter(value) => encoder.encode_counter::<NoLabelSet, _, u64>(&value(reading), None),
            Self::Count(value) => encoder.encode_gauge(&u64::try_from(value(reading)).unwrap_or(u64::MAX)),
            Self::Seconds(value) => encoder.encode_gauge(&value(reading).as_secs_f64()),
            Self::Durations(value) => {
                let spans = value(reading);
                spans.encode(encoder, &BOUNDS, Duration::from_nanos(spans.sum).as_secs_f64())
            }
            Self::Attempts(value) => {
                let attempts = value(reading);
                #[expect(clippy::cast_precision_loss, reason = "the format of sums is a float")]
                attempts.encode(encoder, &ATTEMPTS, attempts.sum as f64)
            }
        }
    }
}

#[cfg(test)]
mod tests;
