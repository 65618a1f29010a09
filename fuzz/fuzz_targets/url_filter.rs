//! Lists of the URL filter.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::url_filter::run(data));
