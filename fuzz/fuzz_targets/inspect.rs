//! What end points send first.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::inspect::run(data));
