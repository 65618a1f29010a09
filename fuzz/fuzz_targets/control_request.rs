//! Requests to the control API.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::control_request::run(data));
