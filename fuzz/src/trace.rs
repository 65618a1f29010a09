//! Captures of either format, their packets and the connections in them. The first byte chooses where a second capture
//! begins.

use std::io::{Cursor, Read};

use analysis::trace::{Connections, ConnectionsConfig, Trace};
use flow::Instant;

/// Two captures, merged.
pub fn run(data: &[u8]) {
    let Some((share, rest)) = data.split_first() else { return };
    let second_at = rest.len() * usize::from(*share) / 256;
    let captures = [&rest[..second_at], &rest[second_at..]];
    let source = |bytes: &[u8]| {
        let length = bytes.len() as u64;
        ("fuzzed".into(), Box::new(Cursor::new(bytes.to_vec())) as Box<dyn Read + Send>, Some(length))
    };
    let whole = Trace::merge(captures.map(source).into());
    let Ok(mut trace) = whole.or_else(|_| Trace::merge(vec![source(rest)])) else { return };
    let mut connections = Connections::new(&ConnectionsConfig { connections_max: 64, ..ConnectionsConfig::default() });
    let (mut last, mut begun, mut ended) = (Instant::ZERO, 0_u64, 0_u64);
    let mut observe = |event: &analysis::trace::connections::Event<'_>| {
        use analysis::trace::connections::EventKind;
        begun += u64::from(event.kind == EventKind::Began);
        ended += u64::from(matches!(event.kind, EventKind::Ended(_)));
    };
    while let Some(packet) = trace.next() {
        assert!(packet.at >= last, "time falls");
        last = packet.at;
        assert!(packet.payload.len() <= packet.payload_bytes as usize);
        connections.handle_packet(&packet, &mut observe);
    }
    connections.finish(&mut observe);
    assert_eq!(begun, ended, "what begins ends");
    assert_eq!(begun, connections.begun());
    assert_eq!(trace.counts().frames, trace.counts().packets + trace.skips().total());
}
