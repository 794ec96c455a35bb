#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mainstay_controllers::dependency::probe::fuzz::http(data));
