//! Packets of failure detection (BFD): read, written again, and handed to a session.

use std::time::Duration;

use cluster::failure_detector::{Config, ControlPacket, Session};
use flow::Instant;

/// Packets of 24 bytes and what is left, a millisecond apart.
pub fn run(data: &[u8]) {
    if let Ok(packet) = ControlPacket::decode(data) {
        let mut written = Vec::new();
        packet.encode(&mut written);
        // It is always written without the authentication section.
        let packet = ControlPacket { authentication_present: false, ..packet };
        assert_eq!(ControlPacket::decode(&written), Ok(packet), "what was written can be read");
    }
    let mut session = Session::new(Config::default(), 1, 7);
    let mut now = Instant::from_millis(1);
    let mut sent = Vec::new();
    for packet in data.chunks(24) {
        let _ = session.handle_packet(now, packet, 255);
        // The other side of the session is only known once it has shown itself: answered with our own number too.
        let mut addressed = packet.to_vec();
        if let Some(number) = addressed.get_mut(8..12) {
            number.copy_from_slice(&1_u32.to_be_bytes());
        }
        let _ = session.handle_packet(now, &addressed, 255);
        session.handle_timeout(now);
        while session.poll_event().is_some() {}
        let _ = session.poll_transmit(now, &mut sent);
        let _ = session.poll_timeout();
        now = now + Duration::from_millis(1);
    }
}
