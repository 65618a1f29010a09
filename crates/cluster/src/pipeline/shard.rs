//! One worker's share of a node's connections.
//!
//! A connection lies with the worker that its original direction is steered to (see [`flow::steering`]), and so do its
//! replies but for two cases, in which they come to another worker, which hands them over:
//!
//! * Destination NAT changes the reply tuple to one that no node can choose. The connection's worker sends a
//!   [`Redirect`] to the worker that the replies come to.
//! * The kernel's program could not follow a packet's headers.
//!
//! What was handed over once is not handed over again: where its connection is not found, it is dropped, unless it belongs
//! to this worker by its own tuple.
//!
//! While a recovery lasts, no worker knows yet which one a reply's connection lies with. Each worker that it may be gets a copy.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use flow::steering::WORKERS_MAX;
use flow::table::Table;
use flow::wire::{Headers, Packet};
use flow::{Checksum, Connection, Disposition, DropReason, Frame, PortId, Segmentation, Steering, Tuple, WorkerId};
use network_functions::ftp::GROWTH_BYTES_MAX;
use network_functions::function::TupleUse;

/// Room before a frame that is handed over, for whatever the backend that sends it puts there, in bytes.
const HEADROOM_BYTES: usize = 64;
/// Room behind a frame that is handed over, for a function that makes it longer, in bytes.
const TAILROOM_BYTES: usize = 64;

const _: () = assert!(TAILROOM_BYTES >= GROWTH_BYTES_MAX as usize);

/// Which worker this is, and how packets are divided among all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// This worker.
    pub worker: WorkerId,
    /// The division.
    pub steering: Steering,
}

impl Place {
    /// The only worker of its node.
    pub const ALONE: Self = Self { worker: WorkerId::LEAD, steering: Steering::ALONE };

    /// There is no other worker.
    #[must_use]
    pub const fn is_alone(self) -> bool {
        self.steering.workers() == 1
    }

    /// This worker leads the others.
    #[must_use]
    pub const fn leads(self) -> bool {
        self.worker.0 == WorkerId::LEAD.0
    }

    /// The other workers.
    pub fn others(self) -> impl Iterator<Item = WorkerId> {
        (0..self.steering.workers()).map(WorkerId).filter(move |worker| *worker != self.worker)
    }
}

/// Some workers of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct WorkerSet(u64);

const _: () = assert!(WORKERS_MAX as u32 <= u64::BITS, "a worker is a bit");

impl WorkerSet {
    pub(super) const fn insert(&mut self, worker: WorkerId) {
        self.0 |= 1 << worker.0;
    }

    pub(super) const fn contains(self, worker: WorkerId) -> bool {
        self.0 >> worker.0 & 1 != 0
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A frame that is handed to another worker: a copy, with what goes with it.
#[derive(Clone, Debug)]
pub struct HandedFrame {
    /// The worker that it belongs to.
    pub to: WorkerId,
    buffer: Vec<u8>,
    ingress: PortId,
    checksum: Checksum,
    segmentation: Segmentation,
}

impl HandedFrame {
    fn copy(to: WorkerId, frame: &Frame<'_>) -> Self {
        let length_bytes = frame.bytes().len();
        let mut buffer = Vec::with_capacity(HEADROOM_BYTES + length_bytes + TAILROOM_BYTES);
        buffer.resize(HEADROOM_BYTES, 0);
        buffer.extend_from_slice(frame.bytes());
        buffer.resize(HEADROOM_BYTES + length_bytes + TAILROOM_BYTES, 0);
        Self { to, buffer, ingress: frame.ingress, checksum: frame.checksum, segmentation: frame.segmentation }
    }

    /// The frame as it came in.
    ///
    /// # Panics
    /// Never: the frame is what the buffer holds.
    pub fn frame(&mut self) -> Frame<'_> {
        let length_bytes = self.buffer.len() - HEADROOM_BYTES - TAILROOM_BYTES;
        let mut frame = Frame::new(&mut self.buffer, HEADROOM_BYTES, length_bytes, self.ingress)
            .expect("the buffer holds the frame and room around it");
        (frame.checksum, frame.segmentation) = (self.checksum, self.segmentation);
        frame
    }
}

/// A message from a connection's worker to the worker that its replies come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Redirect {
    /// Packets with this tuple belong to the sender.
    Begins(Tuple),
    /// They no longer do.
    Ends(Tuple),
    /// The answer to [`Redirect::Begins`]: there is no room for it, or the tuple is that of a connection here.
    Refused(Tuple),
}

/// What a worker counts of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardCounters {
    /// Frames that came here and belong to another worker.
    pub handed_over: u64,
    /// Frames that another worker handed over.
    pub taken: u64,
    /// Redirects that other workers asked for and this one refused.
    pub redirects_refused: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Shard {
    place: Place,
    /// Reply tuples of other workers' connections whose packets come here.
    pub(super) redirects: BTreeMap<Tuple, WorkerId>,
    /// The most of them; further ones are refused.
    redirects_max: usize,
    /// Messages for other workers. It holds what one call makes (a batch's connections, a datagram's copies): the node polls it
    /// empty after each, into mailboxes that are bounded.
    pub(super) notes: VecDeque<(WorkerId, Redirect)>,
    /// Frames for other workers: at most a batch of them and the fragments that it released, polled empty likewise.
    pub(super) handed: VecDeque<HandedFrame>,
    pub(crate) counters: ShardCounters,
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            place: Place::ALONE,
            redirects: BTreeMap::new(),
            redirects_max: 0,
            notes: VecDeque::new(),
            handed: VecDeque::new(),
            counters: ShardCounters::default(),
        }
    }
}

impl Shard {
    pub(crate) fn new(place: Place, redirects_max: usize) -> Self {
        Self { place, redirects_max, ..Self::default() }
    }

    pub(crate) const fn place(&self) -> Place {
        self.place
    }

    /// Hands a packet to the worker that it belongs to, unless it is this one.
    #[inline]
    pub(super) fn hands_to_owner(&mut self, packet: &mut Packet<'_, '_>) -> bool {
        let to = self.place.steering.worker_of(packet.headers);
        self.hands_over(to, packet.frame)
    }

    /// Hands a frame to a worker, unless it is this one.
    pub(super) fn hands_over(&mut self, to: WorkerId, frame: &mut Frame<'_>) -> bool {
        let belongs_to_other_worker = to != self.place.worker;
        if belongs_to_other_worker {
            self.handed.push_back(HandedFrame::copy(to, frame));
            self.counters.handed_over += 1;
            frame.disposition = Disposition::Consumed;
        }
        belongs_to_other_worker
    }

    /// Copies a frame for other workers, the one with number `n` if bit `n` of `workers` is set. Returns how many copies there are.
    pub(super) fn hands_copies(&mut self, workers: WorkerSet, frame: &Frame<'_>) -> usize {
        let before = self.handed.len();
        let to = self.place.others().filter(|worker| workers.contains(*worker));
        self.handed.extend(to.map(|worker| HandedFrame::copy(worker, frame)));
        let copies = self.handed.len() - before;
        self.counters.handed_over += copies as u64;
        copies
    }

    /// The worker that a packet, or without headers an ARP frame, was handed to before it was looked up, if it was.
    pub(super) fn elsewhere(&self, headers: Option<&Headers>) -> Option<WorkerId> {
        let to = headers.map_or(WorkerId::LEAD, |headers| self.place.steering.worker_of(headers));
        (to != self.place.worker).then_some(to)
    }

    /// The worker that the last frame was handed to.
    pub(super) fn last_handed_to(&self) -> Option<WorkerId> {
        self.handed.back().map(|frame| frame.to)
    }

    /// The outcome of a packet of no connection here; `None`: that of any such packet. `is_steering`: it may be
    /// handed over.
    #[inline]
    pub(super) fn redirect(
        &mut self,
        packet: &mut Packet<'_, '_>,
        wanted: &Tuple,
        is_steering: bool,
    ) -> Option<Result<Disposition, DropReason>> {
        if self.place.is_alone() {
            return None;
        }
        if is_steering {
            let to = *self.redirects.get(wanted)?;
            self.hands_over(to, packet.frame);
            return Some(Ok(Disposition::Consumed));
        }
        let belongs_to = self.place.steering.worker_of_tuple(wanted);
        if belongs_to == self.place.worker {
            return None;
        }
        // The worker that handed it over has not learned yet that the connection ended, or never will.
        self.notes.push_back((belongs_to, Redirect::Ends(*wanted)));
        Some(Err(DropReason::StrayHandOver))
    }

    /// The worker that the connection of a first fragment lies with, if it is another and this is where that is decided:
    /// at the worker of the fragments' addresses, and from there at the worker of the tuple, which may know better.
    pub(super) fn worker_of_fragments(&self, first: &Headers) -> Option<WorkerId> {
        if self.place.is_alone() {
            return None;
        }
        let of_tuple = self.place.steering.worker_of_tuple(&first.tuple);
        if of_tuple == self.place.worker {
            return self.redirects.get(&first.tuple).copied();
        }
        (self.place.steering.worker_of(first) == self.place.worker).then_some(of_tuple)
    }

    /// Hands a packet to another worker.
    pub(super) fn hand_to(&mut self, worker: WorkerId, packet: &mut Packet<'_, '_>) -> Disposition {
        self.hands_over(worker, packet.frame);
        Disposition::Consumed
    }

    pub(super) const fn tuples<'a>(&'a self, table: &'a Table) -> ShardTuples<'a> {
        ShardTuples { shard: self, table }
    }

    pub(super) fn note_entered(&mut self, connection: &Connection) {
        if let Some(to) = self.replies_come_to(connection) {
            self.notes.push_back((to, Redirect::Begins(connection.reply)));
        }
    }

    pub(super) fn note_removed(&mut self, connection: &Connection) {
        if let Some(to) = self.replies_come_to(connection) {
            self.notes.push_back((to, Redirect::Ends(connection.reply)));
        }
    }

    /// Packets with `tuple` belong to `from`. False, and that worker learns it: there is no room, or a connection here has it.
    pub(super) fn begin_redirect(&mut self, from: WorkerId, tuple: Tuple, table: &Table) -> bool {
        let has_room = self.redirects.len() < self.redirects_max || self.redirects.contains_key(&tuple);
        let is_taken = has_room && !table.is_used(&tuple);
        if is_taken {
            self.redirects.insert(tuple, from);
        } else {
            self.counters.redirects_refused += 1;
            self.notes.push_back((from, Redirect::Refused(tuple)));
        }
        is_taken
    }

    /// Packets with `tuple` do not belong to `from` any more.
    pub(super) fn end_redirect(&mut self, from: WorkerId, tuple: &Tuple) {
        if self.redirects.get(tuple) == Some(&from) {
            self.redirects.remove(tuple);
        }
    }

    /// The worker that a connection's replies come to, if it is another.
    fn replies_come_to(&self, connection: &Connection) -> Option<WorkerId> {
        if self.place.is_alone() {
            return None;
        }
        let to = self.place.steering.worker_of_tuple(&connection.reply);
        (to != self.place.worker).then_some(to)
    }
}

/// The tuples that a function may choose: those that are free and whose packets come here.
pub(super) struct ShardTuples<'a> {
    shard: &'a Shard,
    table: &'a Table,
}

impl TupleUse for ShardTuples<'_> {
    fn is_used(&self, tuple: &Tuple) -> bool {
        self.table.is_used(tuple) || (!self.shard.redirects.is_empty() && self.shard.redirects.contains_key(tuple))
    }

    fn belongs_to_other_worker(&self, tuple: &Tuple) -> bool {
        let place = self.shard.place;
        !place.is_alone() && place.steering.worker_of_tuple(tuple) != place.worker
    }
}
