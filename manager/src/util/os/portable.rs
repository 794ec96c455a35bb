//! Fallbacks of the calls in `linux.rs` for systems that lack them.

use std::io;
use std::time::Duration;

use rustix::time::ClockId;
use tokio::net::TcpStream;

use super::ProcessUsage;

/// The clock for the time since boot, which advances while a Mac is suspended; on other systems it may stand
/// still.
pub(super) const BOOT_CLOCK: ClockId = ClockId::Monotonic;

/// Has no effect on this system. A peer that vanishes while sent bytes are unacknowledged is detected when
/// the system stops retransmitting, or by the time limit of the request.
#[expect(clippy::unnecessary_wraps, reason = "Linux may refuse")]
pub(super) fn set_user_timeout(_stream: &TcpStream, _timeout: Duration) -> io::Result<()> {
    Ok(())
}

/// Returns no values, so this system's metrics of the process are left out.
pub(crate) fn process_usage() -> ProcessUsage {
    ProcessUsage::default()
}
