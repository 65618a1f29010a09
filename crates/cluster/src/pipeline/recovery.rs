//! Connections that only a filter remembers: what a node that has taken over does with packets of none that it knows.
//!
//! With compact replication, the table of the node that takes over is empty. The peers' connections lie in filters beside it,
//! which the [`Edge`] asks for one tuple at a time ([`Edge::recovery_lookup`]). Connections are restored into the table when
//! their packets come (MLCBF, section 2.1: packet-driven reconstruction).
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
//! A filter matches some tuples that it never held. What that may let pass is bounded: nothing that the rules deny a connection
//! to begin with, no more connections than were replicated, few questions of one source, and all of it only for as long as the
//! recovery lasts. The work that strangers' packets cause is budgeted ([`work`]).

mod asking;
mod blocked;
mod context;
mod counters;
mod keep_alive;
mod missed;
mod outcome;
mod work;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use flow::connection::flags;
use flow::source_counts::SourcePrefixes;
use flow::source_rates::SourceRates;
use flow::wire::{Headers, Packet, Transport, tcp_flags};
use flow::{Connection, Direction, DropReason, HashKey, Instant, PortId, Tuple};

use self::asking::{Asking, is_of_open_connection};
use self::blocked::Blocked;
use self::context::Context;
pub use self::counters::RecoveryCounters;
pub(super) use self::outcome::RecoveryOutcome;
use self::work::{TUPLES_PER_PROBE, Work};
use super::arrival::{Arrival, wanted};
use super::connections::Connections;
use super::edge::{Edge, FilterMatch};

/// How long filters are asked after a take-over, unless it is configured: longer than the keep-alive interval of hosts that
/// keep an idle connection (two hours, RFC 1122 section 4.2.3.6) with the retries behind it.
pub const RECOVERY_LASTS_DEFAULT: Duration = Duration::from_secs(135 * 60);
/// Questions without an answer that one source has in a second, unless it is configured.
pub const MISSES_PER_SOURCE_MAX_DEFAULT: u32 = 100;
/// So many more connections may be restored than were replicated: those replicated after the take-over, and false positives.
const RESTORED_BEYOND: u64 = 64;

/// How a node that has taken over goes on with connections of compact replication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveryConfig {
    /// How long filters are asked after a take-over; what has sent nothing by then is forgotten.
    pub lasts: Duration,
    /// Tuples that no filter names, a second and source: beyond it, the source's packets are not asked for.
    pub misses_per_source_max: u32,
    /// *TCP cold start* (MLCBF, section 2.1.2): connections that no filter names go on at once if a segment comes from one of
    /// these ports, behind which hosts are trusted. A segment from another port goes on as a keep-alive, which shows whether
    /// the trusted host knows the connection. Empty: no cold start.
    pub cold_start: Vec<PortId>,
    /// *Intentional block* (MLCBF, section 2.1.2): a segment that no filter names is dropped, and passes if it is sent again.
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

/// Recoveries, of which one may be running.
pub struct Recovery {
    key: HashKey,
    counters: RecoveryCounters,
    current: Option<Box<Current>>,
}

impl Recovery {
    pub(super) fn new(key: HashKey) -> Self {
        Self { key, counters: RecoveryCounters::default(), current: None }
    }

    /// From `now` on packets of no connection are looked for in filters. `entries` is how many connections were replicated. A
    /// running recovery goes on, for as long again; returns whether none was running.
    pub fn begin(&mut self, now: Instant, config: &RecoveryConfig, entries: u64) -> bool {
        let until = now + config.lasts;
        if let Some(current) = &mut self.current {
            (current.until, current.replicated_max, current.restored) = (until, entries, 0);
            return false;
        }
        self.counters.begun += 1;
        self.current = Some(Box::new(Current {
            config: config.clone(),
            until,
            replicated_max: entries,
            restored: 0,
            misses: SourceRates::new(self.key, SourcePrefixes::default(), config.misses_per_source_max),
            blocked: Blocked::default(),
            asking: Asking::default(),
            work: Work::new(self.key, config.misses_per_source_max),
            originals: Vec::new(),
            filter_match: Vec::new(),
        }));
        true
    }

    /// So many connections have been replicated by now; a peer that left in good order may go on replicating.
    pub fn note_entries(&mut self, entries: u64) {
        if let Some(current) = &mut self.current {
            current.replicated_max = current.replicated_max.max(entries);
        }
    }

    /// Whether packets of no connection are looked for in filters.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.current.is_some()
    }

    /// When the running recovery ends, if there is one.
    #[must_use]
    pub fn ends_at(&self) -> Option<Instant> {
        self.current.as_ref().map(|current| current.until)
    }

    /// Ends the recovery if its time is over, or nothing is left that could come back.
    pub fn end_if_over(&mut self, now: Instant) {
        let Some(current) = &self.current else { return };
        let is_used_up = current.is_used_up() && !current.admits_unnamed();
        if is_used_up || current.until <= now {
            self.counters.used_up += u64::from(is_used_up);
            self.current = None;
        }
    }

    /// Filters are not asked any more.
    pub fn end(&mut self) {
        self.current = None;
    }

    /// What was counted of all recoveries.
    #[must_use]
    pub const fn counters(&self) -> RecoveryCounters {
        self.counters
    }

    /// Looks for a packet's connection in the filters of other nodes, and enters it if it is there.
    #[cold]
    pub(super) fn look_up<E: Edge>(
        &mut self,
        connections: &mut Connections,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        edge: &mut E,
    ) -> RecoveryOutcome {
        if !may_have_begun_elsewhere(packet.headers, arrival.is_local) {
            return RecoveryOutcome::Unknown;
        }
        if self.ends_at().is_some_and(|until| until <= arrival.now) {
            self.current = None;
        }
        let Some(current) = self.current.as_deref_mut() else { return RecoveryOutcome::Unknown };
        let is_steering = arrival.origin.is_steering;
        let mut context = Context { connections, counters: &mut self.counters, now: arrival.now, is_steering };
        current.look_up(&mut context, packet, edge)
    }

    /// Looks for the connection of a packet that another worker has handed over, because it may be an answer to a connection of this one.
    #[cold]
    pub(super) fn look_up_handed<E: Edge>(
        &mut self,
        connections: &mut Connections,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        edge: &mut E,
    ) -> RecoveryOutcome {
        let mut context = Context { connections, counters: &mut self.counters, now: arrival.now, is_steering: false };
        let is_ours = context.lies_here(&wanted(packet.headers));
        match self.current.as_deref_mut() {
            Some(current) if !is_ours && may_have_begun_elsewhere(packet.headers, arrival.is_local) => {
                current.look_up_handed(&mut context, packet, edge)
            }
            _ => RecoveryOutcome::Unknown,
        }
    }

    /// Counts a reset that is the first packet of its end point on a connection of which the other's packets have come here.
    #[cold]
    pub(super) fn count_if_disowned(&mut self, connection: &Connection, headers: &Headers, direction: Direction) {
        let is_reset = matches!(headers.transport, Transport::Tcp(segment) if segment.has(tcp_flags::RST));
        let is_first =
            connection.packets[direction.index()] == 0 && connection.packets[direction.reverse().index()] > 0;
        // One that begins here and is refused has never been assured.
        let is_disowned = is_reset && is_first && connection.flags & flags::ASSURED != 0;
        self.counters.disowned += u64::from(is_disowned);
    }
}

/// A running recovery.
struct Current {
    config: RecoveryConfig,
    until: Instant,
    /// Connections that were replicated, at most.
    replicated_max: u64,
    /// Connections that this recovery restored.
    restored: u64,
    misses: SourceRates,
    blocked: Blocked,
    asking: Asking,
    work: Work,
    /// Room for the tuples that a reply may belong to,
    originals: Vec<Tuple>,
    /// and those of them that a filter names.
    filter_match: Vec<(Tuple, FilterMatch)>,
}

impl Current {
    /// Connections that no filter names may come back.
    const fn admits_unnamed(&self) -> bool {
        self.config.blocks || !self.config.cold_start.is_empty()
    }

    /// As many connections were restored as were replicated, and a few more.
    const fn is_used_up(&self) -> bool {
        self.restored >= self.replicated_max + self.replicated_max / RESTORED_BEYOND + RESTORED_BEYOND
    }

    fn look_up<E: Edge>(
        &mut self,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        edge: &mut E,
    ) -> RecoveryOutcome {
        let (source, wanted, now) = (packet.headers.tuple, wanted(packet.headers), context.now);
        let is_tcp = matches!(packet.headers.transport, Transport::Tcp(_));
        if self.asking.is_denial(context.connections, packet) {
            context.counters.denials += 1;
            return RecoveryOutcome::Dropped(DropReason::RecoveryDenial);
        }
        let refused = |reason| if is_tcp { RecoveryOutcome::Dropped(reason) } else { RecoveryOutcome::Unknown };
        // Once the common budget is overdrawn, the limit of the packet's own source no longer matters.
        let is_overdrawn = self.work.is_overdrawn(now);
        if !is_overdrawn && !self.misses.may_begin(now, &source) {
            context.counters.unasked += 1;
            return refused(DropReason::RecoverySourceLimit);
        }
        let ingress = Some(packet.frame.ingress);
        self.originals.clear();
        let mut found = None;
        if !self.is_used_up()
            && let Some(filter_match) = context.recovery_lookup(edge, &wanted, ingress)
        {
            found = self.restore(context, (wanted, ingress, filter_match), &wanted);
        }
        if found.is_none() && (!self.is_used_up() || self.admits_unnamed()) {
            if is_overdrawn {
                context.counters.over_budget += 1;
                return refused(DropReason::RecoveryWorkLimit);
            }
            if !self.work.admits(now, &source) {
                context.counters.unasked += 1;
                return refused(DropReason::RecoverySourceLimit);
            }
            found = self.look_up_originals(context, packet, edge);
        }
        if let Some(found) = found {
            // An ambiguous match is charged as work; what finds no room is a miss like others.
            if matches!(found, RecoveryOutcome::Dropped(reason) if reason != DropReason::RecoveryAmbiguous) {
                self.misses.note_begun(now, &source);
            }
            return found;
        }
        context.counters.missed += 1;
        self.misses.note_begun(now, &source);
        if is_tcp { self.handle_unnamed(context, packet) } else { RecoveryOutcome::Unknown }
    }

    /// As [`Current::look_up`], for a packet of another worker's.
    fn look_up_handed<E: Edge>(
        &mut self,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        edge: &mut E,
    ) -> RecoveryOutcome {
        let (source, now) = (packet.headers.tuple, context.now);
        if self.work.is_overdrawn(now) {
            context.counters.over_budget += 1;
            return RecoveryOutcome::Dropped(DropReason::RecoveryWorkLimit);
        }
        if !self.work.admits(now, &source) {
            context.counters.unasked += 1;
            return RecoveryOutcome::Dropped(DropReason::RecoverySourceLimit);
        }
        self.originals.clear();
        self.look_up_originals(context, packet, edge).unwrap_or(RecoveryOutcome::Unknown)
    }

    /// Looks for the connections that a packet may be an answer to. The work is charged, unless it restores one of them.
    fn look_up_originals<E: Edge>(
        &mut self,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        edge: &mut E,
    ) -> Option<RecoveryOutcome> {
        let (source, wanted) = (packet.headers.tuple, wanted(packet.headers));
        let mut tuples = context.connections.functions.chain.originals_of(&wanted, &mut self.originals);
        let (mut found, elsewhere) = (None, context.workers_of(&self.originals));
        // The only one that it may be an answer to is restored where it lies; else the end points are asked.
        let is_asked_elsewhere = self.originals.len() == 1 || is_of_open_connection(packet);
        if context.is_steering && is_asked_elsewhere && !elsewhere.is_empty() {
            tuples += TUPLES_PER_PROBE * context.connections.shard.hands_copies(elsewhere, packet.frame);
            found = Some(RecoveryOutcome::HandedOver);
        }
        if !self.is_used_up() {
            self.filter_match.clear();
            let named = |original: &Tuple| Some((*original, context.recovery_lookup(edge, original, None)?));
            self.filter_match.extend(self.originals.iter().filter_map(named));
            tuples += self.originals.len();
            found = match self.filter_match[..] {
                [] => found,
                // Another worker may have the connection that the packet is an answer to.
                [(original, filter_match)] if elsewhere.is_empty() => {
                    self.restore(context, (original, None, filter_match), &wanted)
                }
                _ => {
                    tuples += TUPLES_PER_PROBE * self.asking.ask(context, packet, &self.filter_match, edge);
                    Some(RecoveryOutcome::Dropped(DropReason::RecoveryAmbiguous))
                }
            };
        }
        context.counters.tuples += tuples as u64;
        if !matches!(found, Some(RecoveryOutcome::Known(..))) {
            self.work.charge(context.now, &source, tuples);
        }
        found
    }

    /// Restores a connection that a filter names, for a packet that is looked up as `wanted`. `None`: there is no such
    /// connection by the rules.
    fn restore(
        &mut self,
        context: &mut Context<'_>,
        named: (Tuple, Option<PortId>, FilterMatch),
        wanted: &Tuple,
    ) -> Option<RecoveryOutcome> {
        let found = context.restore(named, wanted)?;
        if !matches!(found, RecoveryOutcome::Dropped(_)) {
            self.restored += 1;
            context.counters.restored += 1;
        }
        Some(found)
    }
}

/// Whether a packet may be of a connection that began elsewhere. What begins one is let begin.
fn may_have_begun_elsewhere(headers: &Headers, is_local: bool) -> bool {
    match &headers.transport {
        Transport::Tcp(segment) => !segment.has(tcp_flags::SYN) || segment.has(tcp_flags::ACK),
        Transport::Sctp(packet) => !packet.has(flow::wire::sctp::chunk::INIT),
        Transport::Udp | Transport::Other | Transport::IcmpError(_) => true,
        Transport::IcmpQuery(_) => !is_local || headers.tuple.discriminator & flow::key::QUERY_REPLY != 0,
        Transport::IcmpOther(..) => false,
    }
}
