//! Whether an address is this machine's, or this Pod's, own.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long an answer of the kernel counts: addresses come and go, though seldom.
const FRESH: Duration = Duration::from_secs(5);
/// Most addresses that are remembered.
const MAX: usize = 10_000;

/// Remembers for a moment which addresses are own ones.
#[derive(Debug, Default)]
pub(super) struct OwnAddresses {
    /// With the end of its time.
    asked: Mutex<HashMap<IpAddr, (Instant, bool)>>,
}

// === impl OwnAddresses ===

impl OwnAddresses {
    /// Returns whether an address is the manager's own.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        let mut asked = self.asked.lock();
        let now = Instant::now();
        match asked.get(&ip) {
            Some((until, answer)) if *until > now => *answer,
            _ => {
                if asked.len() >= MAX {
                    asked.clear();
                }
                let answer = is_own(ip);
                asked.insert(ip, (now + FRESH, answer));
                answer
            }
        }
    }
}

/// Returns whether an address belongs to an interface of the network that this process is in; loopback does not count,
/// which the policy has a key of its own for.
///
/// A datagram socket that is connected to an address of
/// one's own is given that address as its source. Nothing is sent by it.
fn is_own(ip: IpAddr) -> bool {
    if ip.is_loopback() {
        return false;
    }
    let any = match ip {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let source = || {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        // Any port will do: none is contacted.
        socket.connect(SocketAddr::new(ip, 9))?;
        socket.local_addr()
    };
    // No way to it: then it is not here either.
    source().is_ok_and(|source| source.ip() == ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_known_and_others_are_not() {
        assert!(!is_own("127.0.0.1".parse().unwrap()), "loopback has a key of its own");
        assert!(!is_own("192.0.2.1".parse().unwrap()), "for documentation only");
        assert!(!is_own("2001:db8::1".parse().unwrap()), "for documentation only");
        // Whatever the machine has beside loopback, if anything: the source it would send from.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            let own = socket.local_addr().unwrap().ip();
            assert!(own.is_loopback() || is_own(own), "{own}");
        }
    }
}
