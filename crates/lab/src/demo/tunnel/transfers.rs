//! Downloads: a server that sends files, and clients that fetch one after the other and check every byte.
//!
//! A request is a file's number (u32), the answer its length (u32) and its bytes. Each download is a connection of its own.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use packet_io::namespace::Namespace;

use super::error::TunnelError;
use super::objects::{Checksum, Objects};
use super::topology::SERVER;

/// How long a download may go without a byte until it counts as failed.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long a connection may take to be established.
const CONNECT_WITHIN: Duration = Duration::from_secs(15);
const BUFFER_BYTES: usize = 64 << 10;
/// The server looks so often whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The server. It ends when the value is dropped; downloads in progress go on to their end.
pub(super) struct Server {
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(namespace: &Namespace, files: &[PathBuf]) -> Result<Self, TunnelError> {
        let listener = namespace
            .run(|| TcpListener::bind(SERVER).and_then(|listener| listener.set_nonblocking(true).map(|()| listener)))?
            .map_err(TunnelError::Server)?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let (ending, files) = (Arc::clone(&is_ending), files.to_vec());
        let thread = thread::spawn(move || {
            while !ending.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let files = files.clone();
                        // The client that asked notices by itself that it failed.
                        thread::spawn(move || drop(serve(stream, &files)));
                    }
                    Err(_) => thread::sleep(LOOK_EVERY),
                }
            }
        });
        Ok(Self { is_ending, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream, files: &[PathBuf]) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let mut request = [0; 4];
    stream.read_exact(&mut request)?;
    let file = files.get(u32::from_be_bytes(request) as usize).ok_or(io::ErrorKind::NotFound)?;
    let bytes = fs::read(file)?;
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(&bytes)?;
    stream.shutdown(Shutdown::Write)
}

/// What became of some downloads.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Downloads begun.
    pub(super) transfers: usize,
    /// Of those, the ones that did not end.
    pub(super) failed: usize,
    /// Those whose bytes were not those of the file.
    pub(super) corrupted: usize,
    /// Bytes that came, in all.
    pub(super) bytes: u64,
    /// How long all of them took together.
    pub(super) took: Duration,
    /// The longest time that a download went without a byte.
    pub(super) longest_pause: Duration,
}

impl Outcome {
    pub(super) fn mbit_per_s(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1e6 / self.took.as_secs_f64().max(1e-6)
    }

    fn add(&mut self, other: &Self) {
        self.transfers += other.transfers;
        self.failed += other.failed;
        self.corrupted += other.corrupted;
        self.bytes += other.bytes;
        self.longest_pause = self.longest_pause.max(other.longest_pause);
    }
}

/// Clients at work.
pub(super) struct Downloads {
    began_at: Instant,
    received: Arc<AtomicU64>,
    clients: Vec<JoinHandle<(Outcome, Instant)>>,
}

impl Downloads {
    /// Starts a client for each list of files, which it downloads one after the other.
    pub(super) fn start(namespace: &Arc<Namespace>, objects: &Arc<Objects>, lists: Vec<Vec<usize>>) -> Self {
        let received = Arc::new(AtomicU64::new(0));
        let began_at = Instant::now();
        let client = |list: Vec<usize>| {
            let (namespace, objects, received) = (Arc::clone(namespace), Arc::clone(objects), Arc::clone(&received));
            thread::spawn(move || {
                let mut outcome = Outcome::default();
                for file in list {
                    outcome.add(&download(&namespace, &objects, file, &received));
                }
                (outcome, Instant::now())
            })
        };
        Self { began_at, clients: lists.into_iter().map(client).collect(), received }
    }

    /// Bytes that came so far.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(super) fn are_over(&self) -> bool {
        self.clients.iter().all(JoinHandle::is_finished)
    }

    /// Waits for all of them.
    pub(super) fn finish(self) -> Outcome {
        let mut whole = Outcome::default();
        let mut ended_at = self.began_at;
        for client in self.clients {
            let (outcome, at) = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            whole.add(&outcome);
            ended_at = ended_at.max(at);
        }
        whole.took = ended_at - self.began_at;
        whole
    }
}

fn download(namespace: &Namespace, objects: &Objects, file: usize, received: &AtomicU64) -> Outcome {
    let mut outcome = Outcome { transfers: 1, ..Outcome::default() };
    match fetch(namespace, file, received, &mut outcome) {
        Ok((length, checksum)) => {
            let is_right = length == outcome.bytes
                && length == objects.bytes[file] as u64
                && checksum.finish() == objects.checksums[file];
            outcome.corrupted = usize::from(!is_right);
        }
        Err(_) => outcome.failed = 1,
    }
    outcome
}

/// Fetches a file. Returns its length by the server's header, and the checksum of what came.
fn fetch(
    namespace: &Namespace,
    file: usize,
    received: &AtomicU64,
    outcome: &mut Outcome,
) -> io::Result<(u64, Checksum)> {
    let connected = namespace.run(|| TcpStream::connect_timeout(&SERVER, CONNECT_WITHIN));
    let mut stream = connected.map_err(io::Error::other)??;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.write_all(&(file as u32).to_be_bytes())?;
    let mut length = [0; 4];
    let mut received_at = Instant::now();
    stream.read_exact(&mut length)?;
    let (mut checksum, mut buffer) = (Checksum::default(), vec![0; BUFFER_BYTES]);
    loop {
        outcome.longest_pause = outcome.longest_pause.max(received_at.elapsed());
        received_at = Instant::now();
        match stream.read(&mut buffer)? {
            0 => return Ok((u32::from_be_bytes(length).into(), checksum)),
            count => {
                checksum.add(&buffer[..count]);
                outcome.bytes += count as u64;
                received.fetch_add(count as u64, Ordering::Relaxed);
            }
        }
    }
}
