//! A session with a conntrackd, and objects in its format.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::conntrackd::run(data));
