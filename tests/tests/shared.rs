//! Tests on the cluster that this whole binary shares, each in a namespace of its own.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail the test by panicking, as tests do"
)]

#[path = "shared/adoption.rs"]
mod adoption;
#[path = "shared/backoff.rs"]
mod backoff;
#[path = "shared/black_holes.rs"]
mod black_holes;
#[path = "shared/blocked.rs"]
mod blocked;
#[path = "shared/clusters.rs"]
mod clusters;
#[path = "shared/command_line.rs"]
mod command_line;
#[path = "shared/control_plane.rs"]
mod control_plane;
#[path = "shared/dependencies.rs"]
mod dependencies;
#[path = "shared/dev.rs"]
mod dev;
#[path = "shared/dynamic.rs"]
mod dynamic;
#[path = "shared/events.rs"]
mod events;
#[path = "shared/failures.rs"]
mod failures;
#[path = "shared/gates.rs"]
mod gates;
#[path = "shared/gitops.rs"]
mod gitops;
#[path = "shared/ha.rs"]
mod ha;
#[path = "shared/hurried.rs"]
mod hurried;
#[path = "shared/inspect.rs"]
mod inspect;
#[path = "shared/interop.rs"]
mod interop;
#[path = "shared/invalid_specs.rs"]
mod invalid_specs;
#[path = "shared/kinds.rs"]
mod kinds;
#[path = "shared/lease.rs"]
mod lease;
#[path = "shared/members.rs"]
mod members;
#[path = "shared/metrics.rs"]
mod metrics;
#[path = "shared/network_cut.rs"]
mod network_cut;
#[path = "shared/objects.rs"]
mod objects;
#[path = "shared/old_objects.rs"]
mod old_objects;
#[path = "shared/own_writes.rs"]
mod own_writes;
#[path = "shared/probe_policy.rs"]
mod probe_policy;
#[path = "shared/readiness.rs"]
mod readiness;
#[path = "shared/reload.rs"]
mod reload;
#[path = "shared/resource_checks.rs"]
mod resource_checks;
#[path = "shared/restarts.rs"]
mod restarts;
#[path = "shared/rules.rs"]
mod rules;
#[path = "shared/runnables.rs"]
mod runnables;
#[path = "shared/scopes.rs"]
mod scopes;
#[path = "shared/served.rs"]
mod served;
#[path = "shared/sharing.rs"]
mod sharing;
#[path = "shared/silence.rs"]
mod silence;
#[path = "shared/skew.rs"]
mod skew;
#[path = "shared/steering.rs"]
mod steering;
#[path = "shared/stopping.rs"]
mod stopping;
#[path = "shared/two_writers.rs"]
mod two_writers;
#[path = "shared/user_actions.rs"]
mod user_actions;
#[path = "shared/wait_deployment.rs"]
mod wait_deployment;
#[path = "shared/waitprobe_inputs.rs"]
mod waitprobe_inputs;
#[path = "shared/warnings.rs"]
mod warnings;
#[path = "shared/why.rs"]
mod why;
#[path = "shared/writes.rs"]
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

/// Returns whom a Lease names; empty for nobody.
fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Returns when the holder of a Lease says that it renewed it.
fn renewed(lease: &Lease) -> Timestamp {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    renewed.expect("a Lease that was held").0
}
