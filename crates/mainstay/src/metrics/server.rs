//! Serves the page over HTTP/1.1: one request a connection, one connection at a time, each within a deadline.
//! Scrapers come every few seconds and from this machine; nothing more is needed.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::exposition::{CONTENT_TYPE, render};
use crate::control::ControlSender;

/// Longest head of a request.
pub const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// A client has so long to send its request, and so long again to take the answer.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

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
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Serves `/metrics` at `address` with what the data path tells. Port 0 lets the system choose one.
    ///
    /// # Errors
    /// [`MetricsError`].
    pub fn start(address: SocketAddr, sender: ControlSender) -> Result<Self, MetricsError> {
        let system = |source| MetricsError::System { address, source };
        let listener = TcpListener::bind(address).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => MetricsError::InUse(address),
            _ => system(source),
        })?;
        let address = listener.local_addr().map_err(system)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let spawned = thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                let served = stream.and_then(|stream| serve(stream, &sender));
                if let Err(error) = served {
                    tracing::debug!(%error, "a reader of metrics was closed");
                }
            }
        });
        Ok(Self { address, stopping, thread: Some(spawned.map_err(system)?) })
    }

    /// Where it serves.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // The connection wakes the thread; if none can be made, the thread ends with the process.
        let woken = TcpStream::connect_timeout(&self.address, CLIENT_TIMEOUT).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream, sender: &ControlSender) -> io::Result<()> {
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let (status, content_type, body) = match read_head(&mut stream)? {
        Some(head) => respond(&head, sender),
        None => plain("431 Request Header Fields Too Large", "The request is too long.\n"),
    };
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// The head of a request, or `None` when it is too long.
fn read_head(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let deadline = Instant::now() + CLIENT_TIMEOUT;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > REQUEST_BYTES_MAX {
            return Ok(None);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => head.extend_from_slice(&buffer[..length]),
        }
    }
    Ok(Some(String::from_utf8_lossy(&head).into_owned()))
}

type Response = (&'static str, &'static str, String);

fn plain(status: &'static str, body: &str) -> Response {
    (status, "text/plain; charset=utf-8", body.to_owned())
}

fn respond(head: &str, sender: &ControlSender) -> Response {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !words.next().is_some_and(|version| version.starts_with("HTTP/1.")) {
        return plain("400 Bad Request", "This is not HTTP/1.\n");
    }
    if method != "GET" {
        return plain("405 Method Not Allowed", "Only GET is offered.\n");
    }
    if target.split('?').next() != Some("/metrics") {
        return plain("404 Not Found", "There is /metrics and nothing else.\n");
    }
    match sender.counters() {
        Ok(samples) => ("200 OK", CONTENT_TYPE, render(&samples)),
        Err(error) => plain("503 Service Unavailable", &format!("{error}\n")),
    }
}
