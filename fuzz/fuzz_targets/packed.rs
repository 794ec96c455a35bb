#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mainstay::cache::fuzz::packed(data));
