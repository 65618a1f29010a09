//! Flows: what the client is to do, what it asks for, and the story of each.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Instant;

/// What a flow may send in a second: a two-hundredth of a gigabit link, as if all flows shared one.
pub const FLOW_BYTES_PER_S: u64 = 625_000;
/// Bytes that go at once, as much as TCP's first window (RFC 6928).
pub(super) const BURST_BYTES: usize = 14_600;
/// Bytes of a kilobyte here.
pub(super) const KILOBYTE: u64 = 1024;

/// What the client is to do.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Where the server listens.
    pub servers: Vec<SocketAddr>,
    /// Sizes of the objects; each has an equal share of the flows.
    pub object_kilobytes: Vec<u32>,
    /// Flows at a time, at most.
    pub at_once: usize,
    /// Flows that begin in a second, at most, while [`Phase::Steady`].
    pub flows_per_s_max: u64,
}

/// What the client does now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// Flows begin where others have ended, so many a second at most.
    Steady,
    /// Flows begin at once where others have ended, so that as many as possible are in progress.
    Hurried,
    /// No more begin; those in progress go on, and the times of that are recorded.
    Waiting,
    /// It ends.
    Stopped,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Steady, Self::Hurried, Self::Waiting, Self::Stopped];
}

/// What a client and its owner share while it works.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) phase: AtomicU8,
    pub(super) finished: AtomicUsize,
    pub(super) failed: AtomicUsize,
    pub(super) in_progress: AtomicUsize,
}

impl Shared {
    pub(super) fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::Relaxed)) % Phase::ALL.len()]
    }
}

/// The story of a flow, as its client saw it.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The object's size.
    pub object_kilobytes: u32,
    /// Whom it was begun with.
    pub server: SocketAddr,
    /// When it was begun.
    pub opened_at: Instant,
    /// When the server had accepted it.
    pub established_at: Option<Instant>,
    /// When it was over, well or not.
    pub ended_at: Option<Instant>,
    /// Why it is over without the whole object.
    pub failure: Option<String>,
    /// When something came, from [`Phase::Waiting`] on: the first so many times.
    pub progress: Vec<Instant>,
}

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) object_bytes: u32,
    pub(super) seed: u32,
}

impl Request {
    pub(super) const BYTES: usize = 8;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.object_bytes.to_be_bytes());
        bytes[4..].copy_from_slice(&self.seed.to_be_bytes());
        bytes
    }

    pub(super) const fn from_bytes([a, b, c, d, e, f, g, h]: [u8; Self::BYTES]) -> Self {
        Self { object_bytes: u32::from_be_bytes([a, b, c, d]), seed: u32::from_be_bytes([e, f, g, h]) }
    }
}
