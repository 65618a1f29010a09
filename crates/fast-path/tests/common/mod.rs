//! A loaded fast path for tests.

#![allow(dead_code, reason = "each test uses a part")]

use fast_path::{Config, Error, FastPath};

/// The fast path, switched on and with a heartbeat. `None`, with a message, where the machine refuses eBPF.
pub(crate) fn load(config: &Config) -> Option<FastPath> {
    match FastPath::load(config) {
        Ok(fast_path) => {
            fast_path.set_enabled(true);
            fast_path.beat(fast_path::now());
            Some(fast_path)
        }
        Err(error @ (Error::NotPermitted { .. } | Error::Unsupported { .. })) => {
            packet_io::namespace::skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}
