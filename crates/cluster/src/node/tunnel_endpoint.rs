//! The node as the end of a tunnel to another site: which packets go into it, and where those that come out go.
//!
//! ```text
//!   packet ─► pipeline ─► chain ─┬─► forwarder ─► the ordinary way
//!                                └─► take ─► Tunnel ─► UDP between the sites' shared addresses ─► forwarder
//!   UDP from the other site ─► handle_datagram ─► Tunnel ─► packet ─► pipeline, as if it had come by itself
//! ```
//! A packet that comes out is handled as one that came in by the port that leads to the other site: the chain sees the same
//! packets whether the tunnel is used or gone past.

use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use flow::wire::ethernet::ETHERNET_HEADER_BYTES;
use flow::wire::ethernet::ether_type;
use flow::wire::tcp::TCP_HEADER_BYTES;
use flow::wire::udp::UDP_HEADER_BYTES;
use flow::wire::{Headers, MacAddress, Packet, Parsed, Transport, build, checksum, ip_protocol, parse};
use flow::{
    BATCH_FRAMES_MAX, Checksum, Disposition, DropReason, Frame, HashKey, Instant, NodeId, OwnedFrame, PacketBatch,
    PortId, Segmentation, SegmentationKind, Tuple,
};
use network_functions::tuple_filter::TupleFilter;
use redundancy::FlowPosition;
use tunnel::{Outgoing, Restored, SealingConfig, Tunnel, TunnelConfig, TunnelStatus};

use super::error::NodeError;
use super::outbox::Outbox;
use super::peers::Peers;
use crate::forwarding::Forwarder;
use crate::pipeline::Pipeline;

/// The time to live of the tunnel's datagrams; the forwarder takes one off.
const TTL: u8 = 65;
/// Where checksums lie in a TCP header and in a UDP header.
const TCP_CHECKSUM_OFFSET: u16 = TCP_HEADER_BYTES as u16 - 4;
const UDP_CHECKSUM_OFFSET: u16 = UDP_HEADER_BYTES as u16 - 2;

/// The other site, and what goes to it in the tunnel.
#[derive(Clone, Debug)]
pub struct TunnelEndpointConfig {
    /// The shared address of this site that the tunnel ends at, and its UDP port.
    pub local: SocketAddr,
    /// The same of the other site.
    pub peer: SocketAddr,
    /// Packets that any of these match go through the tunnel, of those whose way leads by the same port; none: all of these.
    pub rules: Vec<TupleFilter>,
    /// How the tunnel works.
    pub tunnel: TunnelConfig,
    /// What its datagrams are encrypted by, if they are.
    pub sealing: Option<SealingConfig>,
}

/// The way to the other site: the port, and its link address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Egress {
    port: PortId,
    mac: MacAddress,
}

/// This site's end of the tunnel.
pub(super) struct TunnelEndpoint {
    config: TunnelEndpointConfig,
    tunnel: Tunnel,
    /// Of the datagrams that leave.
    tuple: Tuple,
    key: HashKey,
    datagram: Vec<u8>,
}

impl TunnelEndpoint {
    pub(super) fn new(config: TunnelEndpointConfig, seed: u64, key: HashKey) -> Self {
        let tunnel = Tunnel::new(config.tunnel.clone(), seed);
        let tunnel = match config.sealing.clone() {
            Some(sealing) => tunnel.with_sealing(sealing),
            None => tunnel,
        };
        Self {
            tunnel,
            tuple: Tuple::new(ip_protocol::UDP, config.local, config.peer),
            config,
            key,
            datagram: Vec::new(),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.tunnel.poll_timeout()
    }

    pub(super) fn is_filling_mirror(&self) -> bool {
        self.tunnel.is_filling_mirror()
    }

    /// The load of the processor that the node runs on, in percent, of late.
    pub(super) fn note_load(&mut self, now: Instant, percent: u8) {
        self.tunnel.handle_load(now, percent);
    }

    pub(super) fn set_unix_time(&mut self, now: Instant, unix_time: Duration) {
        self.tunnel.set_unix_time(now, unix_time);
    }

    pub(super) fn status(&self, now: Instant) -> TunnelStatus {
        self.tunnel.status(now)
    }

    /// Whether a packet is a datagram of the tunnel's other end.
    pub(super) fn is_for_tunnel(&self, packet: &Packet<'_, '_>) -> bool {
        packet.headers.tuple == self.tuple.inverse() && !packet.headers.is_fragment
    }

    pub(super) fn handle_datagram(&mut self, now: Instant, packet: &Packet<'_, '_>) -> Disposition {
        match self.tunnel.handle_datagram(now, packet.payload()) {
            Ok(()) => Disposition::Consumed,
            Err(_) => Disposition::Drop(DropReason::Malformed),
        }
    }

    /// Takes a packet into the tunnel, if it is one for it. `None`: it goes the ordinary way.
    pub(super) fn take(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        forwarder: &Forwarder,
    ) -> Option<Disposition> {
        let tuple = packet.headers.tuple;
        let rules = &self.config.rules;
        let is_chosen = rules.is_empty() || rules.iter().any(|rule| rule.matches(&tuple));
        if !self.tunnel.is_active() || !is_chosen || packet.headers.ttl <= 1 {
            return None;
        }
        let destination = tuple.destination_ip();
        let egress = forwarder.route(self.config.peer.ip())?.port;
        let leads_there = forwarder.route(destination).is_some_and(|next_hop| next_hop.port == egress);
        if !leads_there || destination == self.config.peer.ip() {
            return None;
        }
        self.tunnel.admit(now, packet.headers.l3_bytes as usize).ok()?;
        forwarder.clamp_segments_for_tunnel(packet, egress);
        if let Err(reason) = packet.decrement_ttl() {
            return Some(Disposition::Drop(reason));
        }
        let end = packet.headers.l3_end();
        if let Checksum::Partial { start, offset } = packet.frame.checksum {
            // Whatever comes out of the tunnel is to be verified, so it is summed whole, even if it stands for several.
            let is_whole = packet
                .frame
                .bytes_mut()
                .get_mut(..end)
                .is_some_and(|bytes| checksum::complete_partial(bytes, start, offset));
            if !is_whole {
                return Some(Disposition::Drop(DropReason::Malformed));
            }
        }
        let begin = usize::from(packet.headers.l3_offset);
        let Some(bytes) = packet.frame.bytes().get(begin..end) else {
            return Some(Disposition::Drop(DropReason::Truncated));
        };
        let outgoing = Outgoing {
            bytes,
            header_bytes: header_bytes(packet.headers),
            at: self.position(packet.headers),
            segmentation: packet.frame.segmentation,
        };
        let is_taken = self.tunnel.handle_packet(now, &outgoing);
        Some(if is_taken { Disposition::Consumed } else { Disposition::Drop(DropReason::TunnelBacklog) })
    }

    /// Does what is due. Returns the way to the other site; without one, what would be sent there is lost, and the tunnel finds
    /// that out.
    pub(super) fn handle_timeout(&mut self, now: Instant, forwarder: &Forwarder) -> Option<Egress> {
        self.tunnel.set_active(now, forwarder.holds_address(self.config.local.ip()));
        if self.tunnel.poll_timeout().is_some_and(|due| due <= now) {
            self.tunnel.handle_timeout(now);
        }
        let port = forwarder.route(self.config.peer.ip()).map(|next_hop| next_hop.port);
        let egress = port.and_then(|port| Some(Egress { port, mac: forwarder.link_address(port)? }));
        if egress.is_none() {
            while self.tunnel.poll_transmit(now, &mut self.datagram) {}
        }
        egress
    }

    /// Packets that came out of the tunnel, as frames that came in by the port to the other site: a batch at most.
    pub(super) fn poll_frames(&mut self, egress: Egress) -> Vec<OwnedFrame> {
        let mut frames = Vec::new();
        while frames.len() < BATCH_FRAMES_MAX
            && let Some(packet) = self.tunnel.poll_packet()
        {
            match frame_of(&packet, egress) {
                Some(frame) => frames.push(frame),
                None => self.tunnel.note_broken(),
            }
        }
        frames
    }

    /// Sends the tunnel's datagrams, as far as the outbox has room.
    pub(super) fn send_datagrams(
        &mut self,
        now: Instant,
        egress: Egress,
        forwarder: &mut Forwarder,
        outbox: &mut Outbox,
        pipeline: &mut Pipeline,
    ) {
        while outbox.has_room() && self.tunnel.poll_transmit(now, &mut self.datagram) {
            let envelope =
                build::Envelope { source: egress.mac, destination: egress.mac, ttl: TTL, ..build::Envelope::default() };
            let mut bytes = envelope.udp(&self.tuple, &self.datagram);
            let length_bytes = bytes.len();
            let Some(mut frame) = Frame::new(&mut bytes, 0, length_bytes, PortId::default()) else { continue };
            // It was summed just now.
            frame.checksum = Checksum::Valid;
            let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { continue };
            let disposition = forwarder.forward(now, &mut Packet { frame: &mut frame, headers: &mut headers });
            frame.disposition = disposition;
            let batch: PacketBatch<'_> = core::iter::once(frame).collect();
            outbox.post(&batch, pipeline);
        }
    }

    /// A peer's datagram about its mirror of the caches.
    ///
    /// # Errors
    /// Why the tunnel did not take it.
    pub(super) fn handle_mirror(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), NodeError> {
        Ok(self.tunnel.handle_mirror(now, from, datagram)?)
    }

    /// The next datagram for a peer's mirror of the caches. It goes over the replication channel, after all replication.
    pub(super) fn poll_mirror(&mut self, now: Instant, peers: &Peers, buffer: &mut Vec<u8>) -> Option<NodeId> {
        for peer in peers {
            if !peer.takes_updates() {
                self.tunnel.forget_mirror(peer.id);
            } else if self.tunnel.poll_mirror(now, peer.id, buffer) {
                return Some(peer.id);
            }
        }
        None
    }

    fn position(&self, headers: &Headers) -> Option<FlowPosition> {
        match &headers.transport {
            Transport::Tcp(segment) if !headers.is_fragment => {
                Some(FlowPosition { flow: self.key.hash(&headers.tuple), sequence: segment.sequence })
            }
            _ => None,
        }
    }
}

/// Bytes of a packet's headers: up to the payload of what is known, else up to what follows the IP header.
fn header_bytes(headers: &Headers) -> usize {
    let has_payload = matches!(headers.transport, Transport::Tcp(_) | Transport::Udp) && !headers.is_fragment;
    let payload = if has_payload { headers.payload_offset } else { headers.l4_offset };
    usize::from(payload.saturating_sub(headers.l3_offset))
}

/// The frame of a packet that came out of the tunnel, as if it had come in by the port. `None`: it is broken.
fn frame_of(packet: &Restored, egress: Egress) -> Option<OwnedFrame> {
    let Egress { port: ingress, mac } = egress;
    let mut bytes = Vec::with_capacity(ETHERNET_HEADER_BYTES + packet.bytes.len());
    bytes.extend_from_slice(&mac.0);
    bytes.extend_from_slice(&mac.0);
    let kind = if packet.bytes.first()? >> 4 == 4 { ether_type::IPV4 } else { ether_type::IPV6 };
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&packet.bytes);
    if packet.segmentation.kind == SegmentationKind::None {
        return Some(OwnedFrame::new(bytes, ingress, Checksum::Unverified, Segmentation::default()));
    }
    leave_to_hardware(bytes, packet.segmentation, ingress)
}

/// Verifies a packet that stands for several, and leaves its checksum to the device that divides it. The sizes from the
/// other site must fit the packet: it goes to the kernel.
fn leave_to_hardware(mut bytes: Vec<u8>, segmentation: Segmentation, ingress: PortId) -> Option<OwnedFrame> {
    let length_bytes = bytes.len();
    let Ok(Parsed::Ip(headers)) = parse(&Frame::new(&mut bytes, 0, length_bytes, ingress)?) else { return None };
    let is_ipv4 = headers.tuple.source_ip().is_ipv4();
    let offset = match (&headers.transport, segmentation.kind) {
        (Transport::Tcp(_), SegmentationKind::TcpIpv4) if is_ipv4 => TCP_CHECKSUM_OFFSET,
        (Transport::Tcp(_), SegmentationKind::TcpIpv6) if !is_ipv4 => TCP_CHECKSUM_OFFSET,
        (Transport::Udp, SegmentationKind::Udp) => UDP_CHECKSUM_OFFSET,
        _ => return None,
    };
    if headers.is_fragment || segmentation.size_bytes == 0 {
        return None;
    }
    let transport_bytes = headers.l3_bytes - u32::from(headers.l4_offset - headers.l3_offset);
    let sum = checksum::pseudo_header(&headers.tuple, transport_bytes).fold();
    let at = usize::from(headers.l4_offset + offset);
    bytes.get_mut(at..at + 2)?.copy_from_slice(&sum.to_be_bytes());
    let checksum = Checksum::Partial { start: headers.l4_offset, offset };
    let segmentation = Segmentation { header_bytes: headers.payload_offset, ..segmentation };
    Some(OwnedFrame::new(bytes, ingress, checksum, segmentation))
}
