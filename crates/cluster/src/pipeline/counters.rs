//! What the pipeline counts.

use flow::DropReason;

/// Counters of the pipeline.
#[derive(Clone, Debug)]
pub struct PipelineCounters {
    /// Packets by the reason for which they were dropped, indexed by [`DropReason`].
    pub drops: [u64; DropReason::ALL.len()],
    /// Frames handed in.
    pub received: u64,
    /// Frames sent on.
    pub forwarded: u64,
    /// Connections begun here.
    pub begun: u64,
    /// Connections begun here that were expected.
    pub related: u64,
    /// Connections ended here.
    pub ended: u64,
    /// Connections whose replica this node took over because their packets came here.
    pub taken_over: u64,
    /// Own connections whose windows were relearnt, because another node may have forwarded their packets meanwhile.
    pub relearnt: u64,
    /// Embryonic connections evicted to make room (see [`early_drop_candidate`](flow::table::Table::early_drop_candidate)).
    pub early_dropped: u64,
    /// Connections ended because the configuration does not allow them any more.
    pub disallowed: u64,
}

impl Default for PipelineCounters {
    fn default() -> Self {
        Self {
            drops: [0; DropReason::ALL.len()],
            received: 0,
            forwarded: 0,
            begun: 0,
            related: 0,
            ended: 0,
            taken_over: 0,
            relearnt: 0,
            early_dropped: 0,
            disallowed: 0,
        }
    }
}
