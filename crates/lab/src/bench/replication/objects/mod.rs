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
mod flow;
mod server;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use mio::Waker;
use packet_io::IoError;

use self::client::Client;
use self::flow::Shared;
pub use self::flow::{FLOW_BYTES_PER_S, Flow, Phase, Plan};
use self::server::Server;
use super::network::Network;
use crate::bench::BenchError;

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
    pub fn in_progress(&self) -> usize {
        self.shared.in_progress.load(Ordering::Relaxed)
    }

    /// Ends it; returns the stories of the latest flows, and of all that were in progress.
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
