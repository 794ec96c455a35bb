//! Calls that only Linux has. Each has a fallback of the same name in `portable.rs`.

#![expect(clippy::cast_precision_loss, reason = "metrics are floats")]

use std::fs;
use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::time::ClockId;
use tokio::net::TcpStream;

use super::ProcessUsage;

/// A clock that advances while the machine is suspended.
pub(super) const BOOT_CLOCK: ClockId = ClockId::Boottime;

/// Fields of `/proc/self/stat`, in the kernel's units.
#[derive(Debug, PartialEq)]
struct Stat {
    start_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

/// Bytes of `/proc/self/net/netstat`.
#[derive(Debug, PartialEq)]
struct Network {
    received: f64,
    sent: f64,
}

/// Ends the connection when sent bytes stay unacknowledged for this long.
pub(super) fn set_user_timeout(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(stream, milliseconds)?)
}

/// Reads `/proc`.
/// Source: <https://github.com/prometheus/client_golang/blob/main/prometheus/process_collector_linux.go>.
pub(super) fn process_usage() -> ProcessUsage {
    let read = |path: &str| fs::read_to_string(path).ok();
    let stat = read("/proc/self/stat").as_deref().and_then(Stat::parse);
    let stat = stat.as_ref();
    let boot = read("/proc/stat").as_deref().and_then(boot_seconds);
    let network = read("/proc/self/net/netstat").as_deref().and_then(Network::parse);
    let network = network.as_ref();
    ProcessUsage {
        started: boot.zip(stat).map(|(boot, stat)| boot + stat.start_ticks / clock_ticks_per_second() as f64),
        resident_bytes: stat.map(|stat| stat.resident_pages * page_size() as f64),
        virtual_bytes: stat.map(|stat| stat.virtual_bytes),
        // Minus the descriptor of the directory itself.
        open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1) as f64),
        received_bytes: network.map(|network| network.received),
        sent_bytes: network.map(|network| network.sent),
    }
}

// === impl Stat ===

impl Stat {
    /// Parses the format of `proc_pid_stat(5)`.
    fn parse(stat: &str) -> Option<Self> {
        // The name of the program is in parentheses, and may contain spaces and parentheses.
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // The manual counts from 1, and the first two fields are cut off.
        let field = |number: usize| fields.get(number - 3)?.parse().ok();
        Some(Self { start_ticks: field(22)?, virtual_bytes: field(23)?, resident_pages: field(24)? })
    }
}

// === impl Network ===

impl Network {
    /// Parses pairs of lines: names, then numbers.
    fn parse(netstat: &str) -> Option<Self> {
        let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt: "));
        let (names, numbers) = (lines.next()?, lines.next()?);
        let number = |wanted: &str| {
            let at = names.split_ascii_whitespace().position(|name| name == wanted)?;
            numbers.split_ascii_whitespace().nth(at)?.parse().ok()
        };
        Some(Self { received: number("InOctets")?, sent: number("OutOctets")? })
    }
}

/// Returns the boot time of the machine in seconds since 1970.
fn boot_seconds(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
