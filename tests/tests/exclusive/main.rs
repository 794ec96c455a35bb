//! Tests that each need a cluster of their own, because they stop its API server or the cluster itself.

#![expect(clippy::expect_used, reason = "helpers of tests fail the test by panicking, as tests do")]

mod chaos;
mod dev;
mod dev_program;
mod dev_watch;
mod end;
mod freeze;
mod install;
mod large_objects;
mod manager;
mod network;
mod new_project;
mod readiness;
mod restart;
mod retry_storm;
mod rights;
mod rollout;
mod soak;
mod static_pod;
