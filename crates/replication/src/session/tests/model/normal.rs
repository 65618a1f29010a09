//! What a state's future depends on, and nothing else: two states with the same normal form are one to the check.
//!
//! Times are as seen from now, and none is further away than it matters; message numbers and rounds are as seen from
//! where their sender stands. Session numbers and versions stay as they are. What is only counted or measured is left
//! out. A field that is added to a session does not compile until it is handled here (fields are named one by one).

use core::hash::Hasher;
use std::hash::DefaultHasher;
use std::sync::Arc;
use std::vec::Vec;

use flow::Instant;
use flow::wire::tlv;

use super::Exploration;
use super::state::{Flight, Node, State};
use crate::message::{ACK, AckView, Header};
use crate::session::tests::harness::{Connection, Table};
use crate::session::{Link, Retired, Session};

/// From where the numbers and rounds of a session are seen.
type Origin = (u32, u8);

impl Exploration {
    /// Brings the wire in order and takes the hash of the normal form.
    pub(super) fn normalise(&self, state: &mut State) {
        let mut wire: Vec<_> =
            state.wire.drain(..).map(|flight| (normal_flight(&state.nodes, state.now, &flight), flight)).collect();
        wire.sort_by(|(left, _), (right, _)| left.cmp(right));
        let mut out = Vec::with_capacity(256);
        for (normal, flight) in wire {
            out.extend(normal);
            state.wire.push(flight);
        }
        out.extend([state.wire.len() as u64, state.changes_left.into(), state.faults_left.into(), state.lives.into()]);
        out.push(state.broken.map_or(0, |property| property as u64 + 1));
        for index in 0..2 {
            let origin = receiver_origin(&state.nodes, index);
            normal_node(&state.nodes[index], state.now, origin, &mut out);
        }
        let mut hasher = DefaultHasher::new();
        for word in out {
            hasher.write_u64(word);
        }
        state.normal = hasher.finish();
    }
}

/// Where the node's own session stands.
fn sender_origin(session: &Session) -> Origin {
    (session.sender.recovery.next(), session.sender.wire_round())
}

/// From where a node's receiver sees: where the peer stands, if it is still the session that the node listens to.
fn receiver_origin(nodes: &[Arc<Node>; 2], index: usize) -> Origin {
    let (own, peer) = (&nodes[index].session, &nodes[1 - index].session);
    if own.peer_session == Some(peer.session) { sender_origin(peer) } else { own.receiver.origin() }
}

/// From where a session of the node `index` is seen in a datagram. A session that neither node knows any more is seen as it is.
fn origin_of(nodes: &[Arc<Node>; 2], index: usize, session: u32) -> Origin {
    let (own, peer) = (&nodes[index].session, &nodes[1 - index].session);
    if own.session == session {
        sender_origin(own)
    } else if peer.peer_session == Some(session) {
        peer.receiver.origin()
    } else {
        (0, 0)
    }
}

fn normal_flight(nodes: &[Arc<Node>; 2], now: Instant, flight: &Flight) -> Vec<u64> {
    let age = now.saturating_since(flight.sent_at).as_micros() as u64;
    let (header, body) = Header::parse(&flight.bytes).expect("sessions send datagrams");
    let Header { flags, sender: _, round, session, peer_session, first, unresolved, count } = header;
    let (number, own_round) = origin_of(nodes, 1 - flight.to, session);
    let (acknowledged, _) = origin_of(nodes, flight.to, peer_session);
    let round = if round == 0 { 0 } else { u64::from(own_round.wrapping_sub(round)) + 1 };
    let mut out = std::vec![
        // The oldest comes first, and of those sent at the same time the one with the lowest number.
        u64::MAX - age,
        flight.to as u64,
        u64::from(session),
        // Kept low and rising: nothing is further behind or ahead than this.
        u64::from(first.wrapping_sub(number).wrapping_add(1 << 20)),
        u64::from(flags) | round << 8 | u64::from(unresolved) << 16 | u64::from(count) << 32,
        u64::from(peer_session),
    ];
    for message in tlv::read(body) {
        let (message_type, body) = message.expect("sessions send messages");
        out.push(u64::from(message_type) << 32 | body.len() as u64);
        if message_type == ACK {
            let ack = AckView::parse(body).expect("sessions send acknowledgements");
            out.push(acknowledged.wrapping_sub(ack.next).into());
            let behind = |number: u32| u64::from(acknowledged.wrapping_sub(number));
            out.extend(ack.missing().map(|range| behind(range.start) << 32 | behind(range.end)));
        } else {
            out.extend(body.iter().take(12).map(|byte| u64::from(*byte)));
        }
    }
    out
}

fn normal_node(node: &Node, now: Instant, origin: Origin, out: &mut Vec<u64>) {
    let Node { session, table, removed, numbering, starts, left } = node;
    normal_session(session, now, origin, out);
    normal_table(table, out);
    out.extend(removed.iter().map(|(tuple, life)| u64::from(*tuple) << 32 | u64::from(*life)));
    // Where the numbering stands only matters while the session is the one that sent last.
    let numbering = numbering.filter(|(last, ..)| *last == session.session);
    out.push(numbering.map_or(0, |(_, next, base)| u64::from(next.wrapping_sub(base)) + 1));
    out.extend([u64::from(*starts), u64::from(*left)]);
}

fn normal_table(table: &Table, out: &mut Vec<u64>) {
    let mut connection = |connection: &Connection| {
        out.push(
            u64::from(connection.tuple) << 48 | u64::from(connection.incarnation) << 32 | u64::from(connection.version),
        );
    };
    let nothing = Connection { tuple: 0xffff, incarnation: 0, version: 0 };
    table.slots.iter().for_each(|slot| connection(&slot.unwrap_or(nothing)));
    table.copies.values().for_each(&mut connection);
    connection(&nothing);
    table.newest_seen.values().for_each(&mut connection);
    connection(&nothing);
    out.extend(table.unrefreshed.iter().map(|tuple| u64::from(*tuple)));
    out.push(table.unrefreshed.len() as u64);
}

fn normal_session(of: &Session, now: Instant, origin: Origin, out: &mut Vec<u64>) {
    let Session {
        config,
        local: _,
        peer: _,
        random,
        link,
        session,
        has_been_open,
        peer_session,
        retired,
        sender,
        receiver,
        anti_entropy,
        answers,
        pending,
        is_awaited,
        asked_at,
        hello_at,
        hello_interval,
        last_sent,
        last_received_at,
        resync_asked,
        other_version: _,
        was_synchronised: _,
        events: _,
        counters: _,
    } = of;
    assert!(!anti_entropy.is_started() && answers.at().is_none(), "comparing is not part of the check");
    let until = |at: Instant| at.saturating_since(now).as_micros() as u64;
    // No two states of the generator have the same next number.
    let random = random.clone().next();
    out.extend([random, *link as u64, u64::from(*session), u64::from(peer_session.unwrap_or(0)), u64::from(*pending)]);
    for Retired { session, until: end } in retired.iter().filter(|retired| now < retired.until) {
        out.push(u64::from(*session) << 32 | until(*end));
    }
    out.extend([u64::MAX, until(*hello_at), hello_interval.as_micros() as u64]);
    if *link == Link::Open {
        out.push(until(*last_sent + config.alive_interval));
        out.push(last_received_at.map_or(0, |received_at| until(received_at + config.peer_timeout) + 1));
    }
    out.push(u64::from(*is_awaited) << 32 | asked_at.map_or(0, |asked| until(asked + config.batch_delay)));
    out.push(u64::from(resync_asked.is_some()) | u64::from(*has_been_open) << 1);
    sender.normal_form(now, config, out);
    receiver.normal_form(now, origin, out);
}
