//! Secure channels on a link on which somebody repeats, changes and forges datagrams.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::channel::run(data));
