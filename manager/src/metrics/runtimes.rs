//! Metrics of the tokio runtimes: one runs the reconciles, one the control thread.
//!
//! Read at each scrape, without state and without a task.

#![expect(clippy::cast_precision_loss, reason = "metrics are floats")]

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::{self, Counter, Gauge};
use tokio::runtime::{Handle, RuntimeMetrics};

use super::{Registry, encode_value};

/// The metrics of one manager's tokio runtimes, by purpose, which is the label `runtime`. Clones share one
/// list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runtimes {
    list: Arc<Mutex<Vec<(&'static str, RuntimeMetrics)>>>,
}

type Read = fn(&RuntimeMetrics) -> f64;

const FAMILIES: [(&str, &str, MetricType, Read); 5] = [
    ("mainstay_tokio_workers", "Threads that run tasks", Gauge, |runtime| count(runtime.num_workers())),
    ("mainstay_tokio_alive_tasks", "Tasks that have not ended", Gauge, |runtime| {
        count(runtime.num_alive_tasks())
    }),
    ("mainstay_tokio_global_queue_depth", "Tasks that wait for any thread to take them", Gauge, |runtime| {
        count(runtime.global_queue_depth())
    }),
    (
        "mainstay_tokio_busy_seconds",
        "Time that the threads have spent on tasks, all together",
        Counter,
        |runtime| {
            let busy = |worker| runtime.worker_total_busy_duration(worker).as_secs_f64();
            (0..runtime.num_workers()).map(busy).sum()
        },
    ),
    ("mainstay_tokio_parks", "Times that a thread had nothing to do and slept", Counter, |runtime| {
        let parks = |worker| runtime.worker_park_count(worker) as f64;
        (0..runtime.num_workers()).map(parks).sum()
    }),
];

// === impl Runtimes ===

impl Runtimes {
    /// Registers the metric families of tokio runtimes; call it once per registry.
    pub(crate) fn register(registry: &Registry) -> Self {
        let runtimes = Self::default();
        registry.reserve(FAMILIES.map(|(name, ..)| name));
        registry.register_collector(Box::new(runtimes.clone()));
        runtimes
    }

    /// Adds a tokio runtime with this purpose to the metrics.
    pub(crate) fn add(&self, purpose: &'static str, runtime: &Handle) {
        self.list.lock().push((purpose, runtime.metrics()));
    }
}

impl Collector for Runtimes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let list = self.list.lock();
        for (name, help, metric_type, read) in FAMILIES {
            let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
            for (purpose, runtime) in list.iter() {
                let labels = [("runtime", *purpose)];
                encode_value(family.encode_family(&labels)?, metric_type, read(runtime))?;
            }
        }
        Ok(())
    }
}

fn count(number: usize) -> f64 {
    number as f64
}
