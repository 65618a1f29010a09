//! Capture files.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::capture::run(data));
