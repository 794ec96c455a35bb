//! The harness that brings an API server, and in `tests/` all tests that need one.
//!
//! [`TestCluster`] is one cluster per test binary and one namespace per test; [`wait`] replaces sleeping by
//! watching. [`fixtures`] are the initial objects; [`manifests`] runs the manager under test as the shipped
//! ServiceAccount. [`sockets`] are prerequisites and black holes to probe, and [`dial`] restricts the
//! addresses of probes. [`audit`] reads the writes of each account, [`rights`] the rights they used,
//! [`witness`] records reconciles and their causes. [`exposition`] reads metrics as scrapers do; [`kstatus`]
//! and [`argo`] compute the status that deployment tools show. [`follow`] records the changes of a cache
//! behind a bad network, and [`checks`] the results of health checks. [`impostor`] answers in the server's
//! place; [`proxy`] stands between client and server. No packet goes to an address outside loopback, or
//! outside a [`network`] of the test's own.
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
pub mod greetings;
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
