//! A whole node, and everything that reaches it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::node::run(data));
