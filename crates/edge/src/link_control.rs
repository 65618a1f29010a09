//! Frames that a switch would handle: broadcasts, multicasts, and who holds which address.
//!
//! Frames to a group go to every port but their own, as in a switch. So each node can answer ARP and Neighbour Discovery for the
//! addresses that it holds, announce them, and receive the other nodes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use arrayvec::ArrayVec;
use flow::wire::arp::ArpView;
use flow::wire::{Headers, MacAddress, Transport};
use flow::{Checksum, Frame, NODES_MAX, NodeId, PortId, SegmentationKind};

/// Copies of frames to a group that wait to be sent, at most; further ones are dropped.
pub(crate) const COPIES_MAX: usize = 512;
/// Announced addresses that are remembered; when there are more, the one learned first is forgotten.
const ANNOUNCED_MAX: usize = 256;
/// ICMPv6 type of a neighbour advertisement (RFC 4861 section 4.4).
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// The target address in it: its first byte and the one behind its last.
const ADVERTISED: core::ops::Range<usize> = 8..24;

/// A copy of a frame.
#[derive(Debug)]
struct FrameCopy {
    port: PortId,
    checksum: Checksum,
    bytes: Vec<u8>,
}

/// What the edge knows as a switch.
#[derive(Debug, Default)]
pub(crate) struct LinkControl {
    copies: VecDeque<FrameCopy>,
    /// Addresses and the nodes that announced them last.
    announced: VecDeque<(IpAddr, NodeId)>,
}

/// The destination of a frame. `None`: it is truncated.
pub(crate) fn destination(frame: &Frame<'_>) -> Option<MacAddress> {
    frame.bytes().first_chunk().map(|address| MacAddress(*address))
}

impl LinkControl {
    /// Has copies of a frame sent by these ports. Returns how many found no room.
    pub(crate) fn copy(&mut self, frame: &Frame<'_>, ports: &ArrayVec<PortId, NODES_MAX>) -> u64 {
        // A run of segments cannot be addressed to a group.
        let room = if frame.segmentation.kind == SegmentationKind::None {
            COPIES_MAX.saturating_sub(self.copies.len())
        } else {
            0
        };
        let copy = |port: &PortId| FrameCopy { port: *port, checksum: frame.checksum, bytes: frame.bytes().to_vec() };
        self.copies.extend(ports.iter().take(room).map(copy));
        ports.len().saturating_sub(room) as u64
    }

    pub(crate) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Replaces `buffer` by the next copy, and returns its port and the state of its checksum.
    pub(crate) fn poll(&mut self, buffer: &mut Vec<u8>) -> Option<(PortId, Checksum)> {
        let copy = self.copies.pop_front()?;
        *buffer = copy.bytes;
        Some((copy.port, copy.checksum))
    }

    /// The sender of an ARP packet holds its address.
    pub(crate) fn learn_arp(&mut self, node: NodeId, arp: &ArpView<'_>) {
        if !arp.sender_ip().is_unspecified() {
            self.learn(node, arp.sender_ip().into());
        }
    }

    /// The sender of a neighbour advertisement holds the address that it advertises.
    pub(crate) fn learn_advertisement(&mut self, node: NodeId, frame: &Frame<'_>, headers: &Headers) {
        if headers.tuple.version != 6 || !matches!(headers.transport, Transport::IcmpOther(NEIGHBOUR_ADVERTISEMENT, _))
        {
            return;
        }
        let message = frame.bytes().get(usize::from(headers.l4_offset)..);
        let target = message.and_then(|message| message.get(ADVERTISED)?.first_chunk::<16>());
        if let Some(target) = target {
            self.learn(node, Ipv6Addr::from(*target).into());
        }
    }

    fn learn(&mut self, node: NodeId, address: IpAddr) {
        if let Some(known) = self.announced.iter_mut().find(|(known, _)| *known == address) {
            known.1 = node;
            return;
        }
        if self.announced.len() >= ANNOUNCED_MAX {
            self.announced.pop_front();
        }
        self.announced.push_back((address, node));
    }

    /// The node that announced an address last.
    pub(crate) fn announcer(&self, address: IpAddr) -> Option<NodeId> {
        self.announced.iter().find(|(known, _)| *known == address).map(|(_, node)| *node)
    }
}
