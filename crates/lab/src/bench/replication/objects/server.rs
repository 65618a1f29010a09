//! The side that has the objects: one thread, one event loop.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use super::flow::{BURST_BYTES, FLOW_BYTES_PER_S, Request};
use crate::testbed::traffic::pace::Pace;
use crate::testbed::traffic::stream::Stream;

/// How often paced transfers are looked at.
const TICK: Duration = Duration::from_millis(10);
const EVENTS_MAX: usize = 1024;
/// Transfers at a time, at most; further connections are closed.
const TRANSFERS_MAX: usize = 65_536;

/// Whether a transfer goes on.
#[derive(PartialEq, Eq)]
enum Step {
    GoesOn,
    Over,
}

struct Transfer {
    stream: TcpStream,
    request: Vec<u8>,
    object: Stream,
    left_bytes: usize,
    pace: Option<Pace>,
}

/// Serves objects until it is stopped.
pub(super) struct Server {
    poll: Poll,
    listeners: Vec<TcpListener>,
    transfers: Vec<Option<Transfer>>,
    free: Vec<usize>,
    /// Transfers that have been asked for something.
    sending: Vec<usize>,
    buffer: Vec<u8>,
}

impl Server {
    /// Listens on each of `addresses`.
    ///
    /// # Errors
    /// An address cannot be listened on.
    pub(super) fn bind(addresses: &[SocketAddr]) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listeners = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let mut listener = TcpListener::bind(*address)?;
            poll.registry().register(&mut listener, Token(index), Interest::READABLE)?;
            listeners.push(listener);
        }
        let buffer = vec![0; 64 << 10];
        Ok(Self { poll, listeners, transfers: Vec::new(), free: Vec::new(), sending: Vec::new(), buffer })
    }

    /// Serves until `stops` is set.
    ///
    /// # Errors
    /// Waiting for events fails.
    pub(super) fn run(mut self, stops: &Arc<AtomicBool>) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut paced_at = Instant::now();
        while !stops.load(Ordering::Relaxed) {
            match self.poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                match event.token().0.checked_sub(self.listeners.len()) {
                    None => self.accept(event.token().0),
                    Some(index) => self.serve(index),
                }
            }
            if paced_at.elapsed() >= TICK {
                paced_at = Instant::now();
                self.send_paced();
            }
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize) {
        while let Ok((mut stream, _)) = self.listeners[listener].accept() {
            let index = self.free.pop().unwrap_or(self.transfers.len());
            let token = Token(self.listeners.len() + index);
            let interest = Interest::READABLE | Interest::WRITABLE;
            let is_taken = index < TRANSFERS_MAX && self.poll.registry().register(&mut stream, token, interest).is_ok();
            if !is_taken {
                self.free.push(index);
                continue;
            }
            // Without this, the ends of objects wait for acknowledgements.
            let _ = stream.set_nodelay(true);
            let transfer = Transfer { stream, request: Vec::new(), object: Stream::new(0), left_bytes: 0, pace: None };
            if index == self.transfers.len() {
                self.transfers.push(Some(transfer));
            } else {
                self.transfers[index] = Some(transfer);
            }
        }
    }

    fn serve(&mut self, index: usize) {
        let Some(transfer) = self.transfers.get_mut(index).and_then(Option::as_mut) else { return };
        let was_asked = transfer.pace.is_some();
        let step = transfer.serve(&mut self.buffer);
        if transfer.pace.is_some() && !was_asked {
            self.sending.push(index);
        }
        if step == Step::Over {
            self.end(index);
        }
    }

    fn send_paced(&mut self) {
        let now = Instant::now();
        for index in self.sending.clone() {
            let Some(transfer) = self.transfers[index].as_mut() else { continue };
            if transfer.send_paced(now, &mut self.buffer) == Step::Over {
                self.end(index);
            }
        }
    }

    fn end(&mut self, index: usize) {
        // Closing sends the end behind what the kernel still has.
        self.transfers[index] = None;
        self.sending.retain(|sending| *sending != index);
        self.free.push(index);
    }
}

impl Transfer {
    /// Reads the request; when it is whole, sends the beginning of the object.
    fn serve(&mut self, buffer: &mut [u8]) -> Step {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Step::Over,
                Ok(count) => self.request.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Step::Over,
            }
        }
        let Some(request) = self.request.first_chunk().filter(|_| self.pace.is_none()) else { return Step::GoesOn };
        let request = Request::from_bytes(*request);
        self.object = Stream::new(request.seed.into());
        self.left_bytes = request.object_bytes as usize;
        self.pace = Some(Pace::new(FLOW_BYTES_PER_S, Instant::now()));
        self.send(BURST_BYTES, buffer)
    }

    fn send_paced(&mut self, now: Instant, buffer: &mut [u8]) -> Step {
        let allowed_bytes = self.pace.as_mut().map_or(0, |pace| pace.allowance_bytes(now));
        if allowed_bytes == 0 { Step::GoesOn } else { self.send(allowed_bytes, buffer) }
    }

    fn send(&mut self, allowed_bytes: usize, buffer: &mut [u8]) -> Step {
        let count = self.left_bytes.min(allowed_bytes).min(buffer.len());
        self.object.fill(&mut buffer[..count]);
        let sent = match self.stream.write(&buffer[..count]) {
            Ok(sent) => sent,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(_) => return Step::Over,
        };
        self.object.advance(sent);
        self.left_bytes -= sent;
        self.pace.iter_mut().for_each(|pace| pace.spend(sent));
        if self.left_bytes == 0 { Step::Over } else { Step::GoesOn }
    }
}
