//! The binary `mainstay` whose probes abort the process rather than leave loopback; or a slow, a restless or
//! a greeting program.

use std::process::ExitCode;

use mainstay_tests::{greetings, restless, slow};

/// The memory allocator of the shipped binary, for the binary under test.
#[cfg(all(target_os = "linux", not(mainstay_portable)))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match slow::program().or_else(restless::program).or_else(greetings::program) {
        Some(other) => other.main(),
        None => mainstay_controllers::program_with(mainstay_tests::dial::aborting()).main(),
    }
}
