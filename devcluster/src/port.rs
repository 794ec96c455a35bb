//! A loopback port that stays ours from choice to last restart.
//!
//! Choosing a free port by binding and releasing it would leave a gap in which anyone may take it. Here the
//! socket stays bound with `SO_REUSEPORT` for as long as the cluster lives, and the servers, told to share the
//! port, bind beside it. It never listens, so the kernel gives every connection to the server.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// A port on 127.0.0.1 that only processes of this user which ask to share it can bind.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _held: OwnedFd,
}

impl Port {
    /// Takes a free port.
    pub(crate) fn reserve() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        rustix::net::sockopt::set_socket_reuseport(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let bound = SocketAddrV4::try_from(rustix::net::getsockname(&socket)?)?;
        Ok(Self { number: bound.port(), _held: socket })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests;
