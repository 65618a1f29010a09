//! Streams to the peers, where replication goes over TCP: the node with the higher number connects, the other listens.
//!
//! ```text
//!              connect_at is due          established
//!   (nothing) ──────────────────► begun ─────────────► connected ──► node: Connected, bytes both ways
//!       ▲                           │                       │
//!       └───── again after a while ─┴── closed or refused ──┘        node: Disconnected
//! ```

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use cluster::node::{Node, StreamInput};
use flow::{Instant, NodeId};
use packet_io::IoError;
use packet_io::poller::{Poller, Token};
use packet_io::tcp::{Read, TcpListener, TcpStream};

use super::reporting::Reporting;
use config::validated::Peer;

/// Time from one attempt to connect to the next.
const CONNECT_INTERVAL: Duration = Duration::from_millis(200);
/// Reads from a peer's stream before packets have their turn.
const READS_PER_TURN_MAX: usize = 16;

/// What is added to the sets has no need of names: whatever is ready, all streams are looked at.
const ANY: Token = Token(0);

struct PeerStream {
    id: NodeId,
    address: SocketAddr,
    /// This node connects; otherwise the peer does.
    connects: bool,
    connect_at: Instant,
    stream: Option<TcpStream>,
    is_connected: bool,
    /// The stream takes no more at present.
    is_full: bool,
}

/// The streams of a worker, and who waits for them.
pub(super) struct PeerStreams {
    local: SocketAddr,
    listener: TcpListener,
    peers: Vec<PeerStream>,
    /// What something may come from.
    sources: Poller,
    /// Streams that take no more at present.
    full: Poller,
}

impl PeerStreams {
    /// Listens on `local`. `peers` are those of the configuration, each with its address for this worker.
    pub(super) fn open(
        node: NodeId,
        local: SocketAddr,
        peers: impl Iterator<Item = (Peer, SocketAddr)>,
    ) -> Result<Self, IoError> {
        let (listener, sources, full) = (TcpListener::bind(local)?, Poller::new()?, Poller::new()?);
        sources.add(&listener, ANY)?;
        let peer = |(peer, address): (Peer, SocketAddr)| PeerStream {
            id: peer.id,
            address,
            connects: peer.id < node,
            connect_at: Instant::ZERO,
            stream: None,
            is_connected: false,
            is_full: false,
        };
        Ok(Self { local, listener, peers: peers.map(peer).collect(), sources, full })
    }

    /// What is ready when [`PeerStreams::turn`] has something to do.
    pub(super) fn descriptors(&self) -> [impl AsFd; 2] {
        [&self.sources, &self.full]
    }

    /// Whether a stream is to be connected.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.peers.iter().any(|peer| peer.connects && peer.stream.is_none() && peer.connect_at <= now)
    }

    /// Takes streams, connects them, and reads what has come.
    pub(super) fn turn(&mut self, now: Instant, node: &mut Node, buffer: &mut [u8], reporting: &mut Reporting) {
        self.accept(now, node, reporting);
        for index in 0..self.peers.len() {
            self.connect(now, index);
            self.notice_connected(now, index, node);
            self.read(now, index, node, buffer, reporting);
        }
    }

    /// Hands the streams what the node has for them.
    pub(super) fn send(&mut self, now: Instant, node: &mut Node) {
        for index in 0..self.peers.len() {
            let Self { peers, full, .. } = self;
            let peer = &mut peers[index];
            let Some(stream) = peer.stream.as_ref().filter(|_| peer.is_connected && !peer.is_full) else { continue };
            let broken = loop {
                let waiting = node.poll_stream(now, peer.id);
                let waiting_bytes = waiting.len();
                if waiting_bytes == 0 {
                    break None;
                }
                match stream.write(waiting) {
                    Ok(taken_bytes) => {
                        node.handle_stream_taken(peer.id, taken_bytes);
                        if taken_bytes < waiting_bytes {
                            peer.is_full = full.add_for_output(stream, ANY).is_ok();
                            break None;
                        }
                    }
                    Err(why) => break Some(why),
                }
            };
            if let Some(why) = broken {
                self.close(now, index, node, why);
            }
        }
    }

    fn accept(&mut self, now: Instant, node: &mut Node, reporting: &mut Reporting) {
        while let Ok(Some((stream, from))) = self.listener.accept() {
            let waited_for = |peer: &PeerStream| !peer.connects && peer.address.ip() == from.ip();
            let Some(index) = self.peers.iter().position(waited_for) else {
                reporting.note_stranger(from);
                continue;
            };
            // A peer that connects again has given the earlier stream up.
            self.close(now, index, node, ErrorKind::ConnectionReset);
            self.keep(index, stream);
        }
    }

    fn connect(&mut self, now: Instant, index: usize) {
        let peer = &mut self.peers[index];
        if !peer.connects || peer.stream.is_some() || now < peer.connect_at {
            return;
        }
        peer.connect_at = now + CONNECT_INTERVAL;
        match TcpStream::connect(self.local.ip(), peer.address) {
            Ok(stream) => self.keep(index, stream),
            Err(error) => tracing::debug!(peer = peer.id.0, "replication over TCP: {error}"),
        }
    }

    fn keep(&mut self, index: usize, stream: TcpStream) {
        // One that cannot be waited for is no use, and is closed.
        if self.sources.add(&stream, ANY).is_ok() {
            let peer = &mut self.peers[index];
            (peer.stream, peer.is_connected, peer.is_full) = (Some(stream), false, false);
        }
    }

    fn notice_connected(&mut self, now: Instant, index: usize, node: &mut Node) {
        let peer = &mut self.peers[index];
        let Some(stream) = &peer.stream else { return };
        if peer.is_full {
            // It takes more, or it would not be looked at; if that was another one's doing, the next write says so.
            let _ = self.full.remove(stream);
            peer.is_full = false;
        }
        if peer.is_connected {
            return;
        }
        match stream.is_connected() {
            Ok(true) => {
                peer.is_connected = true;
                // Only bytes can be wrong.
                let _ = node.handle_stream(now, peer.id, StreamInput::Connected);
            }
            Ok(false) => {}
            Err(why) => self.close(now, index, node, why),
        }
    }

    fn read(&mut self, now: Instant, index: usize, node: &mut Node, buffer: &mut [u8], reporting: &mut Reporting) {
        for _ in 0..READS_PER_TURN_MAX {
            let peer = &self.peers[index];
            let Some(stream) = peer.stream.as_ref().filter(|_| peer.is_connected) else { return };
            match stream.read(buffer) {
                Read::Nothing => return,
                Read::Closed(why) => return self.close(now, index, node, why),
                Read::Bytes(length_bytes) => {
                    let taken = node.handle_stream(now, peer.id, StreamInput::Bytes(&buffer[..length_bytes]));
                    if taken.is_err() {
                        reporting.note_peer_error(peer.id, taken);
                        return self.close(now, index, node, ErrorKind::InvalidData);
                    }
                }
            }
        }
    }

    fn close(&mut self, now: Instant, index: usize, node: &mut Node, why: ErrorKind) {
        let peer = &mut self.peers[index];
        let Some(stream) = peer.stream.take() else { return };
        tracing::debug!(peer = peer.id.0, "the replication stream is over: {why}");
        // Dropping it takes it out of the sets.
        drop(stream);
        peer.connect_at = now + CONNECT_INTERVAL;
        (peer.is_connected, peer.is_full) = (false, false);
        // Only bytes can be wrong.
        let _ = node.handle_stream(now, peer.id, StreamInput::Disconnected);
    }
}
