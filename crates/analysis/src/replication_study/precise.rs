//! What precise messages cost: real encodings, in datagrams that are shared as a session shares them.

use std::time::Duration;

use flow::wire::tlv::TLV_HEADER_BYTES;
use flow::{Connection, Instant};
use replication::message::HEADER_BYTES;
use replication::representation::precise::{self, Ended, NoFunctions};

/// Bytes before a datagram's own: IPv4 and UDP.
pub(super) const IP_AND_UDP_BYTES: u64 = 28;
/// Bytes of a datagram: an Ethernet link's MTU less the IP and UDP headers.
const DATAGRAM_BYTES_MAX: usize = 1500 - IP_AND_UDP_BYTES as usize;

/// What was sent of one method at one threshold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Sent {
    /// Bytes with IP and UDP headers.
    pub(super) bytes: u64,
    /// Of these, the messages' bodies.
    pub(super) content_bytes: u64,
    pub(super) datagrams: u64,
    pub(super) messages: u64,
}

/// Puts messages into datagrams: one is sent when it is full, or so long after its first message.
#[derive(Clone, Debug)]
pub(super) struct Packer {
    batch: Duration,
    open_until: Option<Instant>,
    open_bytes: usize,
    sent: Sent,
}

impl Packer {
    pub(super) fn new(batch: Duration) -> Self {
        Self { batch, open_until: None, open_bytes: 0, sent: Sent::default() }
    }

    /// A message of `message_bytes` with its header.
    pub(super) fn add(&mut self, at: Instant, message_bytes: usize) {
        let is_open = self.open_until.is_some_and(|until| at <= until);
        if !is_open || self.open_bytes + message_bytes > DATAGRAM_BYTES_MAX {
            self.open_until = Some(at + self.batch);
            self.open_bytes = HEADER_BYTES;
            self.sent.datagrams += 1;
            self.sent.bytes += HEADER_BYTES as u64 + IP_AND_UDP_BYTES;
        }
        self.open_bytes += message_bytes;
        self.sent.bytes += message_bytes as u64;
        self.sent.content_bytes += (message_bytes - TLV_HEADER_BYTES) as u64;
        self.sent.messages += 1;
    }

    pub(super) const fn sent(&self) -> Sent {
        self.sent
    }
}

/// Measures messages by encoding them.
#[derive(Debug, Default)]
pub(super) struct Scale {
    bytes: Vec<u8>,
}

impl Scale {
    /// Bytes of the message with a connection's whole state.
    pub(super) fn state_bytes(&mut self, now: Instant, connection: &Connection) -> u16 {
        self.bytes.clear();
        precise::encode(now, connection, &NoFunctions, &mut self.bytes);
        message_bytes(self.bytes.len())
    }

    /// Bytes of the message that a connection has ended.
    pub(super) fn ended_bytes(&mut self, connection: &Connection) -> u16 {
        self.bytes.clear();
        precise::encode_ended(&Ended::from(connection), &mut self.bytes);
        message_bytes(self.bytes.len())
    }
}

/// A message's bytes with its header, padded to four.
fn message_bytes(body_bytes: usize) -> u16 {
    u16::try_from((TLV_HEADER_BYTES + body_bytes).next_multiple_of(4)).expect("a connection without functions is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_share_a_datagram_until_it_is_full_or_its_time_is_over() {
        let mut packer = Packer::new(Duration::from_millis(1));
        let at = Instant::from_millis(10);
        for _ in 0..14 {
            packer.add(at, 100);
        }
        assert_eq!(packer.sent(), Sent { bytes: 1400 + 20 + 28, content_bytes: 14 * 96, datagrams: 1, messages: 14 });
        packer.add(at, 100);
        assert_eq!(packer.sent().datagrams, 2, "a fifteenth does not fit 1472 bytes");
        packer.add(Instant::from_millis(11), 100);
        assert_eq!(packer.sent().datagrams, 2, "it comes in time");
        packer.add(Instant::from_millis(12), 100);
        assert_eq!(packer.sent().datagrams, 3, "it comes too late");
    }

    #[test]
    fn an_end_costs_less_than_a_state() {
        let tuple = flow::Tuple::new(6, "192.0.2.1:4000".parse().unwrap(), "192.0.2.2:80".parse().unwrap());
        let connection =
            Connection::new(tuple, flow::NodeId(0), flow::conntrack::ProtocolState::default(), Instant::ZERO);
        let mut scale = Scale::default();
        let (state, ended) = (scale.state_bytes(Instant::ZERO, &connection), scale.ended_bytes(&connection));
        assert!(ended < state && ended >= 20, "{ended} of {state}");
        assert_eq!((state % 4, ended % 4), (0, 0));
    }
}
