//! Servers that send back what they receive, and remember it: whether a request has reached a server is then known.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use packet_io::namespace::Namespace;

use super::session::TrafficError;

/// What a server has received; beyond this, the oldest is forgotten.
const SEEN_BYTES_MAX: usize = 4 << 20;

/// A server that sends back what it receives. Its threads end with the program.
#[derive(Clone, Debug, Default)]
pub struct Echo {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    bytes: Vec<u8>,
    datagrams: usize,
    last_peer: Option<SocketAddr>,
}

impl Echo {
    /// One that listens for connections at an address of the namespace.
    ///
    /// # Errors
    /// The address is in use.
    pub fn start(namespace: &Namespace, address: SocketAddr) -> Result<Self, TrafficError> {
        let listener = namespace.run(|| TcpListener::bind(address))?.map_err(socket_error)?;
        let echo = Self::default();
        let server = echo.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = server.clone();
                thread::spawn(move || server.serve(stream));
            }
        });
        Ok(echo)
    }

    /// One that receives datagrams at an address of the namespace.
    ///
    /// # Errors
    /// The address is in use.
    pub fn start_datagrams(namespace: &Namespace, address: SocketAddr) -> Result<Self, TrafficError> {
        let socket = namespace.run(|| UdpSocket::bind(address))?.map_err(socket_error)?;
        let echo = Self::default();
        let server = echo.clone();
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((bytes, from)) = socket.recv_from(&mut buffer) {
                server.note(&buffer[..bytes], Some(from));
                // A client that is gone has no use for it.
                let _ = socket.send_to(&buffer[..bytes], from);
            }
        });
        Ok(echo)
    }

    fn serve(&self, mut stream: std::net::TcpStream) {
        let (mut buffer, peer) = ([0; 4096], stream.peer_addr().ok());
        self.note(&[], peer);
        while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
            self.note(&buffer[..bytes], peer);
            if stream.write_all(&buffer[..bytes]).is_err() {
                break;
            }
        }
    }

    fn note(&self, bytes: &[u8], peer: Option<SocketAddr>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.bytes.len() + bytes.len() > SEEN_BYTES_MAX {
            seen.bytes.clear();
        }
        seen.bytes.extend_from_slice(bytes);
        seen.datagrams += usize::from(!bytes.is_empty());
        seen.last_peer = peer;
    }

    /// Whether it has received these bytes.
    #[must_use]
    pub fn has_seen(&self, bytes: &[u8]) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.bytes.windows(bytes.len().max(1)).any(|window| window == bytes)
    }

    /// Pieces, or datagrams, that it has received.
    #[must_use]
    pub fn received(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).datagrams
    }

    /// The client, as the server knows it, of the connection or datagram that came last.
    #[must_use]
    pub fn last_peer(&self) -> Option<SocketAddr> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).last_peer
    }
}

fn socket_error(source: std::io::Error) -> TrafficError {
    TrafficError::Socket { who: "server", source }
}
