//! Bulk TCP: as many streams as asked for, each written by a thread at one end and read by a thread at the other.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use packet_io::namespace::Namespace;

use crate::bench::BenchError;

/// Bytes that are written or read at once.
const PIECE_BYTES: usize = 256 * 1024;
/// How long a stream may take to be opened.
const OPENED_WITHIN: Duration = Duration::from_secs(5);

/// Running streams. Dropping it ends them.
pub(in crate::bench) struct Streams {
    received_bytes: Arc<AtomicU64>,
    sockets: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Streams {
    /// Opens `count` streams from `client` to `address` in `server`, and sends what goes through.
    pub(in crate::bench) fn open(
        client: &Namespace,
        server: &Namespace,
        address: SocketAddr,
        count: u16,
    ) -> Result<Self, BenchError> {
        let listener = server.run(|| TcpListener::bind(address))?.map_err(BenchError::Socket)?;
        let mut streams = Self { received_bytes: Arc::default(), sockets: Vec::new(), threads: Vec::new() };
        for _ in 0..count {
            // A socket stays in the namespace that it was opened in, whichever thread uses it.
            let opened = client.run(|| open_pair(&listener, address))?;
            let (sending, receiving) = opened.map_err(BenchError::Socket)?;
            streams.spawn(sending, receiving).map_err(BenchError::Socket)?;
        }
        Ok(streams)
    }

    /// Bytes that have arrived so far, in all streams.
    pub(in crate::bench) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    fn spawn(&mut self, mut sending: TcpStream, mut receiving: TcpStream) -> io::Result<()> {
        self.sockets.push(sending.try_clone()?);
        self.sockets.push(receiving.try_clone()?);
        let received_bytes = Arc::clone(&self.received_bytes);
        self.threads.push(thread::spawn(move || {
            let mut piece = vec![0; PIECE_BYTES];
            while let Ok(count @ 1..) = receiving.read(&mut piece) {
                received_bytes.fetch_add(count as u64, Ordering::Relaxed);
            }
        }));
        self.threads.push(thread::spawn(move || {
            let piece = vec![0x6d; PIECE_BYTES];
            while sending.write_all(&piece).is_ok() {}
        }));
        Ok(())
    }
}

fn open_pair(listener: &TcpListener, address: SocketAddr) -> io::Result<(TcpStream, TcpStream)> {
    let sending = TcpStream::connect_timeout(&address, OPENED_WITHIN)?;
    // The handshake is over: the connection waits to be accepted.
    let (receiving, _) = listener.accept()?;
    Ok((sending, receiving))
}

impl Drop for Streams {
    fn drop(&mut self) {
        for socket in &self.sockets {
            // One whose other end has gone already needs no shutting down.
            let _ = socket.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
