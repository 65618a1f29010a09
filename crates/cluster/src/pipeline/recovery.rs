//! Connections that only a filter remembers: what a node that has taken over does with packets of none that it knows.
//!
//! Where connections are told compactly, the table of the node that takes over is empty. What it was told lies in filters
//! beside it, which the [`Edge`] asks for one tuple at a time ([`Edge::recall`]); connections come back into the table as
//! their packets come (seed 000, section 2.1: packet-driven reconstruction).
//!
//! ```text
//!   packet of no connection
//!     │ SYN, or of a kind that no connection has ──────────────────────────► a new connection, as ever
//!     │ its source has missed too often, or the work is over budget ───────► TCP: dropped; else a new one
//!     ▼
//!   asked for as an original, then as a reply ──hit, and the rules allow it─► entered as a copy, taken over
//!     │ missed                            └─ may be a reply to several ────► TCP: those inside are asked whose it is; dropped
//!     ├─ not TCP ──────────────────────────────────────────────────────────► a new connection, if the rules allow
//!     ├─ from a trusted port (cold start) ─────────────────────────────────► entered as established
//!     ├─ sent again (intentional block) ───────────────────────────────────► entered as established
//!     ├─ from another port (cold start) ───────────────────────────────────► goes on as a keep-alive, without payload
//!     └─ else ─────────────────────────────────────────────────────────────► dropped
//! ```
//!
//! A filter answers some tuples that it never held. What that may let pass is bounded: nothing that the rules deny a
//! connection to begin with, no more connections than were told, few questions of one source, and all of it only for as
//! long as the recovery lasts. The work that strangers' packets cause is budgeted ([`work`]).

mod asking;
mod blocked;
mod counters;
mod missed;
mod work;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use flow::connection::flags;
use flow::conntrack::{ProtocolState, TcpState, UdpState, peer_flags};
use flow::source_counts::SourcePrefixes;
use flow::source_rates::SourceRates;
use flow::table::Slot;
use flow::wire::{Headers, Packet, Transport, ip_protocol, tcp_flags};
use flow::{Connection, Direction, Disposition, DropReason, Instant, NodeId, PortId, Tuple};

use self::asking::Asking;
use self::blocked::Blocked;
pub use self::counters::RecoveryCounters;
use self::work::{Admittance, TUPLES_PER_PROBE, Work};
use super::batch::wanted;
use super::{Edge, Pipeline};

/// How long filters are asked after a take-over, unless it is configured: longer than the keep-alive interval of hosts that
/// keep an idle connection (two hours, RFC 1122 section 4.2.3.6) with the retries behind it.
pub const RECOVERY_LASTS_DEFAULT: Duration = Duration::from_secs(135 * 60);
/// Questions without an answer that one source has in a second, unless it is configured.
pub const MISSES_PER_SOURCE_MAX_DEFAULT: u32 = 100;
/// Beyond what was told, so many connections may be restored: what was told after the take-over, and false hits.
const RESTORED_BEYOND: u64 = 64;

/// How a node that has taken over goes on with connections of which it was told compactly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveryConfig {
    /// How long filters are asked after a take-over; what has sent nothing by then is forgotten.
    pub lasts: Duration,
    /// Tuples that no filter names, a second and source: beyond it, the source's packets are not asked for.
    pub misses_per_source_max: u32,
    /// *TCP cold start* (seed 000, section 2.1.2): connections that no filter names go on at once if a segment comes from one of
    /// these ports, behind which hosts are trusted. A segment from another port goes on as a keep-alive, which shows whether
    /// the trusted host knows the connection. Empty: no cold start.
    pub cold_start: Vec<PortId>,
    /// *Intentional block* (seed 000, section 2.1.2): a segment that no filter names is dropped, and passes if it is sent again.
    pub blocks: bool,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self {
            lasts: RECOVERY_LASTS_DEFAULT,
            misses_per_source_max: MISSES_PER_SOURCE_MAX_DEFAULT,
            cold_start: Vec::new(),
            blocks: false,
        }
    }
}

/// What a filter of another node remembers of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recalled {
    /// The node that told of it.
    pub owner: NodeId,
    /// Where its automaton stands, with the record's [`flags`]; `None` where no more was told than that it is there.
    pub state: Option<(ProtocolState, u8)>,
    /// The filter holds pairs of hosts. It holds no translated connection: those are replicated as records.
    pub is_of_hosts: bool,
}

/// A recovery that is under way.
pub(super) struct Recovery {
    config: RecoveryConfig,
    until: Instant,
    /// Connections that were told, at most.
    told: u64,
    /// Connections that this recovery restored.
    restored: u64,
    misses: SourceRates,
    blocked: Blocked,
    asking: Asking,
    work: Work,
    /// Room for the tuples that a reply may belong to,
    originals: Vec<Tuple>,
    /// and those of them that a filter names.
    recalled: Vec<(Tuple, Recalled)>,
}

impl Recovery {
    /// Connections that no filter names may come back.
    const fn makes_good(&self) -> bool {
        self.config.blocks || !self.config.cold_start.is_empty()
    }

    /// As many connections came back as were told, and a few more.
    const fn is_used_up(&self) -> bool {
        self.restored >= self.told + self.told / RESTORED_BEYOND + RESTORED_BEYOND
    }
}

/// What became of a packet that no connection in the table has.
pub(super) enum Recollection {
    /// Its connection is in the table now.
    Known(Slot, Direction),
    /// What becomes of any such packet.
    Unknown,
    /// It has been dealt with.
    Done(Result<Disposition, DropReason>),
}

impl Pipeline {
    /// From `now` on packets of no connection are asked for. `entries` is how many connections were told. One that is under way
    /// goes on, for as long again; whether it was not is returned.
    pub fn begin_recovery(&mut self, now: Instant, config: &RecoveryConfig, entries: u64) -> bool {
        let until = now + config.lasts;
        if let Some(recovery) = &mut self.recovery {
            (recovery.until, recovery.told, recovery.restored) = (until, entries, 0);
            return false;
        }
        let misses = SourceRates::new(self.key, SourcePrefixes::default(), config.misses_per_source_max);
        self.recovery_counters.begun += 1;
        self.recovery = Some(Box::new(Recovery {
            config: config.clone(),
            until,
            told: entries,
            restored: 0,
            misses,
            blocked: Blocked::default(),
            asking: Asking::default(),
            work: Work::new(self.key, config.misses_per_source_max),
            originals: Vec::new(),
            recalled: Vec::new(),
        }));
        true
    }

    /// So many connections have been told by now; whoever left in good order may go on telling.
    pub fn note_told_entries(&mut self, entries: u64) {
        if let Some(recovery) = &mut self.recovery {
            recovery.told = recovery.told.max(entries);
        }
    }

    /// Whether packets of no connection are asked for.
    #[must_use]
    pub const fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    /// When the recovery ends, if one is under way.
    #[must_use]
    pub fn recovery_ends_at(&self) -> Option<Instant> {
        self.recovery.as_ref().map(|recovery| recovery.until)
    }

    /// Ends the recovery if its time is over, or nothing is left that could come back.
    pub fn end_recovery_if_over(&mut self, now: Instant) {
        let Some(recovery) = &self.recovery else { return };
        let is_used_up = recovery.is_used_up() && !recovery.makes_good();
        if is_used_up || recovery.until <= now {
            self.recovery_counters.used_up += u64::from(is_used_up);
            self.recovery = None;
        }
    }

    /// Nobody is asked any more.
    pub fn end_recovery(&mut self) {
        self.recovery = None;
    }

    /// What was counted of recoveries.
    #[must_use]
    pub const fn recovery_counters(&self) -> RecoveryCounters {
        self.recovery_counters
    }

    /// Looks for a packet's connection in what other nodes told, and enters it if it is there.
    #[cold]
    pub(super) fn recollect<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        is_local: bool,
        edge: &mut E,
    ) -> Recollection {
        if !may_be_remembered(packet.headers, is_local) {
            return Recollection::Unknown;
        }
        let Some(mut recovery) = self.recovery.take().filter(|recovery| now < recovery.until) else {
            return Recollection::Unknown;
        };
        let recollection = self.ask(now, &mut recovery, packet, edge);
        self.recovery = Some(recovery);
        recollection
    }

    fn ask<E: Edge>(
        &mut self,
        now: Instant,
        recovery: &mut Recovery,
        packet: &mut Packet<'_, '_>,
        edge: &mut E,
    ) -> Recollection {
        let (source, wanted) = (packet.headers.tuple, wanted(packet.headers));
        let is_tcp = matches!(packet.headers.transport, Transport::Tcp(_));
        if self.is_denial(recovery, packet) {
            self.recovery_counters.denials += 1;
            return Recollection::Done(Err(DropReason::RecoveryDenial));
        }
        let unasked = |reason| if is_tcp { Recollection::Done(Err(reason)) } else { Recollection::Unknown };
        if !recovery.misses.may_begin(now, &source) {
            self.recovery_counters.unasked += 1;
            return unasked(DropReason::RecoverySourceLimit);
        }
        let ingress = packet.frame.ingress;
        recovery.originals.clear();
        let mut found = None;
        if !recovery.is_used_up()
            && let Some(recalled) = self.recall(edge, &wanted, Some(ingress))
        {
            found = self.enter_recalled(now, recovery, wanted, Some(ingress), recalled, &wanted);
        }
        if found.is_none() && (!recovery.is_used_up() || recovery.makes_good()) {
            match recovery.work.admit(now, &source) {
                Admittance::Admitted => found = self.ask_for_originals(now, recovery, packet, &wanted, edge),
                Admittance::SourceOverdrawn => {
                    self.recovery_counters.unasked += 1;
                    return unasked(DropReason::RecoverySourceLimit);
                }
                Admittance::Overdrawn => {
                    self.recovery_counters.over_budget += 1;
                    return unasked(DropReason::RecoveryWorkLimit);
                }
            }
        }
        if let Some(found) = found {
            // An ambiguous match is charged as work; what finds no room is a miss like others.
            let is_refused =
                matches!(found, Recollection::Done(Err(reason)) if reason != DropReason::RecoveryAmbiguous);
            if is_refused {
                recovery.misses.note_begun(now, &source);
            }
            return found;
        }
        self.recovery_counters.missed += 1;
        recovery.misses.note_begun(now, &source);
        if is_tcp { self.make_good(now, recovery, packet, edge) } else { Recollection::Unknown }
    }

    /// Looks for the connections that a packet may be an answer to. The work is charged, unless it restores one of them.
    fn ask_for_originals<E: Edge>(
        &mut self,
        now: Instant,
        recovery: &mut Recovery,
        packet: &mut Packet<'_, '_>,
        wanted: &Tuple,
        edge: &mut E,
    ) -> Option<Recollection> {
        let source = packet.headers.tuple;
        let mut tuples = self.chain.originals_of(wanted, &mut recovery.originals);
        let mut found = None;
        if !recovery.is_used_up() {
            tuples += self.recall_originals(recovery, edge);
            found = match recovery.recalled[..] {
                [] => None,
                [(original, recalled)] => self.enter_recalled(now, recovery, original, None, recalled, wanted),
                _ => {
                    tuples += TUPLES_PER_PROBE * self.ask_those_inside(now, recovery, packet, edge);
                    Some(Recollection::Done(Err(DropReason::RecoveryAmbiguous)))
                }
            };
        }
        self.recovery_counters.tuples += tuples as u64;
        if !matches!(found, Some(Recollection::Known(..))) {
            recovery.work.charge(now, &source, tuples);
        }
        found
    }

    fn recall<E: Edge>(&self, edge: &E, original: &Tuple, ingress: Option<PortId>) -> Option<Recalled> {
        let recalled = self.lies_here(original).then(|| edge.recall(original)).flatten()?;
        self.may_stand_for(&recalled, original, ingress).then_some(recalled)
    }

    /// Whether the answer of a filter may stand for the connection that began with `original`. A pair of hosts never stands for
    /// a translated connection: the same two hosts may have others that are not translated, or translated another way, and a
    /// packet under the wrong translation is reset by the host that receives it.
    pub(crate) fn may_stand_for(&self, recalled: &Recalled, original: &Tuple, ingress: Option<PortId>) -> bool {
        let is_translated = || {
            let restored = self.chain.restore(original, ingress);
            restored.is_some_and(|restored| restored.reply != original.inverse())
        };
        !recalled.is_of_hosts || !is_translated()
    }

    /// Notes which of the tuples that a reply may belong to are named by a filter. Returns how many were looked for.
    fn recall_originals<E: Edge>(&self, recovery: &mut Recovery, edge: &E) -> usize {
        let Recovery { originals, recalled, .. } = recovery;
        recalled.clear();
        let named = originals.iter().filter_map(|original| Some((*original, self.recall(edge, original, None)?)));
        recalled.extend(named);
        originals.len()
    }

    /// Enters a connection that a filter names, for a packet that is looked up as `wanted`. `None`: there is no such connection
    /// by the rules.
    fn enter_recalled(
        &mut self,
        now: Instant,
        recovery: &mut Recovery,
        original: Tuple,
        ingress: Option<PortId>,
        recalled: Recalled,
        wanted: &Tuple,
    ) -> Option<Recollection> {
        match self.restore(now, original, ingress, recalled) {
            Ok(Some(())) => {
                recovery.restored += 1;
                self.recovery_counters.restored += 1;
                Some(self.known_by(wanted))
            }
            Ok(None) => None,
            Err(reason) => Some(Recollection::Done(Err(reason))),
        }
    }

    /// What stands for a tuple: another number for its inverse, of which the table's hash is the same.
    fn name_of(&self, tuple: &Tuple) -> u64 {
        let is_reversed = (tuple.source, tuple.source_port) > (tuple.destination, tuple.destination_port);
        self.table.hash(tuple) ^ u64::from(is_reversed)
    }

    /// Counts a reset that is the first word of its end point on a connection of which the other has been heard here.
    #[cold]
    pub(super) fn note_if_disowned(&mut self, packet: &Packet<'_, '_>, slot: Slot, direction: Direction) {
        let is_reset = matches!(packet.headers.transport, Transport::Tcp(segment) if segment.has(tcp_flags::RST));
        let Some(connection) = self.table.get(slot).filter(|_| is_reset) else { return };
        let is_first_word =
            connection.packets[direction.index()] == 0 && connection.packets[direction.reverse().index()] > 0;
        // One that begins here and is refused has never been assured.
        self.recovery_counters.disowned += u64::from(is_first_word && connection.flags & flags::ASSURED != 0);
    }

    /// The connection is this worker's share.
    fn lies_here(&self, original: &Tuple) -> bool {
        let place = self.shard.place();
        place.is_alone() || place.steering.worker_of_tuple(original) == place.worker
    }

    fn known_by(&self, wanted: &Tuple) -> Recollection {
        self.lookup(wanted).map_or(Recollection::Unknown, |(slot, direction)| Recollection::Known(slot, direction))
    }

    /// Enters a connection as a copy of `recalled.owner`'s, to be taken over by the packet that it was asked for. `None`: the
    /// rules would not let it begin, or its translation is another's.
    ///
    /// # Errors
    /// There is no room.
    fn restore(
        &mut self,
        now: Instant,
        original: Tuple,
        ingress: Option<PortId>,
        recalled: Recalled,
    ) -> Result<Option<()>, DropReason> {
        let Some(restored) = self.chain.restore(&original, ingress) else {
            self.recovery_counters.denied += 1;
            return Ok(None);
        };
        let (protocol, told) = recalled.state.unwrap_or_else(|| assumed_state(original.protocol));
        let told = told & (flags::REPLIED | flags::ASSURED);
        let timeout = self.tracker.timeout(original.protocol, &protocol, told);
        let mut copy = Connection::new(original, recalled.owner, protocol, now + timeout);
        copy.version = self.first_version(&original);
        copy.flags = told | flags::COPY;
        (copy.reply, copy.functions) = (restored.reply, restored.functions);
        match self.enter(now, copy, self.table.hash(&original)) {
            Ok(_) => Ok(Some(())),
            Err(DropReason::TupleInUse) => {
                self.recovery_counters.conflicts += 1;
                Ok(None)
            }
            Err(reason) => Err(reason),
        }
    }
}

/// Whether a packet may be of a connection that began elsewhere. What begins one is let begin.
fn may_be_remembered(headers: &Headers, is_local: bool) -> bool {
    match &headers.transport {
        Transport::Tcp(segment) => !segment.has(tcp_flags::SYN) || segment.has(tcp_flags::ACK),
        Transport::Sctp(packet) => !packet.has(flow::wire::sctp::chunk::INIT),
        Transport::Udp | Transport::Other | Transport::IcmpError(_) => true,
        Transport::IcmpQuery(_) => !is_local || headers.tuple.discriminator & flow::key::QUERY_REPLY != 0,
        Transport::IcmpOther(..) => false,
    }
}

/// What is assumed of a connection of which no more is known than that it is there: that both sides have agreed to talk.
fn assumed_state(protocol: u8) -> (ProtocolState, u8) {
    let mut state = ProtocolState::default();
    match protocol {
        ip_protocol::TCP => {
            state.state = TcpState::Established as u8;
            // The window scales are unknown, so windows cannot be reckoned.
            state.peers.iter_mut().for_each(|peer| peer.flags = peer_flags::SACK_PERMITTED | peer_flags::LIBERAL);
            (state, flags::REPLIED | flags::ASSURED)
        }
        ip_protocol::UDP => {
            state.state = UdpState::Replied as u8;
            (state, flags::REPLIED)
        }
        _ => (state, flags::REPLIED),
    }
}
