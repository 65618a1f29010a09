//! Messages of the kernel's connection tracking: what could be read is written and read again, and is the same.

use packet_io::ctnetlink::{Cause, Event, decode_events, encode_event};

/// One datagram.
pub fn run(data: &[u8]) {
    let mut events = Vec::new();
    let malformed = decode_events(data, &mut |cause, event| events.push((cause, event)));
    assert!(events.len() + malformed <= data.len(), "messages do not come from nowhere");
    for (cause, event) in events {
        let mut written = Vec::new();
        encode_event(cause, &event, &mut written);
        assert_eq!(read(&written), Some((cause, event)), "what was written can be read");
    }
}

/// The only event of a datagram.
fn read(datagram: &[u8]) -> Option<(Cause, Event)> {
    let mut events = Vec::new();
    let malformed = decode_events(datagram, &mut |cause, event| events.push((cause, event)));
    (malformed == 0 && events.len() == 1).then(|| events.pop()).flatten()
}
