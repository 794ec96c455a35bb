#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    mainstay::config::fuzz::configuration(data);
    mainstay_controllers::settings::fuzz::sections(data);
});
