use super::*;

#[test]
fn a_reserved_port_is_refused_to_a_server_that_does_not_share() {
    let port = Port::reserve().expect("a free port");
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port.number()));
    assert!(taken.is_err(), "the port is held");
}

#[tokio::test]
async fn a_server_that_shares_gets_every_connection() {
    let port = Port::reserve().expect("a free port");
    let server = shared(port.number()).expect("shares the port").listen(16).unwrap();
    let address = server.local_addr().unwrap();
    for _ in 0..16 {
        let _connection = tokio::net::TcpStream::connect(address).await.expect("reaches the listening one");
    }
}
