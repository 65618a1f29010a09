//! Connections whose packets reach more than one living node.
//!
//! Where several nodes forward at once, the two directions of a connection may come by two of them, each of which has the
//! connection's record: one as its master, the other as a copy. A packet of such a copy is handled as a **guest**, by the copy,
//! without a word to the master, unless it changes something that the master must know.
//!
//! ```text
//!              node a                                   node b
//!   SYN ──────► begins: SYN_SENT, master a ── told ────► copy
//!                                                        copy, SYN_RECV: master b ◄────── SYN/ACK
//!               copy ◄──────────────────── told ─────────┘
//!   ACK ──────► lost to b a moment ago and still here:
//!               shared, ESTABLISHED: master a ── told ──► copy, shared
//!   data ─────► master's                                 guest ◄───────────────────────── data
//!                                            ◄── told ── every quarter of the timeout: master b, so that it does not expire
//! ```
//!
//! A connection that merely moves, all of whose packets come to the other node from then on, is taken over as ever, and its
//! windows are learnt afresh and held against its segments. It is marked [shared](flags::SHARED) when a packet comes to the node
//! that has just lost it. Who is alone takes the mark off.
//!
//! What could be judged only with what the peer is about to tell [waits](super::waiting) a little.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use flow::connection::flags;
use flow::table::Slot;
use flow::wire::ip_protocol;
use flow::{Connection, HashKey, Instant, NodeId, conntrack};
use network_functions::chain::{Chain, ChainCounters};
use network_functions::log::Log;

use super::waiting::Waiting;
use super::{Pipeline, TableChange, record, record_mut};

/// How long a packet waits for what a peer is about to tell, unless it is configured: several times what a message takes on a
/// link between neighbours, lost ones and their repetition included, and less than what an end point notices.
pub const WAIT_FOR_PEER_DEFAULT: Duration = Duration::from_millis(20);
/// A packet that comes so soon after its connection was lost to a living peer shows that both nodes get packets of it.
const SHARED_WITHIN: Duration = Duration::from_secs(10);
/// A guest speaks up after this part of the state's timeout: early enough for the word to be lost and repeated.
const RENEWALS_PER_TIMEOUT: u32 = 4;
/// A guest speaks up at most this often, however short timeouts are.
const RENEWAL_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// A connection of which a packet was forwarded within this time lives, whatever its master's timer says.
const RECENT_MAX: Duration = Duration::from_secs(30);

/// How connections whose packets reach several nodes are dealt with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharingConfig {
    /// How long at most a packet that cannot be judged waits for what a peer tells; zero: not at all.
    pub wait_for_peer: Duration,
}

impl Default for SharingConfig {
    fn default() -> Self {
        Self { wait_for_peer: WAIT_FOR_PEER_DEFAULT }
    }
}

/// What a pipeline counts of shared connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SharingCounters {
    /// Packets handled by the copy of a living peer's connection.
    pub guest_packets: u64,
    /// Connections found to reach two living nodes.
    pub shared: u64,
    /// Times that this node became master only to show that the connection lives.
    pub renewed: u64,
    /// Ends by timeout that a peer told of connections that live here.
    pub ends_refused: u64,
    /// Packets that waited for what a peer was about to tell.
    pub held: u64,
    /// Of those, the ones that went on because a peer told of their connection.
    pub helped: u64,
    /// Of those, the ones judged without it because their time was over.
    pub overdue: u64,
    /// Packets that would have waited, had there been room.
    pub no_room: u64,
}

/// What is remembered of a connection of which packets come to two nodes. Times are milliseconds of [`Instant`], modulo 2^32;
/// 0 is never.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// When another node last told of it, or this one told of it as its new master.
    word_ms: u32,
    /// When this node ceased to be its master.
    lost_ms: u32,
    /// When a packet was forwarded here as a guest's.
    forwarded_ms: u32,
}

fn milliseconds(now: Instant) -> u32 {
    ((now.as_nanos() / 1_000_000) as u32).max(1)
}

/// The time since `then_ms`, if that ever was.
fn since(now: Instant, then_ms: u32) -> Option<Duration> {
    (then_ms != 0).then(|| Duration::from_millis(milliseconds(now).wrapping_sub(then_ms).into()))
}

/// A chain's counters and log for trying what it would say.
pub(super) struct Rehearsal {
    pub(super) counters: ChainCounters,
    pub(super) log: Log,
}

impl Rehearsal {
    pub(super) fn new(chain: &Chain) -> Self {
        let mut log = Log::default();
        log.set_limit(Some(0));
        Self { counters: chain.new_counters(), log }
    }
}

/// What a pipeline keeps while several nodes forward.
pub(super) struct Sharing {
    /// Nodes that live and hear what this one tells.
    pub(super) living: Vec<NodeId>,
    pub(super) waiting: Waiting,
    pub(super) rehearsal: Rehearsal,
    pub(super) counters: SharingCounters,
    /// By slot.
    marks: Vec<Mark>,
}

/// What another node's word of a connection means here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// It replaces what was known.
    Counts,
    /// It counts, and lacks something that is known here and must be told.
    LacksSomething,
}

impl Sharing {
    fn new(config: SharingConfig, connections_max: u32, key: HashKey, chain: &Chain) -> Self {
        Self {
            living: Vec::new(),
            waiting: Waiting::new(config.wait_for_peer, key),
            rehearsal: Rehearsal::new(chain),
            counters: SharingCounters::default(),
            marks: vec![Mark::default(); connections_max as usize],
        }
    }

    fn mark_mut(&mut self, slot: Slot) -> &mut Mark {
        &mut self.marks[slot.0 as usize]
    }

    /// This node is not the connection's master any more, but was a moment ago.
    pub(super) fn was_just_lost(&self, now: Instant, slot: Slot) -> bool {
        since(now, self.marks[slot.0 as usize].lost_ms).is_some_and(|since| since <= SHARED_WITHIN)
    }

    /// A packet is forwarded as a guest's. True if it is time to show the master that the connection lives, which has
    /// `timeout` in its state.
    pub(super) fn note_forwarded(&mut self, now: Instant, slot: Slot, timeout: Duration) -> bool {
        self.counters.guest_packets += 1;
        let mark = self.mark_mut(slot);
        mark.forwarded_ms = milliseconds(now);
        let interval = (timeout / RENEWALS_PER_TIMEOUT).max(RENEWAL_INTERVAL_MIN);
        since(now, mark.word_ms).is_none_or(|since| since >= interval)
    }

    fn was_just_forwarded(&self, now: Instant, slot: Slot, timeout: Duration) -> bool {
        let recent = (timeout / RENEWALS_PER_TIMEOUT).min(RECENT_MAX);
        since(now, self.marks[slot.0 as usize].forwarded_ms).is_some_and(|since| since < recent)
    }

    pub(super) fn note_word(&mut self, now: Instant, slot: Slot) {
        self.mark_mut(slot).word_ms = milliseconds(now);
    }
}

impl Pipeline {
    /// The same pipeline, for a node beside which others forward.
    #[must_use]
    pub fn with_sharing(mut self, config: SharingConfig) -> Self {
        self.sharing = Some(Sharing::new(config, self.table.capacity(), self.key, &self.chain).into());
        self
    }

    /// Whether other nodes forward beside this one.
    #[must_use]
    pub const fn is_sharing(&self) -> bool {
        self.sharing.is_some()
    }

    /// Packets that cannot be judged wait so long at most from now on.
    pub fn set_wait_for_peer(&mut self, wait_for_peer: Duration) {
        if let Some(sharing) = &mut self.sharing {
            sharing.waiting.wait_max = wait_for_peer;
        }
    }

    /// Says which nodes live and hear what this one tells: their connections are theirs.
    pub fn set_living(&mut self, living: impl Iterator<Item = NodeId>) {
        if let Some(sharing) = &mut self.sharing {
            sharing.living.clear();
            sharing.living.extend(living);
        }
    }

    /// What was counted of shared connections; all zero while nobody forwards beside this node.
    #[must_use]
    pub fn sharing_counters(&self) -> SharingCounters {
        self.sharing.as_ref().map_or_else(SharingCounters::default, |sharing| sharing.counters)
    }

    /// The connection's master is another node, which lives and forwards: nobody else speaks for it.
    #[must_use]
    pub fn is_in_living_hands(&self, connection: &Connection) -> bool {
        self.sharing.as_ref().is_some_and(|sharing| sharing.living.contains(&connection.owner))
    }

    /// A slot has another connection.
    pub(super) fn begin_mark(&mut self, now: Instant, slot: Slot) {
        if let Some(sharing) = &mut self.sharing {
            *sharing.mark_mut(slot) = Mark { word_ms: milliseconds(now), ..Mark::default() };
        }
    }

    /// Another node's word, `told`, is about to take the place of the record in a slot.
    pub(super) fn weigh_word(&mut self, now: Instant, from: NodeId, slot: Slot, told: &mut Connection) -> Word {
        let Some(sharing) = &mut self.sharing else { return Word::Counts };
        let known = record(&self.table, slot);
        sharing.note_word(now, slot);
        if known.owner == self.node {
            sharing.mark_mut(slot).lost_ms = milliseconds(now);
        }
        // Two nodes that each saw something become masters at once: the word of one prevails, and must not hide what the
        // other saw. A later connection with the same tuple is further on than by one master, or its master's before.
        let masters_between = (told.version >> 16).wrapping_sub(known.version >> 16) as u16;
        let is_same = from != known.owner && masters_between <= 1;
        if is_same && conntrack::merge(told.original.protocol, &mut told.protocol, &known.protocol) {
            told.flags |= flags::SHARED | known.flags & (flags::REPLIED | flags::ASSURED);
            return Word::LacksSomething;
        }
        Word::Counts
    }

    /// This node becomes master of a connection that it knows as well as its former master did, and says so.
    pub(super) fn take_over_shared(&mut self, now: Instant, slot: Slot) {
        let connection = record_mut(&mut self.table, slot);
        connection.flags &= !flags::COPY;
        connection.take_over(self.node);
        if let Some(sharing) = &mut self.sharing {
            sharing.note_word(now, slot);
        }
    }

    /// The master's timer has run out for a connection of which a packet was forwarded here a moment ago: it lives, and this
    /// node is its master now. True if so.
    pub fn refuse_end(&mut self, now: Instant, from: NodeId, original: &flow::Tuple) -> bool {
        let Some((slot, flow::Direction::Original)) = self.lookup(original) else { return false };
        let connection = record(&self.table, slot);
        if connection.owner != from || conntrack::is_closing(original.protocol, &connection.protocol) {
            return false;
        }
        let timeout = self.tracker.timeout(original.protocol, &connection.protocol, connection.flags);
        let Some(sharing) = &mut self.sharing else { return false };
        if !sharing.was_just_forwarded(now, slot, timeout) {
            return false;
        }
        sharing.counters.ends_refused += 1;
        self.take_over_shared(now, slot);
        self.set_expiry(slot, now + timeout);
        self.changes.push(TableChange::TakenOver { slot });
        true
    }

    /// Nobody shares the connection any more: the windows are learnt afresh and count again.
    pub(super) fn stop_sharing(&mut self, slot: Slot) {
        let connection = record_mut(&mut self.table, slot);
        connection.flags &= !flags::SHARED;
        self.tracker.take_over(ip_protocol::TCP, &mut connection.protocol);
    }
}
