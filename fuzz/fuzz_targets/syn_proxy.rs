//! Segments at a SYN proxy.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::syn_proxy::run(data));
