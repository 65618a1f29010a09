//! Segments that no stack sends, because a header contradicts itself.

use flow::wire::checksum::{self, Sum};
use flow::wire::ethernet::ETHERNET_HEADER_BYTES;
use flow::wire::ipv4::Ipv4View;
use flow::{Tuple, wire::ip_protocol};
use std::net::Ipv4Addr;

/// Where the checksum lies in a TCP header, in bytes.
const CHECKSUM_OFFSET: usize = 16;
/// Where the header's length lies, in its upper half a byte.
const LENGTH_OFFSET: usize = 12;
/// Where the options begin.
const OPTIONS_OFFSET: usize = 20;

/// What is wrong with a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Damage {
    /// The checksum is that of something else.
    Checksum,
    /// The header's length is shorter than a header can be.
    HeaderTooShort,
    /// The header's length is longer than the packet.
    HeaderTooLong,
    /// An option's length is shorter than an option can be. Only of a segment that has options.
    OptionTooShort,
    /// An option's length reaches beyond the header. Only of a segment that has options.
    OptionTooLong,
}

impl Damage {
    pub(crate) const ALL: [Self; 5] =
        [Self::Checksum, Self::HeaderTooShort, Self::HeaderTooLong, Self::OptionTooShort, Self::OptionTooLong];

    /// Spoils a frame that holds a TCP segment in IPv4 without options.
    pub(crate) fn inflict(self, frame: &mut [u8]) {
        let ip = Ipv4View::new_checked(&frame[ETHERNET_HEADER_BYTES..]).expect("a built packet is sound");
        let tuple =
            Tuple::v4(ip_protocol::TCP, (Ipv4Addr::from(ip.source()), 0), (Ipv4Addr::from(ip.destination()), 0));
        let tcp = &mut frame[ETHERNET_HEADER_BYTES + 20..];
        let has_options = tcp[LENGTH_OFFSET] >> 4 > 5;
        match self {
            Self::Checksum => tcp[CHECKSUM_OFFSET] ^= 0x5a,
            Self::HeaderTooShort => tcp[LENGTH_OFFSET] = 4 << 4,
            Self::HeaderTooLong if tcp.len() < 60 => tcp[LENGTH_OFFSET] = 15 << 4,
            Self::OptionTooShort if has_options => Self::spoil_option(&mut tcp[OPTIONS_OFFSET..], 1),
            Self::OptionTooLong if has_options => Self::spoil_option(&mut tcp[OPTIONS_OFFSET..], 250),
            Self::HeaderTooLong | Self::OptionTooShort | Self::OptionTooLong => {}
        }
        if self != Self::Checksum {
            tcp[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].fill(0);
            let sum = Sum::of(tcp).plus(checksum::pseudo_header(&tuple, tcp.len() as u32)).checksum();
            tcp[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// The first option that is no padding gets this length.
    fn spoil_option(options: &mut [u8], length_bytes: u8) {
        if let Some(at) = options.iter().position(|byte| *byte > 1)
            && let Some(length) = options.get_mut(at + 1)
        {
            *length = length_bytes;
        }
    }
}
