//! Packets of connections whose owner may be another living node: see [`super::sharing`].

use flow::connection::flags;
use flow::conntrack::{Advance, Change, Next, TcpState, is_in_handshake};
use flow::table::Slot;
use flow::wire::{Headers, Packet, Transport, ip_protocol, tcp_flags};
use flow::{Connection, Direction, Instant};

use super::arrival::Arrival;
use super::change::TableChange;
use super::connections::{Connections, as_sent, count, record, record_mut};
use super::edge::Edge;
use super::sharing::Sharing;
use super::waiting::Waiting;
use crate::observation::Step;

/// The outcome of a packet of a connection that another node may own.
enum Tracked {
    /// It is a packet of this node's own connection, or makes this node the owner.
    Own,
    /// It waits for an update from the owner.
    Waits,
    /// The automaton was moved on. True: this node has become the owner, and must replicate the connection.
    Advanced(Advance, bool),
}

/// Moves a connection's automaton on, where other nodes forward beside this one; `None` if the packet waits for another node.
/// True: this node has become its owner, and must replicate it.
pub(super) fn track<E: Edge>(
    connections: &mut Connections,
    waiting: &mut Waiting,
    arrival: &Arrival,
    packet: &Packet<'_, '_>,
    (slot, direction): (Slot, Direction),
    edge: &mut E,
) -> Option<(Advance, bool)> {
    let is_answered = record(&connections.table, slot).flags & flags::REPLIED != 0;
    match advance_peer_owned(connections, waiting, arrival, packet, slot, direction) {
        Tracked::Waits => None,
        Tracked::Advanced(advance, is_taken_over) => {
            let is_first_reply = is_taken_over && !is_answered && direction == Direction::Reply;
            let goes_on = advance.next == Next::Keep && !packet.headers.is_fragment;
            if is_first_reply && goes_on && edge.holds_first_reply(arrival.now, slot, packet) {
                // The former owner knows of the beginning alone, as a backup would.
                connections.changes.push(TableChange::TakenOver { slot });
                connections.observe(Step::HeldForBackup);
                return None;
            }
            Some((advance, is_taken_over))
        }
        Tracked::Own => {
            let (advance, is_taken_over) = connections.advance(arrival.now, packet, slot, direction);
            match advance.verdict {
                Err(reason) if !is_taken_over && waiting.hold(connections, arrival, packet, reason) => None,
                _ => Some((advance, is_taken_over)),
            }
        }
    }
}

/// Moves the automaton of a peer-owned connection on, in the replica.
fn advance_peer_owned(
    connections: &mut Connections,
    waiting: &mut Waiting,
    arrival: &Arrival,
    packet: &Packet<'_, '_>,
    slot: Slot,
    direction: Direction,
) -> Tracked {
    let Connections { node, table, tracker, functions, sharing, .. } = &mut *connections;
    let Some(sharing) = sharing.as_deref() else { return Tracked::Own };
    let connection = record_mut(table, slot);
    if connection.owner == *node || !sharing.live_owners.contains(&connection.owner) {
        let is_alone = sharing.live_owners.is_empty() || connection.owner != *node;
        if connection.flags & flags::SHARED != 0 && is_alone {
            // Windows are relearnt and count again.
            connection.flags &= !flags::SHARED;
            tracker.take_over(ip_protocol::TCP, &mut connection.protocol);
        }
        return Tracked::Own;
    }
    let now = arrival.now;
    let is_fragment = packet.headers.is_fragment;
    let manner = manner(sharing, now, slot, connection);
    // A fragment moves no connection from its live owner.
    let Some(is_found_shared) = manner.or(is_fragment.then_some(false)) else { return Tracked::Own };

    let (mut advanced, before) = (*connection, connection.protocol.state);
    if is_found_shared {
        advanced.flags |= flags::SHARED;
    }
    let renumbered = as_sent(&functions.chain, connection, packet, direction);
    let headers = renumbered.as_ref().unwrap_or(packet.headers);
    let advance = tracker.advance(now, &mut advanced.protocol, &mut advanced.flags, direction, headers);
    if let Err(reason) = advance.verdict {
        if waiting.hold(connections, arrival, packet, reason) {
            return Tracked::Waits;
        }
        // The owner may know of a handshake that is over without a way to report it: then the replica is as old as any.
        let is_old = is_in_handshake(advanced.original.protocol, &advanced.protocol);
        return if is_old && !is_found_shared && !is_fragment {
            Tracked::Own
        } else {
            Tracked::Advanced(advance, false)
        };
    }
    count(&mut advanced, packet, direction, &mut functions.output.classes);
    *connection = advanced;
    if let Some(timeout) = advance.timeout {
        connections.set_expiry(slot, now + timeout);
    }
    if is_fragment {
        return Tracked::Advanced(advance, false);
    }
    let is_news = is_found_shared || is_news(before, &advanced, &advance, headers);
    Tracked::Advanced(advance, note_forwarded(connections, now, slot, is_found_shared, is_news))
}

/// A packet of a peer-owned connection is forwarded. Becomes the owner if there is something to replicate, or the owner must be
/// shown that the connection lives. True then.
fn note_forwarded(
    connections: &mut Connections,
    now: Instant,
    slot: Slot,
    is_found_shared: bool,
    is_news: bool,
) -> bool {
    let Connections { table, tracker, sharing, counters, .. } = &mut *connections;
    let connection = record(table, slot);
    let timeout = tracker.timeout(connection.original.protocol, &connection.protocol, connection.flags);
    let Some(sharing) = sharing.as_deref_mut() else { return false };
    let is_renewal_due = sharing.note_forwarded(now, slot, timeout);
    sharing.counters.shared += u64::from(is_found_shared);
    sharing.counters.renewed += u64::from(is_renewal_due && !is_news);
    if !is_news && !is_renewal_due {
        return false;
    }
    counters.taken_over += 1;
    connections.take_over_shared(now, slot);
    true
}

/// Whether a living peer's connection is found to be shared by a packet that comes here; `None` if it is rather one that moves
/// here, to be taken over as ever.
fn manner(sharing: &Sharing, now: Instant, slot: Slot, connection: &Connection) -> Option<bool> {
    let Connection { original, protocol, .. } = connection;
    if original.protocol != ip_protocol::TCP || connection.flags & flags::SHARED != 0 {
        return Some(false);
    }
    if sharing.was_just_lost(now, slot) {
        return Some(true);
    }
    is_in_handshake(original.protocol, protocol).then_some(false)
}

/// Whether the owner's automaton needs what this packet did to the replica's, which was in state `before`. It does not need the
/// acknowledgement of a FIN, and a replica that is behind it need not report it.
fn is_news(before: u8, connection: &Connection, advance: &Advance, headers: &Headers) -> bool {
    let state = connection.protocol.state;
    let is_worth_replicating = match &headers.transport {
        Transport::Tcp(segment) if segment.has(tcp_flags::RST) => true,
        Transport::Tcp(_) => state != before && state != TcpState::CloseWait as u8,
        _ => advance.change == Change::State,
    };
    is_worth_replicating || advance.next != Next::Keep
}
