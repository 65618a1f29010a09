//! An edge among frames and failures.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::edge::run(data));
