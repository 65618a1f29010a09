//! Resets of TCP connections that ended because their server has failed: end points learn it at once instead of by their own timers.
//!
//! ```text
//!   the owner ends a connection ─► both ends are sent a reset, numbered by the record     at RESETS_PER_TICK_MAX a tick
//!   owner and peers remember it ─► a later segment is answered by a reset, numbered by the segment   at ANSWERS_PER_S a second
//! ```
//!
//! The record's numbers may be wrong: a segment can be lost behind the node. The end point then asks back with an acknowledgement
//! (RFC 5961 section 3.2), which gives the right number. After a take-over, numbers are not known, and only the answer is left.
//!
//! A later segment is answered if its connection is remembered. A segment of another connection is *stray*. It is answered where that is
//! configured, and where no replica, recovery or lookup can bring the connection: all nodes have lost it.
//! A connection that enters the table is forgotten here.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use flow::connection::flags;
use flow::conntrack::{TcpPeer, TcpState, peer_flags};
use flow::wire::build::Tcp;
use flow::wire::{Packet, TcpSegment, Transport, ip_protocol, tcp_flags};
use flow::{Connection, Direction, Instant, RateLimit, TokenBucket, Tuple};

/// Connections whose end is remembered; the oldest is forgotten.
pub const RESET_CONNECTIONS_MAX: usize = 65_536;
/// How long it is remembered: longer than end points retransmit by default.
pub const RESET_MEMORY: Duration = Duration::from_secs(20 * 60);
/// Connections that wait to have their ends reset. Beyond, they are only reset in answer to their segments.
pub const RESETS_QUEUED_MAX: usize = 65_536;
/// Connections whose ends are reset in a tick.
const RESETS_PER_TICK_MAX: usize = 128;
/// The time between two ticks.
const TICK: Duration = Duration::from_millis(10);
/// Answers to segments, a second.
const ANSWERS_PER_S: u32 = 10_000;
/// Connections that are forgotten at once, their time being over.
const FORGOTTEN_AT_ONCE_MAX: usize = 256;

/// What is counted of resets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResetCounters {
    /// Sent to end points when their connection ended.
    pub sent: u64,
    /// Sent in answer to segments of ended connections.
    pub answered: u64,
    /// Sent in answer to segments of connections that are not known.
    pub strays: u64,
    /// Segments that were not answered because of the limit, and connections beyond the queue's.
    pub limited: u64,
}

/// A segment that a node makes, and the tuple that it has when it leaves.
pub(super) type Made = (Tuple, Tcp<'static>);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Resets {
    /// Until when segments with a tuple are answered.
    ended: BTreeMap<Tuple, Instant>,
    /// The tuples of both directions, in the order in which they are forgotten.
    order: VecDeque<(Instant, [Tuple; 2])>,
    queued: VecDeque<[Option<Made>; 2]>,
    /// When queued ones may be sent.
    next_at: Instant,
    answers: TokenBucket,
    counters: ResetCounters,
}

impl Resets {
    pub(super) const fn counters(&self) -> ResetCounters {
        self.counters
    }

    /// Whether no connection is remembered.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    /// A connection has ended because its server has failed. `to_client` is added to the server's numbers towards the client; `None`:
    /// this node does not own it, or its numbers are not known.
    pub(super) fn note_ended(&mut self, now: Instant, connection: &Connection, to_client: Option<u32>) {
        if connection.original.protocol != ip_protocol::TCP {
            return;
        }
        self.remember(now, [connection.original, connection.reply]);
        let Some(resets) = to_client.and_then(|offset| numbered(connection, offset)) else { return };
        if self.queued.len() < RESETS_QUEUED_MAX {
            self.queued.push_back(resets);
        } else {
            self.counters.limited += 1;
        }
    }

    fn remember(&mut self, now: Instant, tuples: [Tuple; 2]) {
        self.forget_old(now);
        if self.order.len() >= RESET_CONNECTIONS_MAX {
            self.pop();
        }
        let until = now + RESET_MEMORY;
        self.order.push_back((until, tuples));
        for tuple in tuples {
            self.ended.insert(tuple, until);
        }
    }

    /// A connection has entered the table.
    pub(super) fn forget(&mut self, connection: &Connection) {
        self.ended.remove(&connection.original);
        self.ended.remove(&connection.reply);
    }

    fn forget_old(&mut self, now: Instant) {
        for _ in 0..FORGOTTEN_AT_ONCE_MAX {
            if self.order.front().is_none_or(|(until, _)| now < *until) {
                return;
            }
            self.pop();
        }
    }

    fn pop(&mut self) {
        let Some((until, tuples)) = self.order.pop_front() else { return };
        for tuple in tuples {
            // It may have been remembered anew since.
            if self.ended.get(&tuple) == Some(&until) {
                self.ended.remove(&tuple);
            }
        }
    }

    /// Whether a packet of no connection belongs to one that is remembered, and the reset that answers it. A SYN begins a new
    /// connection, and a reset needs no answer.
    pub(super) fn answer(&mut self, now: Instant, packet: &Packet<'_, '_>) -> Option<Option<Made>> {
        let Transport::Tcp(segment) = packet.headers.transport else { return None };
        let tuple = packet.headers.tuple;
        let kind = segment.flags & (tcp_flags::SYN | tcp_flags::RST | tcp_flags::ACK);
        if kind == tcp_flags::SYN || self.ended.get(&tuple).is_none_or(|until| *until <= now) {
            return None;
        }
        if kind & tcp_flags::RST != 0 || kind & tcp_flags::ACK == 0 {
            return Some(None);
        }
        if !self.takes_answer(now) {
            return Some(None);
        }
        self.counters.answered += 1;
        Some(Some((tuple.inverse(), reset_of(&segment))))
    }

    /// The reset that answers a segment of no connection; `None` for a SYN, a reset, and beyond the limit.
    pub(super) fn answer_stray(&mut self, now: Instant, packet: &Packet<'_, '_>) -> Option<Made> {
        let Transport::Tcp(segment) = packet.headers.transport else { return None };
        if segment.flags & (tcp_flags::SYN | tcp_flags::RST) != 0 || !self.takes_answer(now) {
            return None;
        }
        self.counters.strays += 1;
        Some((packet.headers.tuple.inverse(), reset_of(&segment)))
    }

    /// Whether the limit permits another answer to a segment.
    fn takes_answer(&mut self, now: Instant) -> bool {
        let is_permitted = self.answers.take(now, &RateLimit::new(ANSWERS_PER_S, ANSWERS_PER_S / 10));
        self.counters.limited += u64::from(!is_permitted);
        is_permitted
    }

    /// The next connections whose end points are to be reset now.
    pub(super) fn take_due(&mut self, now: Instant) -> impl Iterator<Item = Made> + '_ {
        let count = if now < self.next_at { 0 } else { self.queued.len().min(RESETS_PER_TICK_MAX) };
        if count > 0 {
            self.next_at = now + TICK;
        }
        let counters = &mut self.counters;
        self.queued.drain(..count).flatten().flatten().inspect(|_| counters.sent += 1)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (!self.queued.is_empty()).then_some(self.next_at)
    }
}

/// The reset that answers a segment of no connection (RFC 9293 section 3.10.7.1).
fn reset_of(segment: &TcpSegment) -> Tcp<'static> {
    let reset = Tcp { flags: tcp_flags::RST, sequence: segment.acknowledgement, window: 0, ..Tcp::default() };
    if segment.has(tcp_flags::ACK) {
        return reset;
    }
    let fin = u32::from(segment.has(tcp_flags::FIN));
    let acknowledgement = segment.sequence.wrapping_add(segment.payload_bytes).wrapping_add(fin);
    Tcp { flags: tcp_flags::RST | tcp_flags::ACK, sequence: 0, acknowledgement, ..reset }
}

/// The resets to client and server by the record's numbers, as far as these are known.
fn numbered(connection: &Connection, to_client: u32) -> Option<[Option<Made>; 2]> {
    let [client, server] = &connection.protocol.peers;
    let is_known = |peer: &TcpPeer| peer.window_max != 0 && peer.flags & peer_flags::RELEARNING == 0;
    if connection.flags & flags::REPLICA != 0 || !is_known(client) {
        return None;
    }
    let reset = |sequence, acknowledgement| Tcp {
        flags: tcp_flags::RST | tcp_flags::ACK,
        sequence,
        acknowledgement,
        window: 0,
        ..Tcp::default()
    };
    let of_client = reset(server.end.wrapping_add(to_client), client.end);
    if is_known(server) {
        let of_server = reset(client.end, server.end);
        return Some([
            Some((connection.translated(Direction::Reply), of_client)),
            Some((connection.translated(Direction::Original), of_server)),
        ]);
    }
    // The server has not answered the SYN: its number does not matter to the client (RFC 9293 section 3.10.7.3).
    let is_syn_sent = connection.protocol.state == TcpState::SynSent as u8;
    is_syn_sent.then(|| [Some((connection.translated(Direction::Reply), of_client)), None])
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::NodeId;
    use flow::conntrack::ProtocolState;

    const NOW: Instant = Instant::from_millis(1000);

    fn connection(port: u16) -> Connection {
        let original = Tuple::v4(ip_protocol::TCP, ([10, 0, 0, 1].into(), port), ([192, 0, 2, 80].into(), 80));
        let mut connection = Connection::new(original, NodeId(0), ProtocolState::default(), NOW);
        connection.protocol.state = TcpState::Established as u8;
        connection.protocol.peers[0].end = 1100;
        connection.protocol.peers[1].end = 5200;
        connection.protocol.peers.iter_mut().for_each(|peer| peer.window_max = 65_535);
        connection
    }

    #[test]
    fn both_ends_are_reset_by_the_records_numbers() {
        let (mut resets, known) = (Resets::default(), connection(1));
        resets.note_ended(NOW, &known, Some(7));
        let sent: alloc::vec::Vec<_> = resets.take_due(NOW).collect();
        let numbers: alloc::vec::Vec<_> = sent.iter().map(|(to, tcp)| (to.destination_port, tcp.sequence)).collect();
        assert_eq!(numbers, [(1, 5207), (80, 1100)]);
        assert_eq!((resets.counters.sent, resets.poll_timeout()), (2, None));
    }

    #[test]
    fn numbers_that_a_take_over_left_unknown_send_no_reset() {
        let (mut resets, mut known) = (Resets::default(), connection(1));
        known.protocol.peers[1].flags |= peer_flags::RELEARNING;
        resets.note_ended(NOW, &known, Some(0));
        known.protocol.peers[1].flags = 0;
        known.flags |= flags::REPLICA;
        resets.note_ended(NOW, &known, Some(0));
        assert_eq!(resets.take_due(NOW).count(), 0);
        assert!(!resets.is_empty(), "later segments are answered");
    }

    #[test]
    fn a_client_that_waits_for_the_servers_syn_is_reset() {
        let (mut resets, mut known) = (Resets::default(), connection(1));
        known.protocol.state = TcpState::SynSent as u8;
        known.protocol.peers[1] = TcpPeer::default();
        resets.note_ended(NOW, &known, Some(0));
        let sent: alloc::vec::Vec<_> = resets.take_due(NOW).map(|(to, tcp)| (to.destination_port, tcp)).collect();
        assert_eq!((sent.len(), sent[0].0, sent[0].1.acknowledgement), (1, 1, 1100));
    }

    #[test]
    fn many_resets_are_spread_over_time() {
        let mut resets = Resets::default();
        let count = 2 * RESETS_PER_TICK_MAX as u16 + 1;
        (0..count).for_each(|port| resets.note_ended(NOW, &connection(port), Some(0)));
        let mut now = NOW;
        for expected in [RESETS_PER_TICK_MAX, RESETS_PER_TICK_MAX, 1] {
            assert_eq!(resets.take_due(now).count(), 2 * expected);
            assert_eq!(resets.take_due(now).count(), 0, "not before the next tick");
            now = now + TICK;
        }
        assert_eq!(resets.poll_timeout(), None);
    }

    #[test]
    fn ends_are_forgotten_by_time_by_number_and_by_a_new_connection() {
        let mut resets = Resets::default();
        (0..=u16::MAX).for_each(|port| resets.note_ended(NOW, &connection(port), None));
        assert_eq!(resets.order.len(), RESET_CONNECTIONS_MAX);
        let mut other = connection(0);
        other.original.destination_port = 81;
        other.reply = other.original.inverse();
        resets.note_ended(NOW, &other, None);
        assert_eq!(resets.order.len(), RESET_CONNECTIONS_MAX);
        assert!(!resets.ended.contains_key(&connection(0).original), "the oldest is forgotten");
        resets.forget(&connection(1));
        assert!(!resets.ended.contains_key(&connection(1).reply));
        (0..300).for_each(|_| resets.forget_old(NOW + RESET_MEMORY));
        assert!(resets.is_empty() && resets.order.is_empty());
    }
}
