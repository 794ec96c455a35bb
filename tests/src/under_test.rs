//! The binary `mainstay` whose probes abort the process rather than leave loopback; or a slow, a restless or
//! a greeting program, or that of a new project.

use std::process::ExitCode;

use mainstay_tests::{greetings, restless, slow};

/// The memory allocator of the shipped binary, for the binary under test.
#[cfg(all(target_os = "linux", not(mainstay_portable)))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let project = || std::env::var_os("MAINSTAY_UNDER_TEST_SHOP").map(|_| shop::program());
    let other = slow::program().or_else(restless::program).or_else(greetings::program).or_else(project);
    match other {
        Some(other) => other.main(),
        None => mainstay_controllers::program_with(mainstay_tests::dial::aborting()).main(),
    }
}
