//! Fallbacks of the calls in `linux.rs` for systems that lack them.

use std::io;
use std::time::Duration;

use rustix::time::ClockId;
use tokio::net::TcpStream;

use super::ProcessUsage;

/// Goes on while a Mac is suspended; other systems may stop it.
pub(super) const BOOT_CLOCK: ClockId = ClockId::Monotonic;

/// Sets nothing: a peer that vanishes while sent bytes are unacknowledged is found when the system ends its retransmissions,
/// or by the time limit of the request.
#[expect(clippy::unnecessary_wraps, reason = "Linux may refuse")]
pub(super) fn set_user_timeout(_stream: &TcpStream, _timeout: Duration) -> io::Result<()> {
    Ok(())
}

/// Reports nothing, so the metrics are left out.
pub(super) fn process_usage() -> ProcessUsage {
    ProcessUsage::default()
}
