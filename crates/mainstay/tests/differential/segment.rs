//! A segment of an exchange: its fields, its bytes on the wire, and its printed form.

use std::fmt;
use std::net::Ipv4Addr;

use flow::wire::build::{Envelope, Tcp};
use flow::wire::ipv6::FragmentHeader;
use flow::wire::{MacAddress, ip_protocol, tcp_flags};
use flow::{Direction, Tuple};

use crate::damage::Damage;

/// The only client's address; exchanges differ by their ports.
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
/// The only server's address.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
/// Client ports are counted from here: these many, then the server's port goes on by one.
const CLIENT_PORT_FIRST: u32 = 1024;
const CLIENT_PORTS: u32 = 60_000;

/// A segment, and in which direction of its exchange it goes. [`Direction::Original`] is from the client here, also if the
/// server began the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) direction: Direction,
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) window: u16,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    pub(crate) sack: Option<(u32, u32)>,
    pub(crate) timestamps: Option<(u32, u32)>,
    pub(crate) payload_bytes: u16,
    pub(crate) damage: Option<Damage>,
}

impl Segment {
    pub(crate) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The sequence number behind it.
    pub(crate) const fn end(&self) -> u32 {
        let counted = self.has(tcp_flags::SYN) as u32 + self.has(tcp_flags::FIN) as u32;
        self.sequence.wrapping_add(self.payload_bytes as u32).wrapping_add(counted)
    }

    /// The frame of exchange number `exchange`, from one of `macs` to the other, recognisable by `identification`.
    pub(crate) fn frame(&self, exchange: u32, macs: (MacAddress, MacAddress), identification: u16) -> Vec<u8> {
        let identification = identification.into();
        let fragment = Some(FragmentHeader { identification, offset_bytes: 0, more: false });
        let envelope = Envelope { source: macs.0, destination: macs.1, fragment, ..Envelope::default() };
        let sack = self.sack.map(|block| [block]);
        let header = Tcp {
            flags: self.flags,
            sequence: self.sequence,
            acknowledgement: self.acknowledgement,
            window: self.window,
            window_scale: self.window_scale,
            sack_permitted: self.sack_permitted,
            sack_blocks: sack.as_ref().map_or(&[], |blocks| blocks),
            timestamps: self.timestamps,
            ..Tcp::default()
        };
        let payload = vec![0; usize::from(self.payload_bytes)];
        let mut frame = envelope.tcp(&tuple(exchange, self.direction), header, &payload);
        if let Some(damage) = self.damage {
            damage.inflict(&mut frame);
        }
        frame
    }
}

/// The tuple of an exchange's segments in this direction.
pub(crate) fn tuple(exchange: u32, direction: Direction) -> Tuple {
    let client_port = (CLIENT_PORT_FIRST + exchange % CLIENT_PORTS) as u16;
    let server_port = (80 + exchange / CLIENT_PORTS) as u16;
    let original = Tuple::v4(ip_protocol::TCP, (CLIENT, client_port), (SERVER, server_port));
    match direction {
        Direction::Original => original,
        Direction::Reply => original.inverse(),
    }
}

const FLAG_NAMES: [(u8, &str); 8] = [
    (tcp_flags::FIN, "FIN"),
    (tcp_flags::SYN, "SYN"),
    (tcp_flags::RST, "RST"),
    (tcp_flags::PSH, "PSH"),
    (tcp_flags::ACK, "ACK"),
    (tcp_flags::URG, "URG"),
    (0x40, "ECE"),
    (0x80, "CWR"),
];

/// As the scenarios of the tracker's own tests are written, with raw numbers.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = FLAG_NAMES.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| *name).collect();
        let arrow = if self.direction == Direction::Original { '>' } else { '<' };
        let flags = if names.is_empty() { "0".into() } else { names.join("/") };
        write!(f, "{arrow} {flags} raw_seq={} raw_ack={}", self.sequence, self.acknowledgement)?;
        write!(f, " win={}", self.window)?;
        if self.payload_bytes > 0 {
            write!(f, " len={}", self.payload_bytes)?;
        }
        if let Some(scale) = self.window_scale {
            write!(f, " wscale={scale}")?;
        }
        if self.sack_permitted {
            write!(f, " sackok")?;
        }
        if let Some((left, right)) = self.sack {
            write!(f, " sack={left}-{right}")?;
        }
        if let Some(damage) = self.damage {
            write!(f, " {damage:?}")?;
        }
        Ok(())
    }
}
