//! Frames that are no packets to be studied, by the reason for it.

use flow::DropReason;

/// Why a frame was skipped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Skip {
    /// It carries something else than IP: ARP, spanning tree, and so on.
    NotIp,
    /// Its link type is none in which IP could be found.
    LinkType,
    /// The capture kept less of it than its headers.
    TruncatedInHeaders,
    /// Its headers contradict themselves, or it ends within them.
    Malformed,
    /// Its IPv4 header's checksum is wrong.
    IpChecksum,
    /// Its transport's checksum is wrong: its content was changed on the path.
    TransportChecksum,
    /// It is from or to an address that no packet on a wire may carry there: loopback, a source of 0.0.0.0 (as DHCP has).
    Address,
    /// A thing that no gateway passes: source routing, transport headers in pieces.
    Unsupported,
}

impl Skip {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::NotIp,
        Self::LinkType,
        Self::TruncatedInHeaders,
        Self::Malformed,
        Self::IpChecksum,
        Self::TransportChecksum,
        Self::Address,
        Self::Unsupported,
    ];

    /// The reason as a key of results.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotIp => "not_ip",
            Self::LinkType => "link_type",
            Self::TruncatedInHeaders => "truncated_in_headers",
            Self::Malformed => "malformed",
            Self::IpChecksum => "bad_ip_checksum",
            Self::TransportChecksum => "bad_transport_checksum",
            Self::Address => "address",
            Self::Unsupported => "unsupported",
        }
    }

    /// The reason in words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::NotIp => "not IP",
            Self::LinkType => "of a link type without IP",
            Self::TruncatedInHeaders => "cut within their headers by the capture",
            Self::Malformed => "malformed",
            Self::IpChecksum => "with a wrong IPv4 checksum",
            Self::TransportChecksum => "with a wrong transport checksum",
            Self::Address => "from or to an address that no wire carries",
            Self::Unsupported => "of a kind that no gateway passes",
        }
    }

    /// The reason for which a parser refuses a frame that a capture holds whole.
    pub(super) const fn of(reason: DropReason) -> Self {
        match reason {
            DropReason::BadIpChecksum => Self::IpChecksum,
            DropReason::BadTransportChecksum => Self::TransportChecksum,
            DropReason::MartianAddress => Self::Address,
            DropReason::UnsupportedLinkProtocol => Self::NotIp,
            DropReason::UnsupportedNetworkFeature | DropReason::TinyFragment | DropReason::Fragment => {
                Self::Unsupported
            }
            _ => Self::Malformed,
        }
    }
}

/// Skipped frames, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Skips {
    frames: [u64; Skip::ALL.len()],
    bytes: [u64; Skip::ALL.len()],
}

impl Skips {
    pub(super) fn count(&mut self, skip: Skip, wire_bytes: u32) {
        self.frames[skip as usize] += 1;
        self.bytes[skip as usize] += u64::from(wire_bytes);
    }

    /// Frames skipped for this reason.
    #[must_use]
    pub const fn frames(&self, skip: Skip) -> u64 {
        self.frames[skip as usize]
    }

    /// Bytes on the wire of the frames skipped for this reason.
    #[must_use]
    pub const fn bytes(&self, skip: Skip) -> u64 {
        self.bytes[skip as usize]
    }

    /// Frames skipped in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.frames.iter().sum()
    }

    /// The reasons for which anything was skipped, with frames and bytes.
    pub fn iter(&self) -> impl Iterator<Item = (Skip, u64, u64)> {
        let all = Skip::ALL.into_iter().map(|skip| (skip, self.frames(skip), self.bytes(skip)));
        all.filter(|(_, frames, _)| *frames > 0)
    }
}
