//! Captures, their packets and the connections in them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::trace::run(data));
