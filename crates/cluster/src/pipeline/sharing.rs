//! Connections whose packets reach more than one living node.
//!
//! Where several nodes forward at once, the two directions of a connection may come by two of them, each of which has the
//! connection's record: one as its owner, the other as a replica. A packet of such a **peer-owned** connection is handled by the
//! replica, without an update to the owner, unless it changes something that the owner must know.
//!
//! ```text
//!              node a                                   node b
//!   SYN ──────► begins: SYN_SENT, owner a ─── update ──► replica
//!                                                        replica, SYN_RECV: owner b ◄─── SYN/ACK
//!               replica ◄──────────────── update ────────┘
//!   ACK ──────► lost to b a moment ago and still here:
//!               shared, ESTABLISHED: owner a ── update ─► replica, shared
//!   data ─────► owner's                                  by replica ◄───────────────────── data
//!                                            ◄─ update ─ every quarter of the timeout: owner b, so that it does not expire
//! ```
//!
//! A connection that merely moves, all of whose packets come to the other node from then on, is taken over as ever, and its
//! windows are relearnt and held against its segments. It is marked [shared](flags::SHARED) when a packet comes to the node
//! that has just lost it. Who is alone takes the mark off.
//!
//! What could be decided only with a peer's update [waits](super::waiting) a little.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use flow::connection::flags;
use flow::table::Slot;
use flow::{Connection, Instant, NodeId, conntrack};

/// How long a packet waits for a peer's update, unless it is configured: several times what a message takes on a
/// link between neighbours, lost ones and their repetition included, and less than what an end point notices.
pub const WAIT_FOR_PEER_DEFAULT: Duration = Duration::from_millis(20);
/// A packet that comes so soon after its connection was lost to a living peer shows that both nodes get packets of it.
const SHARED_WITHIN: Duration = Duration::from_secs(10);
/// Packets are forwarded by a replica for this part of the state's timeout before its owner is updated: early enough for the
/// update to be lost and repeated.
const RENEWALS_PER_TIMEOUT: u32 = 4;
/// The owner is updated at most this often, however short timeouts are.
const RENEWAL_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// A connection of which a packet was forwarded within this time lives, whatever its owner's timer shows.
const RECENT_MAX: Duration = Duration::from_secs(30);

/// How connections whose packets reach several nodes are dealt with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharingConfig {
    /// How long at most a packet that cannot be decided waits for a peer's update; zero: not at all.
    pub wait_for_peer: Duration,
    /// Both directions of a connection come to one node (MLCBF, section 1.1.1), so that no other node needs it before this one fails.
    pub is_symmetric: bool,
}

impl Default for SharingConfig {
    fn default() -> Self {
        Self { wait_for_peer: WAIT_FOR_PEER_DEFAULT, is_symmetric: false }
    }
}

/// What a pipeline counts of shared connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SharingCounters {
    /// Packets handled by the replica of a living peer's connection.
    pub peer_owned_packets: u64,
    /// Connections found to reach two living nodes.
    pub shared: u64,
    /// Times that this node became the owner only to show that the connection lives.
    pub renewed: u64,
    /// Ends by timeout, sent by a peer, of connections that live here.
    pub ends_refused: u64,
    /// Packets that waited for a peer's update.
    pub held: u64,
    /// Of those, the ones that went on because a peer replicated their connection.
    pub helped: u64,
    /// Of those, the ones decided without it because their time was over.
    pub overdue: u64,
    /// Packets that would have waited, had there been room.
    pub no_room: u64,
}

/// What is remembered of a connection of which packets come to two nodes. Times are milliseconds of [`Instant`], modulo 2^32;
/// 0 is never.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// When another node last replicated it, or this one as its new owner.
    update_ms: u32,
    /// When this node ceased to be its owner.
    lost_ms: u32,
    /// When a packet was forwarded here by the replica.
    forwarded_ms: u32,
}

fn milliseconds(now: Instant) -> u32 {
    ((now.as_nanos() / 1_000_000) as u32).max(1)
}

/// The time since `then_ms`, if that ever was.
fn since(now: Instant, then_ms: u32) -> Option<Duration> {
    (then_ms != 0).then(|| Duration::from_millis(milliseconds(now).wrapping_sub(then_ms).into()))
}

/// What a pipeline keeps while several nodes forward.
pub(super) struct Sharing {
    /// Nodes that are alive and receive what this one replicates.
    pub(super) live_owners: Vec<NodeId>,
    pub(super) counters: SharingCounters,
    /// See [`SharingConfig::is_symmetric`].
    pub(super) is_symmetric: bool,
    /// By slot.
    marks: Vec<Mark>,
}

impl Sharing {
    pub(super) fn new(connections_max: u32, is_symmetric: bool) -> Self {
        Self {
            live_owners: Vec::new(),
            counters: SharingCounters::default(),
            is_symmetric,
            marks: vec![Mark::default(); connections_max as usize],
        }
    }

    fn mark_mut(&mut self, slot: Slot) -> &mut Mark {
        &mut self.marks[slot.0 as usize]
    }

    /// This node is not the connection's owner any more, but was a moment ago.
    pub(super) fn was_just_lost(&self, now: Instant, slot: Slot) -> bool {
        since(now, self.marks[slot.0 as usize].lost_ms).is_some_and(|since| since <= SHARED_WITHIN)
    }

    /// A packet of a peer-owned connection is forwarded. True if it is time to show the owner that the connection lives, which has
    /// `timeout` in its state.
    pub(super) fn note_forwarded(&mut self, now: Instant, slot: Slot, timeout: Duration) -> bool {
        self.counters.peer_owned_packets += 1;
        let mark = self.mark_mut(slot);
        mark.forwarded_ms = milliseconds(now);
        let interval = (timeout / RENEWALS_PER_TIMEOUT).max(RENEWAL_INTERVAL_MIN);
        since(now, mark.update_ms).is_none_or(|since| since >= interval)
    }

    pub(super) fn was_just_forwarded(&self, now: Instant, slot: Slot, timeout: Duration) -> bool {
        let recent = (timeout / RENEWALS_PER_TIMEOUT).min(RECENT_MAX);
        since(now, self.marks[slot.0 as usize].forwarded_ms).is_some_and(|since| since < recent)
    }

    /// A slot has another connection.
    pub(super) fn note_entered(&mut self, now: Instant, slot: Slot) {
        *self.mark_mut(slot) = Mark { update_ms: milliseconds(now), ..Mark::default() };
    }

    /// Another node becomes the owner of a connection that this node has owned.
    pub(super) fn note_lost(&mut self, now: Instant, slot: Slot) {
        let mark = self.mark_mut(slot);
        (mark.update_ms, mark.lost_ms) = (milliseconds(now), milliseconds(now));
    }

    /// The connection was updated by another node, or this one replicates it as its new owner.
    pub(super) fn note_update(&mut self, now: Instant, slot: Slot) {
        self.mark_mut(slot).update_ms = milliseconds(now);
    }

    /// An update of `from` is about to replace the record `known` of this node, `node`. True: it lacks something that is
    /// known here, which is merged into it and must be replicated.
    pub(super) fn merge(
        &mut self,
        now: Instant,
        (node, from): (NodeId, NodeId),
        slot: Slot,
        known: &Connection,
        update: &mut Connection,
    ) -> bool {
        let mark = self.mark_mut(slot);
        mark.update_ms = milliseconds(now);
        if known.owner == node {
            mark.lost_ms = milliseconds(now);
        }
        // Two nodes that each saw something become owners at once: the update of one prevails, and must not hide what the
        // other saw. A later connection with the same tuple is further on than by one owner, or its owner's before.
        let masters_between = (update.version >> 16).wrapping_sub(known.version >> 16) as u16;
        let is_same = from != known.owner && masters_between <= 1;
        if is_same && conntrack::merge(update.original.protocol, &mut update.protocol, &known.protocol) {
            update.flags |= flags::SHARED | known.flags & (flags::REPLIED | flags::ASSURED);
            return true;
        }
        false
    }
}
