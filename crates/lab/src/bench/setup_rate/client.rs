//! The side that makes connections: one thread, one event loop, as many open at a time as asked for.
//!
//! ```text
//!             opened             writable              answer read, closed
//!   (slot) ───────────► Connecting ───────► Asked ───────────────────────────► (the next is opened)
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use packet_io::IoError;

use super::server::{ANSWER_BYTES, REQUEST};
use crate::bench::BenchError;
use crate::testbed::topology::Topology;

/// How often the client looks whether it is to end, at least.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const EVENTS_MAX: usize = 1024;

/// What the client has done so far.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::bench) struct Tally {
    /// Connections whose answer has come.
    pub(in crate::bench) completed: u64,
    /// Connections that ended otherwise.
    pub(in crate::bench) failed: u64,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    completed: AtomicU64,
    failed: AtomicU64,
    first_failure: Mutex<Option<String>>,
}

/// A client at work. Dropping it ends it.
pub(in crate::bench) struct Client {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<io::Result<()>, IoError>>>,
}

impl Client {
    /// Starts a client in the topology's client namespace that connects to `servers` in turn.
    pub(in crate::bench) fn start(
        topology: &Arc<Topology>,
        servers: Vec<SocketAddr>,
        in_flight: u16,
    ) -> Result<Self, BenchError> {
        let shared = Arc::new(Shared::default());
        let poll = Poll::new().map_err(BenchError::Socket)?;
        let slots = (0..in_flight).map(|_| None).collect();
        let work = Loop { poll, servers, opened: 0, slots, shared: Arc::clone(&shared) };
        let topology = Arc::clone(topology);
        let thread = thread::spawn(move || topology.client.run(move || work.run()));
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What it has done so far.
    pub(in crate::bench) fn tally(&self) -> Tally {
        Tally {
            completed: self.shared.completed.load(Ordering::Relaxed),
            failed: self.shared.failed.load(Ordering::Relaxed),
        }
    }

    /// Ends it. Returns what it has done in all.
    ///
    /// # Errors
    /// A connection failed, or the client itself did.
    pub(in crate::bench) fn finish(mut self) -> Result<Tally, BenchError> {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(Ok(worked)) = self.thread.take().map(JoinHandle::join) {
            worked?.map_err(BenchError::Socket)?;
        }
        let tally @ Tally { completed, failed } = self.tally();
        if failed == 0 {
            return Ok(tally);
        }
        let reason = self.shared.first_failure.lock().ok().and_then(|mut reason| reason.take()).unwrap_or_default();
        Err(BenchError::Failed { failed, connections: completed + failed, reason })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

enum State {
    Connecting,
    /// The request is sent; so many bytes of the answer have come.
    Asked {
        answered_bytes: usize,
    },
}

struct Connection {
    stream: TcpStream,
    state: State,
}

/// What became of a connection when it was looked at.
#[derive(PartialEq, Eq)]
enum Step {
    Waiting,
    Completed,
}

struct Loop {
    poll: Poll,
    servers: Vec<SocketAddr>,
    opened: usize,
    slots: Vec<Option<Connection>>,
    shared: Arc<Shared>,
}

impl Loop {
    fn run(mut self) -> io::Result<()> {
        (0..self.slots.len()).for_each(|slot| self.open(slot));
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.shared.stop.load(Ordering::Relaxed) {
            match self.poll.poll(&mut events, Some(LOOK_EVERY)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                self.advance(event.token().0);
            }
        }
        Ok(())
    }

    /// Opens the next connection in the slot; one that cannot be opened leaves it empty.
    fn open(&mut self, slot: usize) {
        let server = self.servers[self.opened % self.servers.len()];
        self.opened += 1;
        let opened = TcpStream::connect(server).and_then(|mut stream| {
            self.poll.registry().register(&mut stream, Token(slot), Interest::READABLE | Interest::WRITABLE)?;
            Ok(stream)
        });
        match opened {
            Ok(stream) => self.slots[slot] = Some(Connection { stream, state: State::Connecting }),
            Err(error) => {
                self.slots[slot] = None;
                self.note_failure(&error);
            }
        }
    }

    fn advance(&mut self, slot: usize) {
        // An event of the connection that was in the slot before finds the new one waiting.
        let Some(connection) = &mut self.slots[slot] else { return };
        match connection.advance() {
            Ok(Step::Waiting) => return,
            Ok(Step::Completed) => {
                self.shared.completed.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => self.note_failure(&error),
        }
        self.open(slot);
    }

    fn note_failure(&self, error: &io::Error) {
        self.shared.failed.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut first) = self.shared.first_failure.lock() {
            first.get_or_insert_with(|| error.to_string());
        }
    }
}

impl Connection {
    fn advance(&mut self) -> io::Result<Step> {
        if matches!(self.state, State::Connecting) {
            match self.stream.write(&REQUEST) {
                Ok(_) => self.state = State::Asked { answered_bytes: 0 },
                Err(error) if is_not_yet(&error) => return Ok(Step::Waiting),
                Err(error) => return Err(error),
            }
            // The answer cannot be there yet.
            return Ok(Step::Waiting);
        }
        let State::Asked { answered_bytes } = &mut self.state else { return Ok(Step::Waiting) };
        let mut answer = [0; ANSWER_BYTES];
        match self.stream.read(&mut answer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                *answered_bytes += count;
                Ok(if *answered_bytes >= ANSWER_BYTES { Step::Completed } else { Step::Waiting })
            }
            Err(error) if is_not_yet(&error) => Ok(Step::Waiting),
            Err(error) => Err(error),
        }
    }
}

fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected | ErrorKind::Interrupted)
}
