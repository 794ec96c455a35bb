//! Which addresses are this machine's, or this Pod's, own.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use if_addrs::{Interface, get_if_addrs};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a list counts: addresses come and go, though seldom.
const FRESH: Duration = Duration::from_secs(5);

/// The addresses of the interfaces of the network that this process is in. Loopback does not count, which the policy has
/// a key of its own for.
#[derive(Debug, Default)]
pub(super) struct OwnAddresses {
    /// With the end of its time; none before the first question.
    listed: Mutex<Option<(Instant, Arc<HashSet<IpAddr>>)>>,
}

// === impl OwnAddresses ===

impl OwnAddresses {
    /// Returns whether an address is the manager's own; fails with the cause if the system does not tell.
    pub(super) fn contains(&self, ip: IpAddr) -> Result<bool, String> {
        let now = Instant::now();
        let listed = self.listed.lock().clone();
        let listed = match listed {
            Some((until, listed)) if until > now => listed,
            _ => {
                let listed = Arc::new(list()?);
                *self.listed.lock() = Some((now + FRESH, Arc::clone(&listed)));
                listed
            }
        };
        Ok(listed.contains(&ip))
    }
}

fn list() -> Result<HashSet<IpAddr>, String> {
    let interfaces =
        get_if_addrs().map_err(|error| format!("the system does not list its interfaces: {error}"))?;
    Ok(interfaces.iter().map(Interface::ip).filter(|ip| !ip.is_loopback()).collect())
}

#[cfg(test)]
mod tests;
