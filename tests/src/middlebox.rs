//! A TCP relay to one or several API servers that can delay, cut or refuse connections, as load balancers and
//! networks do.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Maximum number of bytes copied at a time.
const PIECE: usize = 64 * 1024;

/// A TCP relay to API servers that can delay, cut or refuse connections. Dropping it cuts them all.
#[derive(Debug)]
pub struct Middlebox {
    address: SocketAddr,
    state: watch::Sender<State>,
    /// The task that accepts connections and owns them.
    _serving: JoinSet<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Whether bytes from the server to the client are held back. Bytes to the server pass.
    held: bool,
    /// Whether new connections are closed at once.
    closed: bool,
    /// Number of times that all connections were cut.
    cuts: u64,
}

// === impl Middlebox ===

impl Middlebox {
    /// Starts a relay to `server`, which may be down.
    pub async fn before(server: SocketAddr) -> Self {
        Self::before_all(vec![server]).await
    }

    /// Starts a relay to several servers in turn. A server that refuses connections is skipped; there is no
    /// other health check.
    pub async fn before_all(servers: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.unwrap_or_else(|error| panic!("a port of loopback: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("a listener has one: {error}"));
        let (state, states) = watch::channel(State::default());
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, servers, states));
        Self { address, state, _serving: serving }
    }

    /// Returns the address that the relay listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Holds back all bytes from the servers to the clients, until [`Middlebox::release`].
    pub fn hold(&self) {
        self.state.send_modify(|state| state.held = true);
    }

    /// Lets all bytes from the servers pass again, those held back first.
    pub fn release(&self) {
        self.state.send_modify(|state| state.held = false);
    }

    /// Cuts every relayed connection and drops the bytes held back; new connections are relayed.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Cuts every relayed connection and refuses new ones, until [`Middlebox::open`].
    pub fn close(&self) {
        self.state.send_modify(|state| {
            state.closed = true;
            state.cuts += 1;
        });
    }

    /// Relays new connections again, after [`Middlebox::close`].
    pub fn open(&self) {
        self.state.send_modify(|state| state.closed = false);
    }
}

async fn serve(listener: TcpListener, mut servers: Vec<SocketAddr>, states: watch::Receiver<State>) {
    let mut connections = JoinSet::new();
    loop {
        // Neither can starve the other: both are rare.
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted && !states.borrow().closed {
                    connections.spawn(carry(client, servers.clone(), states.clone()));
                    servers.rotate_left(1);
                }
            }
            Some(_ended) = connections.join_next() => {}
        }
    }
}

async fn carry(client: TcpStream, servers: Vec<SocketAddr>, states: watch::Receiver<State>) {
    // Without a server that accepts, the connection is closed.
    let Some(server) = first_there(&servers).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let mut cuts = states.clone();
    let before = cuts.borrow().cuts;
    // The first to finish ends both directions. The cut is polled first: bytes held back then never pass.
    tokio::select! {
        biased;
        _ = cuts.wait_for(|state| state.cuts != before) => {}
        () = pump(from_client, to_server, None) => {}
        () = pump(from_server, to_client, Some(states)) => {}
    }
}

async fn first_there(servers: &[SocketAddr]) -> Option<TcpStream> {
    for server in servers {
        if let Ok(connection) = TcpStream::connect(server).await {
            return Some(connection);
        }
    }
    None
}

/// Copies the bytes of one direction of a connection to its end, and pauses while they are held back.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut states: Option<watch::Receiver<State>>) {
    let mut piece = vec![0; PIECE];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        if let Some(states) = &mut states
            && states.wait_for(|state| !state.held).await.is_err()
        {
            return;
        }
        let sent = to.write_all(piece.get(..length).unwrap_or_default()).await;
        if sent.is_err() {
            return;
        }
    }
}
