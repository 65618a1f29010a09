//! Heartbeats of the role automaton.

use cluster::role::{Heartbeat, is_heartbeat};

/// One datagram.
pub fn run(data: &[u8]) {
    let _ = is_heartbeat(data);
    let Ok(heartbeat) = Heartbeat::decode(data) else { return };
    let mut written = Vec::new();
    heartbeat.encode(&mut written);
    assert!(is_heartbeat(&written));
    assert_eq!(Heartbeat::decode(&written), Ok(heartbeat), "what was written can be read");
}
