//! Peer filters, as a peer sends them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::filters::run(data));
