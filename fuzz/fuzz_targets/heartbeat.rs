//! Heartbeats of the role automaton.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::heartbeat::run(data));
