//! Everything that needs an API server: the harness that brings one, and in `tests/` what is proved on it.
//!
//! [`TestCluster`] is one cluster per test binary and one namespace per test; [`wait`] replaces sleeping by
//! watching; [`fixtures`] are the objects it begins with; [`manifests`] runs the manager under test as the
//! ServiceAccount we ship; [`sockets`] are the prerequisites and black holes it probes, [`dial`] what it may probe them
//! with; [`audit`] tells who wrote what, [`rights`] what that took, [`witness`] what ran and why, [`exposition`] what
//! scrapers read, [`kstatus`] and [`argo`] what those who deploy see, [`follow`] what a cache was told behind a bad
//! network, [`checks`] what the probes say, [`impostor`] answers in the server's place, [`proxy`] stands
//! between the two. Nothing here sends a packet to any address outside loopback, or a [`network`] of the test's own.
//!
//! Linux only: the tests read `/proc` and make network namespaces.

#![expect(
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a helper of a test fails the test by panicking"
)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "this crate needs Linux; elsewhere: cargo test -p mainstay-api -p mainstay -p mainstay-controllers"
);

pub mod audit;
pub mod cluster;
pub mod fixtures;
pub mod manifests;
pub mod rights;
pub mod wait;

pub mod checks;
pub mod manager;
pub mod process;
pub mod restless;
pub mod slow;
pub mod terminal;
pub mod witness;

pub mod argo;
pub mod kstatus;
pub mod report;

pub mod dial;
pub mod exposition;
pub mod impostor;
pub mod middlebox;
pub mod network;
pub mod proxy;
pub mod sockets;

pub mod follow;

#[cfg(test)]
mod house;

pub use cluster::TestCluster;
pub use manager::LocalManager;
pub use process::ManagerProcess;
pub use terminal::Terminal;
