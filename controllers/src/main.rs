//! The binary `mainstay`: the built-in controllers, with the commands every manager has.

use std::process::ExitCode;

fn main() -> ExitCode {
    mainstay_controllers::program().main()
}
