use super::*;

#[test]
fn a_reserved_port_is_refused_to_who_does_not_share() {
    let port = Port::reserve().expect("a free port");
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port.number()));
    assert!(taken.is_err(), "the port is held");
}

#[test]
fn a_server_that_shares_gets_every_connection() {
    let port = Port::reserve().expect("a free port");
    let flags = SocketFlags::CLOEXEC;
    let server = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    rustix::net::sockopt::set_socket_reuseport(&server, true).unwrap();
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port.number());
    rustix::net::bind(&server, &address).expect("shares the port");
    rustix::net::listen(&server, 16).unwrap();
    for _ in 0..16 {
        let _connection = std::net::TcpStream::connect(address).expect("reaches the listening one");
    }
}
