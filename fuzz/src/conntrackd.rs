//! conntrackd's wire format: objects that could be read can be written, and a session takes any datagram.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flow::{Instant, NodeId};
use replication::Handle;
use replication::conntrackd::testing::MemoryTable;
use replication::conntrackd::{FtfwConfig, FtfwSession, message, object};

const EVENTS_MAX: usize = 200;
const DATAGRAMS_PER_EVENT_MAX: usize = 64;
const TIME_OF_DAY_S: u32 = 1_800_000_000;

#[derive(Arbitrary, Debug)]
enum Event<'a> {
    /// A datagram of any bytes.
    Datagram(&'a [u8]),
    /// A message whose header fits, numbered near where the session is.
    Message { kind: u8, flags: u8, ahead: i8, body: &'a [u8] },
    /// An acknowledgement, or a question, of numbers near those that the session sends.
    Range { flags: u8, from: u8, to: u8 },
    /// Time goes on.
    Wait { milliseconds: u16 },
    /// A replica becomes a connection of this node, and is replicated.
    Adopt,
    /// One of this node's ends.
    End { slot: u8 },
}

/// The bytes as an object, then as what happens to a session.
pub fn run(data: &[u8]) {
    check_objects(data);
    let mut input = Unstructured::new(data);
    let config = FtfwConfig { in_flight_messages_max: 16, resync_in_flight_messages_max: 8, ..FtfwConfig::default() };
    let mut session = FtfwSession::new(config, NodeId(1), TIME_OF_DAY_S).expect("it is sound");
    let mut table = MemoryTable::default();
    table.copies_max = Some(64);
    let (mut now, mut number) = (Instant::from_millis(1), TIME_OF_DAY_S);
    for _ in 0..EVENTS_MAX {
        if input.is_empty() {
            return;
        }
        let Ok(event) = Event::arbitrary(&mut input) else { return };
        let mut datagram = Vec::new();
        match event {
            Event::Datagram(bytes) => datagram.extend_from_slice(bytes),
            Event::Message { kind, flags, ahead, body } => {
                number = number.wrapping_add_signed(ahead.into());
                let kind = message::Kind::from_number(kind % 11).unwrap_or(message::Kind::Control);
                let at = message::begin(&mut datagram, kind, flags, number);
                datagram.extend_from_slice(&body[..body.len().min(1000)]);
                message::finish(&mut datagram, at);
            }
            Event::Range { flags, from, to } => {
                number = number.wrapping_add(1);
                let range = message::Range {
                    from: TIME_OF_DAY_S.wrapping_add(from.into()),
                    to: TIME_OF_DAY_S.wrapping_add(to.into()),
                };
                message::put_range(&mut datagram, flags, number, range);
            }
            Event::Wait { milliseconds } => now = now + Duration::from_millis(milliseconds.into()),
            Event::Adopt => {
                if let Some((_, entry)) = table.copies.pop_first() {
                    let handle = table.put(entry);
                    session.mark_changed(handle);
                }
            }
            Event::End { slot } => {
                let entry = table.connections.get(usize::from(slot)).cloned().flatten();
                if let Some((handle, entry)) = entry.and_then(|entry| table.take(&entry.original, entry.zone)) {
                    session.mark_deleted(handle, &entry);
                }
            }
        }
        // A datagram may be refused for any reason; what must not happen shows by itself.
        let _ = session.handle_datagram(now, &datagram, &mut table);
        session.handle_timeout(now);
        check_output(&mut session, &mut table, now);
        while session.poll_event().is_some() {}
    }
    assert!(!session.is_replicated(Handle(u32::MAX)));
}

/// Whatever is sent can be read, fits, and ends.
fn check_output(session: &mut FtfwSession, table: &mut MemoryTable, now: Instant) {
    let mut datagram = Vec::new();
    for _ in 0..DATAGRAMS_PER_EVENT_MAX {
        if !session.poll_transmit(now, table, &mut datagram) {
            return;
        }
        assert!(datagram.len() <= FtfwConfig::default().datagram_bytes_max);
        for message in message::read(&datagram) {
            let message = message.expect("the session's own messages are sound");
            if message.kind < 3 {
                object::decode(message.body).expect("the session's own objects are sound");
            }
        }
    }
    panic!("a session never stops talking");
}

fn check_objects(data: &[u8]) {
    let mut written = Vec::new();
    if let Ok(entry) = object::decode(data) {
        object::encode(&entry, true, &mut written).expect("what could be read can be written");
        assert!(written.len() <= object::OBJECT_BYTES_MAX);
        assert_eq!(object::decode(&written).as_ref(), Ok(&entry));
    }
    written.clear();
    if let Ok(expectation) = object::decode_expectation(data)
        && object::encode_expectation(&expectation, &mut written).is_ok()
    {
        assert!(written.len() <= object::OBJECT_BYTES_MAX);
        assert_eq!(object::decode_expectation(&written), Ok(expectation));
    }
}
