use super::*;
use crate::sockets::Prerequisite;

#[tokio::test]
async fn loopback_is_dialled() {
    let loopback = Loopback::new();
    let prerequisite = Prerequisite::open();
    loopback.dial().dial(prerequisite.address()).await.expect("the prerequisite listens");
    prerequisite.connected(1).await;
    assert_eq!(loopback.dial().resolve("localhost").await.expect("known"), [Ipv4Addr::LOCALHOST]);
}

#[tokio::test]
#[should_panic(expected = "tried to leave loopback: 192.0.2.1:80, [::ffff:192.0.2.1]:80, db.example")]
async fn a_probe_outside_loopback_is_refused_and_fails_the_test() {
    let loopback = Loopback::new();
    for address in ["192.0.2.1:80", "[::ffff:192.0.2.1]:80"] {
        let refused = loopback.dial().dial(address.parse().expect("an address")).await.expect_err("refused");
        assert_eq!(
            refused.kind(),
            io::ErrorKind::PermissionDenied,
            "the address is refused before a packet is sent"
        );
    }
    loopback.dial().resolve("db.example").await.expect_err("refused");
}
