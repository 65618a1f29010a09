//! Messages of the kernel's connection tracking.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::ctnetlink::run(data));
