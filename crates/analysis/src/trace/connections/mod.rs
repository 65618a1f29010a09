//! The connections of a trace, followed by the tracker and in the table that a gateway has.
//!
//! ```text
//!  Packet ─► table ─┬─ unknown ─► Tracker::begin ───► Began
//!                   └─ known ───► Tracker::advance ─► Changed, Ended (closed, refused, reopened)
//!  the packets' times ─► the table's timers ────────► Ended (expired)
//! ```
//! Time is the capture's. The table is bounded as a node's is: full, a connection that was never answered is evicted
//! for a new one (Linux's `early_drop`), else the new one is not followed; both are counted.

mod event;
mod notes;
pub mod statistics;
#[cfg(test)]
mod tests;

use std::time::Duration;

use flow::connection::NodeId;
use flow::conntrack::{Change, Next, TcpState, Timeouts, Tracker, TrackerConfig};
use flow::table::{InsertError, Slot, Table};
use flow::wire::{Headers, Transport, ip_protocol};
use flow::{Connection, Direction, DropReason, HashKey, Instant};

use super::Packet;

pub use event::{Before, End, Event, EventKind, Outcome};
pub use notes::Notes;
pub use statistics::Statistics;

/// Connections that are followed at a time unless another number is asked for; full, the table takes 320 MB.
pub const CONNECTIONS_MAX_DEFAULT: u32 = 1 << 20;

/// How connections are followed.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionsConfig {
    /// Connections at a time.
    pub connections_max: u32,
    /// Timeouts and options of the tracker.
    pub tracker: TrackerConfig,
    /// A TCP connection ends when both sides have closed it, or one has reset it; else it ends when its time in TIME_WAIT or
    /// CLOSE is over, as in a gateway.
    pub ends_when_closed: bool,
    /// The secret of the table's hash. Captures may hold tuples that somebody has chosen.
    pub secret: [u64; 2],
}

impl Default for ConnectionsConfig {
    /// As a Linux gateway would follow them that was switched on in the middle of things: TCP is picked up anywhere, and as the
    /// capture may lack segments, windows are not held against those that it has.
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX_DEFAULT,
            tracker: TrackerConfig { loose: true, liberal: true, ..TrackerConfig::default() },
            ends_when_closed: false,
            secret: [0x6d61_696e_7374_6179, 0x616e_616c_7973_6973],
        }
    }
}

impl ConnectionsConfig {
    /// As MLCBF section 2.2.3 followed them: 20 s in SYN_SENT, 60 s in ESTABLISHED, 20 s after a FIN; connections of which the
    /// SYN is not in the capture are left out; what is closed is at its end.
    #[must_use]
    pub fn seed() -> Self {
        const ESTABLISHED: Duration = Duration::from_secs(60);
        const OTHERS: Duration = Duration::from_secs(20);
        let timeouts = Timeouts {
            tcp_syn_sent: OTHERS,
            tcp_syn_recv: OTHERS,
            tcp_syn_sent2: OTHERS,
            tcp_established: ESTABLISHED,
            tcp_fin_wait: OTHERS,
            tcp_close_wait: OTHERS,
            tcp_last_ack: OTHERS,
            ..Timeouts::default()
        };
        Self {
            tracker: TrackerConfig { timeouts, liberal: true, ..TrackerConfig::default() },
            ends_when_closed: true,
            ..Self::default()
        }
    }
}

/// What was not followed, and what became of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Untracked {
    /// Packets that begin no connection and belong to none: segments in the middle of a TCP connection whose beginning was not
    /// seen, errors about unknown packets.
    pub without_connection: u64,
    /// Packets of a connection that its tracker refuses (a gateway would drop them).
    pub refused: u64,
    /// Fragments behind the first, which do not name their connection.
    pub fragments: u64,
    /// Packets that would have begun a connection while the table was full.
    pub table_full: u64,
    /// Connections that gave way to new ones while the table was full.
    pub displaced: u64,
}

/// The connections of a trace.
pub struct Connections {
    table: Table,
    tracker: Tracker,
    ends_when_closed: bool,
    /// The first packet's time: the table counts from there.
    origin: Option<Instant>,
    now: Instant,
    next_id: u64,
    untracked: Untracked,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections")
            .field("table", &self.table)
            .field("untracked", &self.untracked)
            .finish_non_exhaustive()
    }
}

impl Connections {
    /// Without connections.
    #[must_use]
    pub fn new(config: &ConnectionsConfig) -> Self {
        Self {
            table: Table::new(config.connections_max, HashKey(config.secret)),
            tracker: Tracker::new(config.tracker),
            ends_when_closed: config.ends_when_closed,
            origin: None,
            now: Instant::ZERO,
            next_id: 0,
            untracked: Untracked::default(),
        }
    }

    /// Follows a packet. Calls `observe` with each event, those of connections that have expired by then first.
    pub fn handle_packet(&mut self, packet: &Packet<'_>, observe: &mut impl FnMut(&Event<'_>)) -> Outcome {
        let now = self.turn_to(packet.at, observe);
        let headers = &packet.headers;
        if is_fragment_without_ports(headers) {
            self.untracked.fragments += 1;
            return Outcome::Untracked(DropReason::Fragment);
        }
        let hash = self.table.hash(&headers.tuple);
        match self.table.lookup(hash, &headers.tuple) {
            Some((slot, direction)) => self.advance(now, slot, direction, packet, hash, observe),
            None => self.begin(now, packet, hash, observe),
        }
    }

    /// Time passes without a packet: ends connections whose time has come.
    pub fn handle_time(&mut self, at: Instant, observe: &mut impl FnMut(&Event<'_>)) {
        self.turn_to(at, observe);
    }

    /// The trace is at its end, and so is all that is still open.
    pub fn finish(&mut self, observe: &mut impl FnMut(&Event<'_>)) {
        let mut from = Slot(0);
        while let Some(slot) = self.table.next_occupied(from) {
            self.end(slot, self.now, End::Trace, observe);
            from = Slot(slot.0 + 1);
        }
    }

    /// Connections that are open: with the slot of each, its record and what was noted of it. The record's times count from
    /// the trace's first packet, those of the notes from the Unix epoch.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Connection, Notes)> {
        self.table.iter().map(|(slot, connection)| (slot, connection, Notes::of(connection)))
    }

    /// The connection in `slot`.
    #[must_use]
    pub fn get(&self, slot: Slot) -> Option<&Connection> {
        self.table.get(slot)
    }

    /// Leaves a study's own word on the connection in `slot`; see [`Notes::mark`].
    pub fn set_mark(&mut self, slot: Slot, mark: u64) {
        if let Some(connection) = self.table.get_mut(slot) {
            Notes { mark, ..Notes::of(connection) }.put(connection);
        }
    }

    /// Connections that are open.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.table.len()
    }

    /// No connection is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Connections that were begun.
    #[must_use]
    pub const fn begun(&self) -> u64 {
        self.next_id
    }

    /// What was not followed.
    #[must_use]
    pub const fn untracked(&self) -> &Untracked {
        &self.untracked
    }

    /// The time of the trace: that of its latest packet, from the Unix epoch on.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.capture_time(self.now)
    }

    fn capture_time(&self, at: Instant) -> Instant {
        Instant::from_nanos(self.origin.unwrap_or(Instant::ZERO).as_nanos().saturating_add(at.as_nanos()))
    }

    /// Moves the clock to a packet's time, which never goes back, and ends what has expired by then.
    fn turn_to(&mut self, at: Instant, observe: &mut impl FnMut(&Event<'_>)) -> Instant {
        let origin = *self.origin.get_or_insert(at);
        self.now = self.now.max(Instant::from_nanos(at.as_nanos().saturating_sub(origin.as_nanos())));
        while self.table.next_expiry().is_some_and(|due| due <= self.now) {
            let Some(slot) = self.table.poll_expired(self.now) else { continue };
            let expired_at = self.table.get(slot).map_or(self.now, Connection::expires_at);
            self.end(slot, expired_at, End::Expired, observe);
        }
        self.now
    }

    fn begin(&mut self, now: Instant, packet: &Packet<'_>, hash: u64, observe: &mut impl FnMut(&Event<'_>)) -> Outcome {
        let (protocol, timeout) = match self.tracker.begin(&packet.headers) {
            Ok(begun) => begun,
            Err(reason) => {
                self.untracked.without_connection += 1;
                return Outcome::Untracked(reason);
            }
        };
        let mut connection = Connection::new(packet.headers.tuple, NodeId(0), protocol, now + timeout);
        let mut notes = Notes { id: self.next_id, began_at_nanos: packet.at.as_nanos(), ..Notes::default() };
        notes.note(&mut connection, packet, Direction::Original);
        notes.put(&mut connection);
        let slot = match self.table.insert_hashed(connection, hash, now) {
            Err(InsertError::Full) => {
                let Some(victim) = self.table.early_drop_candidate(hash, |_| true) else { return self.refuse_full() };
                self.untracked.displaced += 1;
                self.end(victim, now, End::Displaced, observe);
                self.table.insert_hashed(connection, hash, now)
            }
            inserted => inserted,
        };
        let Ok(slot) = slot else { return self.refuse_full() };
        self.next_id += 1;
        self.observe_change(slot, now, EventKind::Began, observe);
        Outcome::Followed { slot, id: notes.id, direction: Direction::Original, change: Change::State }
    }

    fn refuse_full(&mut self) -> Outcome {
        self.untracked.table_full += 1;
        Outcome::Untracked(DropReason::TableFull)
    }

    fn advance(
        &mut self,
        now: Instant,
        slot: Slot,
        direction: Direction,
        packet: &Packet<'_>,
        hash: u64,
        observe: &mut impl FnMut(&Event<'_>),
    ) -> Outcome {
        let Some(connection) = self.table.get_mut(slot) else { return Outcome::Untracked(DropReason::NoConnection) };
        let before = Before { state: connection.protocol.state, flags: connection.flags };
        let advance =
            self.tracker.advance(now, &mut connection.protocol, &mut connection.flags, direction, &packet.headers);
        if advance.next == Next::Reopen {
            self.end(slot, now, End::Reopened, observe);
            return self.begin(now, packet, hash, observe);
        }
        if let Err(reason) = advance.verdict {
            self.untracked.refused += 1;
            self.put_expiry(slot, now, advance.timeout);
            return Outcome::Untracked(reason);
        }
        let mut notes = Notes::of(connection);
        notes.note(connection, packet, direction);
        if notes.established_at_nanos == 0
            && flow::conntrack::is_established(connection.original.protocol, &connection.protocol)
        {
            notes.established_at_nanos = packet.at.as_nanos();
        }
        notes.put(connection);
        let outcome = Outcome::Followed { slot, id: notes.id, direction, change: advance.change };
        let is_over = self.ends_when_closed && is_closed(connection);
        if advance.change != Change::None {
            self.observe_change(slot, now, EventKind::Changed { before, change: advance.change, direction }, observe);
        }
        if advance.next == Next::Close {
            self.end(slot, now, End::Refused, observe);
        } else if is_over {
            self.end(slot, now, End::Closed, observe);
        } else {
            self.put_expiry(slot, now, advance.timeout);
        }
        outcome
    }

    fn put_expiry(&mut self, slot: Slot, now: Instant, timeout: Option<Duration>) {
        let Some((connection, timeout)) = self.table.get_mut(slot).zip(timeout) else { return };
        let expires_at = now + timeout;
        if expires_at.as_nanos() >= connection.expires_at_nanos {
            connection.expires_at_nanos = expires_at.as_nanos();
        } else {
            self.table.expire_sooner(slot, expires_at);
        }
    }

    fn end(&mut self, slot: Slot, at: Instant, end: End, observe: &mut impl FnMut(&Event<'_>)) {
        let Some(connection) = self.table.remove(slot) else { return };
        let end = if end == End::Expired && is_closed(&connection) { End::Closed } else { end };
        let kind = EventKind::Ended(end);
        observe(&Event {
            kind,
            at: self.capture_time(at),
            slot,
            connection: &connection,
            notes: Notes::of(&connection),
        });
    }

    fn observe_change(&self, slot: Slot, at: Instant, kind: EventKind, observe: &mut impl FnMut(&Event<'_>)) {
        if let Some(connection) = self.table.get(slot) {
            observe(&Event { kind, at: self.capture_time(at), slot, connection, notes: Notes::of(connection) });
        }
    }
}

/// Both sides of a TCP connection have closed it, or one has reset it.
fn is_closed(connection: &Connection) -> bool {
    connection.original.protocol == ip_protocol::TCP
        && matches!(TcpState::from_u8(connection.protocol.state), Some(TcpState::TimeWait | TcpState::Close))
}

/// A fragment behind the first one of a packet that has ports: they are in the first alone.
const fn is_fragment_without_ports(headers: &Headers) -> bool {
    let has_ports =
        matches!(headers.tuple.protocol, ip_protocol::TCP | ip_protocol::UDP | ip_protocol::ICMP | ip_protocol::ICMPV6);
    headers.is_fragment && has_ports && matches!(headers.transport, Transport::Other)
}

/// Packets were seen in one direction only.
#[must_use]
pub const fn is_one_way(connection: &Connection) -> bool {
    connection.packets[Direction::Reply.index()] == 0
}
