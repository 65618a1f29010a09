//! The experiment's traffic: a client that fetches objects of several sizes, each over a TCP connection of its own.
//!
//! ```text
//!   client                              server
//!     │── connects ─────────────────────►│
//!     │── how long, which seed (8 B) ───►│
//!     │◄──────────── the object, paced ──│
//!     │◄─────────────────────── closes ──│   whole, and every byte right: the flow is finished
//! ```

mod client;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;
use std::{io, net::SocketAddr};

use mio::Waker;
use packet_io::IoError;

use self::client::Client;
use self::server::Server;
use super::network::Network;
use crate::bench::BenchError;

/// What a flow may send in a second: a two-hundredth of a gigabit link, as if all flows shared one.
pub const FLOW_BYTES_PER_S: u64 = 625_000;
/// Bytes that go at once, as much as TCP's first window (RFC 6928).
const BURST_BYTES: usize = 14_600;
/// Bytes of a kilobyte here.
const KILOBYTE: u64 = 1024;

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
    /// Flows begin at once where others have ended, so that all that may be under way are.
    Hurried,
    /// No more begin; those under way go on, and when they do is written down.
    Waiting,
    /// It ends.
    Stopped,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Steady, Self::Hurried, Self::Waiting, Self::Stopped];
}

/// What a client is told and tells while it works.
#[derive(Default)]
struct Shared {
    phase: AtomicU8,
    finished: AtomicUsize,
    failed: AtomicUsize,
    under_way: AtomicUsize,
}

impl Shared {
    fn phase(&self) -> Phase {
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

/// Running traffic. Dropping it ends it.
pub struct Traffic {
    shared: Arc<Shared>,
    waker: Waker,
    client: Option<JoinHandle<Result<io::Result<Vec<Flow>>, IoError>>>,
    server_stops: Arc<AtomicBool>,
    server: Option<JoinHandle<io::Result<()>>>,
}

impl Traffic {
    /// Starts the server, then the client.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn start(network: &Network, plan: Plan) -> Result<Self, BenchError> {
        let addresses = plan.servers.clone();
        let server = network.server().run(|| Server::bind(&addresses))?.map_err(BenchError::Socket)?;
        let server_stops = Arc::new(AtomicBool::new(false));
        // The server's sockets stay in the namespace that they were opened in, whichever thread uses them.
        let serving = thread::spawn({
            let stops = Arc::clone(&server_stops);
            move || server.run(&stops)
        });
        let shared = Arc::new(Shared::default());
        let (client, waker) = Client::new(plan, Arc::clone(&shared)).map_err(BenchError::Socket)?;
        let topology = Arc::clone(network.topology());
        let client = thread::spawn(move || topology.client.run(move || client.run()));
        Ok(Self { shared, waker, client: Some(client), server_stops, server: Some(serving) })
    }

    /// Has the client do something else from now on.
    pub fn set_phase(&self, phase: Phase) {
        self.shared.phase.store(phase as u8, Ordering::Relaxed);
        // If it cannot be woken it looks within milliseconds.
        let _ = self.waker.wake();
    }

    /// Flows that have got their objects.
    #[must_use]
    pub fn finished(&self) -> usize {
        self.shared.finished.load(Ordering::Relaxed)
    }

    /// Flows that ended otherwise.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Flows that have begun and not ended.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.shared.under_way.load(Ordering::Relaxed)
    }

    /// Ends it; returns the stories of the latest flows, and of all that were under way.
    ///
    /// # Errors
    /// The client could not wait for its sockets.
    pub fn finish(mut self) -> Result<Vec<Flow>, BenchError> {
        self.set_phase(Phase::Stopped);
        let client = self.client.take().expect("it is there until the traffic ends");
        let flows = client.join().unwrap_or_else(|panicked| std::panic::resume_unwind(panicked));
        flows?.map_err(BenchError::Socket)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.set_phase(Phase::Stopped);
        self.server_stops.store(true, Ordering::Relaxed);
        // What they return has been asked for, or is not wanted.
        self.client.take().map(JoinHandle::join);
        self.server.take().map(JoinHandle::join);
    }
}

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Request {
    object_bytes: u32,
    seed: u32,
}

impl Request {
    const BYTES: usize = 8;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.object_bytes.to_be_bytes());
        bytes[4..].copy_from_slice(&self.seed.to_be_bytes());
        bytes
    }

    const fn from_bytes([a, b, c, d, e, f, g, h]: [u8; Self::BYTES]) -> Self {
        Self { object_bytes: u32::from_be_bytes([a, b, c, d]), seed: u32::from_be_bytes([e, f, g, h]) }
    }
}
