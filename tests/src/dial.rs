//! The probe dialler of tests: it reaches loopback, and whoever asks for more has failed.
//!
//! A panic inside a probe would be caught by the engine, so a forbidden address is refused there, remembered, and
//! fails the test when its [`Loopback`] goes out of scope.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use mainstay_controllers::Sockets;
use mainstay_controllers::dependency::probe::{
    Dial, DialFuture, Resolve, ResolveFuture, ServicesFuture, TokioDial,
};
use parking_lot::Mutex;

/// A name for loopback that, unlike `localhost`, is looked up and needs to be allowed as others do.
pub const NAME: &str = "loopback.example";

/// Keeps watch over one test's probes. Fails the test on drop if one of them wanted out.
#[derive(Debug, Default)]
#[must_use = "the test fails only when this is dropped at its end"]
pub struct Loopback {
    escapes: Arc<Mutex<Vec<String>>>,
}

/// Both seams of the probe engine, for the manager under test.
#[derive(Clone, Debug)]
pub struct LoopbackDial {
    escapes: Arc<Mutex<Vec<String>>>,
    /// Whether the first escape ends the process: the only way for a manager in a process of its own to fail a test.
    aborts: bool,
}

/// Sockets for a manager in a process of its own, which ends at the first escape.
pub fn aborting() -> Sockets {
    LoopbackDial { escapes: Arc::default(), aborts: true }.into()
}

// === impl Loopback ===

impl Loopback {
    /// Begins the watch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns what the manager under test is to dial and resolve with.
    pub fn dial(&self) -> LoopbackDial {
        LoopbackDial { escapes: Arc::clone(&self.escapes), aborts: false }
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let escapes = self.escapes.lock();
        // A second panic would abort the process and hide the first.
        if !std::thread::panicking() {
            assert!(escapes.is_empty(), "a probe wanted to leave loopback: {}", escapes.join(", "));
        }
    }
}

// === impl LoopbackDial ===

impl LoopbackDial {
    fn refuse<T>(&self, what: impl Display) -> io::Result<T> {
        if self.aborts {
            tracing::error!(%what, "a probe wanted to leave loopback");
            std::process::abort();
        }
        let refused = io::Error::new(io::ErrorKind::PermissionDenied, format!("{what} is outside the test"));
        self.escapes.lock().push(what.to_string());
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
            // An IPv4 address in IPv6 clothes is judged as what it is.
            if address.ip().to_canonical().is_loopback() {
                TokioDial.dial(address).await
            } else {
                self.refuse(address)
            }
        })
    }
}

impl Resolve for LoopbackDial {
    /// Knows `localhost` and [`NAME`]; any other name would ask a server on the network.
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
