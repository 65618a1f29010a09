//! What operators look at while packets pass: single packets' ways, frames at a point of their way, connections as they
//! begin, change and end, and how long the work takes.
//!
//! ```text
//!   watches ──┐            marks: which watches want which frame of the batch
//!             ▼                ▼
//!   batch ─► arrivals ─► … steps of the frames that are wanted … ─► outcomes ─► queue ─► poll
//! ```
//!
//! Packets never wait for an observer: what does not fit into the queue is counted, and reported with what comes next. Without
//! a watch, all this costs a branch or two for a packet.

mod connections;
mod filter;
mod latency;
mod packets;
mod trace;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use flow::{Connection, DropReason, Instant, PortId};
use network_functions::tuple_filter::TupleFilter;

pub use filter::{Dropped, OwnFrames, PacketFilter};
pub use latency::{BATCHES_PER_SAMPLE, FunctionLatency, HISTOGRAM_BOUNDS_NS, Histogram, Latencies, Stopwatch};
pub use trace::{Arrival, Outcome, PacketTrace, RoutedTo, STEPS_MAX, Step};

pub(crate) use latency::Latency;
use packets::Marks;

/// Watches at a time; further ones are refused.
pub const WATCHES_MAX: usize = 8;
/// Things seen that wait to be polled; what comes while there are so many is missed.
pub const OBSERVED_WAITING_MAX: usize = 1024;
/// Bytes of captured frames that wait to be polled; what would exceed it is missed.
pub const OBSERVED_BYTES_WAITING_MAX: usize = 8 << 20;

/// A watch's name, chosen by its creator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WatchId(pub u64);

/// What is looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The ways of packets.
    Packets(PacketFilter),
    /// Frames at a point of their way.
    Frames {
        /// Where.
        at: Point,
        /// Which, by what they were when they came in.
        filter: PacketFilter,
        /// How much of each is kept at most, in bytes.
        snapshot_bytes: u32,
    },
    /// What happens to connections that meet the conditions before or after translation.
    Connections(TupleFilter),
}

impl Subject {
    /// Which packets are looked at that are not dropped.
    const fn forwarded(&self) -> Option<&PacketFilter> {
        match self {
            Self::Packets(filter) if filter.dropped.is_none() => Some(filter),
            Self::Frames { at: Point::Ingress | Point::After(_) | Point::Egress, filter, .. } => Some(filter),
            _ => None,
        }
    }
}

/// A point of a packet's way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Point {
    /// As it came in.
    Ingress,
    /// Behind the function of this name.
    After(String),
    /// As it leaves.
    Egress,
    /// Where it is dropped.
    Drop,
}

/// Something that was seen.
#[derive(Clone, Debug)]
pub struct Observed {
    /// For which watch.
    pub watch: WatchId,
    /// How many things the watch has missed before this one, since it began.
    pub missed: u64,
    /// What.
    pub sight: Sight,
}

/// What was seen.
#[derive(Clone, Debug)]
pub enum Sight {
    /// A packet's way.
    Packet(Box<PacketTrace>),
    /// A frame.
    Frame(CapturedFrame),
    /// Something that happened to a connection.
    Connection(Box<ConnectionEvent>),
}

impl Sight {
    /// When it was seen.
    #[must_use]
    pub fn at(&self) -> Instant {
        match self {
            Self::Packet(trace) => trace.at,
            Self::Frame(frame) => frame.at,
            Self::Connection(event) => event.at,
        }
    }

    fn frame_bytes(&self) -> usize {
        if let Self::Frame(frame) = self { frame.bytes.len() } else { 0 }
    }
}

/// A copy of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedFrame {
    /// When it was handled.
    pub at: Instant,
    /// The port that it came in on; at [`Point::Egress`] the one that it leaves by.
    pub port: PortId,
    /// Its length, of which less may have been kept, in bytes.
    pub length_bytes: u32,
    /// The frame from its link header on.
    pub bytes: Vec<u8>,
    /// Why it is dropped, at [`Point::Drop`].
    pub dropped: Option<DropReason>,
}

/// Something that happened to a connection.
#[derive(Clone, Debug)]
pub struct ConnectionEvent {
    /// When.
    pub at: Instant,
    /// What.
    pub change: ConnectionChange,
    /// The connection behind it, or as it was at its end.
    pub connection: Connection,
    /// When this node entered it into its table.
    pub entered_at: Instant,
}

/// What happens to connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionChange {
    /// It began.
    Began,
    /// Its state changed.
    Changed,
    /// This node became its owner.
    TakenOver,
    /// It ended.
    Ended,
}

/// Why nothing more can be watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{WATCHES_MAX} traces, captures and listings that follow are running already: end one")]
pub struct TooManyWatches;

struct Watching {
    id: WatchId,
    subject: Subject,
    /// What it may still see.
    left: u64,
    missed: u64,
}

/// See the [module](self).
#[derive(Default)]
pub struct Observation {
    watches: Vec<Watching>,
    queue: VecDeque<Observed>,
    queue_bytes: usize,
    marks: Marks,
    pub(crate) latency: Latency,
    /// Of what is being handled.
    now: Instant,
    looks_at_packets: bool,
    /// A watch of packets has begun since [`Observation::take_begun`].
    has_begun: bool,
    is_following: bool,
    /// The packet being handled is watched, or its functions' time is taken.
    attends: bool,
}

impl Observation {
    /// From now on, looks at `subject`, until [`Observation::end`] or until `sights_max` things were seen. What is seen is to be
    /// polled after every batch and every timeout.
    ///
    /// # Errors
    /// There are as many watches as there may be.
    pub fn begin(&mut self, id: WatchId, subject: Subject, sights_max: u64) -> Result<(), TooManyWatches> {
        if self.watches.len() >= WATCHES_MAX {
            return Err(TooManyWatches);
        }
        self.has_begun |= subject.forwarded().is_some();
        self.watches.push(Watching { id, subject, left: sights_max, missed: 0 });
        self.note_watches();
        Ok(())
    }

    /// Ends a watch. What it has seen remains to be polled.
    pub fn end(&mut self, id: WatchId) {
        self.watches.retain(|watching| watching.id != id);
        self.note_watches();
    }

    /// The next thing that was seen, oldest first.
    pub fn poll(&mut self) -> Option<Observed> {
        let observed = self.queue.pop_front()?;
        self.queue_bytes -= observed.sight.frame_bytes();
        Some(observed)
    }

    /// How many things a watch has missed because what it saw before was not polled fast enough.
    #[must_use]
    pub fn missed(&self, id: WatchId) -> u64 {
        self.watches.iter().find(|watching| watching.id == id).map_or(0, |watching| watching.missed)
    }

    /// Lends a clock by which is measured how long some of the work takes.
    pub fn set_stopwatch(&mut self, stopwatch: Box<dyn Stopwatch>) {
        self.latency.set_stopwatch(stopwatch);
    }

    /// How long the work takes, as far as it was measured.
    #[must_use]
    pub const fn latencies(&self) -> &Latencies {
        self.latency.measured()
    }

    fn note_watches(&mut self) {
        let is_following = |watching: &Watching| matches!(watching.subject, Subject::Connections(_));
        self.is_following = self.watches.iter().any(is_following);
        self.looks_at_packets = !self.watches.iter().all(is_following);
        if !self.looks_at_packets {
            self.marks = Marks::default();
        }
    }

    /// Leaves what was seen to be polled, unless the watch has seen all that it may.
    fn push(&mut self, watch: usize, sight: Sight) {
        let Some(watching) = self.watches.get_mut(watch).filter(|watching| watching.left > 0) else { return };
        let bytes = sight.frame_bytes();
        if self.queue.len() >= OBSERVED_WAITING_MAX || self.queue_bytes + bytes > OBSERVED_BYTES_WAITING_MAX {
            watching.missed += 1;
            return;
        }
        watching.left -= 1;
        self.queue_bytes += bytes;
        self.queue.push_back(Observed { watch: watching.id, missed: watching.missed, sight });
    }

    /// Something is handled at `now`.
    #[inline]
    pub(crate) const fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    #[inline]
    pub(crate) const fn looks_at_packets(&self) -> bool {
        self.looks_at_packets
    }

    /// Whether a watch has begun since the last call that wants packets that are not dropped.
    pub(crate) const fn take_begun(&mut self) -> bool {
        core::mem::replace(&mut self.has_begun, false)
    }

    /// Whether a watch wants packets of the connection that are not dropped.
    pub(crate) fn looks_at(&self, connection: &Connection) -> bool {
        let wanting = self.watches.iter().filter(|watching| watching.left > 0);
        wanting.filter_map(|watching| watching.subject.forwarded()).any(|filter| filter.matches_connection(connection))
    }

    #[inline]
    pub(crate) const fn is_following(&self) -> bool {
        self.is_following
    }

    /// Whether the stages are to report what they do with the packet that is being handled.
    #[inline]
    pub(crate) const fn attends(&self) -> bool {
        self.attends
    }

    /// Whether some packets of this batch may have to be attended to.
    #[inline]
    pub(crate) const fn is_active(&self) -> bool {
        self.looks_at_packets || self.latency.is_sampling()
    }
}
