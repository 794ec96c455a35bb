//! The addresses of the machine or Pod that the manager runs on.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use if_addrs::{Interface, get_if_addrs};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a list of the manager's own addresses is used before it is read again: addresses change, though
/// seldom.
const FRESH: Duration = Duration::from_secs(5);

/// The addresses of the network interfaces of this process's network namespace. Loopback is left out: the
/// policy decides about it by `probePolicy.allowLoopback`.
#[derive(Debug, Default)]
pub(super) struct OwnAddresses {
    /// The manager's own addresses and the time until which they are used; `None` before the first call.
    listed: Mutex<Option<(Instant, HashSet<IpAddr>)>>,
}

// === impl OwnAddresses ===

impl OwnAddresses {
    /// Returns whether an address belongs to a network interface of the manager's machine or Pod. Fails if
    /// the system does not list its interfaces.
    pub(super) fn contains(&self, ip: IpAddr) -> Result<bool, String> {
        let (mut listed, now) = (self.listed.lock(), Instant::now());
        if listed.as_ref().is_none_or(|(until, _)| *until <= now) {
            *listed = Some((now + FRESH, list()?));
        }
        Ok(listed.as_ref().is_some_and(|(_, ips)| ips.contains(&ip)))
    }
}

fn list() -> Result<HashSet<IpAddr>, String> {
    let interfaces =
        get_if_addrs().map_err(|error| format!("the system does not list its interfaces: {error}"))?;
    Ok(interfaces.iter().map(Interface::ip).filter(|ip| !ip.is_loopback()).collect())
}

#[cfg(test)]
mod tests;
