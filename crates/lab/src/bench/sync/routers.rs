//! The two routers, and what experiments vary of them.

use packet_io::namespace::Namespace;
use packet_io::sysctl;

use crate::bench::BenchError;

/// The router that carries connections, and the one that stands by.
pub(super) const ACTIVE: usize = 0;
pub(super) const STANDBY: usize = 1;

/// What experiments vary.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Tuning {
    /// Size of the buffer for the kernel's events, which may not grow then; nothing: as recommended.
    pub(super) event_buffer_bytes: Option<u32>,
    /// Share of the packets on the dedicated link that are lost, in either direction, in hundredths.
    pub(super) loss_percent: u8,
}

/// Connections that the kernel of a namespace tracks.
pub(super) fn tracked(node: &Namespace) -> Result<u64, BenchError> {
    let count = node.run(|| sysctl::read("net/netfilter/nf_conntrack_count"))??;
    Ok(count.parse().unwrap_or_default())
}
