//! The traffic of one run: a server and a client in their namespaces, each on a thread of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use mio::Waker;
use packet_io::IoError;

use super::topology::Topology;
use super::traffic::client::{Client, Command, Plan, Progress, TrafficReport};
use super::traffic::server::Server;

/// Why there is no traffic.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// A namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] IoError),
    /// A socket or an event queue failed.
    #[error("the demo's {who} cannot work: {source}")]
    Socket {
        /// Client or server.
        who: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The client's thread ended before its time.
    #[error("the demo's client ended early")]
    ClientGone,
}

/// Running traffic. Dropping it ends the threads.
pub struct Session {
    progress: Arc<Mutex<Progress>>,
    commands: Sender<Command>,
    waker: Waker,
    client: Option<JoinHandle<Result<TrafficReport, TrafficError>>>,
    server: Option<JoinHandle<io::Result<()>>>,
    stop: Arc<AtomicBool>,
}

impl Session {
    /// Starts the server, then the client.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn start(topology: &Arc<Topology>, plan: Plan) -> Result<Self, TrafficError> {
        let listening = plan.servers.clone();
        Self::start_behind(topology, plan, &listening)
    }

    /// As [`Session::start`], with a server that listens elsewhere than where the client takes it to be.
    ///
    /// # Errors
    /// A socket cannot be opened.
    pub fn start_behind(topology: &Arc<Topology>, plan: Plan, listening: &[SocketAddr]) -> Result<Self, TrafficError> {
        let server = topology.server.run(|| Server::bind(listening))?;
        let server = server.map_err(|source| TrafficError::Socket { who: "server", source })?;
        let stop = Arc::new(AtomicBool::new(false));
        // The server's sockets stay in the namespace that they were opened in, whichever thread uses them.
        let serving = thread::spawn({
            let stop = Arc::clone(&stop);
            move || server.run(&stop)
        });
        let progress = Arc::new(Mutex::new(Progress::default()));
        let failed = |source| TrafficError::Socket { who: "client", source };
        let (client, waker) = Client::new(plan, Arc::clone(&progress)).map_err(failed)?;
        let (commands, inbox) = channel();
        let client = thread::spawn({
            let topology = Arc::clone(topology);
            move || topology.client.run(move || client.run(&inbox))?.map_err(failed)
        });
        Ok(Self { progress, commands, waker, client: Some(client), server: Some(serving), stop })
    }

    /// How far the client has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress.lock().map(|progress| *progress).unwrap_or_default()
    }

    /// Makes the silent connections ask something.
    ///
    /// # Errors
    /// The client has ended.
    pub fn wake_silent(&self) -> Result<(), TrafficError> {
        self.command(Command::Wake)
    }

    /// Has each connection note what it has received or sent by now ([`Outcome::marks`](super::traffic::outcome::Outcome)).
    ///
    /// # Errors
    /// The client has ended.
    pub fn mark(&self) -> Result<(), TrafficError> {
        self.command(Command::Mark)
    }

    /// Ends the traffic; returns the stories of the connections.
    ///
    /// # Errors
    /// The client failed while it ran.
    pub fn finish(mut self) -> Result<TrafficReport, TrafficError> {
        self.command(Command::Stop)?;
        let client = self.client.take().ok_or(TrafficError::ClientGone)?;
        client.join().map_err(|_| TrafficError::ClientGone)?
    }

    fn command(&self, command: Command) -> Result<(), TrafficError> {
        self.commands.send(command).map_err(|_| TrafficError::ClientGone)?;
        self.waker.wake().map_err(|source| TrafficError::Socket { who: "client", source })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A client that has ended needs no command; the threads' results have been taken or are not wanted.
        let _ = self.command(Command::Stop);
        if let Some(client) = self.client.take() {
            let _ = client.join();
        }
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}
