//! Packets that only an update of a peer can decide: a SYN/ACK whose SYN went by way of the other node, the answer to a query
//! that went there, an ICMP error about its packets.
//!
//! Such a packet is kept for a moment. It is handled once more when a peer has replicated a connection with its tuple, or when
//! its time is over; then it is handled as it would have been at once. Nothing is asked for: the peer has sent its update
//! before it sent the packet that this one answers, and an update that is lost is retransmitted within a few round trips,
//! sooner than a question could be answered whose own way is as lossy.
//!
//! A packet of a connection that other nodes may have waits here until the state service has a result for it: see [`super::lookup`].
//!
//! A packet that a function cannot decide before an answer has come from elsewhere (the category of a host, see
//! [`network_functions::url_filter::server`]) waits here as well, until there is an answer, to any of them.
//!
//! Strangers can send such packets too. What waits is bounded in number, in bytes and for each source, and for a time so short
//! that room comes free all the while. When there is none, the **newest** does not wait: a flood can keep other packets from
//! waiting, which costs a retransmission at worst, but cannot push out those that wait already; and to keep the room full takes
//! a flood of [`WAITING_FRAMES_MAX`] packets each waiting time, from many sources.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use flow::source_counts::{SourceCounts, SourcePrefixes};
use flow::wire::{Packet, Transport, tcp_flags};
use flow::{Connection, DropReason, HashKey, Instant, OwnedFrame, Tuple};
use network_functions::chain::Chain;

use super::arrival::{Arrival, Origin};
use super::connections::Connections;
use super::functions::Output;
use super::sharing::SharingCounters;
use crate::observation::Step;

/// Packets that wait at a time, at most.
pub const WAITING_FRAMES_MAX: usize = 1024;
/// Bytes of them, at most.
pub const WAITING_BYTES_MAX: usize = 1 << 20;
/// Packets of one source (an IPv4 address, an IPv6 prefix of 64 bits) that wait at a time, at most: those of a page's
/// connections at once.
pub const WAITING_FRAMES_PER_SOURCE_MAX: u32 = 64;

/// A packet whose connection is looked up at other nodes waits so long at most. The state service has a result sooner, unless it asks several
/// peers that do not answer. Later, the end point has sent the packet again.
const LOOKUP_WAIT_MAX: Duration = Duration::from_millis(200);

/// Room that a packet has to become an answer to its sender: a page of the URL filter.
const ANSWER_ROOM_BYTES: usize = 640;

struct WaitingFrame {
    /// Of the tuple that its connection would have.
    hash: u64,
    tuple: Tuple,
    deadline: Instant,
    is_steering: bool,
    awaited: Awaited,
    frame: OwnedFrame,
}

/// What a packet waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// An update of a peer.
    Update,
    /// The answer to a function's question.
    Answer,
    /// The result of the state service for this tuple.
    State(Tuple),
}

/// A packet whose waiting is over.
pub(crate) struct Released {
    /// How it is to be handled once more.
    pub(crate) origin: Origin,
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
    /// Hashes of connections that peers have replicated since the last release.
    known: BTreeSet<u64>,
    /// An answer has come since the last release.
    is_answered: bool,
    /// Packets for which the state service has a result.
    looked_up: Vec<Released>,
    /// Packets for which it had none in time, since this was taken last.
    overdue: u64,
    sources: SourceCounts,
    /// What functions count and log while they are only asked whether a packet may begin a connection.
    rehearsal: Output,
}

impl Waiting {
    /// No packet waits until `wait_max` is set.
    pub(super) fn new(key: HashKey, chain: &Chain) -> Self {
        Self {
            wait_max: Duration::ZERO,
            queue: VecDeque::new(),
            bytes: 0,
            awaited: BTreeMap::new(),
            known: BTreeSet::new(),
            is_answered: false,
            looked_up: Vec::new(),
            overdue: 0,
            sources: SourceCounts::new(key, SourcePrefixes::default(), WAITING_FRAMES_MAX),
            rehearsal: rehearsal(chain),
        }
    }

    /// Packets are checked by another chain from now on.
    pub(super) fn renew(&mut self, chain: &Chain) {
        self.rehearsal = rehearsal(chain);
    }

    /// Keeps a packet that would be dropped for `reason` until a peer has replicated its connection. False if that would not
    /// help, or it has waited already, or there is no room.
    pub(super) fn hold(
        &mut self,
        connections: &mut Connections,
        arrival: &Arrival,
        packet: &Packet<'_, '_>,
        reason: DropReason,
    ) -> bool {
        let Some(sharing) = connections.sharing.as_deref_mut() else { return false };
        let Arrival { now, origin, hash, .. } = *arrival;
        let deadline = origin.waits_until.unwrap_or(now + self.wait_max);
        let may_help = matches!(
            reason,
            DropReason::NoConnection
                | DropReason::InvalidTcpState
                | DropReason::OutOfWindow
                | DropReason::UnrelatedIcmpError
                | DropReason::FirewallDenied
        );
        if sharing.live_owners.is_empty() || deadline <= now || !may_help || packet.headers.is_fragment {
            return false;
        }
        if !self.has_room(packet) {
            sharing.counters.no_room += 1;
            return false;
        }
        sharing.counters.held += u64::from(origin.waits_until.is_none());
        self.push(WaitingFrame {
            hash,
            tuple: packet.headers.tuple,
            deadline,
            is_steering: origin.is_steering,
            awaited: Awaited::Update,
            frame: OwnedFrame::copy_of(packet.frame),
        });
        connections.observe(Step::WaitsForPeer);
        true
    }

    /// Keeps a packet of a connection for which a function waits for an answer. False if it does not wait, or there is no room.
    #[cold]
    pub(super) fn hold_for_answer(
        &mut self,
        connections: &mut Connections,
        arrival: &Arrival,
        packet: &Packet<'_, '_>,
    ) -> bool {
        let Some(deadline) = connections.functions.output.waits_until.take() else { return false };
        if deadline <= arrival.now || packet.headers.is_fragment || !self.has_room(packet) {
            return false;
        }
        self.push(WaitingFrame {
            hash: arrival.hash,
            tuple: packet.headers.tuple,
            deadline,
            is_steering: arrival.origin.is_steering,
            awaited: Awaited::Answer,
            frame: OwnedFrame::copy_of(packet.frame),
        });
        connections.observe(Step::WaitsForAnswer);
        true
    }

    /// Keeps a packet whose connection the state service looks up under the tuple `wanted`. False if there is no room.
    pub(super) fn hold_for_state(
        &mut self,
        connections: &mut Connections,
        arrival: &Arrival,
        packet: &Packet<'_, '_>,
        wanted: Tuple,
    ) -> bool {
        if packet.headers.is_fragment || !self.has_room(packet) {
            return false;
        }
        self.push(WaitingFrame {
            hash: arrival.hash,
            tuple: packet.headers.tuple,
            deadline: arrival.now + LOOKUP_WAIT_MAX,
            is_steering: arrival.origin.is_steering,
            awaited: Awaited::State(wanted),
            frame: OwnedFrame::copy_of(packet.frame),
        });
        connections.observe(Step::WaitsForPeer);
        true
    }

    /// The state service has a result for the connection with this tuple. Its packets are handled once more, if they may be. Returns how many
    /// there are.
    pub(super) fn note_looked_up(&mut self, wanted: &Tuple, goes_on: bool) -> u64 {
        let (mut at, mut packets) = (0, 0);
        while let Some(waiting) = self.queue.get(at) {
            if waiting.awaited != Awaited::State(*wanted) {
                at += 1;
            } else if let Some(WaitingFrame { is_steering, frame, .. }) = self.take(at) {
                packets += 1;
                if goes_on {
                    let origin = Origin { is_steering, waits_until: None, is_looked_up: true, is_counted: false };
                    self.looked_up.push(Released { origin, frame });
                }
            }
        }
        packets
    }

    /// Packets for which the state service had no result in time.
    pub(super) const fn take_overdue(&mut self) -> u64 {
        core::mem::replace(&mut self.overdue, 0)
    }

    /// An answer has come that functions wait for.
    pub(super) const fn note_answered(&mut self) {
        self.is_answered = true;
    }

    /// Whether a packet that no connection has may be an answer on one that a peer is about to replicate, and must not begin
    /// one of its own before that is known: what cannot begin a connection, or may not.
    pub(super) fn may_be_answer(
        &mut self,
        connections: &mut Connections,
        arrival: &Arrival,
        packet: &Packet<'_, '_>,
    ) -> bool {
        let Arrival { now, is_local, .. } = *arrival;
        match &packet.headers.transport {
            Transport::Tcp(segment) => {
                let is_syn = segment.flags & (tcp_flags::SYN | tcp_flags::ACK) == tcp_flags::SYN;
                !is_syn && connections.tracker.begin(packet.headers) != Err(DropReason::InvalidTcpFlags)
            }
            Transport::IcmpQuery(query) => {
                query.is_reply || (!is_local && !self.would_begin(connections, now, packet, false))
            }
            Transport::Udp | Transport::Sctp(_) | Transport::Other => {
                !self.would_begin(connections, now, packet, is_local)
            }
            Transport::IcmpError(_) | Transport::IcmpOther(..) => false,
        }
    }

    /// Whether the packet could begin a connection here.
    fn would_begin(
        &mut self,
        connections: &mut Connections,
        now: Instant,
        packet: &Packet<'_, '_>,
        is_local: bool,
    ) -> bool {
        let destination = packet.headers.tuple.destination;
        let rehearsed = self.rehearse(connections, now, packet);
        rehearsed.is_ok_and(|connection| !(is_local && connection.reply.source == destination))
    }

    /// The connection that the packet would begin: the chain is asked, and takes nothing.
    ///
    /// # Errors
    /// It would begin none.
    pub(super) fn rehearse(
        &mut self,
        connections: &mut Connections,
        now: Instant,
        packet: &Packet<'_, '_>,
    ) -> Result<Connection, DropReason> {
        let Connections { node, table, tracker, functions, relations, shard, .. } = connections;
        let (protocol, timeout) = tracker.begin(packet.headers)?;
        let mut connection = Connection::new(packet.headers.tuple, *node, protocol, now + timeout);
        let mut runtime = self.rehearsal.runtime(now, *node, &mut relations.expectations);
        functions.chain.rehearse(&mut runtime, &shard.tuples(table), &mut connection, packet)?;
        Ok(connection)
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

    /// A connection with a tuple of this hash is known now.
    pub(super) fn note_known(&mut self, hash: u64) {
        if self.awaited.contains_key(&hash) {
            self.known.insert(hash);
        }
    }

    /// The packets whose connections are known now, and those whose time is over, oldest first.
    pub(super) fn take_released(&mut self, now: Instant) -> Vec<Released> {
        let is_any_known = self.is_answered || !self.known.is_empty() || !self.looked_up.is_empty();
        if !is_any_known && self.deadline().is_none_or(|deadline| now < deadline) {
            return Vec::new();
        }
        let is_answered = core::mem::take(&mut self.is_answered);
        let known = core::mem::take(&mut self.known);
        let mut released = core::mem::take(&mut self.looked_up);
        let mut at = 0;
        while let Some(waiting) = self.queue.get(at) {
            let awaited = waiting.awaited;
            let is_due = if awaited == Awaited::Answer { is_answered } else { known.contains(&waiting.hash) };
            if waiting.deadline > now && !is_due {
                at += 1;
                continue;
            }
            let Some(WaitingFrame { deadline, is_steering, mut frame, .. }) = self.take(at) else { break };
            if matches!(awaited, Awaited::State(_)) && !is_due {
                self.overdue += 1;
                continue;
            }
            if awaited == Awaited::Answer {
                frame.make_room(ANSWER_ROOM_BYTES);
            }
            let waits_until = (awaited == Awaited::Update).then_some(deadline);
            let is_looked_up = matches!(awaited, Awaited::State(_));
            let is_counted = awaited == Awaited::Answer;
            released.push(Released { origin: Origin { is_steering, waits_until, is_looked_up, is_counted }, frame });
        }
        released
    }

    /// Packets that wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// When the first of them has waited long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.queue.front().map(|first| first.deadline)
    }
}

/// The packet that had waited until `deadline` at most has been handled.
pub(super) const fn count_released(
    counters: &mut SharingCounters,
    now: Instant,
    deadline: Instant,
    keeps_waiting: bool,
) {
    if deadline.as_nanos() <= now.as_nanos() {
        counters.overdue += 1;
    } else if !keeps_waiting {
        counters.helped += 1;
    }
}

fn rehearsal(chain: &Chain) -> Output {
    let mut output = Output::new(chain);
    output.log.set_limit(Some(0));
    output
}
