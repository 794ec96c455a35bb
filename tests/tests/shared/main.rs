//! Tests on the cluster that this whole binary shares, each in a namespace of its own.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail the test by panicking, as tests do"
)]

mod admission;
mod adoption;
mod backoff;
mod black_holes;
mod blocked;
mod children;
mod cluster_command;
mod clusters;
mod command_line;
mod connections;
mod control_plane;
mod dependencies;
mod dev;
mod dynamic;
mod event_way;
mod events;
mod failures;
mod gates;
mod gitops;
mod ha;
mod hurried;
mod inspect;
mod interop;
mod invalid_specs;
mod kinds;
mod lease;
mod members;
mod metrics;
mod needed_rights;
mod network_cut;
mod objects;
mod old_objects;
mod operators;
mod own_writes;
mod peers;
mod probe_policy;
mod readiness;
mod reference;
mod reload;
mod resource_checks;
mod restarts;
mod rules;
mod runnables;
mod scaffold;
mod scopes;
mod served;
mod sharing;
mod silence;
mod skew;
mod steering;
mod stopping;
mod two_writers;
mod user_actions;
mod wait_deployment;
mod waitprobe_inputs;
mod warnings;
mod why;
mod writes;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use mainstay_tests::{ManagerProcess, slow};

/// Waits until reconciles block every thread of a slow process.
async fn all_blocked(process: &ManagerProcess) {
    let count = slow::threads() as u64;
    process
        .logged("every thread is blocked", |line| line["msg"] == slow::BEGAN && line["count"] == count)
        .await;
}

/// Returns the holder of a Lease; empty without one.
fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Returns the `renewTime` of a Lease.
fn renewed(lease: &Lease) -> Timestamp {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    renewed.expect("a Lease that was held").0
}
