//! Redundancy elimination: an encoder, a decoder, and what nobody encoded.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::redundancy::run(data));
