//! Frames by which nodes that back each other up detect failures over a service port's link, beside the replication link.
//!
//! ```text
//!   Ethernet   destination 03:4d:53:00:00:01, source: the port, type 0x88b5 (IEEE 802, local experimental)
//!    0  magic "MS"
//!    2  version: 1
//!    3  kind: 0 as on the replication port of the lead worker, 1 failure detection in plain text, 2 from an edge, 3 to an edge,
//!       4 as on the replication port of the worker whose number is the datagram's first byte
//!    4  sender's node id, or edge id
//!    5  receiver's node id, or edge id
//!    6  length of the datagram in bytes: an Ethernet frame may be padded
//!    8  path: a hash of the port's name, the same on both nodes; 0 from and to edges
//!   12  checksum: the CRC32c of two CRC32c, of the bytes before it and of the datagram; unencrypted datagrams have no other
//!   16  datagram
//! ```
//! The destination is a locally administered multicast address: no address needs to be configured, and switches flood it within
//! the segment. While a path is up, its frames go to the link address of the peer instead, so other hosts do not receive them. A frame whose path is not that of the port that it arrives on has crossed segments and counts for nothing.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use flow::wire::MacAddress;
use flow::wire::ethernet::{ETHERNET_HEADER_BYTES, EthernetView};
use flow::wire::sctp::crc32c_of;
use flow::{Disposition, DropReason, Frame, NodeId, PortId, WorkerId};

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
    /// What the replication port of another worker than the lead carries, behind the worker's number.
    OfWorker = 4,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Replication, Self::Detection, Self::FromEdge, Self::ToEdge, Self::OfWorker];
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

/// The receiver of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PathFrameTo {
    /// The peer, or the edge.
    pub(crate) node: NodeId,
    pub(crate) kind: Kind,
    /// `None`: the frame goes to the group.
    pub(crate) link_address: Option<MacAddress>,
}

/// Frames between nodes, and between nodes and edges, that a port has sent and received. They are no traffic of hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathTraffic {
    /// Frames sent.
    pub sent_frames: u64,
    /// Bytes of those.
    pub sent_bytes: u64,
    /// Frames received.
    pub received_frames: u64,
    /// Bytes of those.
    pub received_bytes: u64,
}

/// A frame that a peer or an edge sent over the link of a service port.
#[derive(Clone, Debug)]
pub(crate) struct PathFrame {
    pub(crate) port: PortId,
    /// The link address that it came from.
    pub(crate) link_address: MacAddress,
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
    /// By port.
    traffic: Vec<PathTraffic>,
}

/// Link addresses of peers that are remembered; further ones are not.
const PEER_ADDRESSES_MAX: usize = 64;

/// Whether a frame is one of these.
#[must_use]
pub fn is_path_frame(frame: &[u8]) -> bool {
    EthernetView::new_checked(frame).is_ok_and(|link| link.ether_type() == PATH_ETHER_TYPE)
}

/// The worker that a frame is for, if the frame names one.
pub(crate) fn path_frame_worker(frame: &[u8]) -> Option<WorkerId> {
    let payload = EthernetView::new_checked(frame).ok()?.payload();
    let (header, datagram) = payload.split_first_chunk::<PATH_HEADER_BYTES>()?;
    (header[3] == Kind::OfWorker as u8).then_some(WorkerId(*datagram.first()?))
}

fn frame_checksum(header: &[u8], datagram: &[u8]) -> u32 {
    // A CRC of the header's CRC and the datagram's: neither is copied.
    let parts = [crc32c_of(header), crc32c_of(datagram)].map(u32::to_be_bytes);
    crc32c_of(parts.as_flattened())
}

impl PathFrames {
    /// The ports whose links are paths to the peers, and the node that frames on them must be for.
    pub(super) fn set_paths(&mut self, node: NodeId, paths: Vec<(PortId, PathId)>) {
        let traffic = core::mem::take(&mut self.traffic);
        *self = Self { node, paths, has_edges: self.has_edges, traffic, ..Self::default() };
    }

    /// From now on edges may send frames to this node by any port.
    pub(super) const fn set_edges(&mut self, node: NodeId) {
        (self.node, self.has_edges) = (node, true);
    }

    /// Keeps a frame of a peer or of an edge until it is polled. One for another node is no loss.
    pub(super) fn handle(&mut self, frame: &Frame<'_>) -> Disposition {
        let traffic = self.traffic_of(frame.ingress);
        traffic.received_frames += 1;
        traffic.received_bytes += frame.bytes().len() as u64;
        match self.read(frame) {
            Ok(Some(received)) => {
                if received.kind != Kind::FromEdge {
                    self.note_peer(frame);
                }
                self.received.push_back(received);
                Disposition::Consumed
            }
            Ok(None) => Disposition::Consumed,
            Err(reason) => Disposition::Drop(reason),
        }
    }

    fn traffic_of(&mut self, port: PortId) -> &mut PathTraffic {
        let index = usize::from(port.0);
        if self.traffic.len() <= index {
            self.traffic.resize(index + 1, PathTraffic::default());
        }
        &mut self.traffic[index]
    }

    pub(super) fn traffic(&self, port: PortId) -> PathTraffic {
        self.traffic.get(usize::from(port.0)).copied().unwrap_or_default()
    }

    /// The next frame that a peer sent.
    pub(super) fn poll(&mut self) -> Option<PathFrame> {
        self.received.pop_front()
    }

    /// `Ok(None)`: it is for another node, or an edge.
    fn read(&self, frame: &Frame<'_>) -> Result<Option<PathFrame>, DropReason> {
        let port = frame.ingress;
        let path = self.paths.iter().find(|(of_port, _)| *of_port == port).map(|(_, id)| *id);
        let (header, datagram) = PathHeader::read(frame.bytes())?;
        if NodeId(header.to) != self.node || header.kind == Kind::ToEdge {
            return Ok(None);
        }
        let is_expected = match header.kind {
            Kind::FromEdge => self.has_edges,
            Kind::Replication | Kind::Detection | Kind::OfWorker | Kind::ToEdge => Some(header.path) == path,
        };
        if !is_expected {
            let is_used = path.is_some() || self.has_edges;
            return Err(if is_used { DropReason::OtherHost } else { DropReason::UnsupportedLinkProtocol });
        }
        if self.received.len() >= PATH_FRAMES_MAX || datagram.len() > PATH_DATAGRAM_BYTES_MAX {
            return Err(DropReason::LocalUnhandled);
        }
        let link_address = EthernetView::new_checked(frame.bytes())?.source();
        let (from, kind) = (NodeId(header.from), header.kind);
        Ok(Some(PathFrame { port, link_address, from, kind, datagram: datagram.to_vec() }))
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
        &mut self,
        (port, mac): (PortId, MacAddress),
        PathFrameTo { node: to, kind, link_address }: PathFrameTo,
        datagram: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let path = match kind {
            Kind::FromEdge | Kind::ToEdge => PathId::OF_EDGES,
            Kind::Replication | Kind::Detection | Kind::OfWorker => {
                self.paths.iter().find(|(path, _)| *path == port)?.1
            }
        };
        PathHeader { kind, from: self.node.0, to: to.0, path }.write(mac, datagram, out)?;
        if let Some(link_address) = link_address {
            out[..link_address.0.len()].copy_from_slice(&link_address.0);
        }
        let traffic = self.traffic_of(port);
        traffic.sent_frames += 1;
        traffic.sent_bytes += out.len() as u64;
        Some(())
    }
}
