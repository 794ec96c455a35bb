//! The resources of this process, with `client_golang`'s metric names.
//!
//! Read at each scrape. A metric that the system does not report is left out, as zero would be wrong.

#![expect(clippy::cast_precision_loss, reason = "metrics are floats")]

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::{self, Counter, Gauge};

use crate::util::os::{ProcessUsage, file_limit, process_usage, processor_time, virtual_memory_limit};

use super::{Registry, encode_value};

/// Collector of the `process_` metrics: reads the resource usage of this process at each scrape.
#[derive(Debug)]
pub(crate) struct Process;

type Read = fn(&ProcessUsage) -> Option<f64>;

const FAMILIES: [(&str, &str, MetricType, Read); 9] = [
    ("process_cpu_seconds", "Total user and system CPU time spent in seconds", Counter, |_| {
        Some(processor_time().as_secs_f64())
    }),
    ("process_max_fds", "Maximum number of open file descriptors", Gauge, |_| Some(limit(file_limit()))),
    ("process_open_fds", "Number of open file descriptors", Gauge, |usage| usage.open_files),
    ("process_resident_memory_bytes", "Resident memory size in bytes", Gauge, |usage| usage.resident_bytes),
    ("process_start_time_seconds", "Start time of the process since unix epoch in seconds", Gauge, |usage| {
        usage.started
    }),
    ("process_virtual_memory_bytes", "Virtual memory size in bytes", Gauge, |usage| usage.virtual_bytes),
    (
        "process_virtual_memory_max_bytes",
        "Maximum amount of virtual memory available in bytes",
        Gauge,
        |_| Some(limit(virtual_memory_limit())),
    ),
    (
        "process_network_receive_bytes",
        "Number of bytes received by the process over the network",
        Counter,
        |usage| usage.received_bytes,
    ),
    (
        "process_network_transmit_bytes",
        "Number of bytes sent by the process over the network",
        Counter,
        |usage| usage.sent_bytes,
    ),
];

// === impl Process ===

impl Process {
    /// Registers the `process_` metric families; call it once per registry.
    pub(crate) fn register(registry: &Registry) {
        registry.reserve(FAMILIES.map(|(name, ..)| name));
        registry.register_collector(Box::new(Self));
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let usage = process_usage();
        for (name, help, metric_type, read) in FAMILIES {
            let Some(value) = read(&usage) else { continue };
            encode_value(encoder.encode_descriptor(name, help, None, metric_type)?, metric_type, value)?;
        }
        Ok(())
    }
}

/// Returns the metric value for a resource limit of the process; for no limit the largest number, as
/// `client_golang` does.
fn limit(limit: Option<u64>) -> f64 {
    limit.unwrap_or(u64::MAX) as f64
}

#[cfg(test)]
mod tests;
