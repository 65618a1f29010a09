//! The two ends of a synthetic connection: addresses, ports and sequence numbers, and the frames that they send.

use std::net::{Ipv4Addr, Ipv6Addr};

use flow::Tuple;
use flow::wire::{build, ip_protocol, tcp_flags};

/// Payload bytes of a full segment over Ethernet.
pub(super) const SEGMENT_BYTES_MAX: usize = 1460;
/// The window that both ends advertise once they talk, in bytes: it is shifted by [`WINDOW_SCALE`].
const WINDOW_BYTES: u32 = 1 << 20;
const WINDOW_SCALE: u8 = 7;
/// The window field of a SYN, which is never scaled.
const SYN_WINDOW: u16 = 64_240;

/// Clients that there can be: addresses from 10.0.0.1 on.
pub(super) const CLIENTS_MAX: u32 = (1 << 24) - 2;
/// Servers that there can be: addresses from 198.18.0.1 on, of the range for measurements (RFC 2544).
pub(super) const SERVERS_MAX: u32 = (1 << 17) - 2;

/// Whose turn it is to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Client,
    Server,
}

/// Who talks to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ends {
    pub(super) client: u32,
    pub(super) server: u32,
    pub(super) client_port: u16,
    pub(super) server_port: u16,
    pub(super) is_ipv6: bool,
}

impl Ends {
    /// The tuple of what a side sends.
    pub(super) fn tuple(&self, protocol: u8, from: Side) -> Tuple {
        let tuple = if self.is_ipv6 {
            let address =
                |net: u16, host: u32| Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, (host >> 16) as u16, host as u16);
            let client = (address(0xc, self.client + 1), self.client_port);
            Tuple::v6(protocol, client, (address(0x5, self.server + 1), self.server_port))
        } else {
            let client = Ipv4Addr::from(0x0a00_0000 + self.client + 1);
            let server = Ipv4Addr::from(0xc612_0000 + self.server + 1);
            Tuple::v4(protocol, (client, self.client_port), (server, self.server_port))
        };
        match from {
            Side::Client => tuple,
            Side::Server => tuple.inverse(),
        }
    }
}

/// How far both sides of a TCP connection have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sequences {
    /// The next number that each side will send.
    next: [u32; 2],
}

impl Sequences {
    pub(super) const fn new(client: u32, server: u32) -> Self {
        Self { next: [client, server] }
    }

    /// A segment with these flags and payload. ACK acknowledges all that the other side has sent.
    pub(super) fn segment(&mut self, ends: &Ends, from: Side, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (own, other) = (from as usize, 1 - from as usize);
        let is_syn = flags & tcp_flags::SYN != 0;
        let segment = build::Tcp {
            flags,
            sequence: self.next[own],
            acknowledgement: if flags & tcp_flags::ACK != 0 { self.next[other] } else { 0 },
            window: if is_syn { SYN_WINDOW } else { (WINDOW_BYTES >> WINDOW_SCALE) as u16 },
            maximum_segment_bytes: is_syn.then_some(SEGMENT_BYTES_MAX as u16),
            window_scale: is_syn.then_some(WINDOW_SCALE),
            sack_permitted: is_syn,
            ..build::Tcp::default()
        };
        let fin_or_syn = u32::from(is_syn) + u32::from(flags & tcp_flags::FIN != 0);
        self.next[own] = self.next[own].wrapping_add(payload.len() as u32 + fin_or_syn);
        build::tcp(&ends.tuple(ip_protocol::TCP, from), segment, payload)
    }

    /// The SYN once more, as a client sends it that was not answered.
    pub(super) fn retransmitted_syn(&mut self, ends: &Ends) -> Vec<u8> {
        self.next[Side::Client as usize] = self.next[Side::Client as usize].wrapping_sub(1);
        self.segment(ends, Side::Client, tcp_flags::SYN, &[])
    }
}

/// A datagram.
pub(super) fn datagram(ends: &Ends, from: Side, payload: &[u8]) -> Vec<u8> {
    build::udp(&ends.tuple(ip_protocol::UDP, from), payload)
}
