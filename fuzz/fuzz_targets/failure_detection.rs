//! Packets of failure detection.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::failure_detection::run(data));
