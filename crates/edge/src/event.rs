//! What an edge reports: events and status.

use alloc::collections::VecDeque;

use flow::{DropReason, Instant, NodeId, NodeSet};

use crate::fast_path::FastPathCounters;
use crate::flows::FlowCounters;
use crate::local_recovery::{RecoveryCounters, Resent};
use crate::rate_control::RateStatus;

/// The most events that wait to be polled; when there are more, the oldest is discarded.
pub const EVENTS_PENDING_MAX: usize = 1024;

/// Something that an operator wants to know of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EdgeEvent {
    /// The node is not alive any more: its flows go to the survivors.
    NodeLost(NodeId),
    /// The node is alive again.
    NodeReturned(NodeId),
    /// The connections of this failed node were switched over.
    SwitchedOver(NodeId),
    /// What the connections lost that this node took over has been resent.
    Recovered {
        /// The node.
        node: NodeId,
        /// What was resent.
        resent: Resent,
    },
    /// The rate control of a node entered another phase.
    RateControl {
        /// The node.
        node: NodeId,
        /// Its rate control.
        status: RateStatus,
    },
}

/// Events that wait to be polled.
#[derive(Debug, Default)]
pub(crate) struct Events(VecDeque<(Instant, EdgeEvent)>);

impl Events {
    pub(crate) fn push(&mut self, now: Instant, event: EdgeEvent) {
        if self.0.len() >= EVENTS_PENDING_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, event));
    }

    pub(crate) fn pop(&mut self) -> Option<(Instant, EdgeEvent)> {
        self.0.pop_front()
    }
}

/// Frames counted by what became of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EdgeCounters {
    /// Frames from the network that were sent to a node.
    pub entered: u64,
    /// Frames from a node that were sent to the network.
    pub left: u64,
    /// Fragments, which follow their addresses and not their connection.
    pub fragments: u64,
    /// Connections that were moved because their node had failed.
    pub moved: u64,
    /// Frames dropped, by [`DropReason`] as an index.
    pub dropped: [u64; DropReason::ALL.len()],
}

impl Default for EdgeCounters {
    fn default() -> Self {
        Self { entered: 0, left: 0, fragments: 0, moved: 0, dropped: [0; DropReason::ALL.len()] }
    }
}

impl EdgeCounters {
    /// Frames that were dropped for a reason.
    #[must_use]
    pub const fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }
}

/// The status of an edge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EdgeStatus {
    /// The nodes that are alive.
    pub alive: NodeSet,
    /// Connections in the table.
    pub connections: u32,
    /// Held segments: in use, at most.
    pub segments_held: (u32, u32),
    /// Held acknowledgements: in use, at most.
    pub acknowledgements_held: (u32, u32),
    /// Bytes of memory of held packets.
    pub held_bytes: usize,
    /// What the connection table did.
    pub flows: FlowCounters,
    /// What local recovery did.
    pub recovery: RecoveryCounters,
    /// What was forwarded below, which the counters of frames include. `None`: nothing is.
    pub fast_path: Option<FastPathCounters>,
    /// What became of frames.
    pub counters: EdgeCounters,
}
