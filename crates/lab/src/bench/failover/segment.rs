//! The segments of the connections: each names its connection, and what answers it follows from it alone.
//!
//! ```text
//!   sequence number: connection (20 bits) │ offset in the connection (12 bits), the same for both sides
//!
//!   client ── SYN, offset 0 ───────────────────────────► server
//!          ◄─ SYN and ACK, offset 0, acknowledges 1 ───
//!   one    ── 8 bytes, offset 1 + 8n, acknowledges 1 + 8n ──► other             exchange n
//!          ◄─ 8 bytes, offset 1 + 8n, acknowledges 9 + 8n ──
//! ```

use flow::wire::{TcpSegment, build, tcp_flags};

/// Bits of the offset.
const OFFSET_BITS: u32 = 12;
/// Data of a segment.
const PAYLOAD: [u8; 8] = [0x6d; 8];
const PAYLOAD_BYTES: u32 = PAYLOAD.len() as u32;
/// Exchanges that the offset has room for.
pub(super) const EXCHANGES_MAX: u32 = ((1 << OFFSET_BITS) - 1) / PAYLOAD_BYTES;

/// What a segment is in its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The client's first segment.
    Syn,
    /// The server's answer to it.
    SynAck,
    /// The first segment of an exchange.
    Request(u32),
    /// The answer to it.
    Answer(u32),
}

impl Kind {
    /// What answers it, if anything does.
    pub(super) const fn answer(self) -> Option<Self> {
        match self {
            Self::Syn => Some(Self::SynAck),
            Self::Request(exchange) => Some(Self::Answer(exchange)),
            Self::SynAck | Self::Answer(_) => None,
        }
    }

    /// The header of such a segment of a connection.
    pub(super) fn header(self, connection: u32) -> build::Tcp<'static> {
        let offset = |exchange: u32| 1 + exchange * PAYLOAD_BYTES;
        let (flags, sequence, acknowledged) = match self {
            Self::Syn => (tcp_flags::SYN, 0, None),
            Self::SynAck => (tcp_flags::SYN | tcp_flags::ACK, 0, Some(1)),
            Self::Request(exchange) => (tcp_flags::ACK, offset(exchange), Some(offset(exchange))),
            Self::Answer(exchange) => (tcp_flags::ACK, offset(exchange), Some(offset(exchange + 1))),
        };
        let number = |offset: u32| (connection << OFFSET_BITS) + offset;
        build::Tcp {
            flags,
            sequence: number(sequence),
            acknowledgement: acknowledged.map_or(0, number),
            ..build::Tcp::default()
        }
    }

    /// What it carries.
    pub(super) const fn payload(self) -> &'static [u8] {
        match self {
            Self::Syn | Self::SynAck => &[],
            Self::Request(_) | Self::Answer(_) => &PAYLOAD,
        }
    }

    /// The connection and the kind of a segment; `None`: it is none of these.
    pub(super) fn of(segment: &TcpSegment) -> Option<(u32, Self)> {
        let (connection, offset) = (segment.sequence >> OFFSET_BITS, segment.sequence % (1 << OFFSET_BITS));
        let exchange = offset.saturating_sub(1) / PAYLOAD_BYTES;
        let kinds = [Self::Syn, Self::SynAck, Self::Request(exchange), Self::Answer(exchange)];
        let is_it = |kind: &Self| {
            let header = kind.header(connection);
            (header.flags, header.sequence, header.acknowledgement, kind.payload().len() as u32)
                == (segment.flags, segment.sequence, segment.acknowledgement, segment.payload_bytes)
        };
        kinds.into_iter().find(is_it).map(|kind| (connection, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(kind: Kind, connection: u32) -> TcpSegment {
        let header = kind.header(connection);
        TcpSegment {
            sequence: header.sequence,
            acknowledgement: header.acknowledgement,
            flags: header.flags,
            window: header.window,
            payload_bytes: kind.payload().len() as u32,
            window_scale: None,
            sack_permitted: false,
            sack_end: 0,
            maximum_segment_bytes: None,
        }
    }

    #[test]
    fn a_segment_names_its_connection_and_its_kind() {
        let last = EXCHANGES_MAX - 1;
        for connection in [0, 1, 199_999, 999_999] {
            for kind in
                [Kind::Syn, Kind::SynAck, Kind::Request(0), Kind::Answer(0), Kind::Request(last), Kind::Answer(last)]
            {
                assert_eq!(Kind::of(&segment(kind, connection)), Some((connection, kind)));
            }
        }
        let damaged = TcpSegment { sequence: 3, ..segment(Kind::Request(0), 0) };
        assert_eq!(Kind::of(&damaged), None);
    }

    #[test]
    fn an_exchange_continues_where_the_last_one_ended() {
        let [answer, next] = [Kind::Answer(3), Kind::Request(4)].map(|kind| kind.header(7));
        assert_eq!(answer.sequence + PAYLOAD_BYTES, next.sequence);
        assert_eq!(answer.acknowledgement, next.acknowledgement);
    }
}
