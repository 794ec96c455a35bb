//! What the kernel tells of this process, under the names that `client_golang` made common.
//!
//! Read from `/proc` at the scrape. What cannot be read is left out rather than told as zero.
//! Source: <https://github.com/prometheus/client_golang/blob/main/prometheus/process_collector_linux.go>.

#![expect(clippy::cast_precision_loss, reason = "what is told is a float")]

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::Registry;

/// Reads the process at each scrape.
#[derive(Debug)]
pub(crate) struct Process;

/// One reading. `None` where the kernel did not tell.
#[derive(Debug, Default)]
struct Reading {
    stat: Option<Stat>,
    boot_seconds: Option<f64>,
    open_fds: Option<f64>,
    network: Option<Network>,
}

/// Of `/proc/self/stat`, in the kernel's units.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: f64,
    start_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

/// Of the network namespace, which in a cluster is the Pod's.
#[derive(Debug, PartialEq)]
struct Network {
    received_bytes: f64,
    sent_bytes: f64,
}

type Read = fn(&Reading) -> Option<f64>;

const FAMILIES: [(&str, &str, MetricType, Read); 9] = [
    (
        "process_cpu_seconds",
        "Total user and system CPU time spent in seconds",
        MetricType::Counter,
        |reading| Some(reading.stat.as_ref()?.cpu_ticks / ticks()),
    ),
    ("process_max_fds", "Maximum number of open file descriptors", MetricType::Gauge, |_| {
        Some(limit(Resource::Nofile))
    }),
    ("process_open_fds", "Number of open file descriptors", MetricType::Gauge, |reading| reading.open_fds),
    ("process_resident_memory_bytes", "Resident memory size in bytes", MetricType::Gauge, |reading| {
        Some(reading.stat.as_ref()?.resident_pages * page_size() as f64)
    }),
    (
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds",
        MetricType::Gauge,
        |reading| Some(reading.boot_seconds? + reading.stat.as_ref()?.start_ticks / ticks()),
    ),
    ("process_virtual_memory_bytes", "Virtual memory size in bytes", MetricType::Gauge, |reading| {
        Some(reading.stat.as_ref()?.virtual_bytes)
    }),
    (
        "process_virtual_memory_max_bytes",
        "Maximum amount of virtual memory available in bytes",
        MetricType::Gauge,
        |_| Some(limit(Resource::As)),
    ),
    (
        "process_network_receive_bytes",
        "Number of bytes received by the process over the network",
        MetricType::Counter,
        |reading| Some(reading.network.as_ref()?.received_bytes),
    ),
    (
        "process_network_transmit_bytes",
        "Number of bytes sent by the process over the network",
        MetricType::Counter,
        |reading| Some(reading.network.as_ref()?.sent_bytes),
    ),
];

// === impl Process ===

impl Process {
    /// Registers the families. Once per registry.
    pub(crate) fn register(registry: &Registry) {
        registry.reserve(Self::names());
        registry.register_collector(Box::new(Self));
    }

    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        FAMILIES.into_iter().map(|(name, ..)| name)
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let reading = Reading::take();
        for (name, help, metric_type, read) in FAMILIES {
            let Some(value) = read(&reading) else { continue };
            let family = encoder.encode_descriptor(name, help, None, metric_type)?;
            match metric_type {
                MetricType::Counter => ConstCounter::new(value).encode(family)?,
                _ => ConstGauge::new(value).encode(family)?,
            }
        }
        Ok(())
    }
}

// === impl Reading ===

impl Reading {
    fn take() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        Self {
            stat: read("/proc/self/stat").as_deref().and_then(Stat::parse),
            boot_seconds: read("/proc/stat").as_deref().and_then(boot_seconds),
            // One of them is the directory's own.
            open_fds: fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count().saturating_sub(1) as f64),
            network: read("/proc/self/net/netstat").as_deref().and_then(Network::parse),
        }
    }
}

// === impl Stat ===

impl Stat {
    /// Reads what `proc_pid_stat(5)` describes.
    fn parse(stat: &str) -> Option<Self> {
        // The name of the program stands in parentheses, and may have spaces and parentheses of its own.
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // The manual counts from 1, and two fields stand before these.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

// === impl Network ===

impl Network {
    /// Reads pairs of lines: names, then numbers.
    fn parse(netstat: &str) -> Option<Self> {
        let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt: "));
        let (names, numbers) = (lines.next()?, lines.next()?);
        let number = |wanted: &str| {
            let at = names.split_ascii_whitespace().position(|name| name == wanted)?;
            numbers.split_ascii_whitespace().nth(at)?.parse().ok()
        };
        Some(Self { received_bytes: number("InOctets")?, sent_bytes: number("OutOctets")? })
    }
}

/// Returns when the machine was booted, in seconds since 1970.
fn boot_seconds(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn ticks() -> f64 {
    clock_ticks_per_second() as f64
}

/// Returns a limit of the process; of none, the largest number there is, as `client_golang` does.
fn limit(resource: Resource) -> f64 {
    getrlimit(resource).current.unwrap_or(u64::MAX) as f64
}

#[cfg(test)]
mod tests;
