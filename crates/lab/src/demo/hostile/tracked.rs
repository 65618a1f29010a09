//! A connection of a client whose numbers are known, as an attacker on the client's own host knows them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::site::PATIENCE;
use crate::demo::run::RunError;
use crate::testbed::stranger::Stranger;
use flow::Tuple;
use flow::wire::build::{Envelope, Tcp};
use flow::wire::tcp::SegmentOptions;
use flow::wire::{Transport, ip_protocol, tcp_flags};
use packet_io::namespace::Namespace;

/// Bytes of a link header and of an IPv4 header without options.
pub(super) const LINK_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
/// Where the checksum and the urgent pointer lie in a TCP header.
const CHECKSUM: usize = 16;
const URGENT_POINTER: usize = 18;

/// A connection whose numbers are known.
pub(super) struct Tracked {
    pub(super) stream: TcpStream,
    /// From the client to the server.
    pub(super) tuple: Tuple,
    /// The client's next sequence number, and what it acknowledges.
    pub(super) next: u32,
    pub(super) acknowledgement: u32,
    /// The client's timestamp, and the server's that it echoes.
    pub(super) timestamps: Option<(u32, u32)>,
}

impl Tracked {
    /// Connects, and reads the numbers from the server's SYN/ACK, which the stranger sees.
    pub(super) fn open(client: &Namespace, stranger: &mut Stranger, server: SocketAddr) -> Result<Self, RunError> {
        stranger.see(&mut |_, _| {})?;
        let failed = |error: std::io::Error| RunError::Attack(format!("{server}: {error}"));
        let stream = client.run(|| TcpStream::connect_timeout(&server, PATIENCE))?.map_err(failed)?;
        let own = stream.local_addr().map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let tuple = Tuple::new(ip_protocol::TCP, own, server);
        let (mut numbers, deadline) = (None, Instant::now() + PATIENCE);
        while numbers.is_none() && Instant::now() < deadline {
            stranger.see(&mut |frame, headers| {
                if let Transport::Tcp(segment) = &headers.transport
                    && headers.tuple == tuple.inverse()
                    && segment.flags & tcp_flags::SYN != 0
                {
                    let header = &frame[usize::from(headers.l4_offset)..usize::from(headers.payload_offset)];
                    let timestamps = SegmentOptions::read(header).timestamps.map(|(value, echo)| (echo, value));
                    numbers = Some((segment.acknowledgement, segment.sequence.wrapping_add(1), timestamps));
                }
            })?;
        }
        let Some((next, acknowledgement, timestamps)) = numbers else {
            return Err(RunError::Attack(format!("no SYN/ACK of {server} was seen")));
        };
        Ok(Self { stream, tuple, next, acknowledgement, timestamps })
    }

    /// The client's next segment as its stack would send it.
    pub(super) fn segment(&self) -> Tcp<'static> {
        Tcp {
            flags: tcp_flags::ACK | tcp_flags::PSH,
            sequence: self.next,
            acknowledgement: self.acknowledgement,
            window: 501,
            timestamps: self.timestamps,
            ..Tcp::default()
        }
    }

    /// Sends bytes and receives them back. Returns how long that took; `None`: they did not come back.
    pub(super) fn exchange(&mut self, bytes: &[u8]) -> Option<Duration> {
        let began = Instant::now();
        let mut back = vec![0; bytes.len()];
        self.stream.write_all(bytes).and_then(|()| self.stream.read_exact(&mut back)).ok()?;
        (back == bytes).then(|| began.elapsed())
    }

    /// Sends bytes, and returns whether anything but an end came back within the time.
    pub(super) fn is_answered(&mut self, bytes: &[u8], within: Duration) -> bool {
        // A stream that has ended cannot be set.
        let _ = self.stream.set_read_timeout(Some(within));
        let mut back = [0; 4096];
        self.stream.write_all(bytes).is_ok() && matches!(self.stream.read(&mut back), Ok(1..))
    }
}

/// The transport header and payload of an IPv4 frame.
pub(super) fn transport_of(frame: &[u8]) -> &[u8] {
    &frame[LINK_BYTES + IPV4_BYTES..]
}

/// The segment with an urgent pointer behind its first `urgent_bytes`.
pub(super) fn with_urgent_pointer(frame: &mut [u8], urgent_bytes: u16) {
    let header = &mut frame[LINK_BYTES + IPV4_BYTES..];
    header[URGENT_POINTER..URGENT_POINTER + 2].copy_from_slice(&urgent_bytes.to_be_bytes());
    let checksum = u16::from_be_bytes([header[CHECKSUM], header[CHECKSUM + 1]]);
    // The sum of the header grows by the pointer (RFC 1624).
    let (sum, carry) = (!checksum).overflowing_add(urgent_bytes);
    header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&(!(sum + u16::from(carry))).to_be_bytes());
}

/// A segment with an MD5 signature that nobody has agreed on (RFC 2385).
pub(super) fn with_md5_option(envelope: &Envelope<'_>, tuple: &Tuple, segment: Tcp<'_>, payload: &[u8]) -> Vec<u8> {
    // Timestamps are left out: both do not fit beside each other with what follows. The option is 18 bytes long, and padded to 20.
    let option = [&[1, 1, 19, 18][..], &[0x5a; 16]].concat();
    let plain = envelope.tcp(tuple, Tcp { timestamps: None, ..segment }, &[&option[..], payload].concat());
    let mut frame = plain;
    // The first bytes of the payload become options: the header is longer by five words.
    let offset = &mut frame[LINK_BYTES + IPV4_BYTES + 12];
    let before = *offset;
    *offset += 5 << 4;
    let grown = u16::from(*offset - before) << 8;
    let header = &mut frame[LINK_BYTES + IPV4_BYTES..];
    let checksum = u16::from_be_bytes([header[CHECKSUM], header[CHECKSUM + 1]]);
    let (sum, carry) = (!checksum).overflowing_add(grown);
    header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&(!(sum + u16::from(carry))).to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use flow::wire::{Parsed, parse};
    use flow::{Frame, PortId};

    use super::*;

    #[test]
    fn forged_segments_have_right_checksums() {
        let tuple = Tuple::v4(ip_protocol::TCP, ([10, 1, 0, 10].into(), 4000), ([198, 51, 100, 10].into(), 80));
        let segment = Tcp { flags: tcp_flags::ACK | tcp_flags::URG, sequence: 7, acknowledgement: 9, ..Tcp::default() };
        let envelope = Envelope::default();
        let mut urgent = envelope.tcp(&tuple, segment, b"abc");
        with_urgent_pointer(&mut urgent, 0xfff2);
        let signed = with_md5_option(&envelope, &tuple, segment, b"abc");
        for (mut bytes, is_signed) in [(urgent, false), (signed, true)] {
            let length_bytes = bytes.len();
            let frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).expect("it is whole");
            let Ok(Parsed::Ip(headers)) = parse(&frame) else { panic!("the checksum is wrong") };
            let header = &frame.bytes()[usize::from(headers.l4_offset)..usize::from(headers.payload_offset)];
            assert_eq!(SegmentOptions::read(header).is_signed, is_signed);
            assert_eq!(&frame.bytes()[usize::from(headers.payload_offset)..], b"abc");
        }
    }
}
