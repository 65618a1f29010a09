//! Packets as the study sees them.

use std::net::IpAddr;
use std::ops::Range;

use flow::Instant;

use super::limits::{BATCH_BYTES_MAX, BATCH_PACKETS_MAX};
use super::protocol::ProtocolId;

/// A packet as the capture has it.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// When it was seen.
    pub at: Instant,
    /// Who sent it.
    pub source: IpAddr,
    /// To whom.
    pub destination: IpAddr,
    /// The source's port, 0 if there are none.
    pub source_port: u16,
    /// The destination's port, 0 if there are none.
    pub destination_port: u16,
    /// The number of the protocol behind IP.
    pub ip_protocol: u8,
    /// TCP's sequence number and flags.
    pub tcp: Option<(u32, u8)>,
    /// Bytes of the packet on the wire, from the IP header on.
    pub ip_bytes: u32,
    /// Behind the transport's header.
    pub payload: &'a [u8],
}

/// Which way a packet goes over the link that is studied: each has a cache of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SiteDirection {
    /// To the site.
    Inbound,
    /// From the site.
    Outbound,
}

impl SiteDirection {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Inbound, Self::Outbound];

    /// As it is called in result.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
        }
    }
}

/// The evidence that a payload is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Secrecy {
    /// Nothing.
    Open,
    /// Its port is one of an encrypted protocol.
    ByPort,
    /// Its bytes are spread as evenly as chance would: encrypted, or compressed well.
    ByEntropy,
}

/// A packet and what was found out about it before it is studied.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) at: Instant,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
    pub(super) tcp: Option<(u32, u8)>,
    pub(super) ip_bytes: u32,
    pub(super) way: SiteDirection,
    pub(super) protocol: ProtocolId,
    pub(super) secrecy: Secrecy,
    /// Its bytes were sent before in the same flow.
    pub(super) is_repeated: bool,
    /// The end that began its flow sent it.
    pub(super) is_from_client: bool,
    payload: Range<usize>,
}

impl Packet {
    /// Whether it stays out of the caches because it is encrypted.
    pub(super) fn is_left_out(&self, skips_encrypted: bool) -> bool {
        skips_encrypted && self.secrecy != Secrecy::Open
    }
}

/// Packets with their payloads, in order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    packets: Vec<Packet>,
}

impl Batch {
    pub(super) fn is_full(&self) -> bool {
        self.packets.len() >= BATCH_PACKETS_MAX || self.bytes.len() >= BATCH_BYTES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) fn push(&mut self, observed: &Observed<'_>, known: Known) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(observed.payload);
        let Known { way, protocol, secrecy, is_repeated, is_from_client } = known;
        self.packets.push(Packet {
            at: observed.at,
            source: observed.source,
            destination: observed.destination,
            source_port: observed.source_port,
            destination_port: observed.destination_port,
            tcp: observed.tcp,
            ip_bytes: observed.ip_bytes,
            way,
            protocol,
            secrecy,
            is_repeated,
            is_from_client,
            payload: start..self.bytes.len(),
        });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Packet, &[u8])> {
        self.packets.iter().map(|packet| (packet, &self.bytes[packet.payload.clone()]))
    }
}

/// What [`super::classify`] finds out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known {
    pub(super) way: SiteDirection,
    pub(super) protocol: ProtocolId,
    pub(super) secrecy: Secrecy,
    pub(super) is_repeated: bool,
    pub(super) is_from_client: bool,
}
