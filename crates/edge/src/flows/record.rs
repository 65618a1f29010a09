//! A connection's record.

use flow::list::{Item, Links, NONE};
use flow::wire::ip_protocol;
use flow::{Instant, NODES_MAX, NodeId, Tuple};

use super::{Stage, TICK_BITS};
use crate::tcp::TcpConnection;

/// What the edge knows of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// The tuple of its packets that enter the cluster here.
    pub(crate) entering: Tuple,
    pub(crate) tcp: TcpConnection,
    /// The tick of its last packet.
    pub(super) last_packet_tick: u32,
    pub(super) links: Links,
    /// The slot of its held segment, or [`NONE`].
    pub(crate) segment: u32,
    /// The slot of its held acknowledgement, or [`NONE`].
    pub(crate) acknowledgement: u32,
    /// The number of the interval in which it last sent data into the cluster.
    pub(crate) active_in: u16,
    /// The node that its packets go to.
    pub(crate) node: NodeId,
    /// The failed node that it was moved from, or a number beyond [`NODES_MAX`].
    moved_from: NodeId,
    pub(super) stage: Stage,
    /// Packets that entered the cluster, and that left it, since it has its node; they are counted up to 255.
    passed: [u8; 2],
    /// A packet left the cluster from `node`.
    pub(crate) is_learned: bool,
}

impl Record {
    pub(super) fn new(entering: &Tuple, node: NodeId, now: Instant) -> Self {
        Self {
            entering: *entering,
            tcp: TcpConnection::NEW,
            last_packet_tick: tick(now),
            links: Links::NEW,
            segment: NONE,
            acknowledgement: NONE,
            active_in: 0,
            node,
            moved_from: NOT_MOVED,
            stage: stage(entering, &TcpConnection::NEW),
            passed: [0; 2],
            is_learned: false,
        }
    }

    /// The failed node that the connection was moved from, until it is recovered.
    pub(crate) fn moved_from(&self) -> Option<NodeId> {
        (usize::from(self.moved_from.0) < NODES_MAX).then_some(self.moved_from)
    }

    /// The connection goes on at `node`, as its node has failed.
    pub(crate) const fn move_to(&mut self, node: NodeId) {
        self.moved_from = self.node;
        self.node = node;
        self.is_learned = false;
        self.forget_passed();
    }

    /// A packet entered the cluster, or left it from the connection's node.
    pub(crate) const fn note_passed(&mut self, is_leaving: bool) {
        let passed = &mut self.passed[is_leaving as usize];
        *passed = passed.saturating_add(1);
    }

    /// Whether so many packets have passed since it has its node, of both directions.
    pub(crate) const fn has_passed(&self, packets_min: u8) -> bool {
        let [entered, left] = self.passed;
        entered > 0 && left > 0 && entered.saturating_add(left) >= packets_min
    }

    /// No packet has passed since it has its node.
    pub(crate) const fn forget_passed(&mut self) {
        self.passed = [0; 2];
    }

    /// The connection began at another node than that of its first choice, which has failed.
    pub(crate) const fn set_moved_from(&mut self, failed: NodeId) {
        self.moved_from = failed;
    }

    /// What its failed node lost is recovered.
    pub(crate) const fn set_recovered(&mut self) {
        self.moved_from = NOT_MOVED;
    }
}

pub(super) const fn tick(at: Instant) -> u32 {
    (at.as_nanos() >> TICK_BITS) as u32
}

const NOT_MOVED: NodeId = NodeId(u8::MAX);

pub(super) const fn stage(entering: &Tuple, tcp: &TcpConnection) -> Stage {
    if entering.protocol != ip_protocol::TCP {
        Stage::Other
    } else if tcp.is_closed() {
        Stage::Closed
    } else if tcp.is_in_handshake() {
        Stage::Handshake
    } else {
        Stage::Open
    }
}

impl Item for Record {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}
