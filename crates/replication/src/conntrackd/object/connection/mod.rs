//! Connections.
//!
//! conntrackd writes some numbers as its host has them in memory: translated ports, identifiers of ICMP and SCTP's tags are
//! little-endian from a little-endian host, and nothing in the message states which it is. Such hosts are all but the last of
//! their kind, so they are little-endian here.

mod decode;
mod encode;

use alloc::vec::Vec;
use core::net::IpAddr;

use flow::netfilter::{Discriminator, Entry, Tuple};

use super::EncodeError;
use super::attribute::{put, put_address};

pub use self::decode::decode;
pub use self::encode::encode;

const ADDRESSES_V4: u16 = 0;
const ADDRESSES_V6: u16 = 1;
const PROTOCOL: u16 = 2;
const PORTS: u16 = 3;
const TCP_STATE: u16 = 4;
const STATUS: u16 = 5;
const TIMEOUT: u16 = 6;
const MARK: u16 = 7;
const MASTER_V4: u16 = 8;
const MASTER_V6: u16 = 9;
const MASTER_PROTOCOL: u16 = 10;
const MASTER_PORTS: u16 = 11;
const SOURCE_NAT_V4: u16 = 12;
const DESTINATION_NAT_V4: u16 = 13;
const SOURCE_NAT_PORT: u16 = 14;
const DESTINATION_NAT_PORT: u16 = 15;
const SEQUENCE_ADJUSTMENT: u16 = 16;
const SCTP_STATE: u16 = 17;
const SCTP_TAG_ORIGINAL: u16 = 18;
const SCTP_TAG_REPLY: u16 = 19;
const DCCP_STATE: u16 = 20;
const DCCP_ROLE: u16 = 21;
const ICMP_TYPE: u16 = 22;
const ICMP_CODE: u16 = 23;
const ICMP_ID: u16 = 24;
const WINDOW_SCALE_ORIGINAL: u16 = 25;
const WINDOW_SCALE_REPLY: u16 = 26;
const HELPER: u16 = 27;
const LABELS: u16 = 28;
const SOURCE_NAT_V6: u16 = 29;
const DESTINATION_NAT_V6: u16 = 30;
const SYN_PROXY: u16 = 31;
const ZONE: u16 = 32;

const TCP: u8 = 6;
const DCCP: u8 = 33;
const GRE: u8 = 47;
const SCTP: u8 = 132;
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;

/// How the reply differs from the original's inverse.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Translation {
    /// What the source is translated to: where replies go.
    source: Option<IpAddr>,
    /// What the destination is translated to: where replies come from.
    destination: Option<IpAddr>,
    source_port: Option<u16>,
    destination_port: Option<u16>,
}

impl Translation {
    pub(super) fn of(entry: &Entry) -> Result<Self, EncodeError> {
        let (reply, plain) = (&entry.reply, entry.original.inverse());
        let addresses = [reply.source, reply.destination, plain.source];
        if addresses.iter().any(|address| address.is_ipv6() != plain.destination.is_ipv6()) {
            return Err(EncodeError::Families);
        }
        let mut translation = Self {
            source: (reply.destination != plain.destination).then_some(reply.destination),
            destination: (reply.source != plain.source).then_some(reply.source),
            ..Self::default()
        };
        if let (Discriminator::Ports { source, destination }, (from, to), true) =
            (reply.discriminator, plain.ports(), plain.has_ports())
        {
            translation.source_port = (destination != to).then_some(destination);
            translation.destination_port = (source != from).then_some(source);
        }
        (translation.apply(&entry.original) == *reply).then_some(translation).ok_or(EncodeError::Reply)
    }

    fn put(&self, out: &mut Vec<u8>) {
        let addresses = [
            ([SOURCE_NAT_V4, SOURCE_NAT_V6], self.source),
            ([DESTINATION_NAT_V4, DESTINATION_NAT_V6], self.destination),
        ];
        for (kinds, address) in addresses {
            address.into_iter().for_each(|address| put_address(out, kinds, address));
        }
        for (kind, port) in [(SOURCE_NAT_PORT, self.source_port), (DESTINATION_NAT_PORT, self.destination_port)] {
            port.into_iter().for_each(|port| put(out, kind, &port.to_le_bytes()));
        }
    }

    /// The reply to the original. Ports are translated where there are ports; keys of GRE and identifiers of ICMP are not sent.
    fn apply(&self, original: &Tuple) -> Tuple {
        let mut reply = original.inverse();
        reply.destination = self.source.unwrap_or(reply.destination);
        reply.source = self.destination.unwrap_or(reply.source);
        if let (Discriminator::Ports { source, destination }, true) = (&mut reply.discriminator, original.has_ports()) {
            *destination = self.source_port.unwrap_or(*destination);
            *source = self.destination_port.unwrap_or(*source);
        }
        reply
    }
}
