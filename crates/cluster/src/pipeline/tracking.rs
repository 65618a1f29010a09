//! Connection tracking: a packet moves the automaton of its connection on.

use flow::connection::flags;
use flow::conntrack::{Advance, Change};
use flow::table::Slot;
use flow::wire::{Headers, Packet};
use flow::{Connection, Direction, Frame, Instant, SegmentationKind};
use network_functions::chain::Chain;

use super::connections::{Connections, record_mut};

/// Moves the connection's automaton on, taking the connection over if it was a replica. The second value is true then.
pub(super) fn advance(
    connections: &mut Connections,
    now: Instant,
    packet: &Packet<'_, '_>,
    slot: Slot,
    direction: Direction,
) -> (Advance, bool) {
    let Connections { node, table, tracker, functions, forwarded_elsewhere, counters, .. } = &mut *connections;
    let connection = record_mut(table, slot);
    let taken_over = connection.flags & flags::REPLICA != 0;
    if taken_over {
        connection.flags &= !flags::REPLICA;
        tracker.take_over(connection.original.protocol, &mut connection.protocol);
        counters.taken_over += 1;
    } else if connection.owner == *node && forwarded_elsewhere.concerns(now, tracker, connection) {
        tracker.take_over(connection.original.protocol, &mut connection.protocol);
        counters.relearnt += 1;
    }
    if connection.owner != *node {
        connection.take_over(*node);
    }
    let renumbered = as_sent(&functions.chain, connection, packet, direction);
    let headers = renumbered.as_ref().unwrap_or(packet.headers);
    let advance = tracker.advance(now, &mut connection.protocol, &mut connection.flags, direction, headers);
    if advance.verdict.is_ok() {
        count(connection, packet, direction);
    }
    if advance.change != Change::None {
        connection.bump_version();
    }
    if let Some(timeout) = advance.timeout {
        connections.set_expiry(slot, now + timeout);
    }
    (advance, taken_over)
}

/// Moves the automaton on for what most packets are: a plain segment of a connection that this node owns. False,
/// and nothing done, for all others.
#[inline(always)]
pub(super) fn advance_plain(
    connections: &mut Connections,
    now: Instant,
    packet: &Packet<'_, '_>,
    slot: Slot,
    direction: Direction,
) -> bool {
    let Connections { node, table, tracker, functions, forwarded_elsewhere, .. } = &mut *connections;
    let connection = record_mut(table, slot);
    if connection.owner != *node || connection.flags & flags::REPLICA != 0 {
        return false;
    }
    if forwarded_elsewhere.concerns(now, tracker, connection) {
        return false;
    }
    // What a function has renumbered is not what the tracker is to see, and needs a second look.
    if as_sent(&functions.chain, connection, packet, direction).is_some() {
        return false;
    }
    let flags = connection.flags;
    let Some(timeout) = tracker.advance_plain(&mut connection.protocol, flags, direction, packet.headers) else {
        return false;
    };
    count(connection, packet, direction);
    connections.set_expiry(slot, now + timeout);
    true
}

/// The headers of a packet as connection tracking is to see them, where they differ from those that came in: a function gives
/// segments of this connection other numbers.
#[inline(always)]
pub(super) fn as_sent(
    chain: &Chain,
    connection: &Connection,
    packet: &Packet<'_, '_>,
    direction: Direction,
) -> Option<Headers> {
    if chain.renumbers() { chain.as_sent(connection, packet.headers, direction) } else { None }
}

/// Counts a packet that passes.
#[inline(always)]
pub(super) fn count(connection: &mut Connection, packet: &Packet<'_, '_>, direction: Direction) {
    connection.packets[direction.index()] += packets_in(packet.frame);
    connection.bytes[direction.index()] += u64::from(packet.headers.l3_bytes);
}

/// Packets that the frame stands for on the wire.
fn packets_in(frame: &Frame<'_>) -> u64 {
    let segmentation = frame.segmentation;
    if segmentation.kind == SegmentationKind::None || segmentation.size_bytes == 0 {
        return 1;
    }
    let payload = frame.bytes().len().saturating_sub(usize::from(segmentation.header_bytes));
    payload.div_ceil(usize::from(segmentation.size_bytes)).max(1) as u64
}
