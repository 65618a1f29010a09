//! The kernel's tuple of one direction's packets.

use core::net::IpAddr;

/// The protocols with TCP-like ports.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// ICMP.
pub(super) const ICMP: u8 = 1;
/// ICMPv6.
pub(super) const ICMP_V6: u8 = 58;
/// Requests and their replies, by type, for the tracking of ICMP and ICMPv6.
const QUERIES: [(u8, [u8; 2]); 7] = [
    (ICMP, [8, 0]),
    (ICMP, [13, 14]),
    (ICMP, [15, 16]),
    (ICMP, [17, 18]),
    (ICMP_V6, [128, 129]),
    (ICMP_V6, [139, 140]),
    (ICMP_V6, [144, 145]),
];

/// The tuple of the packets of one direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tuple {
    /// The source address.
    pub source: IpAddr,
    /// The destination address, of the source's family.
    pub destination: IpAddr,
    /// The protocol's number.
    pub protocol: u8,
    /// Distinguishes connections between the two addresses.
    pub discriminator: Discriminator,
}

/// Distinguishes connections between two hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Discriminator {
    /// TCP, UDP, UDP-Lite, SCTP, DCCP; and GRE, whose keys the kernel stores in the ports' fields.
    Ports {
        /// The sender's.
        source: u16,
        /// The receiver's.
        destination: u16,
    },
    /// ICMP and ICMPv6.
    Icmp {
        /// The message's type.
        kind: u8,
        /// The message's code.
        code: u8,
        /// The query's identifier.
        id: u16,
    },
    /// Other protocols: nothing.
    Nothing,
}

impl Tuple {
    /// Whether it is an IPv6 tuple.
    #[must_use]
    pub const fn is_v6(&self) -> bool {
        self.source.is_ipv6()
    }

    /// Whether the protocol's packets have ports.
    #[must_use]
    pub fn has_ports(&self) -> bool {
        WITH_PORTS.contains(&self.protocol)
    }

    /// The ports, source first; (0, 0) where there are none.
    #[must_use]
    pub const fn ports(&self) -> (u16, u16) {
        match self.discriminator {
            Discriminator::Ports { source, destination } => (source, destination),
            _ => (0, 0),
        }
    }

    /// The tuple of replies, without translation.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let discriminator = match self.discriminator {
            Discriminator::Ports { source, destination } => {
                Discriminator::Ports { source: destination, destination: source }
            }
            Discriminator::Icmp { kind, code, id } => {
                Discriminator::Icmp { kind: answer(self.protocol, kind), code, id }
            }
            Discriminator::Nothing => Discriminator::Nothing,
        };
        Self { source: self.destination, destination: self.source, protocol: self.protocol, discriminator }
    }
}

/// The type of the reply to a message of this type, and vice versa; the same type where there is none.
fn answer(protocol: u8, kind: u8) -> u8 {
    QUERIES
        .iter()
        .filter(|(of, _)| *of == protocol)
        .find_map(|(_, pair)| match pair {
            [request, reply] if *request == kind => Some(*reply),
            [request, reply] if *reply == kind => Some(*request),
            _ => None,
        })
        .unwrap_or(kind)
}
