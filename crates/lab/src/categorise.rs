//! `mainstay lab categorise`: a small categorisation server for the URL filter, for trials and tests.
//!
//! It answers from a file with a target and a category a line: `ads.example ads` holds for the host and the names in it,
//! `big.example/news news` for the paths that begin so. `docs/url-filter.md` has the protocol. It reads the file once and has no limits against
//! hostile clients.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::Args;
use network_functions::inspect::Inspected;
use network_functions::url_filter::server::protocol;

/// How often a stop is looked for.
const TICK: Duration = Duration::from_millis(5);

/// `mainstay lab categorise`.
#[derive(Debug, Args)]
pub struct CategoriseArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// File with a target (a host, or a host and a path) and its category a line
    #[arg(value_name = "FILE")]
    pub catalogue: PathBuf,
}

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum CategoriseError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of the file cannot be read.
    #[error("{}: line {line}: write a target and a category, as in \"ads.example ads\"", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// It cannot listen.
    #[error("cannot listen on {address}: {source}: choose another address with --listen")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// Runs the server until the process is ended.
///
/// # Errors
/// The file cannot be used, or the address is taken.
pub fn run(args: &CategoriseArgs) -> Result<(), CategoriseError> {
    let path = &args.catalogue;
    let text = fs::read_to_string(path).map_err(|source| CategoriseError::Unreadable { path: path.clone(), source })?;
    let catalogue = Catalogue::read(&text).map_err(|line| CategoriseError::Line { path: path.clone(), line })?;
    let listener =
        TcpListener::bind(args.listen).map_err(|source| CategoriseError::Listen { address: args.listen, source })?;
    let server = CategoryServer::start(listener, catalogue);
    loop {
        thread::sleep(Duration::from_secs(60));
        console::print(&format!("{} questions\n", server.asked())).ok();
    }
}

/// Categories by target.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// By host; for the names in it, too.
    hosts: BTreeMap<String, String>,
    /// By host and path, for the paths that begin so.
    paths: BTreeMap<String, String>,
}

impl Catalogue {
    /// Reads lines with a target and a category. `#` begins a comment.
    ///
    /// # Errors
    /// The number of a line that is none.
    pub fn read(text: &str) -> Result<Self, usize> {
        let mut catalogue = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (None, ..) => {}
                (Some(target), Some(category), None) => {
                    let map = if target.contains('/') { &mut catalogue.paths } else { &mut catalogue.hosts };
                    map.insert(target.to_owned(), category.to_owned());
                }
                _ => return Err(number),
            }
        }
        Ok(catalogue)
    }

    /// The answer about a target, as a line.
    #[must_use]
    pub fn answer(&self, target: &str) -> String {
        let host = target.split('/').next().unwrap_or(target);
        let begins =
            |path: &str| target.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let of_path = self.paths.iter().filter(|(path, _)| begins(path)).max_by_key(|(path, _)| path.len());
        let has_paths = self.paths.keys().any(|path| path.split('/').next() == Some(host));
        let mut domains = std::iter::once(host).chain(host.match_indices('.').map(|(dot, _)| &host[dot + 1..]));
        let of_host = || domains.find_map(|domain| self.hosts.get(domain));
        let category = of_path.map(|(_, category)| category).or_else(of_host);
        let scope = if has_paths { "path" } else { "host" };
        format!("{} {scope}\n", category.map_or("-", String::as_str))
    }
}

/// A server that runs. It ends, with its connections, when it is dropped.
#[derive(Debug)]
pub struct CategoryServer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    catalogue: Catalogue,
    is_stopped: AtomicBool,
    asked: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
}

impl CategoryServer {
    /// Serves clients that connect to `listener`.
    ///
    /// # Panics
    /// The system gives no thread.
    #[must_use]
    pub fn start(listener: TcpListener, catalogue: Catalogue) -> Self {
        let (is_stopped, asked, streams) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::default());
        let shared = Arc::new(Shared { catalogue, is_stopped, asked, streams });
        let of_thread = Arc::clone(&shared);
        let thread = thread::spawn(move || accept(&listener, &of_thread));
        Self { shared, thread: Some(thread) }
    }

    /// Targets that it was asked about.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.shared.asked.load(Ordering::Relaxed)
    }
}

impl Drop for CategoryServer {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        for stream in self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        self.thread.take().map(JoinHandle::join);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while !shared.is_stopped.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(TICK);
            continue;
        };
        let _ = stream.set_nonblocking(false);
        if let Ok(handle) = stream.try_clone() {
            shared.streams.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        }
        let shared = Arc::clone(shared);
        thread::spawn(move || serve(stream, &shared));
    }
}

/// Answers the requests of a connection until the client, or the server, ends it.
fn serve(mut stream: TcpStream, shared: &Shared) {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) => received.extend_from_slice(&buffer[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        }
        loop {
            let (body, end) = match protocol::read_request(&received) {
                Inspected::Found((targets, end)) => {
                    shared.asked.fetch_add(targets.len() as u64, Ordering::Relaxed);
                    (targets.into_iter().map(|target| shared.catalogue.answer(target)).collect::<String>(), end)
                }
                Inspected::Partial => break,
                Inspected::Other | Inspected::Malformed => return,
            };
            received.drain(..end);
            let response =
                format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            if shared.is_stopped.load(Ordering::Relaxed) || stream.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_answered_by_host_and_by_path() {
        let catalogue = Catalogue::read("# hosts\nads.example ads\nbig.example big\nbig.example/news news\n").unwrap();
        for (target, expected) in [
            ("ads.example", "ads host\n"),
            ("www.ads.example/any", "ads host\n"),
            ("big.example", "big path\n"),
            ("big.example/news/top", "news path\n"),
            ("big.example/newsletter", "big path\n"),
            ("other.example", "- host\n"),
        ] {
            assert_eq!(catalogue.answer(target), expected, "{target}");
        }
        assert_eq!(Catalogue::read("ads.example ads\nbad\n").unwrap_err(), 2);
    }
}
