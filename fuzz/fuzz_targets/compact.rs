//! A filter of connections that one side tells and the other hears, on a bad link.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::compact::run(data));
