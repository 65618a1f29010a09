//! Replication sessions on a link that loses, repeats and spoils datagrams.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::session::run(data));
