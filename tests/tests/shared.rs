//! Tests on the cluster that this whole binary shares, each in a namespace of its own.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail the test by panicking, as tests do"
)]

#[path = "shared/black_holes.rs"]
mod black_holes;
#[path = "shared/command_line.rs"]
mod command_line;
#[path = "shared/control_plane.rs"]
mod control_plane;
#[path = "shared/rules.rs"]
mod rules;
#[path = "shared/wait_deployment.rs"]
mod wait_deployment;
#[path = "shared/waitprobe_inputs.rs"]
mod waitprobe_inputs;
