//! The binary of the operator for Foos.

use std::process::ExitCode;

fn main() -> ExitCode {
    mainstay_operators::foo::program().main()
}
