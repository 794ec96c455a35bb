//! The binary of the operator for Memcached.

use std::process::ExitCode;

fn main() -> ExitCode {
    mainstay_operators::memcached::program().main()
}
