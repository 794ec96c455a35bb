//! A loopback port that is reserved for the whole life of a cluster.
//!
//! A port that is bound and released could be taken by another process before the server binds it. Here the
//! socket stays bound with `SO_REUSEPORT` for as long as the cluster lives, and the servers bind the same
//! port, with a flag to share it. The socket never listens, so the kernel gives every connection to the
//! server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A reserved TCP port on 127.0.0.1. Only processes of this user can bind it, and only with the option to
/// share it.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _held: TcpSocket,
}

impl Port {
    /// Reserves a free TCP port on 127.0.0.1.
    pub(crate) fn reserve() -> io::Result<Self> {
        Self::reserve_at(0)
    }

    /// Reserves this TCP port on 127.0.0.1.
    pub(crate) fn reserve_at(number: u16) -> io::Result<Self> {
        let held = shared(number)?;
        Ok(Self { number: held.local_addr()?.port(), _held: held })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// Binds a TCP port on 127.0.0.1, 0 for a free one, that other processes of this user may share.
pub(crate) fn shared(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok(socket)
}

#[cfg(test)]
mod tests;
