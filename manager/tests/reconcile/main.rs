//! Adapters and typed writes of reconcilers, as a user's own unit tests would show them.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests fail the test by panicking, as tests do"
)]

mod apply;
mod object;
