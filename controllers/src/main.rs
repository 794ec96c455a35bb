//! The binary `mainstay`: the built-in controllers, with the commands every manager has.

use std::process::ExitCode;

/// Keeps less of what the first lists leave behind than the system's, and is faster at decoded objects; how it is tuned
/// stands in `.cargo/config.toml`. Programs of one's own choose for themselves.
#[cfg(all(target_os = "linux", not(mainstay_portable)))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    mainstay_controllers::program().main()
}
