//! How many packets in pieces are under way at most, and for how long.

use core::time::Duration;

use crate::source_counts::SourcePrefixes;

/// Bytes of one packet's fragments that are held until its first one comes, at most; further ones are dropped.
pub const HELD_BYTES_PER_DATAGRAM_MAX: usize = 65_536;
/// What a held fragment costs beside its bytes, as it is charged to the limits, so that tiny ones are not free.
pub const HELD_FRAGMENT_COST_BYTES: usize = 128;

/// Limits of a [`FragmentTable`](super::FragmentTable).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentLimits {
    /// Packets in pieces that are under way at a time; when there are more, the oldest is given up.
    pub datagrams_max: u32,
    /// Of these, packets of one source; further ones are refused.
    pub datagrams_per_source_max: u32,
    /// Bytes of fragments held until their first one comes; further ones are dropped.
    pub held_bytes_max: u32,
    /// Of these, bytes of one source; further ones are dropped.
    pub held_bytes_per_source_max: u32,
    /// How long the pieces of a packet may take to come. RFC 791 and RFC 8200 allow a host 15 to 60 seconds; within so
    /// long a time a fast sender uses a 16-bit identification many times over (RFC 4963), and what a gateway holds it
    /// holds for strangers.
    pub timeout: Duration,
    /// What counts as one source.
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
