//! Frames by which nodes that back each other up detect failures over a service port's link, beside the replication link.
//!
//! ```text
//!   Ethernet   destination 03:4d:53:00:00:01, source: the port, type 0x88b5 (IEEE 802, local experimental)
//!    0  magic "MS"
//!    2  version: 1
//!    3  kind: 0 as on the replication port, 1 failure detection in plain text, 2 from an edge, 3 to an edge
//!    4  sender's node id, or edge id
//!    5  receiver's node id, or edge id
//!    6  length of the datagram in bytes: an Ethernet frame may be padded
//!    8  path: a hash of the port's name, the same on both nodes; 0 from and to edges
//!   12  checksum: the CRC32c of two CRC32c, of the bytes before it and of the datagram; unencrypted datagrams have no other
//!   16  datagram
//! ```
//! The destination is a locally administered multicast address: no address needs to be configured, and switches flood it within
//! the segment. A frame whose path is not that of the port that it arrives on has crossed segments and counts for nothing.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flow::wire::MacAddress;
use flow::wire::ethernet::{ETHERNET_HEADER_BYTES, EthernetView};
use flow::wire::sctp::crc32c_of;
use flow::{Disposition, DropReason, Frame, NodeId, PortId};

/// The Ethernet type of the frames (IEEE 802, local experimental).
pub const PATH_ETHER_TYPE: u16 = 0x88b5;
/// Where they are sent: a locally administered multicast address.
pub const PATH_MAC: MacAddress = MacAddress([0x03, 0x4d, 0x53, 0, 0, 1]);
/// Bytes before the datagram, behind the Ethernet header.
pub const PATH_HEADER_BYTES: usize = 16;
/// Received frames that wait for the node; further ones are dropped as [`DropReason::LocalUnhandled`].
pub const PATH_FRAMES_MAX: usize = 256;
/// Bytes of a datagram at most: that of a handshake with certificates fits, and an Ethernet frame.
pub const PATH_DATAGRAM_BYTES_MAX: usize = 1484;

const MAGIC: [u8; 2] = *b"MS";
const VERSION: u8 = 1;

/// Names a path: a hash of the port's configured name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathId(pub u32);

impl PathId {
    /// Frames from and to edges name no path: an edge does not know the names of a node's ports.
    pub(crate) const OF_EDGES: Self = Self(0);

    /// The path through the ports of this name (FNV-1a).
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Self(hash)
    }
}

/// Bytes of the header that the checksum covers; the checksum is behind them.
const CHECKED_BYTES: usize = 12;

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// What the replication port carries: a heartbeat, or any datagram of the secure channel.
    Replication = 0,
    /// A packet of failure detection in plain text.
    Detection = 1,
    /// What an edge sends to a node.
    FromEdge = 2,
    /// What a node sends to an edge.
    ToEdge = 3,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Replication, Self::Detection, Self::FromEdge, Self::ToEdge];
}

/// The header of a frame, without what its reader checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PathHeader {
    pub(crate) kind: Kind,
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) path: PathId,
}

impl PathHeader {
    /// The header of a frame, and its datagram.
    pub(crate) fn read(frame: &[u8]) -> Result<(Self, &[u8]), DropReason> {
        let payload = EthernetView::new_checked(frame)?.payload();
        let (header, rest) = payload.split_first_chunk::<PATH_HEADER_BYTES>().ok_or(DropReason::Truncated)?;
        let [m0, m1, version, kind, from, to, l0, l1, p0, p1, p2, p3, checksum @ ..] = *header;
        if ([m0, m1], version) != (MAGIC, VERSION) {
            return Err(DropReason::UnsupportedLinkProtocol);
        }
        let kind = *Kind::ALL.get(usize::from(kind)).ok_or(DropReason::Malformed)?;
        let datagram = rest.get(..usize::from(u16::from_be_bytes([l0, l1]))).ok_or(DropReason::Truncated)?;
        if u32::from_be_bytes(checksum) != frame_checksum(&header[..CHECKED_BYTES], datagram) {
            return Err(DropReason::BadTransportChecksum);
        }
        Ok((Self { kind, from, to, path: PathId(u32::from_be_bytes([p0, p1, p2, p3])) }, datagram))
    }

    /// Writes the frame from this link address that carries `datagram` over `out`. `None`: the datagram does not fit.
    pub(crate) fn write(self, source: MacAddress, datagram: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let length_bytes = u16::try_from(datagram.len()).ok()?;
        if datagram.len() > PATH_DATAGRAM_BYTES_MAX {
            return None;
        }
        out.clear();
        out.reserve(ETHERNET_HEADER_BYTES + PATH_HEADER_BYTES + datagram.len());
        out.extend_from_slice(&PATH_MAC.0);
        out.extend_from_slice(&source.0);
        out.extend_from_slice(&PATH_ETHER_TYPE.to_be_bytes());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.kind as u8, self.from, self.to]);
        out.extend_from_slice(&length_bytes.to_be_bytes());
        out.extend_from_slice(&self.path.0.to_be_bytes());
        let checksum = frame_checksum(&out[ETHERNET_HEADER_BYTES..], datagram);
        out.extend_from_slice(&checksum.to_be_bytes());
        out.extend_from_slice(datagram);
        Some(())
    }
}

/// A frame that a peer or an edge sent over the link of a service port.
#[derive(Clone, Debug)]
pub(crate) struct PathFrame {
    pub(crate) port: PortId,
    /// The peer, or the edge.
    pub(crate) from: NodeId,
    pub(crate) kind: Kind,
    pub(crate) datagram: Vec<u8>,
}

/// The service paths as the forwarder knows them, and what arrived on them.
#[derive(Clone, Debug, Default)]
pub(super) struct PathFrames {
    node: NodeId,
    paths: Vec<(PortId, PathId)>,
    /// Edges may send frames, by any port.
    has_edges: bool,
    received: VecDeque<PathFrame>,
    /// The link addresses that frames of peers came from, by port; bounded by [`PEER_ADDRESSES_MAX`].
    peer_macs: Vec<(PortId, MacAddress)>,
}

/// Link addresses of peers that are remembered; further ones are not.
const PEER_ADDRESSES_MAX: usize = 64;

/// Whether a frame is one of these.
#[must_use]
pub fn is_path_frame(frame: &[u8]) -> bool {
    EthernetView::new_checked(frame).is_ok_and(|link| link.ether_type() == PATH_ETHER_TYPE)
}

fn frame_checksum(header: &[u8], datagram: &[u8]) -> u32 {
    // A CRC of the header's CRC and the datagram's: neither is copied.
    let parts = [crc32c_of(header), crc32c_of(datagram)].map(u32::to_be_bytes);
    crc32c_of(parts.as_flattened())
}

impl PathFrames {
    /// The ports whose links are paths to the peers, and the node that frames on them must be for.
    pub(super) fn set_paths(&mut self, node: NodeId, paths: Vec<(PortId, PathId)>) {
        *self = Self { node, paths, has_edges: self.has_edges, ..Self::default() };
    }

    /// From now on edges may send frames to this node by any port.
    pub(super) const fn set_edges(&mut self, node: NodeId) {
        (self.node, self.has_edges) = (node, true);
    }

    /// Keeps a frame of a peer or of an edge until it is polled.
    pub(super) fn handle(&mut self, frame: &Frame<'_>) -> Disposition {
        match self.read(frame) {
            Ok(received) => {
                if received.kind != Kind::FromEdge {
                    self.note_peer(frame);
                }
                self.received.push_back(received);
                Disposition::Consumed
            }
            Err(reason) => Disposition::Drop(reason),
        }
    }

    /// The next frame that a peer sent.
    pub(super) fn poll(&mut self) -> Option<PathFrame> {
        self.received.pop_front()
    }

    fn read(&self, frame: &Frame<'_>) -> Result<PathFrame, DropReason> {
        let port = frame.ingress;
        let path = self.paths.iter().find(|(of_port, _)| *of_port == port).map(|(_, id)| *id);
        if path.is_none() && !self.has_edges {
            return Err(DropReason::UnsupportedLinkProtocol);
        }
        let (header, datagram) = PathHeader::read(frame.bytes())?;
        let is_for_this_node = match header.kind {
            Kind::Replication | Kind::Detection => Some(header.path) == path,
            Kind::FromEdge => self.has_edges,
            Kind::ToEdge => false,
        };
        if NodeId(header.to) != self.node || !is_for_this_node {
            return Err(DropReason::OtherHost);
        }
        if self.received.len() >= PATH_FRAMES_MAX || datagram.len() > PATH_DATAGRAM_BYTES_MAX {
            return Err(DropReason::LocalUnhandled);
        }
        Ok(PathFrame { port, from: NodeId(header.from), kind: header.kind, datagram: datagram.to_vec() })
    }

    fn note_peer(&mut self, frame: &Frame<'_>) {
        let Ok(link) = EthernetView::new_checked(frame.bytes()) else { return };
        let peer = (frame.ingress, link.source());
        if self.peer_macs.len() < PEER_ADDRESSES_MAX && !self.peer_macs.contains(&peer) {
            self.peer_macs.push(peer);
        }
    }

    /// Whether a host on the port's link may be a peer: one is known to be there with this link address, or none is known.
    pub(super) fn may_be_peer(&self, port: PortId, mac: MacAddress) -> bool {
        let mut there = self.peer_macs.iter().filter(|(of, _)| *of == port).peekable();
        there.peek().is_none() || there.any(|(_, peer)| *peer == mac)
    }

    /// Writes the frame that carries `datagram` to a peer or an edge by the port over `out`. `None`: there is no such path, or
    /// the datagram does not fit.
    pub(super) fn write(
        &self,
        (port, mac): (PortId, MacAddress),
        to: NodeId,
        kind: Kind,
        datagram: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let path = match kind {
            Kind::FromEdge | Kind::ToEdge => PathId::OF_EDGES,
            Kind::Replication | Kind::Detection => self.paths.iter().find(|(path, _)| *path == port)?.1,
        };
        PathHeader { kind, from: self.node.0, to: to.0, path }.write(mac, datagram, out)
    }
}
