//! Tests that each need a cluster of their own: they stop its server, or end it.

#![expect(clippy::expect_used, reason = "helpers of tests fail the test by panicking, as tests do")]

mod chaos;
mod dev;
mod end;
mod freeze;
mod large_objects;
mod manager;
mod network;
mod readiness;
mod restart;
mod retry_storm;
mod rights;
mod soak;
