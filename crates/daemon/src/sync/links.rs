//! The sockets to the peers.

use std::net::SocketAddr;

use flow::NodeId;
use packet_io::IoError;
use packet_io::poller::{Poller, Token};
use packet_io::udp::{UdpOptions, UdpSocket};

use config::sync::SyncConfig;
use config::sync::validated::{Conntrackd, ConntrackdPeer, Native};

/// Datagrams of a link taken before others have their turn.
const DATAGRAMS_PER_TURN_MAX: usize = 256;
/// The largest datagram there is.
const DATAGRAM_BYTES_MAX: usize = 65_536;

/// A socket, and who is at the other end of it.
struct Link {
    socket: UdpSocket,
    token: Token,
    /// Of each peer: its number, where it is, and by what its datagrams are known.
    peers: Vec<(NodeId, SocketAddr, Known)>,
}

/// By what a peer's datagrams are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Its address and port.
    Exactly,
    /// Its address: a conntrackd sends from any port.
    ByAddress,
    /// That they were sent to the group: it has no other member, and a socket does not receive its own datagrams.
    ByGroup,
}

impl Link {
    fn sender(&self, from: SocketAddr) -> Option<NodeId> {
        let is_it = |(_, address, known): &&(NodeId, SocketAddr, Known)| match known {
            Known::Exactly => *address == from,
            Known::ByAddress => address.ip() == from.ip(),
            Known::ByGroup => true,
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
        if let Some(conntrackd) = &config.conntrackd {
            links.push(open_conntrackd(conntrackd, Token(first.0 + 1))?);
        }
        Ok(Self { links, datagram: vec![0; DATAGRAM_BYTES_MAX] })
    }

    /// Has the poller report datagrams.
    pub(super) fn register(&self, poller: &Poller) -> Result<(), IoError> {
        self.links.iter().try_for_each(|link| poller.add(&link.socket, link.token))
    }

    /// Receives from the sockets that the poller has found ready, and hands on each datagram with its sender. A datagram
    /// from an unknown address goes to `stranger`.
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
    let peers = replication.peers.iter().map(|peer| (peer.id, peer.address, Known::Exactly)).collect();
    Ok(Link { socket, token, peers })
}

fn open_conntrackd(conntrackd: &Conntrackd, token: Token) -> Result<Link, IoError> {
    let options = UdpOptions { interface: conntrackd.interface.clone(), ..UdpOptions::default() };
    let (socket, known) = match conntrackd.peer {
        ConntrackdPeer::Unicast(_) => (UdpSocket::bind(conntrackd.local, &options)?, Known::ByAddress),
        ConntrackdPeer::Multicast(group) => {
            let interface = conntrackd.interface.as_deref().unwrap_or_default();
            (UdpSocket::bind_multicast(group, interface, &UdpOptions::default())?, Known::ByGroup)
        }
    };
    Ok(Link { socket, token, peers: vec![(conntrackd.peer_id, conntrackd.peer.address(), known)] })
}
