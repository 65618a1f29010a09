//! The side that answers: one thread, one event loop.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use packet_io::namespace::Namespace;

use crate::bench::BenchError;

/// What the client sends.
pub(in crate::bench) const REQUEST: [u8; 64] = [b'?'; 64];
/// Length of the answer.
pub(in crate::bench) const ANSWER_BYTES: usize = 256;
/// Connections that the server holds, at most; further ones are closed at once.
const CONNECTIONS_MAX: usize = 16_384;
/// How often the server looks whether it is to end, at least.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const EVENTS_MAX: usize = 1024;

/// A server at work. Dropping it ends it.
pub(in crate::bench) struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Starts a server on each of `addresses` in the namespace.
    pub(in crate::bench) fn start(namespace: &Namespace, addresses: &[SocketAddr]) -> Result<Self, BenchError> {
        let work = namespace.run(|| Loop::bind(addresses))?.map_err(BenchError::Socket)?;
        let stop = Arc::new(AtomicBool::new(false));
        let its_stop = Arc::clone(&stop);
        Ok(Self { stop, thread: Some(thread::spawn(move || work.run(&its_stop))) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A server that failed has been noticed by the client.
            let _ = thread.join();
        }
    }
}

struct Connection {
    stream: TcpStream,
    /// Bytes of the request that are missing.
    missing_bytes: usize,
}

struct Loop {
    poll: Poll,
    listeners: Vec<TcpListener>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
}

impl Loop {
    fn bind(addresses: &[SocketAddr]) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listeners = Vec::new();
        for (number, address) in addresses.iter().enumerate() {
            let mut listener = TcpListener::bind(*address)?;
            poll.registry().register(&mut listener, Token(number), Interest::READABLE)?;
            listeners.push(listener);
        }
        Ok(Self { poll, listeners, connections: Vec::new(), free: Vec::new() })
    }

    fn run(mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !stop.load(Ordering::Relaxed) {
            match self.poll.poll(&mut events, Some(LOOK_EVERY)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                match event.token().0.checked_sub(self.listeners.len()) {
                    None => self.accept(event.token().0),
                    Some(index) => self.answer(index),
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize) {
        while let Ok((mut stream, _)) = self.listeners[listener].accept() {
            let index = self.free.pop().unwrap_or(self.connections.len());
            if index >= CONNECTIONS_MAX {
                continue;
            }
            let token = Token(index + self.listeners.len());
            if index == self.connections.len() {
                self.connections.push(None);
            }
            match self.poll.registry().register(&mut stream, token, Interest::READABLE) {
                Ok(()) => self.connections[index] = Some(Connection { stream, missing_bytes: REQUEST.len() }),
                Err(_) => self.free.push(index),
            }
        }
    }

    /// Answers a request, and closes when the client has closed.
    fn answer(&mut self, index: usize) {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        if connection.is_over() {
            self.connections[index] = None;
            self.free.push(index);
        }
    }
}

impl Connection {
    /// Reads what there is to read, and answers a whole request.
    fn is_over(&mut self) -> bool {
        let mut request = [0; REQUEST.len()];
        loop {
            match self.stream.read(&mut request) {
                Ok(0) => return true,
                Ok(count) => {
                    self.missing_bytes = self.missing_bytes.saturating_sub(count);
                    // A new connection has room for so short an answer.
                    if self.missing_bytes == 0 && self.stream.write(&[b'!'; ANSWER_BYTES]).is_err() {
                        return true;
                    }
                    // Less than was asked for means that no more is there, unless it is the end.
                    if count < request.len() {
                        return false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
    }
}
