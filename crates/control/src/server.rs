//! The server's side of the control socket: a thread that accepts, and one for each client, so that a slow client
//! delays no other.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, thread};

use cluster::observation::Subject;
use flow::NodeId;

use super::answer::{CLIENTS_MAX, Failed, IDLE_TIMEOUT, WRITE_TIMEOUT, error_line, write_line};
use super::flows::{FlowDescriber, FlowFilter, FlowsQuery};
use super::inquiry::ControlSender;
use super::orders::Operations;
use super::remote::{Credentials, Reception, RemoteError, RemoteServer, Role};
use super::streams::{self, Stream};
use super::watching;
use api::{ErrorKind, FlowFilterText, Line, PacketFilterText, Query, Request, VERSION};

/// Longest request, with its newline; a longer one is refused and its client closed.
pub const REQUEST_BYTES_MAX: usize = 16 * 1024;
/// A client that takes nothing of its answer for so long may be closed for another.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// Why the control socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A live process listens there.
    #[error("another gateway answers at {}: stop it, or choose another node.control_socket", .0.display())]
    InUse(PathBuf),
    /// Something else has the name.
    #[error("{} exists and is not a socket: remove it, or choose another node.control_socket", .0.display())]
    NotASocket(PathBuf),
    /// The operating system refused.
    #[error("cannot listen at {}: {source}: choose a node.control_socket that this user may create", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// What the threads of a server share.
struct Shared {
    sender: ControlSender,
    describer: Arc<FlowDescriber>,
    operations: Arc<dyn Operations>,
    stopping: AtomicBool,
    /// The number of the next client.
    next_client: AtomicU64,
    /// To be closed when the server ends, or for another client.
    clients: Mutex<HashMap<u64, Client>>,
}

/// A client as others than its thread see it.
struct Client {
    stream: UnixStream,
    waiting: Arc<Mutex<Waiting>>,
}

/// What the server waits for the client to do, and since when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiting {
    /// To send a request, or the rest of one.
    Request(Instant),
    /// To take some of its answer.
    Room(Instant),
    /// Nothing: its request is being served.
    Nothing,
}

impl Waiting {
    /// Since when, if the client may be closed for another at `now`.
    fn evictable_since(self, now: Instant) -> Option<Instant> {
        match self {
            Self::Request(since) => Some(since),
            Self::Room(since) => Some(since).filter(|since| now.saturating_duration_since(*since) >= STALLED_AFTER),
            Self::Nothing => None,
        }
    }
}

/// Writes to a client, and notes that it is waited for.
struct NotedWriter<'a> {
    stream: &'a UnixStream,
    waiting: &'a Mutex<Waiting>,
}

impl Write for NotedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        note(self.waiting, Waiting::Room(Instant::now()));
        let written = self.stream.write(bytes);
        note(self.waiting, Waiting::Nothing);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn note(waiting: &Mutex<Waiting>, now: Waiting) {
    *waiting.lock().unwrap_or_else(PoisonError::into_inner) = now;
}

/// A running server. Dropping it closes the socket, its file and all clients.
pub struct ControlServer {
    path: PathBuf,
    /// Device and inode of the socket's file, so that a successor's file is left alone.
    file: (u64, u64),
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Listens at `path`, readable and writable for its owner only. The file of a process that died is replaced.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(
        path: &Path,
        sender: ControlSender,
        describer: Arc<FlowDescriber>,
        operations: Arc<dyn Operations>,
    ) -> Result<Self, ServerError> {
        let system = |source| ServerError::System { path: path.to_owned(), source };
        refuse_if_taken(path)?;
        let (listener, file) = bind_private(path).map_err(system)?;
        let shared = Arc::new(Shared {
            sender,
            describer,
            operations,
            stopping: AtomicBool::new(false),
            next_client: AtomicU64::new(0),
            clients: Mutex::new(HashMap::new()),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = thread::Builder::new().name("control".to_owned()).spawn(move || accept(&listener, &accepting));
        Ok(Self { path: path.to_owned(), file, shared, acceptor: Some(acceptor.map_err(system)?) })
    }
}

impl ControlServer {
    /// Offers the same from afar, to clients that show the credentials. To be dropped before this server.
    ///
    /// # Errors
    /// Nothing can listen there.
    pub fn listen_afar(&self, listen: SocketAddr, credentials: Credentials) -> Result<RemoteServer, RemoteError> {
        RemoteServer::start(listen, credentials, Box::new(Clients(Arc::clone(&self.shared))))
    }
}

/// Clients that were admitted elsewhere.
struct Clients(Arc<Shared>);

impl Reception for Clients {
    fn receive(&self, stream: UnixStream, role: Role) {
        admit(stream, role, &self.0);
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        for client in self.shared.clients().values() {
            // A client that has gone meanwhile is closed already.
            let _ = client.stream.shutdown(Shutdown::Both);
        }
        let ours = fs::metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.file);
        // The connection wakes the acceptor. Without a file that leads to it, it sleeps until the process ends.
        let woken = ours && UnixStream::connect(&self.path).is_ok();
        if ours {
            let _ = fs::remove_file(&self.path);
        }
        if let Some(acceptor) = self.acceptor.take().filter(|_| woken) {
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn clients(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nothing is in the way of a socket at `path`; the file of a process that died is not.
///
/// # Errors
/// [`ServerError`].
pub fn refuse_if_taken(path: &Path) -> Result<(), ServerError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(ServerError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(ServerError::InUse(path.to_owned())),
        Err(source) => Err(ServerError::System { path: path.to_owned(), source }),
    }
}

/// Binds within a directory that only the owner can enter, sets the mode there and moves the socket to its place: at
/// no time can another user connect, and a stale file is replaced in one step.
fn bind_private(path: &Path) -> io::Result<(UnixListener, (u64, u64))> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let private = parent.join(format!(".{}-{name}", std::process::id()));
    let temporary = private.join("s");
    // A process of the same number may have died just here.
    let _ = fs::remove_file(&temporary);
    let _ = fs::remove_dir(&private);
    fs::DirBuilder::new().mode(0o700).create(&private)?;
    let bound = (|| {
        let listener = UnixListener::bind(&temporary)?;
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600))?;
        let file = fs::metadata(&temporary)?;
        fs::rename(&temporary, path)?;
        Ok((listener, (file.dev(), file.ino())))
    })();
    if bound.is_err() {
        // Absent when binding itself failed.
        let _ = fs::remove_file(&temporary);
    }
    fs::remove_dir(&private)?;
    bound
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        match stream {
            // A user who may open the socket's file runs the gateway.
            Ok(stream) => admit(stream, Role::Operate, shared),
            Err(error) => {
                tracing::warn!(%error, "a control client could not be accepted");
                // Out of file descriptors, mostly: give the others time to end.
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

fn admit(mut stream: UnixStream, role: Role, shared: &Arc<Shared>) {
    let configured =
        stream.set_read_timeout(Some(IDLE_TIMEOUT)).and_then(|()| stream.set_write_timeout(Some(WRITE_TIMEOUT)));
    let Ok(()) = configured else { return };
    let mut clients = shared.clients();
    // Under the lock: either the closing server finds the client in the list, or the client finds it closing.
    if shared.stopping.load(Ordering::Acquire) {
        return;
    }
    if clients.len() >= CLIENTS_MAX && !evict(&mut clients) {
        drop(clients);
        let message = format!("{CLIENTS_MAX} clients are connected already: close one");
        // The client may be gone; then the line is not missed.
        let _ = write_line(&mut stream, &error_line(ErrorKind::Limit, message));
        return;
    }
    let Ok(for_closing) = stream.try_clone() else { return };
    let number = shared.next_client.fetch_add(1, Ordering::Relaxed);
    let waiting = Arc::new(Mutex::new(Waiting::Request(Instant::now())));
    clients.insert(number, Client { stream: for_closing, waiting: Arc::clone(&waiting) });
    drop(clients);
    let serving = Arc::clone(shared);
    let spawned = thread::Builder::new().name("control-client".to_owned()).spawn(move || {
        if let Err(error) = serve(&stream, role, &waiting, &serving) {
            tracing::debug!(%error, "a control client was closed");
        }
        serving.clients().remove(&number);
    });
    if spawned.is_err() {
        shared.clients().remove(&number);
    }
}

/// Closes the client that has been waited for longest. Whether there was one.
fn evict(clients: &mut HashMap<u64, Client>) -> bool {
    let now = Instant::now();
    let since = |client: &Client| client.waiting.lock().unwrap_or_else(PoisonError::into_inner).evictable_since(now);
    let waited_for = clients.iter().filter_map(|(number, client)| Some((since(client)?, *number)));
    let Some(client) = waited_for.min().and_then(|(_, number)| clients.remove(&number)) else { return false };
    // Its thread wakes up, and ends.
    let _ = client.stream.shutdown(Shutdown::Both);
    tracing::debug!("a control client that was waited for was closed for another");
    true
}

/// Answers a client's requests until it goes, or breaks a limit.
fn serve(stream: &UnixStream, role: Role, waiting: &Mutex<Waiting>, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = BufWriter::new(NotedWriter { stream, waiting });
    let mut line = Vec::new();
    loop {
        line.clear();
        note(waiting, Waiting::Request(Instant::now()));
        let length = reader.by_ref().take(REQUEST_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(());
        }
        note(waiting, Waiting::Nothing);
        if length > REQUEST_BYTES_MAX {
            let message = format!("the request is longer than {REQUEST_BYTES_MAX} bytes: shorten it");
            write_line(&mut writer, &error_line(ErrorKind::Limit, message))?;
            writer.flush()?;
            // What was not read would turn the close into a reset, which can overtake the answer.
            stream.shutdown(Shutdown::Write)?;
            note(waiting, Waiting::Request(Instant::now()));
            let rest = io::copy(&mut reader.take(4 * REQUEST_BYTES_MAX as u64), &mut io::sink());
            return rest.map(|_| ());
        }
        let permitted = parse(&line).and_then(|query| permit(query, role));
        if let Err(failed) = permitted.and_then(|query| answer(&query, shared, &mut reader, &mut writer)) {
            match failed {
                Failed::Request(line) => write_line(&mut writer, &line)?,
                Failed::Client(error) => return Err(error),
            }
        }
        writer.flush()?;
    }
}

/// The query, if a client of this role may ask it.
fn permit(query: Query, role: Role) -> Result<Query, Failed> {
    if role >= Role::needed_for(&query) {
        return Ok(query);
    }
    let message = "this token or certificate may only read: use one whose role is operate".to_owned();
    Err(Failed::Request(Box::new(error_line(ErrorKind::Denied, message))))
}

fn parse(line: &[u8]) -> Result<Query, Failed> {
    /// The part of a request that every version has.
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u16,
    }
    let malformed = |error: serde_json::Error| {
        let message = format!("the request is malformed: {error}");
        Failed::Request(Box::new(error_line(ErrorKind::Malformed, message)))
    };
    let Versioned { version } = serde_json::from_slice(line).map_err(malformed)?;
    if version != VERSION {
        let message = format!("the request is of version {version}, this gateway supports version {VERSION}");
        return Err(Failed::Request(Box::new(error_line(ErrorKind::Incompatible, message))));
    }
    serde_json::from_slice::<Request>(line).map(|request| request.query).map_err(malformed)
}

fn answer(
    query: &Query,
    shared: &Shared,
    reader: &mut BufReader<&UnixStream>,
    writer: &mut impl Write,
) -> Result<(), Failed> {
    let (lines, truncated) = match query {
        Query::Trace { .. } | Query::Capture { .. } | Query::Follow { .. } => {
            let stream = stream_of(query, shared)?;
            streams::answer(&stream, &shared.sender, &shared.describer, reader, writer)?
        }
        Query::Status => {
            write_line(writer, &Line::Status(Box::new(shared.sender.status()?)))?;
            (1, false)
        }
        Query::Flows { filter, limit } => answer_flows(filter, *limit, shared, writer)?,
        Query::Counters => write_lines(writer, shared.sender.counters()?.into_iter().map(Line::Sample))?,
        Query::Events => write_lines(writer, shared.sender.events()?.into_iter().map(Line::Event))?,
        Query::Url { target } => {
            let found = shared.sender.url(target)?.map_err(Failed::refused)?;
            write_lines(writer, [Line::Url(Box::new(found))].into_iter())?
        }
        Query::Reload { check_only } => {
            write_lines(writer, [Line::Reload(shared.operations.reload(*check_only)?)].into_iter())?
        }
        Query::Drain { force } => {
            shared.operations.drain(*force)?;
            (0, false)
        }
        Query::Undrain => {
            shared.operations.undrain()?;
            (0, false)
        }
        Query::DrainNode { node, drained } => {
            shared.operations.drain_node(NodeId(*node), *drained)?;
            (0, false)
        }
        Query::Sync { order } => {
            write_line(writer, &Line::Readiness(shared.operations.sync(*order)?))?;
            (1, false)
        }
    };
    write_line(writer, &Line::End { version: VERSION, lines, truncated })?;
    Ok(())
}

/// What a request for an answer that goes on wants.
fn stream_of(query: &Query, shared: &Shared) -> Result<Stream, Failed> {
    let packets =
        |filter: &PacketFilterText| watching::packet_filter(filter, &shared.describer).map_err(Failed::malformed);
    let (subject, count, seconds) = match query {
        Query::Trace { filter, count, seconds } => (Subject::Packets(packets(filter)?), count, seconds),
        Query::Capture { at, filter, count, seconds, snapshot_bytes } => {
            let at = watching::point(at, &shared.sender.functions()?).map_err(Failed::malformed)?;
            let snapshot_bytes = *snapshot_bytes;
            (Subject::Frames { at, filter: packets(filter)?, snapshot_bytes }, count, seconds)
        }
        Query::Follow { filter, count, seconds } => {
            (Subject::Connections(watching::followed(filter).map_err(Failed::malformed)?), count, seconds)
        }
        _ => return Err(Failed::malformed("the request has one answer".to_owned())),
    };
    if !(seconds.is_finite() && *seconds > 0.0) || *count == 0 {
        return Err(Failed::malformed("count and seconds must be above 0".to_owned()));
    }
    Ok(Stream { subject, count: *count, seconds: *seconds })
}

/// Fetches page after page, so that the data path never works long at a time and no list of all flows exists anywhere.
fn answer_flows(
    filter: &FlowFilterText,
    limit: u64,
    shared: &Shared,
    writer: &mut impl Write,
) -> Result<(u64, bool), Failed> {
    let filter = FlowFilter::parse(filter).map_err(Failed::malformed)?;
    let mut written = 0;
    let (mut worker, mut cursor) = (0, 0);
    while worker < shared.sender.workers() {
        let describer = Arc::clone(&shared.describer);
        let page = shared.sender.flows(worker, FlowsQuery { filter: filter.clone(), cursor, describer })?;
        for listed in &page.connections {
            if written == limit {
                return Ok((written, true));
            }
            write_line(writer, &Line::Flow(shared.describer.describe_in(&page, listed)))?;
            written += 1;
        }
        for flow in page.described {
            if written == limit {
                return Ok((written, true));
            }
            write_line(writer, &Line::Flow(flow))?;
            written += 1;
        }
        (worker, cursor) = page.next_cursor.map_or((worker + 1, 0), |next| (worker, next));
    }
    Ok((written, false))
}

fn write_lines(writer: &mut impl Write, lines: impl Iterator<Item = Line>) -> io::Result<(u64, bool)> {
    let mut written = 0;
    for line in lines {
        write_line(writer, &line)?;
        written += 1;
    }
    Ok((written, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_that_is_waited_for_longest_is_closed() {
        let now = Instant::now();
        let before = |ms| now.checked_sub(Duration::from_millis(ms)).expect("the machine has run for so long");
        let stalled = STALLED_AFTER.as_millis() as u64;
        let waiting = [
            Waiting::Nothing,
            Waiting::Request(before(500)),
            Waiting::Room(before(stalled / 2 + 200)),
            Waiting::Room(before(stalled + 100)),
            Waiting::Request(before(600)),
        ];
        let client = |waiting| {
            let (stream, _) = UnixStream::pair().expect("descriptors are left");
            Client { stream, waiting: Arc::new(Mutex::new(waiting)) }
        };
        let mut clients: HashMap<u64, Client> = (0..).zip(waiting.map(client)).collect();
        let closed = std::iter::from_fn(|| {
            let there: Vec<u64> = clients.keys().copied().collect();
            evict(&mut clients).then(|| there.into_iter().find(|number| !clients.contains_key(number)))?
        });
        // One that is served, and one that may still take its answer, are not among them.
        assert_eq!(closed.collect::<Vec<_>>(), [3, 4, 1]);
    }
}
