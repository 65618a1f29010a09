//! Records of the tunnel between two sites.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::tunnel_record::run(data));
