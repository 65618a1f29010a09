//! Heartbeats of the role automaton.

use cluster::role::{Heartbeat, Heartbeats, is_heartbeat};

/// One datagram.
pub fn run(data: &[u8]) {
    let _ = is_heartbeat(data);
    if let Ok(heartbeat) = Heartbeat::decode(data) {
        let mut written = Vec::new();
        heartbeat.encode(&mut written);
        assert!(is_heartbeat(&written));
        assert_eq!(Heartbeat::decode(&written), Ok(heartbeat), "what was written can be read");
    }
    let Ok(heartbeats) = Heartbeats::decode(data) else { return };
    let mut written = Vec::new();
    heartbeats.encode(&mut written);
    assert!(is_heartbeat(&written));
    assert_eq!(Heartbeats::decode(&written), Ok(heartbeats), "what was written can be read");
}
