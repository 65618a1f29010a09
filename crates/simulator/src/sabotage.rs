//! Deliberate defects, to show that the checkers detect them.

use cluster::node::Node;
use cluster::role::Heartbeat;
use flow::connection::flags;
use flow::conntrack::TcpState;
use flow::wire::{self, Parsed, Transport, ip_protocol};
use flow::{Connection, Frame, NodeId, PortId};
use replication::representation::precise::Ended;

use crate::checkers::order::Order;

/// A deliberate defect, to show that the checkers detect it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// No updates of connections are replicated.
    NoReplication,
    /// Nodes return to older states of connections.
    StaleUpdates,
    /// Nodes drop replicas.
    DroppedReplicas,
    /// Nodes swap bytes of a stream, with a valid checksum.
    SwappedBytes,
    /// Failure detection fails, although the link works.
    FailedDetection,
    /// Heartbeats do not contain take-overs.
    OmittedTakeOvers,
    /// Nodes apply updates of other protocol versions.
    AppliedOtherVersions,
    /// Nodes report every update of another version as the first.
    RepeatedReports,
    /// A node that was paused does not process pending datagrams before it checks for silent peers.
    EarlySilenceCheck,
    /// Nodes revive connections that have ended.
    Zombies,
    /// Nodes defer replication for far longer than configured.
    EndlessDeferral,
    /// Once, in a quiet state, replicas vanish from the tables, to be detected and retransmitted.
    LostReplicas,
    /// Once, in a quiet state, replicas become older, to be detected and retransmitted.
    AlteredReplicas,
    /// Once, in a quiet state, replicas appear without an owner, to be detected and removed.
    SpuriousReplicas,
    /// Gateways neither supersede newer records of their number, nor accept lower versions of what is gone.
    LockedVersions,
    /// The clock that quotas read stands still.
    StuckQuotas,
    /// Quotas forget what was used.
    ForgottenQuotas,
}

impl Sabotage {
    /// Whether the nodes must repair the damage themselves.
    pub(crate) const fn requires_repair(self) -> bool {
        matches!(self, Self::LostReplicas | Self::AlteredReplicas | Self::SpuriousReplicas)
    }
}

/// Corrupts one in three of a node's replicas, as the sabotage defines. Returns their number.
pub(crate) fn corrupt_replicas(node: NodeId, value: &mut Node, sabotage: Sabotage, now: flow::Instant) -> u64 {
    let table = value.pipeline_mut().table_to_break();
    let is_replica = |connection: &flow::Connection| connection.owner != node;
    let replicas: Vec<_> = table.iter().filter(|(_, connection)| is_replica(connection)).collect();
    let victims: Vec<_> = replicas.iter().step_by(3).map(|(slot, connection)| (*slot, **connection)).collect();
    let mut broken = 0;
    for (slot, replica) in victims {
        let is_done = match sabotage {
            Sabotage::LostReplicas => table.remove(slot).is_some(),
            Sabotage::AlteredReplicas => {
                table.get_mut(slot).map(|replica| replica.version = replica.version.wrapping_sub(1)).is_some()
            }
            _ => {
                let mut spurious = replica;
                spurious.original.source_port ^= 0x4000;
                spurious.reply = spurious.original.inverse();
                table.insert(spurious, now).is_ok()
            }
        };
        broken += u64::from(is_done);
    }
    broken
}

/// Returns a node to the first received version of a connection.
pub(crate) fn apply_stale_replica(node: usize, value: &mut Node, order: &Order, now: flow::Instant) {
    if let Some((from, stale)) = order.stale_replica(node, value) {
        value.pipeline_mut().replicas().apply(now, from, stale);
    }
}

/// Makes a node drop a replica.
pub(crate) fn drop_replica(value: &mut Node, now: flow::Instant) {
    let replica = value.pipeline().table().iter().find(|(_, connection)| connection.flags & flags::REPLICA != 0);
    if let Some(ended) = replica.map(|(_, replica)| Ended::from(replica)) {
        value.pipeline_mut().replicas().delete(now, ended.owner, &ended);
    }
}

/// Makes a node hold an ended connection as open.
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

/// Swaps the first two pairs of bytes of a TCP segment's data: the checksum, a sum of pairs, stays valid.
pub(crate) fn swap_bytes(bytes: &mut [u8]) {
    let length_bytes = bytes.len();
    let Some(frame) = Frame::new(bytes, 0, length_bytes, PortId(0)) else { return };
    let Ok(Parsed::Ip(headers)) = wire::parse(&frame) else { return };
    let at = usize::from(headers.payload_offset);
    if let (Transport::Tcp(_), Some(data)) = (headers.transport, bytes.get_mut(at..at + 4)) {
        data.rotate_left(2);
    }
}

/// A heartbeat without take-overs.
pub(crate) fn without_take_overs(bytes: &[u8]) -> Vec<u8> {
    let Ok(heartbeat) = Heartbeat::decode(bytes) else { return bytes.to_vec() };
    let mut out = Vec::new();
    Heartbeat { term: 0, ..heartbeat }.encode(&mut out);
    out
}
