//! The control API from afar: over TCP, for clients that have a token or a certificate.
//!
//! It is off unless `[control]` configures it. A client that has shown who it is gets one end of a pair of sockets whose
//! other end the server of the local socket serves like any client, with the role that goes with the token or the
//! certificate. So nothing that a stranger sends reaches more than what is here.
//!
//! ```text
//!  client ── TCP, TLS ──► deadline ─► certificate or token ─► role ─► relay ─► serve
//!                            │                 │
//!                            └─ too slow       └─ wrong: refused, counted, at most some a second;
//!                                                 its place is the first to go to another client
//! ```

mod access;
mod tls;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flow::token_bucket::{RateLimit, TokenBucket};
use packet_io::clock;
use rustls::{ServerConfig, ServerConnection};
use serde::{Deserialize, Serialize};

use super::answer::{CLIENTS_MAX, WRITE_TIMEOUT, error_line, write_line};
use api::{ErrorKind, VERSION};
use wire::Wire;

pub use api::Role;
pub use config::remote::{Identity, RemoteAccess};

pub use access::{TOKEN_CHARACTERS_MIN, TOKENS_MAX, Tokens, TokensError};
pub(crate) use tls::client as tls_client;
pub use tls::{TlsError, describe_tls};

/// Clients from afar at a time, those among them that have not shown yet who they are. Half of what the server of the local
/// socket takes: strangers never keep the operator on the machine out.
pub const REMOTE_CLIENTS_MAX: usize = 16;
/// Of one address.
pub const REMOTE_CLIENTS_OF_ADDRESS_MAX: usize = 6;
/// A client has so long to show who it is.
pub const ADMISSION_TIMEOUT: Duration = Duration::from_secs(5);
/// Wrong tokens that are answered at once: so many a second, after so many; the others wait for their answer.
const WRONG_TOKENS: RateLimit = RateLimit::new(2, 10);
/// The longest first line.
const FIRST_LINE_BYTES_MAX: usize = 1024;

/// The first line that a client without certificate sends.
#[derive(Serialize, Deserialize)]
pub(crate) struct Introduction {
    /// Of the control API.
    pub(crate) version: u16,
    /// Its token.
    pub(crate) token: String,
}

/// Why the API cannot be offered from afar.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The tokens.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// The certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Something listens there.
    #[error("control.listen: {address}: {source}: choose an address of this host and a port that is free")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
}

/// What a client must show.
pub struct Credentials {
    tokens: Option<Tokens>,
    tls: Option<Arc<ServerConfig>>,
    clients: Vec<(String, Role)>,
}

impl Credentials {
    /// Reads all the files that the configuration names.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn load(access: &RemoteAccess) -> Result<Self, RemoteError> {
        let tls = access.identity.as_ref().map(|identity| tls::server(identity, access.client_authority.as_deref()));
        Ok(Self {
            tokens: access.tokens.as_deref().map(Tokens::load).transpose()?,
            tls: tls.transpose()?,
            clients: access.clients.clone(),
        })
    }
}

/// Takes clients that are admitted. Implemented by the server of the local socket.
pub(super) trait Reception: Send + Sync + 'static {
    /// Serves the client at the other end of `stream`; returns at once.
    fn receive(&self, stream: UnixStream, role: Role);
}

/// How clients have fared.
#[derive(Default)]
struct Counters {
    admitted: AtomicU64,
    refused: AtomicU64,
}

/// A client as others than its thread see it.
struct Afar {
    address: IpAddr,
    stream: TcpStream,
    admission: Admission,
    /// Dropping it ends the wait for an answer to a wrong token.
    _delay: Sender<()>,
}

/// What is known of a client, in the order in which clients are closed for another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Admission {
    /// It has shown a wrong token and waits for its answer.
    Denied,
    /// It has shown nothing yet.
    Unknown,
    /// It is never closed for another one.
    Admitted,
}

struct Shared {
    credentials: Mutex<Arc<Credentials>>,
    reception: Box<dyn Reception>,
    /// By their numbers, which ascend in the order in which they came.
    clients: Mutex<BTreeMap<u64, Afar>>,
    wrong_tokens: Mutex<TokenBucket>,
    counters: Counters,
    stopping: AtomicBool,
}

/// A running listener. Dropping it closes it and all its clients.
pub struct RemoteServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl RemoteServer {
    pub(super) fn start(
        listen: SocketAddr,
        credentials: Credentials,
        reception: Box<dyn Reception>,
    ) -> Result<Self, RemoteError> {
        let failed = |source| RemoteError::Listen { address: listen, source };
        let listener = bind(listen)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            credentials: Mutex::new(Arc::new(credentials)),
            reception,
            clients: Mutex::default(),
            wrong_tokens: Mutex::default(),
            counters: Counters::default(),
            stopping: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let spawned = thread::Builder::new().name("control-remote".into()).spawn(move || accept(&listener, &accepting));
        Ok(Self { address, shared, acceptor: Some(spawned.map_err(failed)?) })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Clients that showed who they are, and those that could not.
    #[must_use]
    pub fn admitted_and_refused(&self) -> (u64, u64) {
        let Counters { admitted, refused } = &self.shared.counters;
        (admitted.load(Ordering::Relaxed), refused.load(Ordering::Relaxed))
    }

    /// From now on clients must show these. Those that are there stay.
    pub fn exchange(&self, credentials: Credentials) {
        *lock(&self.shared.credentials) = Arc::new(credentials);
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        for client in lock(&self.shared.clients).values() {
            // It may have gone already.
            let _ = client.stream.shutdown(std::net::Shutdown::Both);
        }
        // The connection wakes the acceptor; if none can be made, it ends with the process.
        let woken = TcpStream::connect_timeout(&self.address, ADMISSION_TIMEOUT).is_ok();
        if let Some(acceptor) = self.acceptor.take().filter(|_| woken) {
            let _ = acceptor.join();
        }
    }
}

/// Listens for clients from afar.
pub fn bind(address: SocketAddr) -> Result<TcpListener, RemoteError> {
    TcpListener::bind(address).map_err(|source| RemoteError::Listen { address, source })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (number, stream) in (0..).zip(listener.incoming()) {
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        match stream {
            Ok(stream) => take_in(number, stream, shared),
            Err(error) => {
                tracing::warn!(%error, "a control client from afar could not be accepted");
                // Out of file descriptors, mostly: give the others time to end.
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Begins a thread for a client. Where there is no room, the oldest client with a wrong token goes, or else the oldest that has not shown who
/// it is, of the same address if that has too many. If there is none, the new one is closed without a word: a word would be work that anybody
/// can ask for.
fn take_in(number: u64, stream: TcpStream, shared: &Arc<Shared>) {
    let (Ok(peer), Ok(for_closing)) = (stream.peer_addr(), stream.try_clone()) else { return };
    let (delay, evicted) = mpsc::channel();
    {
        let mut clients = lock(&shared.clients);
        let of_address = clients.values().filter(|client| client.address == peer.ip()).count();
        let has_room = if of_address >= REMOTE_CLIENTS_OF_ADDRESS_MAX {
            evict(&mut clients, Some(peer.ip()))
        } else {
            clients.len() < REMOTE_CLIENTS_MAX || evict(&mut clients, None)
        };
        if !has_room || shared.stopping.load(Ordering::Acquire) {
            shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let (address, admission) = (peer.ip(), Admission::Unknown);
        clients.insert(number, Afar { address, stream: for_closing, admission, _delay: delay });
    }
    let serving = Arc::clone(shared);
    let spawned = thread::Builder::new().name("control-afar".into()).spawn(move || {
        if let Err(error) = attend(stream, peer, &Place { number, evicted, shared: &serving }) {
            tracing::debug!(%peer, %error, "a control client from afar was closed");
        }
        lock(&serving.clients).remove(&number);
    });
    if spawned.is_err() {
        lock(&shared.clients).remove(&number);
    }
}

/// Closes the oldest client, of an address or any, with a wrong token, or else the oldest of which nothing is known yet. Whether there was one.
fn evict(clients: &mut BTreeMap<u64, Afar>, of: Option<IpAddr>) -> bool {
    let is_candidate =
        |client: &Afar| client.admission != Admission::Admitted && of.is_none_or(|address| client.address == address);
    let candidates = clients.iter().filter(|(_, client)| is_candidate(client));
    let victim = candidates.min_by_key(|(number, client)| (client.admission, **number)).map(|(number, _)| *number);
    let Some(client) = victim.and_then(|victim| clients.remove(&victim)) else { return false };
    // Its thread wakes up, counts it as refused, and ends.
    let _ = client.stream.shutdown(std::net::Shutdown::Both);
    true
}

/// A client's place among those that are served.
struct Place<'a> {
    number: u64,
    /// Closed when the place has gone to another client.
    evicted: Receiver<()>,
    shared: &'a Shared,
}

impl Place<'_> {
    fn set(&self, admission: Admission) {
        lock(&self.shared.clients).entry(self.number).and_modify(|client| client.admission = admission);
    }
}

/// Finds out who the client is, and relays between it and the server of the local socket until either is done.
fn attend(stream: TcpStream, peer: SocketAddr, place: &Place<'_>) -> io::Result<()> {
    let shared = place.shared;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let deadline = Instant::now() + ADMISSION_TIMEOUT;
    let credentials = Arc::clone(&lock(&shared.credentials));
    let refuse = || {
        shared.counters.refused.fetch_add(1, Ordering::Relaxed);
    };
    let mut wire = match &credentials.tls {
        None => Wire::plain(stream),
        Some(config) => {
            let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
            Wire::handshaken(stream, connection, deadline).inspect_err(|_| refuse())?
        }
    };
    let mut rest = Vec::new();
    let admitted = match by_certificate(&wire, &credentials) {
        Some(admitted) => Some(admitted),
        None => by_token(&mut wire, &credentials, deadline, &mut rest).inspect_err(|_| refuse())?,
    };
    let Some((name, role)) = admitted else {
        place.set(Admission::Denied);
        delay_answer(place, deadline);
        refuse();
        tracing::warn!(%peer, "a control client from afar was refused: it showed no token or certificate that is known");
        let mut line = Vec::new();
        let message = "this gateway knows no such token or certificate: use one that its control section names".into();
        write_line(&mut line, &error_line(ErrorKind::Denied, message))?;
        wire.write_all(&line)?;
        wire.close();
        return Ok(());
    };
    place.set(Admission::Admitted);
    shared.counters.admitted.fetch_add(1, Ordering::Relaxed);
    tracing::info!(%peer, client = name, ?role, "control client from afar");
    let (near, far) = UnixStream::pair()?;
    shared.reception.receive(far, role);
    let relayed = wire.relay(&near, &rest, WRITE_TIMEOUT);
    wire.close();
    relayed
}

fn by_certificate(wire: &Wire, credentials: &Credentials) -> Option<(String, Role)> {
    let shown = wire.tls()?.peer_certificates()?.first()?;
    tls::role_of(shown, &credentials.clients)
}

/// `None` if the token is not known.
fn by_token(
    wire: &mut Wire,
    credentials: &Credentials,
    deadline: Instant,
    rest: &mut Vec<u8>,
) -> io::Result<Option<(String, Role)>> {
    let Some(tokens) = &credentials.tokens else { return Ok(None) };
    let line = zeroize::Zeroizing::new(wire.read_line(FIRST_LINE_BYTES_MAX, deadline, rest)?);
    let Ok(introduction) = serde_json::from_slice::<Introduction>(&line) else { return Ok(None) };
    let token = zeroize::Zeroizing::new(introduction.token);
    if introduction.version != VERSION {
        return Ok(None);
    }
    Ok(tokens.find(token.as_bytes()).map(|(name, role)| (name.to_owned(), role)))
}

/// A client that guesses waits for each answer, at most until its place goes to another client.
fn delay_answer(place: &Place<'_>, deadline: Instant) {
    if !lock(&place.shared.wrong_tokens).take(clock::now(), &WRONG_TOKENS) {
        let delay = deadline.saturating_duration_since(Instant::now()).min(Duration::from_secs(1));
        // Nothing is ever sent: it ends by the time, or with the place.
        let _ = place.evicted.recv_timeout(delay);
    }
}

const _: () = assert!(REMOTE_CLIENTS_MAX * 2 <= CLIENTS_MAX);
