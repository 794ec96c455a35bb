//! The binary `mainstay` with probes that end the process rather than leave loopback; or a slow one.

use std::process::ExitCode;

fn main() -> ExitCode {
    match mainstay_tests::slow::program() {
        Some(slow) => slow.main(),
        None => mainstay_controllers::program_with(mainstay_tests::dial::aborting()).main(),
    }
}
