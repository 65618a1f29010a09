//! What happens to the node, as the fuzzer chooses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arbitrary::Arbitrary;
use flow::Tuple;
use flow::wire::build::{self, Echo, Envelope, IcmpHeader, Tcp};
use flow::wire::ip_protocol;
use flow::wire::ipv6::FragmentHeader;

use super::node_config::{SHARED_INSIDE, SHARED_OUTSIDE, port_mac};

const PAYLOAD_BYTES_MAX: usize = 1480;

#[derive(Arbitrary, Debug)]
pub(super) enum Event<'a> {
    Arrives(Arrival<'a>),
    Wait { milliseconds: u16 },
    WaitLong { minutes: u8 },
    Replication { datagram: &'a [u8] },
    Detection { packet: &'a [u8], ttl: u8 },
    Leave,
}

/// A frame that arrives.
#[derive(Arbitrary, Debug)]
pub(super) struct Arrival<'a> {
    pub(super) is_outside: bool,
    content: Content<'a>,
    /// A byte of the frame that is another.
    damage: Option<(u8, u8)>,
    /// Bytes that are missing at the end.
    missing_bytes: u8,
    pub(super) partial_checksum: Option<(u8, u8)>,
}

#[derive(Arbitrary, Debug)]
enum Content<'a> {
    Raw(&'a [u8]),
    Tcp {
        ends: Ends,
        flags: u8,
        sequence: u32,
        acknowledgement: u32,
        window: u16,
        scale: Option<u8>,
        bytes: u16,
    },
    Udp {
        ends: Ends,
        bytes: u16,
    },
    Echo {
        ends: Ends,
        is_reply: bool,
    },
    Other {
        ends: Ends,
        protocol: u8,
        payload: &'a [u8],
    },
    Fragment {
        ends: Ends,
        offset: u8,
        more: bool,
        payload: &'a [u8],
    },
    /// What left last by that port comes back with its ends exchanged.
    Answer {
        flags: u8,
    },
    /// An error about what left last.
    Error {
        kind: u8,
        code: u8,
        parameter: u32,
    },
    ArpRequest {
        host: u8,
    },
    Solicitation {
        host: u8,
    },
}

/// Few hosts and ports, so that packets often belong to each other.
#[derive(Arbitrary, Debug, Clone, Copy)]
struct Ends {
    is_v6: bool,
    host: u8,
    port: u8,
    /// To a host on the other side, rather than to the node itself.
    is_transit: bool,
}

impl Ends {
    fn tuple(self, protocol: u8, is_outside: bool) -> Tuple {
        let (port, service) = (1024 + u16::from(self.port % 4), 80);
        let host = 2 + self.host % 4;
        if self.is_v6 {
            let inside = |low: u16| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, low);
            let outside = |low: u16| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, low);
            let there = if self.is_transit { 9 } else { 1 };
            return if is_outside {
                Tuple::v6(protocol, (outside(host.into()), service), (outside(1), port))
            } else {
                Tuple::v6(protocol, (inside(host.into()), port), (outside(there), service))
            };
        }
        let inside = Ipv4Addr::new(10, 1, 0, host);
        let there = if self.is_transit { Ipv4Addr::new(198, 51, 100, 9) } else { SHARED_INSIDE };
        if is_outside {
            Tuple::v4(protocol, (Ipv4Addr::new(198, 51, 100, host), service), (SHARED_OUTSIDE, port))
        } else {
            Tuple::v4(protocol, (inside, port), (there, service))
        }
    }
}

impl Arrival<'_> {
    /// The frame. `last` are those that left last by each port.
    pub(super) fn frame(&self, last: &[Vec<u8>; 2]) -> Vec<u8> {
        let mut bytes = self.whole_frame(&last[usize::from(self.is_outside)]);
        if let Some((at, value)) = self.damage
            && !bytes.is_empty()
        {
            let at = usize::from(at) % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(bytes.len().saturating_sub(usize::from(self.missing_bytes & 0x0f)));
        bytes
    }

    fn envelope(&self) -> Envelope<'static> {
        Envelope { destination: port_mac(self.is_outside.into()), ..Envelope::default() }
    }

    fn whole_frame(&self, last: &[u8]) -> Vec<u8> {
        let envelope = self.envelope();
        let payload = |bytes: u16| vec![0; usize::from(bytes) % PAYLOAD_BYTES_MAX];
        match &self.content {
            Content::Raw(bytes) => bytes.to_vec(),
            Content::Tcp { ends, flags, sequence, acknowledgement, window, scale, bytes } => {
                let segment = Tcp {
                    flags: *flags,
                    sequence: *sequence,
                    acknowledgement: *acknowledgement,
                    window: *window,
                    window_scale: *scale,
                    ..Tcp::default()
                };
                envelope.tcp(&ends.tuple(ip_protocol::TCP, self.is_outside), segment, &payload(*bytes))
            }
            Content::Udp { ends, bytes } => {
                envelope.udp(&ends.tuple(ip_protocol::UDP, self.is_outside), &payload(*bytes))
            }
            Content::Echo { ends, is_reply } => {
                let tuple = ends.tuple(0, self.is_outside);
                let tuple = Tuple::echo(tuple.source_ip(), tuple.destination_ip(), u16::from(ends.port % 4));
                envelope.echo(&tuple, Echo { is_reply: *is_reply, sequence: 1 }, b"ping")
            }
            Content::Other { ends, protocol, payload } => {
                let payload = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
                envelope.raw(&ends.tuple(*protocol, self.is_outside), payload)
            }
            Content::Fragment { ends, offset, more, payload } => {
                let offset_bytes = u32::from(*offset) * 8;
                let fragment = Some(FragmentHeader { offset_bytes, more: *more, identification: 1 });
                let payload = &payload[..payload.len().min(PAYLOAD_BYTES_MAX)];
                Envelope { fragment, ..envelope }.raw(&ends.tuple(ip_protocol::UDP, self.is_outside), payload)
            }
            Content::Answer { flags } => self.answer(last, *flags),
            Content::Error { kind, code, parameter } => {
                let header = IcmpHeader { kind: *kind, code: *code, parameter: *parameter };
                let about = last.get(14..).unwrap_or_default();
                let is_v6 = about.first().is_some_and(|first| first >> 4 == 6);
                let source = if is_v6 {
                    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 99))
                } else {
                    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 99))
                };
                envelope.icmp_error(source, header, about).unwrap_or_default()
            }
            Content::ArpRequest { host } => {
                let host = 2 + host % 4;
                let (asker, asked) = if self.is_outside {
                    (Ipv4Addr::new(198, 51, 100, host), SHARED_OUTSIDE)
                } else {
                    (Ipv4Addr::new(10, 1, 0, host), SHARED_INSIDE)
                };
                build::arp_request(envelope.source, asker, asked)
            }
            Content::Solicitation { host } => {
                let prefix = if self.is_outside { [0x2001, 0xdb8] } else { [0xfd00, 0] };
                let address = |low: u16| Ipv6Addr::new(prefix[0], prefix[1], 0, 0, 0, 0, 0, low);
                build::neighbour_solicitation(envelope.source, address(u16::from(2 + host % 4)), address(1))
            }
        }
    }

    /// A TCP answer to a frame that left, with the numbers that fit; nothing if it was none.
    fn answer(&self, last: &[u8], flags: u8) -> Vec<u8> {
        let mut bytes = last.to_vec();
        let length_bytes = bytes.len();
        let frame = flow::Frame::new(&mut bytes, 0, length_bytes, flow::PortId(0)).expect("it is its buffer");
        let Ok(flow::wire::Parsed::Ip(headers)) = flow::wire::parse(&frame) else { return Vec::new() };
        let answered = headers.tuple.inverse();
        match headers.transport {
            flow::wire::Transport::Tcp(segment) => {
                let header =
                    Tcp { flags, sequence: segment.acknowledgement, acknowledgement: segment.end(), ..Tcp::default() };
                self.envelope().tcp(&answered, header, b"")
            }
            flow::wire::Transport::Udp => self.envelope().udp(&answered, b"answer"),
            _ => Vec::new(),
        }
    }
}
