//! Targets of probes on loopback: a prerequisite that can come up, and a black hole.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A connection without an answer for this long counts as unanswered; a queue with room answers on loopback
/// at once.
const UNANSWERED: Duration = Duration::from_millis(300);

/// Any free port of IPv4 loopback.
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Number of connections attempted before an accept queue of length zero must be full.
const FILL_ATTEMPTS: usize = 16;

/// An address on loopback with or without a listening service. Its port stays reserved while it is closed.
#[derive(Debug)]
pub struct Prerequisite {
    address: SocketAddr,
    /// Socket that is bound, but never listens: connections are refused unless `accepting` listens beside it.
    _reserved: TcpSocket,
    /// The task that listens and accepts connections; dropped to stop listening.
    accepting: JoinSet<()>,
    /// The socket that listens in place of `accepting` while the prerequisite is silent.
    silent: Option<BlackHole>,
    connections: watch::Sender<usize>,
}

/// An address on loopback that takes a connection's first packet and never answers it.
#[derive(Debug)]
pub struct BlackHole {
    address: SocketAddr,
    _listener: TcpListener,
    /// Connections that fill the queue; they are never accepted.
    _fill: Vec<TcpStream>,
}

// === impl Prerequisite ===

impl Prerequisite {
    /// Reserves a loopback address on which no socket listens yet.
    pub fn closed() -> Self {
        Self::closed_at(ANY_PORT)
    }

    /// Reserves this address, on loopback of either family, without listening on it; port 0 takes any free
    /// port.
    pub fn closed_at(address: SocketAddr) -> Self {
        assert!(address.ip().is_loopback(), "{address} is not on loopback");
        let reserved = bound(address);
        let address =
            reserved.local_addr().unwrap_or_else(|error| panic!("a bound socket has an address: {error}"));
        let connections = watch::Sender::new(0);
        Self { address, _reserved: reserved, accepting: JoinSet::new(), silent: None, connections }
    }

    /// Reserves a loopback address and listens on it.
    pub fn open() -> Self {
        let mut prerequisite = Self::closed();
        prerequisite.come_up();
        prerequisite
    }

    /// Begins to listen on the reserved address: from now on every connection is accepted, and closed at
    /// once.
    pub fn come_up(&mut self) {
        self.silent = None;
        let listener = listen(bound(self.address), 1024);
        let connections = self.connections.clone();
        self.accepting.spawn(async move {
            // An error of a single accept (too many files) must not read as a prerequisite that went down.
            loop {
                if listener.accept().await.is_ok() {
                    connections.send_modify(|count| *count += 1);
                } else {
                    tokio::task::yield_now().await;
                }
            }
        });
    }

    /// Stops listening on the reserved address; connections are refused again when this returns.
    pub async fn go_down(&mut self) {
        self.silent = None;
        self.accepting.shutdown().await;
    }

    /// Stops answering connections to the reserved address, as if the network between had been cut.
    pub async fn fall_silent(&mut self) {
        self.go_down().await;
        self.silent = Some(black_hole_at(self.address).await);
    }

    /// Returns the reserved address of the prerequisite.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections that the prerequisite has accepted so far.
    pub fn connections(&self) -> usize {
        *self.connections.borrow()
    }

    /// Waits until the prerequisite has accepted `times` connections.
    pub async fn connected(&self, times: usize) {
        let mut connections = self.connections.subscribe();
        // The sender lives in `self`, so this ends only with the count.
        drop(connections.wait_for(|count| *count >= times).await);
    }
}

// === impl BlackHole ===

/// Makes a black hole, and asserts that a connection to it stays unanswered.
pub async fn black_hole() -> BlackHole {
    black_hole_at(ANY_PORT).await
}

async fn black_hole_at(address: SocketAddr) -> BlackHole {
    let listener = listen(bound(address), 0);
    let address = listener.local_addr().unwrap_or_else(|error| panic!("a listener has an address: {error}"));
    let mut fill = Vec::new();
    for _ in 0..FILL_ATTEMPTS {
        match tokio::time::timeout(UNANSWERED, TcpStream::connect(address)).await {
            Ok(Ok(connection)) => fill.push(connection),
            Ok(Err(error)) => panic!("filling the queue of {address}: {error}"),
            Err(_unanswered) => return BlackHole { address, _listener: listener, _fill: fill },
        }
    }
    panic!("{address} still answers after {FILL_ATTEMPTS} connections that were not accepted");
}

impl BlackHole {
    /// Returns the address of the black hole.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

// === private functions ===

/// Returns a socket bound to an address; other sockets of this file may share its port.
fn bound(address: SocketAddr) -> TcpSocket {
    let made = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = made.and_then(|socket| {
        socket.set_reuseport(true)?;
        socket.bind(address)?;
        Ok(socket)
    });
    socket.unwrap_or_else(|error| panic!("no socket on {address}: {error}"))
}

fn listen(socket: TcpSocket, backlog: u32) -> TcpListener {
    socket.listen(backlog).unwrap_or_else(|error| panic!("a bound socket cannot listen: {error}"))
}

#[cfg(test)]
mod tests;
