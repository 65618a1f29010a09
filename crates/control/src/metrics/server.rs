//! Serves the page over HTTP/1.1, one request a connection. One thread serves all clients as far as each lets it, so that
//! none waits for another: a client has a deadline, and where there are too many, the oldest that has not asked yet goes.
//!
//! ```text
//!  accept ─► read the request's head ─► write the answer ─► read what is left ─► closed
//!               too long: 431 ──────────────┘
//! ```

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};

use super::exposition::{CONTENT_TYPE, render};
use crate::ControlSender;

/// Clients at a time.
pub const CLIENTS_MAX: usize = 64;
/// Longest head of a request.
pub const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// A client has so long to send its request, so long again to take the answer, and so long to close.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes behind a request that are read, lest closing become a reset, which can overtake the answer.
const DRAINED_BYTES_MAX: usize = 256 * 1024;
/// Clients are served the same answer of the data path for so long: however many ask, packets wait for ten answers a second.
pub const REUSE: Duration = Duration::from_millis(100);
/// How long no client is accepted after the system refused to: it lacks descriptors, mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const LISTENER: Token = Token(0);
const STOP: Token = Token(1);
const FIRST_CLIENT: usize = 2;

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The port is taken.
    #[error("metrics cannot be served at {0}: another program listens there: change node.metrics")]
    InUse(SocketAddr),
    /// The operating system refused.
    #[error("metrics cannot be served at {address}: {source}: change node.metrics")]
    System {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
}

/// A running server; dropping it ends it.
pub struct MetricsServer {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Serves `/metrics` at `address` with what the data path counts. Port 0 lets the system choose one.
    ///
    /// # Errors
    /// [`MetricsError`].
    pub fn start(address: SocketAddr, sender: ControlSender) -> Result<Self, MetricsError> {
        let system = |source| MetricsError::System { address, source };
        let listener = bind(address)?;
        let address = listener.local_addr().map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        let poll = Poll::new().map_err(system)?;
        let waker = Waker::new(poll.registry(), STOP).map_err(system)?;
        let mut listener = mio::net::TcpListener::from_std(listener);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE).map_err(system)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let mut serving = Serving {
            listener,
            poll,
            source: Source { sender, newest: None },
            clients: BTreeMap::new(),
            next: FIRST_CLIENT,
        };
        let spawned = thread::Builder::new().name("metrics".to_owned()).spawn(move || serving.run(&stop));
        Ok(Self { address, stopping, waker, thread: Some(spawned.map_err(system)?) })
    }

    /// Where it serves.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Listens for readers of metrics.
///
/// # Errors
/// [`MetricsError`].
pub fn bind(address: SocketAddr) -> Result<TcpListener, MetricsError> {
    TcpListener::bind(address).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => MetricsError::InUse(address),
        _ => MetricsError::System { address, source },
    })
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        let woken = self.waker.wake().is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// What the server's thread has.
struct Serving {
    listener: mio::net::TcpListener,
    poll: Poll,
    source: Source,
    /// By their numbers, which ascend in the order in which they came.
    clients: BTreeMap<usize, Client>,
    next: usize,
}

/// Where the page comes from.
struct Source {
    sender: ControlSender,
    /// The newest page, or why there is none, and when it was answered.
    newest: Option<(Instant, Result<String, String>)>,
}

impl Source {
    /// The page, at most [`REUSE`] old, or why there is none.
    fn page(&mut self) -> &Result<String, String> {
        let newest = self.newest.take().filter(|(answered_at, _)| answered_at.elapsed() < REUSE);
        let ask = || {
            let page = self.sender.counters().map(|samples| render(&samples)).map_err(|error| error.to_string());
            (Instant::now(), page)
        };
        &self.newest.insert(newest.unwrap_or_else(ask)).1
    }
}

/// How far a client is.
enum Stage {
    /// The head of its request so far.
    Reading(Vec<u8>),
    /// Its answer, and how much of it has been taken.
    Writing(Vec<u8>, usize),
    /// It has its answer. Bytes read since.
    Draining(usize),
}

struct Client {
    stream: TcpStream,
    stage: Stage,
    deadline: Instant,
}

impl Serving {
    fn run(&mut self, stop: &AtomicBool) {
        let mut events = Events::with_capacity(2 * CLIENTS_MAX);
        let mut has_more = false;
        loop {
            let earliest = self.clients.values().map(|client| client.deadline).min();
            let until = earliest.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let until = if has_more { Some(Duration::ZERO) } else { until };
            match self.poll.poll(&mut events, until) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    tracing::warn!(%error, "metrics are no longer served");
                    return;
                }
                _ if stop.load(Ordering::Acquire) => return,
                _ => {}
            }
            for event in &events {
                match event.token() {
                    LISTENER => has_more = true,
                    STOP => {}
                    Token(number) => self.serve(number),
                }
            }
            let now = Instant::now();
            self.clients.retain(|_, client| client.deadline > now);
            if has_more {
                has_more = self.accept();
            }
        }
    }

    /// Accepts as many clients as are served at a time, so that each is looked at before another can take its place.
    /// Whether there may be more.
    fn accept(&mut self) -> bool {
        for _ in 0..CLIENTS_MAX {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    tracing::debug!(%error, "a reader of metrics could not be accepted");
                    thread::sleep(ACCEPT_PAUSE);
                    return true;
                }
            };
            if self.clients.len() >= CLIENTS_MAX {
                self.evict();
            }
            let (number, interest) = (self.next, Interest::READABLE | Interest::WRITABLE);
            self.next += 1;
            if self.poll.registry().register(&mut stream, Token(number), interest).is_ok() {
                let (stage, deadline) = (Stage::Reading(Vec::new()), Instant::now() + CLIENT_TIMEOUT);
                self.clients.insert(number, Client { stream, stage, deadline });
                self.serve(number);
            }
        }
        true
    }

    /// Closes the client that came first among those to which nothing is being written, or among all.
    fn evict(&mut self) {
        let is_idle = |client: &Client| !matches!(client.stage, Stage::Writing(..));
        let idle = self.clients.iter().find(|(_, client)| is_idle(client)).map(|(number, _)| *number);
        let victim = idle.or_else(|| self.clients.keys().next().copied());
        victim.and_then(|victim| self.clients.remove(&victim));
    }

    /// Goes on with a client as far as it lets itself be served, and closes it when it is done.
    fn serve(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        match client.advance(&mut self.source) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::debug!(%error, "a reader of metrics was closed");
                self.clients.remove(&number);
            }
            Ok(()) => {
                self.clients.remove(&number);
            }
        }
    }
}

impl Client {
    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.deadline = Instant::now() + CLIENT_TIMEOUT;
    }

    /// Returns when the client is done; `WouldBlock` when it has to do something first.
    fn advance(&mut self, source: &mut Source) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match &mut self.stage {
                Stage::Reading(head) => {
                    match self.stream.read(&mut buffer)? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        length => head.extend_from_slice(&buffer[..length]),
                    }
                    let is_complete = head.windows(4).any(|end| end == b"\r\n\r\n");
                    let answer = if is_complete && head.len() <= REQUEST_BYTES_MAX {
                        respond(&String::from_utf8_lossy(head), source)
                    } else if head.len() > REQUEST_BYTES_MAX {
                        let reason = format!("The request is longer than {REQUEST_BYTES_MAX} bytes.\n");
                        plain("431 Request Header Fields Too Large", &reason)
                    } else {
                        continue;
                    };
                    self.enter(Stage::Writing(encode(answer), 0));
                }
                Stage::Writing(answer, written) => {
                    if *written < answer.len() {
                        *written += self.stream.write(&answer[*written..])?;
                        continue;
                    }
                    self.stream.shutdown(Shutdown::Write)?;
                    self.enter(Stage::Draining(0));
                }
                Stage::Draining(bytes) => match self.stream.read(&mut buffer)? {
                    0 => return Ok(()),
                    _ if *bytes > DRAINED_BYTES_MAX => return Ok(()),
                    length => *bytes += length,
                },
            }
        }
    }
}

fn encode((status, content_type, body): Response) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

type Response = (&'static str, &'static str, String);

fn plain(status: &'static str, body: &str) -> Response {
    (status, "text/plain; charset=utf-8", body.to_owned())
}

fn respond(head: &str, source: &mut Source) -> Response {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !words.next().is_some_and(|version| version.starts_with("HTTP/1.")) {
        return plain("400 Bad Request", "This is not HTTP/1.\n");
    }
    if method != "GET" {
        return plain("405 Method Not Allowed", "Only GET is offered.\n");
    }
    let path = target.split('?').next().unwrap_or_default();
    if !matches!(path, "/metrics" | "/health") {
        return plain("404 Not Found", "There are /metrics and /health and nothing else.\n");
    }
    match source.page() {
        Ok(_) if path == "/health" => plain("200 OK", "The data path answers.\n"),
        Ok(page) => ("200 OK", CONTENT_TYPE, page.clone()),
        Err(error) => plain("503 Service Unavailable", &format!("{error}\n")),
    }
}
