//! Limits on the number, memory and age of fragmented packets.

use core::time::Duration;

use crate::source_counts::SourcePrefixes;

/// The maximum number of bytes held for one packet until its first fragment arrives; further fragments are dropped.
pub const HELD_BYTES_PER_DATAGRAM_MAX: usize = 65_536;
/// The cost of a held fragment beside its bytes, charged to the limits so that tiny fragments are not free.
pub const HELD_FRAGMENT_COST_BYTES: usize = 128;

/// Limits of a [`FragmentTable`](super::FragmentTable).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentLimits {
    /// The maximum number of incomplete fragmented packets; beyond it the oldest is discarded.
    pub datagrams_max: u32,
    /// The maximum for one source; further packets are refused.
    pub datagrams_per_source_max: u32,
    /// The maximum number of bytes held until first fragments arrive; further ones are dropped.
    pub held_bytes_max: u32,
    /// The maximum for one source; further fragments are dropped.
    pub held_bytes_per_source_max: u32,
    /// The maximum time between the first and the last fragment of a packet. RFC 791 and RFC 8200 allow a host 15 to 60
    /// seconds. In that time a fast sender reuses a 16-bit identification many times (RFC 4963), and a gateway holds
    /// memory on behalf of strangers.
    pub timeout: Duration,
    /// The prefix that defines a source.
    pub sources: SourcePrefixes,
}

impl Default for FragmentLimits {
    fn default() -> Self {
        Self {
            datagrams_max: 16_384,
            datagrams_per_source_max: 4096,
            held_bytes_max: 4 << 20,
            held_bytes_per_source_max: 1 << 20,
            timeout: Duration::from_secs(5),
            sources: SourcePrefixes::default(),
        }
    }
}
