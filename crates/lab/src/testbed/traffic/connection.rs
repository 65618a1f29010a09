//! A non-blocking TCP socket with the bytes that still wait to be sent on it.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::TcpStream;

/// The most that one socket reads before others have their turn, in bytes.
const READ_TURN_BYTES: usize = 256 * 1024;
/// The most that waits to be sent on one socket, in bytes; a caller that adds more is not paced.
const OUTGOING_BYTES_MAX: usize = 64 * 1024;

/// A socket and what waits to be sent on it.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    outgoing: Vec<u8>,
}

/// How reading ended.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// Nothing more is there at present.
    Drained,
    /// The other side closed, or the socket failed: why.
    Closed(String),
}

impl Socket {
    /// Takes a connected or connecting stream.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        // Without this, small answers wait for acknowledgements and the measured gaps are Nagle's.
        let _ = stream.set_nodelay(true);
        Self { stream, outgoing: Vec::new() }
    }

    /// The stream, to be registered.
    pub const fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Whether a connection that was begun is established; the error if it failed.
    ///
    /// # Errors
    /// Why it failed.
    pub fn is_connected(&self) -> Result<bool, String> {
        if let Some(error) = self.stream.take_error().map_err(|error| error.to_string())? {
            return Err(error.to_string());
        }
        match self.stream.peer_addr() {
            Ok(SocketAddr::V4(_) | SocketAddr::V6(_)) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The two ends of an established connection, its own first.
    #[must_use]
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.stream.local_addr().ok()?, self.stream.peer_addr().ok()?))
    }

    /// Hands all that is there to `consume`, up to one turn.
    pub fn read(&mut self, buffer: &mut [u8], mut consume: impl FnMut(&[u8]) -> Result<(), String>) -> ReadEnd {
        let mut turn = 0;
        while turn < READ_TURN_BYTES {
            match self.stream.read(buffer) {
                Ok(0) => return ReadEnd::Closed("closed by the other side".into()),
                Ok(count) => {
                    turn += count;
                    if let Err(fault) = consume(&buffer[..count]) {
                        return ReadEnd::Closed(fault);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return ReadEnd::Drained,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return ReadEnd::Closed(error.to_string()),
            }
        }
        ReadEnd::Drained
    }

    /// Adds bytes to what waits to be sent and sends what can be.
    ///
    /// # Errors
    /// The socket failed, or takes nothing while more and more is added.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.outgoing.len() + bytes.len() > OUTGOING_BYTES_MAX {
            return Err("the other side takes nothing".into());
        }
        self.outgoing.extend_from_slice(bytes);
        self.flush()
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// The socket failed.
    pub fn flush(&mut self) -> Result<(), String> {
        while !self.outgoing.is_empty() {
            let sent = self.write_some(None)?;
            if sent == 0 {
                break;
            }
            self.outgoing.drain(..sent);
        }
        Ok(())
    }

    /// Sends as much of `bytes` as goes out at once (nothing while earlier bytes wait); returns how many.
    ///
    /// # Errors
    /// The socket failed.
    pub fn send_now(&mut self, bytes: &[u8]) -> Result<usize, String> {
        self.flush()?;
        if self.outgoing.is_empty() { self.write_some(Some(bytes)) } else { Ok(0) }
    }

    fn write_some(&mut self, bytes: Option<&[u8]>) -> Result<usize, String> {
        match self.stream.write(bytes.unwrap_or(&self.outgoing)) {
            Ok(sent) => Ok(sent),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(error.to_string()),
        }
    }
}
