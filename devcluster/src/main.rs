//! The binary `mainstay-cluster`: the command `cluster` by itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    mainstay_devcluster::command::main()
}
