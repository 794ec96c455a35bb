use std::net::UdpSocket;

use super::*;

#[test]
fn own_addresses_are_known_and_others_are_not() {
    let own = OwnAddresses::default();
    let is_own = |ip: IpAddr| own.contains(ip).unwrap();
    assert!(!is_own("127.0.0.1".parse().unwrap()), "loopback has a key of its own");
    assert!(!is_own("192.0.2.1".parse().unwrap()), "for documentation only");
    assert!(!is_own("2001:db8::1".parse().unwrap()), "for documentation only");
    // Whatever the machine has beside loopback, if anything: the source it would send from. Nothing is sent.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("192.0.2.1:9").is_ok() {
        let source = socket.local_addr().unwrap().ip();
        assert!(source.is_loopback() || is_own(source), "{source}");
    }
}
