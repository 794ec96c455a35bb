//! Calls of the operating system that std and tokio lack. No other room makes such calls.
//!
//! `os/linux.rs` has the calls that only Linux has, `os/portable.rs` their fallbacks for other systems. The
//! fallbacks are built and tested on Linux with `RUSTFLAGS=--cfg mainstay_portable`.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpStream;

#[cfg(all(target_os = "linux", not(mainstay_portable)))]
mod linux;
#[cfg(any(mainstay_portable, not(target_os = "linux")))]
mod portable;

#[cfg(all(target_os = "linux", not(mainstay_portable)))]
use linux as system;
#[cfg(any(mainstay_portable, not(target_os = "linux")))]
use portable as system;

pub(crate) use system::process_usage;

/// Resource usage of this process; `None` for values that the system does not report.
#[derive(Debug, Default)]
pub(crate) struct ProcessUsage {
    /// Start time of the process, in seconds since 1970.
    pub(crate) started: Option<f64>,
    pub(crate) resident_bytes: Option<f64>,
    pub(crate) virtual_bytes: Option<f64>,
    pub(crate) open_files: Option<f64>,
    /// Bytes received in the network namespace, which in a cluster is the Pod's.
    pub(crate) received_bytes: Option<f64>,
    /// Bytes sent from the network namespace.
    pub(crate) sent_bytes: Option<f64>,
}

/// Settings of TCP keep-alive: after `idle` without data a probe is sent, then one per `interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeepAlive {
    pub(crate) idle: Duration,
    pub(crate) interval: Duration,
    /// Number of unanswered probes after which the connection ends.
    pub(crate) probes: u32,
}

// === impl KeepAlive ===

impl KeepAlive {
    /// Sets keep-alive on a TCP connection. Where the system permits, sent bytes that stay unacknowledged for
    /// the same total time end the connection too.
    pub(crate) fn set(self, stream: &TcpStream) -> io::Result<()> {
        sockopt::set_tcp_keepidle(stream, self.idle)?;
        sockopt::set_tcp_keepintvl(stream, self.interval)?;
        sockopt::set_tcp_keepcnt(stream, self.probes)?;
        sockopt::set_socket_keepalive(stream, true)?;
        system::set_user_timeout(stream, self.idle + self.interval * self.probes)
    }
}

/// Returns the time since boot, including suspended time where the system counts it.
pub(crate) fn boot_time() -> Duration {
    clock(system::BOOT_CLOCK)
}

/// Returns the processor time used by all threads of this process.
pub(crate) fn processor_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// Returns the number of files that this process may open; `None` if unlimited.
pub(crate) fn file_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns the bytes of virtual memory that this process may use; `None` if unlimited.
pub(crate) fn virtual_memory_limit() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Returns the name of the host, which in a cluster is the Pod's.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Opens a file for reading without blocking. A pipe opens at once, even while no process writes to it.
pub(crate) fn open_without_waiting(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

fn clock(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
pub(crate) mod tests;
