//! A packet's way through the connection table, the tracker and the chain of functions.
//!
//! ```text
//! batch ─► parse, have records fetched ─► for each: look up ┬ known ──► tracker ─► chain ──┬─► edge.forward
//!                                                           ├ unknown ► begin ──► chain ───┘
//!                                                           ├ ICMP error ► translate ──────┘
//!                                                           └ for the node itself ► edge
//! ```
//!
//! The pipeline knows connections; what lies around it (addresses, routes, neighbours) is the [`Edge`]'s.
//! What changes is left in [`Pipeline::take_changes`] for whoever tells the backups.

mod expiry;
mod icmp_error;
mod replica;

use alloc::vec::Vec;

use flow::connection::flags;
use flow::conntrack::{Advance, Change, Next, Tracker};
use flow::table::{InsertError, Slot, Table};
use flow::wire::{self, Headers, Packet, Parsed, Transport};
use flow::{
    BATCH_FRAMES_MAX, Connection, Direction, Disposition, DropReason, Frame, HashKey, Instant, NodeId, PacketBatch,
    SegmentationKind, Tuple,
};
use network_functions::chain::{Chain, ChainCounters, Runtime};
use network_functions::function::{CloseReason, Log, Verdict};

use replication::representation::precise::Ended;

use crate::forwarding::Admission;

pub use expiry::CopyExpiry;
pub use replica::Applied;

/// What lies around the pipeline: the node's own addresses, the ways out, and the backups.
pub trait Edge {
    /// An ARP packet that begins at `offset` in the frame.
    fn handle_arp(&mut self, now: Instant, frame: &mut Frame<'_>, offset: u16) -> Disposition;

    /// Whether a packet is to pass, is for the node itself, or is refused: judged as it came in, before any function.
    fn admit(&mut self, now: Instant, packet: &Packet<'_, '_>) -> Admission;

    /// A packet for the node itself that belongs to no connection: neighbour discovery, a ping.
    fn handle_local(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition;

    /// Whether the first answer to a connection is kept back until a backup knows the connection. True takes the packet:
    /// the edge keeps a copy and hands it in again.
    fn holds_first_reply(&mut self, now: Instant, slot: Slot, packet: &Packet<'_, '_>) -> bool {
        let _ = (now, slot, packet);
        false
    }

    /// Sends a packet, already translated, on its way.
    fn forward(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition;
}

/// What happened to a connection that the backups may have to be told.
#[derive(Clone, Copy, Debug)]
pub enum TableChange {
    /// It began.
    Began {
        /// Where it lies.
        slot: Slot,
    },
    /// This node became its master. The former one and the other backups must learn of it whatever state the connection
    /// is in: what they say of it themselves no longer counts here.
    TakenOver {
        /// Where it lies.
        slot: Slot,
    },
    /// It changed.
    Changed {
        /// Where it lies.
        slot: Slot,
        /// How much changed.
        change: Change,
        /// Its protocol's state before.
        previous_state: u8,
    },
    /// It ended; the slot may hold another connection by now.
    Ended {
        /// Where it lay.
        slot: Slot,
        /// Its name.
        ended: Ended,
    },
}

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
    /// Connections ended here.
    pub ended: u64,
    /// Connections whose copy this node took over because their packets came here.
    pub taken_over: u64,
    /// Embryonic connections evicted to make room (see [`Table::early_drop_candidate`]).
    pub early_dropped: u64,
}

impl Default for PipelineCounters {
    fn default() -> Self {
        Self {
            drops: [0; DropReason::ALL.len()],
            received: 0,
            forwarded: 0,
            begun: 0,
            ended: 0,
            taken_over: 0,
            early_dropped: 0,
        }
    }
}

/// Packets that are parsed between the two prefetches of a lookup: as much work as a cache miss takes time.
const PREFETCH_DISTANCE: usize = 8;

/// A packet of the batch that waits for its lookup.
struct Pending {
    frame: usize,
    headers: Headers,
    /// Of the tuple that is looked up.
    hash: u64,
    /// Where its connection lies, most likely.
    likely: Option<Slot>,
    /// It is for one of the node's own addresses, unless a function sends it elsewhere.
    is_local: bool,
}

/// The connection table with everything that acts on it.
pub struct Pipeline {
    node: NodeId,
    table: Table,
    tracker: Tracker,
    chain: Chain,
    chain_counters: ChainCounters,
    log: Log,
    counters: PipelineCounters,
    changes: Vec<TableChange>,
    pending: Vec<Pending>,
}

impl Pipeline {
    /// A pipeline of `node` for at most `connections_max` connections.
    #[must_use]
    pub fn new(node: NodeId, connections_max: u32, key: HashKey, tracker: Tracker, chain: Chain) -> Self {
        let chain_counters = chain.new_counters();
        Self {
            node,
            table: Table::new(connections_max, key),
            tracker,
            chain,
            chain_counters,
            log: Log::default(),
            counters: PipelineCounters::default(),
            changes: Vec::with_capacity(4 * BATCH_FRAMES_MAX),
            pending: Vec::with_capacity(BATCH_FRAMES_MAX),
        }
    }

    /// The connections.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// The chain.
    #[must_use]
    pub const fn chain(&self) -> &Chain {
        &self.chain
    }

    /// The chain's counters.
    #[must_use]
    pub const fn chain_counters(&self) -> &ChainCounters {
        &self.chain_counters
    }

    /// What functions said to the operator.
    pub const fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    /// The pipeline's counters.
    #[must_use]
    pub const fn counters(&self) -> &PipelineCounters {
        &self.counters
    }

    /// Counts a packet that was dropped outside the pipeline's sight.
    pub const fn count_drop(&mut self, reason: DropReason) {
        self.counters.drops[reason as usize] += 1;
    }

    /// What changed since the last call, oldest first. The caller gives the vector back empty with
    /// [`Pipeline::return_changes`], so that none is allocated on the packet path.
    #[must_use]
    pub fn take_changes(&mut self) -> Vec<TableChange> {
        core::mem::take(&mut self.changes)
    }

    /// Takes back what [`Pipeline::take_changes`] gave, to be filled again.
    pub fn return_changes(&mut self, mut changes: Vec<TableChange>) {
        changes.clear();
        self.changes = changes;
    }

    /// Handles a batch to completion: each frame's disposition is decided when this returns.
    pub fn handle_packets<E: Edge>(&mut self, now: Instant, batch: &mut PacketBatch<'_>, edge: &mut E) {
        self.counters.received += batch.len() as u64;
        self.look_at_batch(now, batch, edge);
        let pending = core::mem::take(&mut self.pending);
        for Pending { frame, headers, hash, likely, is_local } in &pending {
            let mut packet = Packet { frame: &mut batch[*frame], headers: *headers };
            let found = self.table.lookup_likely(*likely, *hash, &wanted(headers));
            let disposition = self.handle_packet(now, &mut packet, *hash, found, *is_local, edge);
            packet.frame.disposition = disposition.unwrap_or_else(Disposition::Drop);
        }
        self.pending = pending;
        self.count_dispositions(batch);
    }

    /// Parses the batch: what needs no connection is dealt with at once, the rest waits for the lookup, with its
    /// connections on their way into the cache.
    fn look_at_batch<E: Edge>(&mut self, now: Instant, batch: &mut PacketBatch<'_>, edge: &mut E) {
        self.pending.clear();
        for (index, frame) in batch.iter_mut().enumerate() {
            match wire::parse(frame) {
                Err(reason) => frame.disposition = Disposition::Drop(reason),
                Ok(Parsed::Arp(offset)) => frame.disposition = edge.handle_arp(now, frame, offset),
                Ok(Parsed::Ip(headers)) => {
                    let mut packet = Packet { frame, headers };
                    match edge.admit(now, &packet) {
                        Admission::Refused(reason) => packet.frame.disposition = Disposition::Drop(reason),
                        // Its ports are in another packet, or a part of what they belong to is.
                        _ if headers.is_fragment => packet.frame.disposition = Disposition::Drop(DropReason::Fragment),
                        Admission::Local if is_link_local_control(&headers) => {
                            packet.frame.disposition = edge.handle_local(now, &mut packet);
                        }
                        admission => self.await_lookup(index, headers, admission == Admission::Local),
                    }
                }
            }
        }
        let last = self.pending.len().saturating_sub(PREFETCH_DISTANCE);
        for pending in &mut self.pending[last..] {
            pending.likely = self.table.prefetch_record(pending.hash);
        }
    }

    fn await_lookup(&mut self, frame: usize, headers: Headers, is_local: bool) {
        let hash = self.table.hash(&wanted(&headers));
        self.table.prefetch_index(hash);
        if let Some(earlier) = self.pending.len().checked_sub(PREFETCH_DISTANCE) {
            let earlier = &mut self.pending[earlier];
            earlier.likely = self.table.prefetch_record(earlier.hash);
        }
        self.pending.push(Pending { frame, headers, hash, likely: None, is_local });
    }

    fn handle_packet<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        hash: u64,
        found: Option<(Slot, Direction)>,
        is_local: bool,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        match (&packet.headers.transport, found) {
            (Transport::IcmpError(error), found) => {
                let error = *error;
                self.translate_icmp_error(now, packet, &error, found, edge)
            }
            (_, Some((slot, direction))) => self.handle_known(now, packet, slot, direction, is_local, edge),
            (_, None) => self.handle_unknown(now, packet, hash, is_local, edge),
        }
    }

    fn handle_known<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
        is_local: bool,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let known = record(&self.table, slot);
        let previous_state = known.protocol.state;
        let is_first_reply = direction == Direction::Reply && known.flags & (flags::REPLIED | flags::COPY) == 0;
        if is_first_reply && edge.holds_first_reply(now, slot, packet) {
            return Ok(Disposition::Consumed);
        }
        let (advance, taken_over) = self.advance(now, packet, slot, direction);
        if advance.next == Next::Reopen {
            self.end(slot, CloseReason::TcpClosed);
            let hash = self.table.hash(&packet.headers.tuple);
            return self.handle_unknown(now, packet, hash, is_local, edge);
        }
        let (verdict, states_changed) = match advance.verdict {
            Ok(()) => self.run_chain(now, packet, slot, direction),
            Err(reason) => (Verdict::Drop(reason), false),
        };
        if advance.next == Next::Close {
            self.end(slot, CloseReason::TcpClosed);
        } else if taken_over {
            self.changes.push(TableChange::TakenOver { slot });
        } else if states_changed {
            self.note_change(slot, Change::State, previous_state);
        } else if advance.change != Change::None {
            self.note_change(slot, advance.change, previous_state);
        }
        send(now, packet, verdict, edge)
    }

    /// Moves the connection's automaton on, taking the connection over if it was a copy.
    fn advance(&mut self, now: Instant, packet: &Packet<'_, '_>, slot: Slot, direction: Direction) -> (Advance, bool) {
        let connection = record_mut(&mut self.table, slot);
        let taken_over = connection.flags & flags::COPY != 0;
        if taken_over {
            connection.flags &= !flags::COPY;
            self.tracker.take_over(connection.original.protocol, &mut connection.protocol);
            self.counters.taken_over += 1;
        }
        if connection.owner != self.node {
            connection.take_over(self.node);
        }
        let advance =
            self.tracker.advance(now, &mut connection.protocol, &mut connection.flags, direction, &packet.headers);
        if advance.verdict.is_ok() {
            connection.packets[direction.index()] += packets_in(packet.frame);
            connection.bytes[direction.index()] += u64::from(packet.headers.l3_bytes);
        }
        if advance.change != Change::None {
            connection.bump_version();
        }
        if let Some(timeout) = advance.timeout {
            let expires_at = now + timeout;
            if expires_at.as_nanos() >= connection.expires_at_nanos {
                connection.expires_at_nanos = expires_at.as_nanos();
            } else {
                self.table.expire_sooner(slot, expires_at);
            }
        }
        (advance, taken_over)
    }

    fn handle_unknown<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        hash: u64,
        is_local: bool,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let tuple = packet.headers.tuple;
        if is_local && matches!(packet.headers.transport, Transport::IcmpQuery(_)) {
            return Ok(edge.handle_local(now, packet));
        }
        let (protocol, timeout) = self.tracker.begin(&packet.headers)?;
        let mut connection = Connection::new(tuple, self.node, protocol, now + timeout);
        let mut runtime = Runtime { now, node: self.node, counters: &mut self.chain_counters, log: &mut self.log };
        self.chain.init(&mut runtime, &self.table, &mut connection, packet)?;
        if is_local && connection.reply.source == tuple.destination {
            return Err(DropReason::LocalUnhandled);
        }
        connection.packets[0] = packets_in(packet.frame);
        connection.bytes[0] = u64::from(packet.headers.l3_bytes);
        let slot = self.enter(now, connection, hash)?;
        let (verdict, _) = self.run_chain(now, packet, slot, Direction::Original);
        match send(now, packet, verdict, edge) {
            Err(reason) | Ok(Disposition::Drop(reason)) => {
                // A connection whose first packet went nowhere never was.
                self.remove_untold(slot);
                Err(reason)
            }
            Ok(disposition) => {
                self.counters.begun += 1;
                self.changes.push(TableChange::Began { slot });
                Ok(disposition)
            }
        }
    }

    /// Enters a new connection; when the table is full, in the place of one that was never answered, if one is near.
    fn enter(&mut self, now: Instant, connection: Connection, hash: u64) -> Result<Slot, DropReason> {
        let refusal = match self.table.insert(connection, now) {
            Ok(slot) => return Ok(slot),
            Err(refusal) => refusal,
        };
        match refusal {
            InsertError::TupleInUse => Err(DropReason::TupleInUse),
            InsertError::Full => {
                let victim = self.table.early_drop_candidate(hash).ok_or(DropReason::TableFull)?;
                self.counters.early_dropped += 1;
                self.end(victim, CloseReason::Terminated);
                self.table.insert(connection, now).map_err(|_| DropReason::TableFull)
            }
        }
    }

    /// What the chain says of a packet, and whether a function changed its state.
    fn run_chain(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        slot: Slot,
        direction: Direction,
    ) -> (Verdict, bool) {
        let connection = record_mut(&mut self.table, slot);
        let mut runtime = Runtime { now, node: self.node, counters: &mut self.chain_counters, log: &mut self.log };
        let processed = self.chain.process(&mut runtime, connection, packet, direction);
        if processed.states_changed {
            connection.bump_version();
        }
        (processed.verdict, processed.states_changed)
    }

    fn note_change(&mut self, slot: Slot, change: Change, previous_state: u8) {
        self.changes.push(TableChange::Changed { slot, change, previous_state });
    }

    /// Ends a connection and leaves word of it.
    fn end(&mut self, slot: Slot, reason: CloseReason) {
        if let Some(connection) = self.remove_untold(slot) {
            self.chain.close(&connection, reason);
            self.counters.ended += 1;
            self.changes.push(TableChange::Ended { slot, ended: Ended::from(&connection) });
        }
    }

    fn remove_untold(&mut self, slot: Slot) -> Option<Connection> {
        self.table.remove(slot)
    }

    fn count_dispositions(&mut self, batch: &mut PacketBatch<'_>) {
        for frame in batch.iter_mut() {
            if frame.disposition == Disposition::Undecided {
                frame.disposition = Disposition::Drop(DropReason::Undecided);
            }
            match frame.disposition {
                Disposition::Drop(reason) => self.count_drop(reason),
                Disposition::Transmit(_) => self.counters.forwarded += 1,
                Disposition::Consumed | Disposition::Undecided => {}
            }
        }
    }
}

/// The tuple under which a packet's connection is looked up.
fn wanted(headers: &Headers) -> Tuple {
    match &headers.transport {
        // The error goes against the packet that it quotes.
        Transport::IcmpError(error) => error.inner.inverse(),
        _ => headers.tuple,
    }
}

/// The connection in a slot that a lookup has just given.
fn record(table: &Table, slot: Slot) -> &Connection {
    table.get(slot).expect("lookups give occupied slots")
}

/// As [`record`], to be changed.
fn record_mut(table: &mut Table, slot: Slot) -> &mut Connection {
    table.get_mut(slot).expect("lookups give occupied slots")
}

fn send<E: Edge>(
    now: Instant,
    packet: &mut Packet<'_, '_>,
    verdict: Verdict,
    edge: &mut E,
) -> Result<Disposition, DropReason> {
    match verdict {
        Verdict::Forward => Ok(edge.forward(now, packet)),
        Verdict::Reply => Ok(Disposition::Transmit(packet.frame.ingress)),
        Verdict::Queued => Ok(Disposition::Consumed),
        Verdict::Drop(reason) => Err(reason),
    }
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

/// Messages that concern one link and never cross a router: neighbour discovery, multicast listener reports (RFC 4861, RFC 3810).
const fn is_link_local_control(headers: &Headers) -> bool {
    matches!(headers.transport, Transport::IcmpOther(130..=137 | 143, _)) && headers.tuple.version == 6
}
