//! A peer filter that one side sends and the other receives, on a bad link.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::compact::run(data));
