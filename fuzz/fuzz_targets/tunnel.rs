//! Two ends of a tunnel between sites, and somebody between them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::tunnel::run(data));
