//! The probe dialler of tests: it connects to loopback only, and fails the test if a probe targets another
//! address.
//!
//! The probe engine would catch a panic, so a forbidden address is refused and recorded, and fails the test
//! when its [`Loopback`] is dropped.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use mainstay_controllers::Sockets;
use mainstay_controllers::dependency::probe::{
    Dial, DialFuture, Resolve, ResolveFuture, ServicesFuture, TokioDial,
};
use parking_lot::Mutex;

/// A name for loopback that, unlike `localhost`, is resolved and must be allowed like any other name.
pub const NAME: &str = "loopback.example";

/// Guards the probes of one test. On drop it fails the test if a probe tried to connect to an address outside
/// loopback.
#[derive(Debug, Default)]
#[must_use = "the test fails only when this is dropped at its end"]
pub struct Loopback {
    escapes: Arc<Mutex<Vec<String>>>,
}

/// Dialler and resolver of the probe engine for the manager under test: they allow loopback only.
#[derive(Clone, Debug)]
pub struct LoopbackDial {
    escapes: Arc<Mutex<Vec<String>>>,
    /// Whether the first probe of an address outside loopback aborts the process: a manager in a separate
    /// process can fail the test in no other way.
    aborts: bool,
}

/// Returns the sockets for a manager in a process of its own, which aborts at the first probe of an address
/// outside loopback.
pub fn aborting() -> Sockets {
    LoopbackDial { escapes: Arc::default(), aborts: true }.into()
}

// === impl Loopback ===

impl Loopback {
    /// Makes a guard that has recorded no probe outside loopback.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the dialler and resolver for the manager under test.
    pub fn dial(&self) -> LoopbackDial {
        LoopbackDial { escapes: Arc::clone(&self.escapes), aborts: false }
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let escapes = self.escapes.lock();
        // A second panic would abort the process and hide the first.
        if !std::thread::panicking() {
            assert!(escapes.is_empty(), "a probe tried to leave loopback: {}", escapes.join(", "));
        }
    }
}

// === impl LoopbackDial ===

impl LoopbackDial {
    fn refuse<T>(&self, target: impl Display) -> io::Result<T> {
        if self.aborts {
            tracing::error!(%target, "a probe tried to leave loopback");
            std::process::abort();
        }
        let refused =
            io::Error::new(io::ErrorKind::PermissionDenied, format!("{target} is outside the test"));
        self.escapes.lock().push(target.to_string());
        Err(refused)
    }
}

impl From<LoopbackDial> for Sockets {
    fn from(dial: LoopbackDial) -> Self {
        Self { dial: Arc::new(dial.clone()), resolve: Arc::new(dial) }
    }
}

impl Dial for LoopbackDial {
    fn dial(&self, address: SocketAddr) -> DialFuture<'_> {
        Box::pin(async move {
            // An IPv4-mapped IPv6 address is checked as the IPv4 address.
            if address.ip().to_canonical().is_loopback() {
                TokioDial.dial(address).await
            } else {
                self.refuse(address)
            }
        })
    }
}

impl Resolve for LoopbackDial {
    /// Resolves `localhost` and [`NAME`]; any other name would send a query to the network.
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            if name == "localhost" || name == NAME {
                Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
            } else {
                self.refuse(name)
            }
        })
    }

    fn services<'a>(&'a self, name: &'a str) -> ServicesFuture<'a> {
        Box::pin(async move { self.refuse(name) })
    }
}

#[cfg(test)]
mod tests;
