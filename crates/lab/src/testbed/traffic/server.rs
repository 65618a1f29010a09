//! The server's side: one thread, one event loop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::net::{TcpListener, UdpSocket};
use mio::{Events, Interest, Poll, Token};

use super::connection::{ReadEnd, Socket};
use super::pace::{PACE_TICK, Pace};
use super::stream::Stream;
use super::{Kind, Preamble, UPLOAD_REPORT_EVERY_BYTES};

/// The most connections that the server holds.
const CONNECTIONS_MAX: usize = 65_536;
const FIRST_CONNECTION: usize = 32;
/// Largest piece of a download written at once, in bytes.
const WRITE_BYTES_MAX: usize = 128 * 1024;

struct ServerConnection {
    socket: Socket,
    preamble_bytes: Vec<u8>,
    preamble: Option<Preamble>,
    stream: Stream,
    pace: Pace,
    reported_bytes: u64,
}

/// Serves on the given addresses until it is stopped.
pub struct Server {
    poll: Poll,
    listeners: Vec<TcpListener>,
    datagram_sockets: Vec<UdpSocket>,
    connections: Vec<Option<ServerConnection>>,
    free: Vec<usize>,
    downloads: Vec<usize>,
    buffer: Vec<u8>,
}

impl Server {
    /// Listens for TCP and for datagrams on each of `addresses`.
    ///
    /// # Errors
    /// An address cannot be listened on.
    pub fn bind(addresses: &[SocketAddr]) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listeners = Vec::new();
        let mut datagram_sockets = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let mut listener = TcpListener::bind(*address)?;
            poll.registry().register(&mut listener, Token(2 * index), Interest::READABLE)?;
            listeners.push(listener);
            let mut socket = UdpSocket::bind(*address)?;
            poll.registry().register(&mut socket, Token(2 * index + 1), Interest::READABLE)?;
            datagram_sockets.push(socket);
        }
        assert!(2 * addresses.len() <= FIRST_CONNECTION, "more addresses than tokens are set aside for");
        Ok(Self {
            poll,
            listeners,
            datagram_sockets,
            connections: Vec::new(),
            free: Vec::new(),
            downloads: Vec::new(),
            buffer: vec![0; 256 * 1024],
        })
    }

    /// Serves until `stop` is set.
    ///
    /// # Errors
    /// Waiting for events fails.
    pub fn run(mut self, stop: &Arc<AtomicBool>) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while !stop.load(Ordering::Relaxed) {
            let timeout = if self.downloads.is_empty() { Duration::from_millis(20) } else { PACE_TICK };
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                self.handle_event(event);
            }
            self.send_downloads();
        }
        Ok(())
    }

    fn handle_event(&mut self, event: &Event) {
        match event.token().0 {
            token if token >= FIRST_CONNECTION => self.handle_connection(token - FIRST_CONNECTION),
            token if token % 2 == 0 => self.accept(token / 2),
            token => self.echo_datagrams(token / 2),
        }
    }

    fn accept(&mut self, listener: usize) {
        while let Ok((mut stream, _)) = self.listeners[listener].accept() {
            let index = self.free.pop().unwrap_or(self.connections.len());
            if index >= CONNECTIONS_MAX {
                continue;
            }
            let token = Token(index + FIRST_CONNECTION);
            if self.poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE).is_err() {
                self.free.push(index);
                continue;
            }
            let connection = ServerConnection {
                socket: Socket::new(stream),
                preamble_bytes: Vec::with_capacity(Preamble::BYTES),
                preamble: None,
                stream: Stream::new(0),
                pace: Pace::new(0, Instant::now()),
                reported_bytes: 0,
            };
            if index == self.connections.len() {
                self.connections.push(Some(connection));
            } else {
                self.connections[index] = Some(connection);
            }
        }
    }

    fn echo_datagrams(&mut self, socket: usize) {
        let socket = &self.datagram_sockets[socket];
        while let Ok((count, from)) = socket.recv_from(&mut self.buffer) {
            // A lost echo is the client's to notice.
            let _ = socket.send_to(&self.buffer[..count], from);
        }
    }

    fn handle_connection(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else { return };
        let had_preamble = connection.preamble.is_some();
        let is_open = connection.handle(&mut self.buffer);
        let is_download = connection.preamble.is_some_and(|preamble| preamble.kind == Kind::Download);
        if is_download && !had_preamble {
            self.downloads.push(index);
        }
        if !is_open {
            self.close(index);
        }
    }

    fn close(&mut self, index: usize) {
        self.connections[index] = None;
        self.downloads.retain(|download| *download != index);
        self.free.push(index);
    }

    fn send_downloads(&mut self) {
        let now = Instant::now();
        for index in self.downloads.clone() {
            let Some(connection) = self.connections[index].as_mut() else { continue };
            if connection.send_download(now, &mut self.buffer).is_err() {
                self.close(index);
            }
        }
    }
}

impl ServerConnection {
    /// Reads what is there and answers. False when the connection is over.
    fn handle(&mut self, buffer: &mut [u8]) -> bool {
        let Self { socket, preamble_bytes, preamble, stream, pace, reported_bytes } = self;
        let mut answers = Vec::new();
        let end = socket.read(buffer, |mut bytes| {
            if preamble.is_none() {
                let missing = (Preamble::BYTES - preamble_bytes.len()).min(bytes.len());
                preamble_bytes.extend_from_slice(&bytes[..missing]);
                bytes = &bytes[missing..];
                let Some(whole) = preamble_bytes.first_chunk() else { return Ok(()) };
                let said = Preamble::from_bytes(whole).ok_or("a preamble that makes no sense")?;
                *preamble = Some(said);
                *stream = Stream::new(said.seed);
                *pace = Pace::new(said.bytes_per_s, Instant::now());
            }
            match preamble.map(|said| said.kind) {
                Some(Kind::Upload) => {
                    stream.check(bytes).map_err(|offset| format!("wrong byte at {offset}"))?;
                    if stream.offset_bytes() - *reported_bytes >= UPLOAD_REPORT_EVERY_BYTES {
                        *reported_bytes = stream.offset_bytes();
                        answers.extend_from_slice(&reported_bytes.to_be_bytes());
                    }
                }
                Some(Kind::Ticks | Kind::Idle | Kind::Ramp) => answers.extend_from_slice(bytes),
                Some(Kind::Download | Kind::Udp) | None => {}
            }
            Ok(())
        });
        socket.send(&answers).is_ok() && end == ReadEnd::Drained
    }

    fn send_download(&mut self, now: Instant, buffer: &mut [u8]) -> Result<(), String> {
        let count = self.pace.allowance_bytes(now).min(WRITE_BYTES_MAX).min(buffer.len());
        if count == 0 {
            return Ok(());
        }
        self.stream.fill(&mut buffer[..count]);
        let sent = self.socket.send_now(&buffer[..count])?;
        self.stream.advance(sent);
        self.pace.spend(sent);
        Ok(())
    }
}
