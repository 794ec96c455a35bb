#![no_main]

use std::sync::LazyLock;

use mainstay_controllers::dependency::probe::fuzz::{Authority, tls};

#[path = "../authority.rs"]
mod authority;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(authority::authority);

libfuzzer_sys::fuzz_target!(|data: &[u8]| tls(&AUTHORITY, data));
