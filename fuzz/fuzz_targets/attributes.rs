//! Attributes, as replication messages carry them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::attributes::run(data));
