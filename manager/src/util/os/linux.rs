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

/// The clock for the time since boot, which advances while the machine is suspended.
pub(super) const BOOT_CLOCK: ClockId = ClockId::Boottime;

/// Sets that the system ends a TCP connection when sent bytes stay unacknowledged for this long.
pub(super) fn set_user_timeout(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(stream, milliseconds)?)
}

/// Reads the resource usage of this process from `/proc`. Source:
/// <https://github.com/prometheus/client_golang/blob/main/prometheus/process_collector_linux.go>.
pub(crate) fn process_usage() -> ProcessUsage {
    let [start_ticks, virtual_bytes, resident_pages] = parsed("/proc/self/stat", parse_stat);
    let [received_bytes, sent_bytes] = parsed("/proc/self/net/netstat", parse_netstat);
    let [boot_seconds] = parsed("/proc/stat", parse_boot_seconds);
    ProcessUsage {
        started: boot_seconds
            .zip(start_ticks)
            .map(|(boot, ticks)| boot + ticks / clock_ticks_per_second() as f64),
        resident_bytes: resident_pages.map(|pages| pages * page_size() as f64),
        virtual_bytes,
        // Minus the descriptor of the directory itself.
        open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1) as f64),
        received_bytes,
        sent_bytes,
    }
}

/// Reads a file and returns the numbers that `parse` finds in it; `None` for each if the file has another
/// format.
fn parsed<const N: usize>(path: &str, parse: fn(&str) -> Option<[f64; N]>) -> [Option<f64>; N] {
    let found = fs::read_to_string(path).ok().and_then(|text| parse(&text));
    found.map_or([None; N], |numbers| numbers.map(Some))
}

/// Parses a process's start time in ticks, virtual bytes and resident pages in the format of
/// `proc_pid_stat(5)`.
fn parse_stat(stat: &str) -> Option<[f64; 3]> {
    // The name of the program is in parentheses, and may contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // The manual counts from 1, and the first two fields are cut off.
    let field = |number: usize| fields.get(number - 3)?.parse().ok();
    Some([field(22)?, field(23)?, field(24)?])
}

/// Parses the bytes received and sent from `/proc/self/net/netstat`, which has pairs of lines: names, then
/// numbers.
fn parse_netstat(netstat: &str) -> Option<[f64; 2]> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let number = |wanted: &str| {
        let at = names.split_ascii_whitespace().position(|name| name == wanted)?;
        numbers.split_ascii_whitespace().nth(at)?.parse().ok()
    };
    Some([number("InOctets")?, number("OutOctets")?])
}

/// Parses the boot time of the machine, in seconds since 1970, from `/proc/stat`.
fn parse_boot_seconds(stat: &str) -> Option<[f64; 1]> {
    Some([stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?])
}

#[cfg(test)]
mod tests;
