//! The binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    shop::program().main()
}
