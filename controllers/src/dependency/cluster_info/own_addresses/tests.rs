use std::net::UdpSocket;

use super::*;

#[test]
fn interface_addresses_are_own_and_loopback_is_not() {
    let own = OwnAddresses::default();
    let is_own = |ip: IpAddr| own.contains(ip).unwrap();
    assert!(!is_own("127.0.0.1".parse().unwrap()), "the policy has a key for loopback");
    assert!(!is_own("192.0.2.1".parse().unwrap()), "for documentation only");
    assert!(!is_own("2001:db8::1".parse().unwrap()), "for documentation only");
    // The source address of a route to the outside, if the machine has one. Connecting a UDP socket sends
    // nothing.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("192.0.2.1:9").is_ok() {
        let source = socket.local_addr().unwrap().ip();
        assert!(source.is_loopback() || is_own(source), "{source}");
    }
}
