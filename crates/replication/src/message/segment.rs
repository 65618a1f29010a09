//! Messages about TCP segments that the owner of a connection has forwarded and that are not acknowledged.
//!
//! They take no number: a lost one is not sent again, because a newer segment follows it. Receivers of earlier releases skip them.

use alloc::vec::Vec;

use flow::Tuple;
use flow::wire::ip_protocol;

use super::{ACKNOWLEDGED, SEGMENT, begin, finish};

/// The connection has ended: whatever number was sent.
const FLAG_ENDED: u8 = 1;
/// Bytes of the body before the addresses.
const FIXED_BYTES: usize = 12;

/// Segments of one direction of a connection need not be resent.
///
/// ```text
/// +-------+-------+---------------+---------------+---------------+
/// | 4, 6  | flags |       0       | acknowledged number …         |
/// +-------+-------+---------------+---------------+---------------+
/// | …                             | source port   | dest. port    |
/// +-------------------------------+---------------+---------------+
/// | source and destination address: 4 or 16 bytes each            |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acknowledged {
    /// The tuple of the segments, as they came in.
    pub tuple: Tuple,
    /// The number behind the last acknowledged byte.
    pub number: u32,
    /// The connection has ended.
    pub has_ended: bool,
}

/// A message about segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentMessage<'a> {
    /// The lowest segment that is not acknowledged: the packet as it came in, from its IP header on.
    Held(&'a [u8]),
    /// What was acknowledged.
    Acknowledged(Acknowledged),
}

impl<'a> SegmentMessage<'a> {
    /// Bytes of a message with a packet of so many bytes, padding included.
    #[must_use]
    pub const fn held_bytes(packet_bytes: usize) -> usize {
        (flow::wire::tlv::TLV_HEADER_BYTES + packet_bytes).next_multiple_of(4)
    }

    /// Bytes of the largest [`Acknowledged`].
    pub const ACKNOWLEDGED_BYTES_MAX: usize = flow::wire::tlv::TLV_HEADER_BYTES + FIXED_BYTES + 32;

    /// Appends the message.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let at = match self {
            Self::Held(packet) => {
                let at = begin(out, SEGMENT);
                out.extend_from_slice(packet);
                at
            }
            Self::Acknowledged(acknowledged) => {
                let at = begin(out, ACKNOWLEDGED);
                acknowledged.emit_body(out);
                at
            }
        };
        let fits = finish(out, at);
        debug_assert!(fits, "a packet is no longer than 65535 bytes less headers");
    }

    /// Reads a message's body. `None`: it is of another type, or malformed.
    #[must_use]
    pub fn parse(message_type: u16, body: &'a [u8]) -> Option<Self> {
        match message_type {
            SEGMENT => Some(Self::Held(body)),
            ACKNOWLEDGED => Acknowledged::parse_body(body).map(Self::Acknowledged),
            _ => None,
        }
    }
}

impl Acknowledged {
    fn emit_body(&self, out: &mut Vec<u8>) {
        let Tuple { source, destination, source_port, destination_port, version, .. } = &self.tuple;
        out.extend_from_slice(&[*version, u8::from(self.has_ended) * FLAG_ENDED, 0, 0]);
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&source_port.to_be_bytes());
        out.extend_from_slice(&destination_port.to_be_bytes());
        // An IPv4 address is the end of its mapped form.
        let skipped = if *version == 4 { 12 } else { 0 };
        out.extend_from_slice(&source[skipped..]);
        out.extend_from_slice(&destination[skipped..]);
    }

    fn parse_body(body: &[u8]) -> Option<Self> {
        let (fixed, addresses) = body.split_first_chunk::<FIXED_BYTES>()?;
        let [version, flags, _, _, a, b, c, d, source_high, source_low, destination_high, destination_low] = *fixed;
        let mut tuple = Tuple {
            source: [0; 16],
            destination: [0; 16],
            source_port: u16::from_be_bytes([source_high, source_low]),
            destination_port: u16::from_be_bytes([destination_high, destination_low]),
            protocol: ip_protocol::TCP,
            version,
            discriminator: 0,
        };
        match (version, addresses.len()) {
            (4, 8) => {
                let (source, destination) = addresses.split_at(4);
                for (mapped, address) in [(&mut tuple.source, source), (&mut tuple.destination, destination)] {
                    mapped[10..12].fill(0xff);
                    mapped[12..].copy_from_slice(address);
                }
            }
            (6, 32) => {
                let (source, destination) = addresses.split_at(16);
                tuple.source.copy_from_slice(source);
                tuple.destination.copy_from_slice(destination);
            }
            _ => return None,
        }
        Some(Self { tuple, number: u32::from_be_bytes([a, b, c, d]), has_ended: flags & FLAG_ENDED != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::wire::tlv;
    use proptest::prelude::*;

    fn tuples() -> impl Strategy<Value = Tuple> {
        (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<(u16, u16)>(), any::<bool>()).prop_map(
            |(mut source, mut destination, (source_port, destination_port), is_ipv4)| {
                if is_ipv4 {
                    for address in [&mut source, &mut destination] {
                        address[..10].fill(0);
                        address[10..12].fill(0xff);
                    }
                }
                let version = if is_ipv4 { 4 } else { 6 };
                let protocol = ip_protocol::TCP;
                Tuple { source, destination, source_port, destination_port, protocol, version, discriminator: 0 }
            },
        )
    }

    proptest! {
        #[test]
        fn messages_come_back_as_they_were_sent(
            packet in prop::collection::vec(any::<u8>(), 0..1500),
            (tuple, number, has_ended) in (tuples(), any::<u32>(), any::<bool>()),
        ) {
            let messages = [
                SegmentMessage::Held(&packet),
                SegmentMessage::Acknowledged(Acknowledged { tuple, number, has_ended }),
            ];
            let mut bytes = Vec::new();
            messages[0].emit(&mut bytes);
            prop_assert_eq!(bytes.len(), SegmentMessage::held_bytes(packet.len()));
            let held_bytes = bytes.len();
            messages[1].emit(&mut bytes);
            prop_assert!(bytes.len() - held_bytes <= SegmentMessage::ACKNOWLEDGED_BYTES_MAX);
            let read: Vec<_> = tlv::read(&bytes)
                .map(|message| message.ok().and_then(|(kind, body)| SegmentMessage::parse(kind, body)))
                .collect();
            prop_assert_eq!(read, messages.map(Some).to_vec());
        }

        #[test]
        fn arbitrary_bodies_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(SegmentMessage::Acknowledged(read)) = SegmentMessage::parse(ACKNOWLEDGED, &body) {
                prop_assert!(matches!((read.tuple.version, body.len()), (4, 20) | (6, 44)));
            }
        }
    }
}
