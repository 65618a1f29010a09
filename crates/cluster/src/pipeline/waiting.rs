//! Packets that can be judged only with what a peer is about to tell: a SYN/ACK whose SYN went by way of the other node, the
//! answer to a query that went there, an ICMP error about its packets.
//!
//! Such a packet is kept for a moment and handed in again when a peer has told of a connection with its tuple, or when its time
//! is over; then it is judged as it would have been at once. Nothing is asked for: the peer has sent its word before it sent the
//! packet that this one answers, and a word that is lost is sent again within a few round trips, sooner than a question could be
//! answered whose own way is as lossy.
//!
//! Strangers can send such packets too. What waits is bounded in number, in bytes and for each source, and for a time so short
//! that room comes free all the while. When there is none, the **newest** does not wait: whoever sprays packets can keep others
//! from waiting, which costs them a retransmission at worst, but cannot push out who waits already; and to keep the room full
//! takes a flood of [`WAITING_FRAMES_MAX`] packets each waiting time, from many sources.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use flow::source_counts::{SourceCounts, SourcePrefixes};
use flow::table::Slot;
use flow::wire::{Packet, Transport, tcp_flags};
use flow::{Connection, DropReason, HashKey, Instant, OwnedFrame, Tuple};
use network_functions::chain::Runtime;

use super::batch::wanted;
use super::sharing::Sharing;
use super::{Pipeline, record};
use crate::observation::Step;

/// Packets that wait at a time, at most.
pub const WAITING_FRAMES_MAX: usize = 1024;
/// Bytes of them, at most.
pub const WAITING_BYTES_MAX: usize = 1 << 20;
/// Packets of one source (an IPv4 address, an IPv6 prefix of 64 bits) that wait at a time, at most: those of a page's
/// connections at once.
pub const WAITING_FRAMES_PER_SOURCE_MAX: u32 = 64;

struct WaitingFrame {
    /// Of the tuple that its connection would have.
    hash: u64,
    tuple: Tuple,
    deadline: Instant,
    /// It came from a port, and not from another worker.
    is_steering: bool,
    frame: OwnedFrame,
}

/// A packet whose waiting is over.
pub(crate) struct Released {
    /// Until when it may wait again if that did not help.
    pub(crate) deadline: Instant,
    /// It is to be steered to the worker that it belongs to.
    pub(crate) is_steering: bool,
    /// The packet as it came.
    pub(crate) frame: OwnedFrame,
}

/// The packets that wait.
pub(super) struct Waiting {
    pub(super) wait_max: Duration,
    /// By deadline, which is the order of arrival.
    queue: VecDeque<WaitingFrame>,
    bytes: usize,
    /// How many wait for each hash.
    awaited: BTreeMap<u64, u32>,
    /// Hashes of which a peer has told since the last release.
    told: BTreeSet<u64>,
    sources: SourceCounts,
    /// The deadline of the packet that is being handled again.
    again: Option<Instant>,
}

impl Waiting {
    pub(super) fn new(wait_max: Duration, key: HashKey) -> Self {
        Self {
            wait_max,
            queue: VecDeque::new(),
            bytes: 0,
            awaited: BTreeMap::new(),
            told: BTreeSet::new(),
            sources: SourceCounts::new(key, SourcePrefixes::default(), WAITING_FRAMES_MAX),
            again: None,
        }
    }

    fn has_room(&self, packet: &Packet<'_, '_>) -> bool {
        self.queue.len() < WAITING_FRAMES_MAX
            && self.bytes + packet.frame.bytes().len() <= WAITING_BYTES_MAX
            && self.sources.count(&packet.headers.tuple) < WAITING_FRAMES_PER_SOURCE_MAX
    }

    fn push(&mut self, waiting: WaitingFrame) {
        self.bytes += waiting.frame.bytes.len();
        self.sources.add(&waiting.tuple, 1);
        *self.awaited.entry(waiting.hash).or_default() += 1;
        let at = self.queue.partition_point(|other| other.deadline <= waiting.deadline);
        self.queue.insert(at, waiting);
    }

    fn take(&mut self, at: usize) -> Option<WaitingFrame> {
        let taken = self.queue.remove(at)?;
        self.bytes -= taken.frame.bytes.len();
        self.sources.subtract(&taken.tuple, 1);
        if let Some(count) = self.awaited.get_mut(&taken.hash) {
            *count -= 1;
            if *count == 0 {
                self.awaited.remove(&taken.hash);
            }
        }
        Some(taken)
    }

    fn note_told(&mut self, hash: u64) {
        if self.awaited.contains_key(&hash) {
            self.told.insert(hash);
        }
    }
}

impl Pipeline {
    /// Keeps a packet that would be dropped for `reason` until a peer has told of its connection. False if that would not
    /// help, or it has waited already, or there is no room.
    pub(super) fn waits_for_peer(&mut self, now: Instant, packet: &Packet<'_, '_>, reason: DropReason) -> bool {
        let Some(sharing) = self.sharing.as_deref_mut() else { return false };
        let Sharing { living, waiting, counters, .. } = sharing;
        let deadline = waiting.again.unwrap_or(now + waiting.wait_max);
        let may_help = matches!(
            reason,
            DropReason::NoConnection
                | DropReason::InvalidTcpState
                | DropReason::OutOfWindow
                | DropReason::UnrelatedIcmpError
                | DropReason::FirewallDenied
        );
        if living.is_empty() || deadline <= now || !may_help || packet.headers.is_fragment {
            return false;
        }
        if !waiting.has_room(packet) {
            counters.no_room += 1;
            return false;
        }
        counters.held += u64::from(waiting.again.is_none());
        waiting.push(WaitingFrame {
            hash: self.table.hash(&wanted(packet.headers)),
            tuple: packet.headers.tuple,
            deadline,
            is_steering: self.shard.is_steering(),
            frame: OwnedFrame::copy_of(packet.frame),
        });
        self.observe(Step::WaitsForPeer);
        true
    }

    /// Whether a packet that no connection has may be an answer on one that a peer is about to tell of, and must not begin one
    /// of its own before that is known: what cannot begin a connection, or may not.
    pub(super) fn may_be_answer(&mut self, now: Instant, packet: &Packet<'_, '_>, is_local: bool) -> bool {
        if self.sharing.as_ref().is_none_or(|sharing| sharing.living.is_empty()) {
            return false;
        }
        match &packet.headers.transport {
            Transport::Tcp(segment) => {
                let is_syn = segment.flags & (tcp_flags::SYN | tcp_flags::ACK) == tcp_flags::SYN;
                !is_syn && self.tracker.begin(packet.headers) != Err(DropReason::InvalidTcpFlags)
            }
            Transport::IcmpQuery(query) => query.is_reply || (!is_local && !self.would_begin(now, packet, false)),
            Transport::Udp | Transport::Sctp(_) | Transport::Other => !self.would_begin(now, packet, is_local),
            Transport::IcmpError(_) | Transport::IcmpOther(..) => false,
        }
    }

    /// Whether the packet could begin a connection here: the chain is asked, and nothing comes of it.
    fn would_begin(&mut self, now: Instant, packet: &Packet<'_, '_>, is_local: bool) -> bool {
        let Some(sharing) = self.sharing.as_deref_mut() else { return true };
        let tuple = packet.headers.tuple;
        let Ok((protocol, timeout)) = self.tracker.begin(packet.headers) else { return false };
        let mut connection = Connection::new(tuple, self.node, protocol, now + timeout);
        let mut runtime = Runtime {
            now,
            node: self.node,
            counters: &mut sharing.rehearsal.counters,
            log: &mut sharing.rehearsal.log,
            expectations: &mut self.expectations,
        };
        let tuples = self.shard.tuples(&self.table);
        let begins = self.chain.init(&mut runtime, &tuples, &mut connection, packet).is_ok();
        begins && !(is_local && connection.reply.source == tuple.destination)
    }

    /// A peer has told of the connection in a slot.
    pub(super) fn note_told(&mut self, slot: Slot) {
        let Some(sharing) = self.sharing.as_deref_mut() else { return };
        if sharing.waiting.queue.is_empty() {
            return;
        }
        let connection = record(&self.table, slot);
        for tuple in [&connection.original, &connection.reply] {
            sharing.waiting.note_told(self.table.hash(tuple));
        }
    }

    /// Another worker has told where packets with this tuple belong.
    pub(super) fn note_told_tuple(&mut self, tuple: &Tuple) {
        if let Some(sharing) = self.sharing.as_deref_mut() {
            sharing.waiting.note_told(self.table.hash(tuple));
        }
    }

    /// The packets of whose connections a peer has told, and those whose time is over, oldest first. Each is to be handed in
    /// again between [`Pipeline::begin_again`] and [`Pipeline::end_again`].
    pub(crate) fn take_released(&mut self, now: Instant) -> Vec<Released> {
        let Some(sharing) = self.sharing.as_deref_mut() else { return Vec::new() };
        let Waiting { queue, told, .. } = &mut sharing.waiting;
        if told.is_empty() && queue.front().is_none_or(|first| now < first.deadline) {
            return Vec::new();
        }
        let told = core::mem::take(told);
        let mut released = Vec::new();
        let mut at = 0;
        while let Some(waiting) = sharing.waiting.queue.get(at) {
            if waiting.deadline > now && !told.contains(&waiting.hash) {
                at += 1;
            } else if let Some(WaitingFrame { deadline, is_steering, frame, .. }) = sharing.waiting.take(at) {
                released.push(Released { deadline, is_steering, frame });
            }
        }
        released
    }

    /// The packet that comes next has waited.
    pub(crate) fn begin_again(&mut self, deadline: Instant) {
        if let Some(sharing) = self.sharing.as_deref_mut() {
            sharing.waiting.again = Some(deadline);
        }
    }

    /// It has been handled.
    pub(crate) fn end_again(&mut self, now: Instant, waits_again: bool) {
        let Some(sharing) = self.sharing.as_deref_mut() else { return };
        let Some(deadline) = sharing.waiting.again.take() else { return };
        if deadline <= now {
            sharing.counters.overdue += 1;
        } else if !waits_again {
            sharing.counters.helped += 1;
        }
    }

    /// Packets that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.sharing.as_ref().map_or(0, |sharing| sharing.waiting.queue.len())
    }

    /// When the first of them has waited long enough.
    #[must_use]
    pub fn waiting_deadline(&self) -> Option<Instant> {
        self.sharing.as_ref()?.waiting.queue.front().map(|first| first.deadline)
    }
}
