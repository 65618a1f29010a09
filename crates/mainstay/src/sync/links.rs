//! The sockets to the peers.

use std::net::SocketAddr;

use flow::NodeId;
use packet_io::IoError;
use packet_io::poller::{Poller, Token};
use packet_io::udp::{UdpOptions, UdpSocket};

use crate::config::sync::SyncConfig;
use crate::config::sync::validated::Native;

/// Datagrams of a link taken before others have their turn.
const DATAGRAMS_PER_TURN_MAX: usize = 256;
/// The largest datagram there is.
const DATAGRAM_BYTES_MAX: usize = 65_536;

/// A socket, and who is at the other end of it.
struct Link {
    socket: UdpSocket,
    token: Token,
    /// Of each peer: its number, where it is, and whether only its address counts: a conntrackd sends from any port.
    peers: Vec<(NodeId, SocketAddr, Port)>,
}

/// Whether a peer is known by its port, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Port {
    Same,
    Any,
}

impl Link {
    fn sender(&self, from: SocketAddr) -> Option<NodeId> {
        let is_it = |(_, address, port): &&(NodeId, SocketAddr, Port)| {
            address.ip() == from.ip() && (*port == Port::Any || address.port() == from.port())
        };
        self.peers.iter().find(is_it).map(|(id, _, _)| *id)
    }
}

/// The sockets to the peers.
pub(super) struct Links {
    links: Vec<Link>,
    datagram: Vec<u8>,
}

impl Links {
    /// Opens what the configuration names.
    pub(super) fn open(config: &SyncConfig, first: Token) -> Result<Self, IoError> {
        let mut links = Vec::new();
        if let Some(native) = &config.replication {
            links.push(open_native(native, first)?);
        }
        Ok(Self { links, datagram: vec![0; DATAGRAM_BYTES_MAX] })
    }

    /// Has the poller report datagrams.
    pub(super) fn register(&self, poller: &Poller) -> Result<(), IoError> {
        self.links.iter().try_for_each(|link| poller.add(&link.socket, link.token))
    }

    /// Takes what has come where the poller says so, and hands on each datagram with its sender; what comes from nobody's
    /// address goes to `stranger`.
    pub(super) fn receive(
        &mut self,
        ready: &[Token],
        mut handle: impl FnMut(NodeId, &[u8]),
        mut stranger: impl FnMut(SocketAddr),
    ) -> Result<(), IoError> {
        let Self { links, datagram } = self;
        for link in links.iter().filter(|link| ready.contains(&link.token)) {
            for _ in 0..DATAGRAMS_PER_TURN_MAX {
                let Some(received) = link.socket.receive(datagram)? else { break };
                match link.sender(received.from) {
                    Some(peer) => handle(peer, &datagram[..received.length_bytes]),
                    None => stranger(received.from),
                }
            }
        }
        Ok(())
    }

    /// Sends a datagram to a peer. What the kernel does not take is lost like any other datagram.
    pub(super) fn send(&self, to: NodeId, datagram: &[u8]) -> Result<(), IoError> {
        for link in &self.links {
            if let Some((_, address, _)) = link.peers.iter().find(|(peer, _, _)| *peer == to) {
                link.socket.send_to(datagram, *address)?;
            }
        }
        Ok(())
    }
}

fn open_native(native: &Native, token: Token) -> Result<Link, IoError> {
    let replication = &native.replication;
    let socket = UdpSocket::bind(replication.local, &UdpOptions::default())?;
    if replication.test_loss > 0.0 {
        socket.attach_random_loss(replication.test_loss)?;
    }
    let peers = replication.peers.iter().map(|peer| (peer.id, peer.address, Port::Same)).collect();
    Ok(Link { socket, token, peers })
}
