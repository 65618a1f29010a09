//! Frames from nodes to an edge.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::edge_link::run(data));
