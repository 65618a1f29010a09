//! Messages of the state service, as peers send them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::state_service::run(data));
