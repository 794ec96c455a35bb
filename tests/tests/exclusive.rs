//! Tests that each need a cluster of their own: they stop its server, or end it.

#![expect(clippy::expect_used, reason = "helpers of tests fail the test by panicking, as tests do")]

#[path = "exclusive/dev.rs"]
mod dev;
#[path = "exclusive/end.rs"]
mod end;
#[path = "exclusive/freeze.rs"]
mod freeze;
#[path = "exclusive/manager.rs"]
mod manager;
#[path = "exclusive/network.rs"]
mod network;
#[path = "exclusive/readiness.rs"]
mod readiness;
#[path = "exclusive/restart.rs"]
mod restart;
#[path = "exclusive/retry_storm.rs"]
mod retry_storm;
#[path = "exclusive/rights.rs"]
mod rights;
#[path = "exclusive/soak.rs"]
mod soak;
