//! Replication over plain UDP and over TCP.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::transports::run(data));
