//! Records of members, and datagrams of gossip.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::membership::run(data));
