//! A client from afar: its socket, under TLS or plain.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use packet_io::poller::{Poller, Token};
use rustls::ServerConnection;

/// Bytes passed on at a time.
const PIECE_BYTES: usize = 16 * 1024;
const AFAR: Token = Token(0);
const NEAR: Token = Token(1);

/// A connection with a client.
pub(super) struct Wire {
    socket: TcpStream,
    tls: Option<Box<ServerConnection>>,
}

impl Wire {
    /// Without TLS.
    pub(super) const fn plain(socket: TcpStream) -> Self {
        Self { socket, tls: None }
    }

    /// With TLS, when the handshake is done; it must be by `deadline`, however slowly the client sends.
    pub(super) fn handshaken(socket: TcpStream, mut tls: ServerConnection, deadline: Instant) -> io::Result<Self> {
        let mut socket = Patient { socket, deadline };
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        // What the handshake left to be sent, an alert or a ticket.
        while tls.wants_write() {
            tls.write_tls(&mut socket)?;
        }
        Ok(Self { socket: socket.socket, tls: Some(Box::new(tls)) })
    }

    /// The TLS connection, if there is one.
    pub(super) fn tls(&self) -> Option<&ServerConnection> {
        self.tls.as_deref()
    }

    /// Reads one line of at most `bytes_max` bytes, without its end, by `deadline`; what comes after it is put into `rest`.
    pub(super) fn read_line(&mut self, bytes_max: usize, deadline: Instant, rest: &mut Vec<u8>) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        let mut piece = [0; 1024];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left))?;
            let length = self.read_some(&mut piece)?;
            if length == Some(0) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            line.extend_from_slice(&piece[..length.unwrap_or(0)]);
            if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
                rest.extend_from_slice(&line[end + 1..]);
                line.truncate(end);
                return Ok(line);
            }
            if line.len() > bytes_max {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the first line is too long"));
            }
        }
    }

    /// What there is, waiting for it once; `None` if that was no data yet.
    fn read_some(&mut self, piece: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(tls) = &mut self.tls else { return self.socket.read(piece).map(Some) };
        match tls.reader().read(piece) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read.map(Some),
        }
        if tls.read_tls(&mut self.socket)? == 0 {
            return Ok(Some(0));
        }
        let processed = tls.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
        while tls.wants_write() {
            tls.write_tls(&mut self.socket)?;
        }
        processed?;
        match tls.reader().read(piece) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            read => read.map(Some),
        }
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.socket.write_all(bytes) };
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = tls.writer().write(rest)?;
            rest = &rest[taken..];
            while tls.wants_write() {
                tls.write_tls(&mut self.socket)?;
            }
        }
        Ok(())
    }

    /// Closes the TLS connection, so that the client can distinguish the end from a broken connection.
    pub(super) fn close(mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            while tls.wants_write() {
                // The client may be gone; then it is not missed.
                if tls.write_tls(&mut self.socket).is_err() {
                    return;
                }
            }
        }
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Relays the bytes of either side to the other, until one of them is done.
    pub(super) fn relay(&mut self, near: &UnixStream, first: &[u8], write_timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(None)?;
        self.socket.set_write_timeout(Some(write_timeout))?;
        let mut near = near;
        near.set_write_timeout(Some(write_timeout))?;
        near.write_all(first)?;
        let poller = Poller::new().map_err(io::Error::other)?;
        poller.add(&self.socket, AFAR).map_err(io::Error::other)?;
        poller.add(near, NEAR).map_err(io::Error::other)?;
        let (mut ready, mut piece) = (Vec::new(), vec![0; PIECE_BYTES]);
        // The first request may have come with the end of the handshake.
        let mut goes_on = self.pass_on_held(&mut near, &mut piece)?;
        loop {
            if !goes_on {
                // It may still wait for the rest of its answer.
                near.shutdown(Shutdown::Write)?;
                poller.remove(&self.socket).map_err(io::Error::other)?;
                goes_on = true;
            }
            poller.wait(&mut ready, None).map_err(io::Error::other)?;
            if ready.contains(&NEAR) {
                match near.read(&mut piece)? {
                    0 => return Ok(()),
                    length => self.write_all(&piece[..length])?,
                }
            }
            if ready.contains(&AFAR) {
                goes_on = self.pass_on(&mut near, &mut piece)?;
            }
        }
    }

    /// Reads from afar once, and passes on all that this brought. False when the client has said all.
    fn pass_on(&mut self, near: &mut impl Write, piece: &mut [u8]) -> io::Result<bool> {
        match self.read_some(piece)? {
            Some(0) => return Ok(false),
            Some(length) => near.write_all(&piece[..length])?,
            None => return Ok(true),
        }
        self.pass_on_held(near, piece)
    }

    /// Passes on what TLS has taken from the socket and still holds, of which no poller knows. False when the client has said all.
    fn pass_on_held(&mut self, near: &mut impl Write, piece: &mut [u8]) -> io::Result<bool> {
        while let Some(tls) = &mut self.tls {
            match tls.reader().read(piece) {
                Ok(0) => return Ok(false),
                Ok(length) => near.write_all(&piece[..length])?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// A socket that is read until a deadline, however many pieces come before it.
struct Patient {
    socket: TcpStream,
    deadline: Instant,
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.socket.read(buffer)
    }
}

impl Write for Patient {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.socket.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
