//! The binary `mainstay`: the built-in controllers, with the commands every manager has.

use std::process::ExitCode;

/// The memory allocator of the program. It keeps less memory of the first lists than the system's allocator,
/// and decodes objects faster; it is tuned in `.cargo/config.toml`. Programs built on the library choose an
/// allocator of their own.
#[cfg(all(target_os = "linux", not(mainstay_portable)))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    mainstay_controllers::program().main()
}
