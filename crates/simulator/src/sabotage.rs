//! Things broken on purpose, to show that the checkers see them.

use cluster::node::Node;
use cluster::role::Heartbeat;
use flow::connection::flags;
use flow::conntrack::TcpState;
use flow::wire::{self, Parsed, Transport, ip_protocol};
use flow::{Connection, Frame, NodeId, PortId};

use crate::checkers::order::Order;

/// Something broken on purpose, to show that the checkers would see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// The nodes do not tell each other of connections.
    NoReplication,
    /// Nodes go back to older word of connections.
    StaleUpdates,
    /// Nodes forget copies.
    ForgottenCopies,
    /// Nodes put bytes of a stream out of their place, with a right checksum.
    SwappedBytes,
    /// Nodes do not hear each other, though nothing is wrong with their link.
    DeafNodes,
    /// Heartbeats say nothing of take-overs.
    ForgottenTakeOvers,
    /// Nodes take what other versions say for their own.
    CredulousNodes,
    /// Nodes take each word of another version for the first.
    TalkativeNodes,
    /// A node that stood still is not told what came meanwhile before it judges who is silent.
    ImpatientNodes,
    /// Nodes take up connections again that have ended.
    Zombies,
    /// Nodes put connections off for far longer than they are to.
    LazyNodes,
    /// When all is quiet, copies vanish from the tables, once: to be found and told again.
    LostCopies,
    /// When all is quiet, copies become older than they are, once: to be found and told again.
    AlteredCopies,
    /// When all is quiet, copies appear that nobody told of, once: to be found and removed.
    GhostCopies,
}

impl Sabotage {
    /// What it does is to be put right by the nodes themselves.
    pub(crate) const fn is_to_be_repaired(self) -> bool {
        matches!(self, Self::LostCopies | Self::AlteredCopies | Self::GhostCopies)
    }
}

/// Does to one in three of a node's copies, behind its back, what the sabotage says. How many it did it to.
pub(crate) fn break_copies(node: NodeId, value: &mut Node, sabotage: Sabotage, now: flow::Instant) -> u64 {
    let table = value.pipeline_mut().table_to_break();
    let is_copy = |connection: &flow::Connection| connection.owner != node;
    let copies: Vec<_> = table.iter().filter(|(_, connection)| is_copy(connection)).collect();
    let victims: Vec<_> = copies.iter().step_by(3).map(|(slot, connection)| (*slot, **connection)).collect();
    let mut broken = 0;
    for (slot, copy) in victims {
        let is_done = match sabotage {
            Sabotage::LostCopies => table.remove(slot).is_some(),
            Sabotage::AlteredCopies => {
                table.get_mut(slot).map(|copy| copy.version = copy.version.wrapping_sub(1)).is_some()
            }
            _ => {
                let mut ghost = copy;
                ghost.original.source_port ^= 0x4000;
                ghost.reply = ghost.original.inverse();
                table.insert(ghost, now).is_ok()
            }
        };
        broken += u64::from(is_done);
    }
    broken
}

/// Takes a node back to the first that it heard of a connection.
pub(crate) fn apply_stale_copy(node: usize, value: &mut Node, order: &Order, now: flow::Instant) {
    if let Some((from, stale)) = order.stale_copy(node, value) {
        value.pipeline_mut().replicas().apply(now, from, stale);
    }
}

/// Makes a node forget a copy.
pub(crate) fn forget_copy(value: &mut Node) {
    let copy = value.pipeline().table().iter().find(|(_, connection)| connection.flags & flags::REPLICA != 0);
    if let Some((owner, original, version)) = copy.map(|(_, copy)| (copy.owner, copy.original, copy.version)) {
        value.pipeline_mut().replicas().delete(owner, &original, version);
    }
}

/// Makes a node hold a connection for open that has ended.
pub(crate) fn revive(value: &mut Node, now: flow::Instant) {
    let has_ended = |connection: &Connection| {
        connection.original.protocol == ip_protocol::TCP && connection.protocol.state == TcpState::TimeWait as u8
    };
    let ended = value.pipeline().table().iter().map(|(_, connection)| *connection).find(has_ended);
    if let Some(mut ended) = ended {
        ended.protocol.state = TcpState::Established as u8;
        value.pipeline_mut().replicas().apply(now, ended.owner, ended);
    }
}

/// Swaps the first two pairs of bytes of a TCP segment's data: the checksum, a sum of pairs, stays right.
pub(crate) fn swap_bytes(bytes: &mut [u8]) {
    let length_bytes = bytes.len();
    let Some(frame) = Frame::new(bytes, 0, length_bytes, PortId(0)) else { return };
    let Ok(Parsed::Ip(headers)) = wire::parse(&frame) else { return };
    let at = usize::from(headers.payload_offset);
    if let (Transport::Tcp(_), Some(data)) = (headers.transport, bytes.get_mut(at..at + 4)) {
        data.rotate_left(2);
    }
}

/// A heartbeat that says that there was no take-over.
pub(crate) fn without_take_overs(bytes: &[u8]) -> Vec<u8> {
    let Ok(heartbeat) = Heartbeat::decode(bytes) else { return bytes.to_vec() };
    let mut out = Vec::new();
    Heartbeat { term: 0, ..heartbeat }.encode(&mut out);
    out
}
