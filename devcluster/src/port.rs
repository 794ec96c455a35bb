//! A loopback port that stays ours from choice to last restart.
//!
//! Choosing a free port by binding and releasing it would leave a gap in which anyone may take it. Here the
//! socket stays bound with `SO_REUSEPORT` for as long as the cluster lives, and the servers, told to share the
//! port, bind beside it. It never listens, so the kernel gives every connection to the server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port on 127.0.0.1 that only processes of this user which ask to share it can bind.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _held: TcpSocket,
}

impl Port {
    /// Takes a free port.
    pub(crate) fn reserve() -> io::Result<Self> {
        let held = shared(0)?;
        Ok(Self { number: held.local_addr()?.port(), _held: held })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// Binds a port on 127.0.0.1, 0 for a free one, that others of this user may share.
fn shared(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok(socket)
}

#[cfg(test)]
mod tests;
