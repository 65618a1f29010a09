//! Frames, as they come in.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::frame::run(data));
