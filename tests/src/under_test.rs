//! The binary `mainstay` with probes that end the process rather than leave loopback.

use std::process::ExitCode;

fn main() -> ExitCode {
    mainstay_controllers::program_with(mainstay_tests::dial::aborting()).main()
}
