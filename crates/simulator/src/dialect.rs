//! Nodes with another protocol version: their datagrams are modified in transit, transparently to the node.
//!
//! A newer node's datagrams contain unknown attributes and messages. Some of these messages consume a number each, so
//! node and peer count differently; [`Numbering`] translates.

use cluster::role;
use flow::wire::tlv;
use replication::message::{self, AckView, Header, NumberRange};

use crate::scenario::Dialect;

/// An attribute that no release defines.
const UNKNOWN_ATTRIBUTE: u16 = 0x7ff1;
/// One whose first byte is that of a heartbeat.
const UNKNOWN_HEARTBEAT_ATTRIBUTE: u16 = 0x00fd;
/// A numbered message that no release defines.
const UNKNOWN_MESSAGE: u16 = 0x7ff0;
/// One that takes none.
const UNKNOWN_UNNUMBERED_MESSAGE: u16 = 0xfff0;
/// High half of a replication datagram's first byte.
const MAGIC: u8 = 0xf0;

/// Modifies a node's datagrams in both directions.
#[derive(Debug, Default)]
pub(crate) struct Interpreter {
    pub(crate) dialect: Dialect,
    numbering: Numbering,
}

impl Interpreter {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { dialect, numbering: Numbering::default() }
    }

    /// The node's datagram in the form on the wire.
    pub(crate) fn outgoing(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        match self.dialect {
            Dialect::Same => bytes,
            Dialect::Newer if role::is_heartbeat(&bytes) => with_unknown_attributes(&bytes),
            Dialect::Newer => self.add_unknown(&bytes).unwrap_or(bytes),
            Dialect::Version(version) => as_version(bytes, message_version(), version),
        }
    }

    /// A datagram in the form for the node. Datagrams of the node's own version appear as this release's.
    pub(crate) fn incoming(&self, bytes: &[u8]) -> Vec<u8> {
        match self.dialect {
            Dialect::Same => bytes.to_vec(),
            Dialect::Newer => self.translate_acks(bytes).unwrap_or_else(|| bytes.to_vec()),
            Dialect::Version(version) => match bytes.first().map(|first| first & 0x0f) {
                Some(theirs) if theirs == version => as_version(bytes.to_vec(), version, message_version()),
                _ => as_version(bytes.to_vec(), message_version(), version),
            },
        }
    }

    /// Adds attributes to updates of connections, a message without a number, and a numbered message among other
    /// numbered ones.
    fn add_unknown(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (mut header, body) = Header::parse(bytes).ok()?;
        self.numbering.note_session(&header);
        let mut messages = Vec::new();
        tlv::put(&mut messages, UNKNOWN_UNNUMBERED_MESSAGE, b"from a later version");
        for message in tlv::read(body) {
            let (message_type, value) = message.ok()?;
            let mut value = value.to_vec();
            if matches!(message_type, message::NEW | message::UPDATE) {
                tlv::put(&mut value, UNKNOWN_ATTRIBUTE, &[1, 2, 3]);
            }
            tlv::put(&mut messages, message_type, &value);
        }
        let (first, base) = (self.numbering.outgoing(header.first), self.numbering.outgoing(header.base()));
        if header.count > 0 {
            self.numbering.insert_before(header.first.wrapping_add(header.count.into()));
            tlv::put(&mut messages, UNKNOWN_MESSAGE, b"this too");
            header.count += 1;
        }
        (header.first, header.unresolved) = (first, u16::try_from(first.wrapping_sub(base)).ok()?);
        Some([&header.emit()[..], &messages].concat())
    }

    fn translate_acks(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (header, body) = Header::parse(bytes).ok()?;
        let mut out = header.emit().to_vec();
        for message in tlv::read(body) {
            let (message_type, value) = message.ok()?;
            if message_type != message::ACK {
                tlv::put(&mut out, message_type, value);
                continue;
            }
            let ack = AckView::parse(value)?;
            let missing = ack.missing().map(|range| self.numbering.incoming_range(range));
            let missing = missing.filter(|range| range.start != range.end).collect();
            message::Ack { next: self.numbering.incoming(ack.next), held: ack.held, missing }.emit(&mut out);
        }
        Some(out)
    }
}

/// The protocol version of this release.
const fn message_version() -> u8 {
    replication::PROTOCOL_VERSION
}

/// Converts a replication datagram of any version to this release's.
pub(crate) fn in_any_version(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(first) = bytes.first_mut().filter(|first| **first & 0xf0 == MAGIC) {
        *first = MAGIC | message_version();
    }
    bytes
}

/// Converts a replication datagram of another version to a version that varies with `count`.
pub(crate) fn in_changing_version(mut bytes: Vec<u8>, count: u64) -> Vec<u8> {
    let is_foreign = |first: u8| first & 0xf0 == MAGIC && first & 0x0f != message_version();
    if let Some(first) = bytes.first_mut().filter(|first| is_foreign(**first)) {
        *first = MAGIC | 0x0e | (count % 2) as u8;
    }
    bytes
}

/// Converts a replication datagram from one version to another; other datagrams stay unchanged.
fn as_version(mut bytes: Vec<u8>, from: u8, to: u8) -> Vec<u8> {
    if let Some(first) = bytes.first_mut().filter(|first| **first == MAGIC | from) {
        *first = MAGIC | to;
    }
    bytes
}

fn with_unknown_attributes(heartbeat: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    tlv::put(&mut bytes, UNKNOWN_HEARTBEAT_ATTRIBUTE, b"earlier");
    bytes.extend_from_slice(heartbeat);
    tlv::put(&mut bytes, UNKNOWN_ATTRIBUTE, b"and later");
    bytes
}

/// Translates message numbers between the node's count and its peer's, which includes inserted messages.
#[derive(Debug, Default)]
struct Numbering {
    session: u32,
    origin: u32,
    /// The distances from the origin of the node's messages that follow an inserted one, ascending.
    inserted: Vec<u32>,
}

impl Numbering {
    fn note_session(&mut self, header: &Header) {
        if self.session != header.session {
            *self = Self { session: header.session, origin: header.base(), inserted: Vec::new() };
        }
    }

    /// Inserts another message before the node's message with this number.
    fn insert_before(&mut self, number: u32) {
        self.inserted.push(number.wrapping_sub(self.origin));
    }

    /// The peer's number for a message of the node.
    fn outgoing(&self, number: u32) -> u32 {
        let distance = number.wrapping_sub(self.origin);
        number.wrapping_add(self.inserted.partition_point(|at| *at <= distance) as u32)
    }

    /// The number of the node's messages before the peer's `number`.
    fn incoming(&self, number: u32) -> u32 {
        let distance = number.wrapping_sub(self.origin);
        let mut others = 0;
        // The nth inserted message has, for the peer, the number of the node's message behind it plus n.
        while self.inserted.get(others as usize).is_some_and(|at| at + others < distance) {
            others += 1;
        }
        number.wrapping_sub(others)
    }

    fn incoming_range(&self, range: NumberRange) -> NumberRange {
        NumberRange { start: self.incoming(range.start), end: self.incoming(range.end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::role::{Heartbeat, State};
    use flow::NodeId;

    #[test]
    fn translated_numbers_map_back() {
        let mut numbering = Numbering { session: 1, origin: u32::MAX - 2, inserted: Vec::new() };
        // Two messages of the node, one inserted, three of the node, one inserted.
        numbering.insert_before(u32::MAX);
        numbering.insert_before(2);
        let numbers = [u32::MAX - 2, u32::MAX - 1, u32::MAX, 0, 1, 2, 3];
        assert_eq!(numbers.map(|number| numbering.outgoing(number)), [u32::MAX - 2, u32::MAX - 1, 0, 1, 2, 4, 5]);
        for number in numbers {
            assert_eq!(numbering.incoming(numbering.outgoing(number)), number);
        }
        let only_another = NumberRange { start: 3, end: 4 };
        let range = numbering.incoming_range(only_another);
        assert_eq!(range.start, range.end, "the loss of an inserted message is invisible to the node");
    }

    #[test]
    fn a_newer_heartbeat_extends_the_older_one() {
        let heartbeat = Heartbeat {
            node: NodeId(1),
            state: State::Standby,
            priority: 7,
            synchronised: true,
            term: 3,
            configuration: None,
            unreached: 0,
            passive: false,
        };
        let mut bytes = Vec::new();
        heartbeat.encode(&mut bytes);
        let newer = Interpreter::new(Dialect::Newer).outgoing(bytes.clone());
        assert!(role::is_heartbeat(&newer) && newer.len() > bytes.len());
        assert_eq!(Heartbeat::decode(&newer), Ok(heartbeat));
    }

    #[test]
    fn only_nodes_of_one_version_understand_each_other() {
        let mut other = Interpreter::new(Dialect::Version(2));
        let bytes = vec![MAGIC | message_version(), 5];
        let sent = other.outgoing(bytes.clone());
        assert_eq!(sent[0], MAGIC | 2);
        assert_eq!(other.incoming(&sent), bytes);
        assert_eq!(other.incoming(&bytes)[0], MAGIC | 2, "this release's version is unknown to it");
        assert_eq!(Interpreter::new(Dialect::Same).incoming(&sent), sent);
    }
}
