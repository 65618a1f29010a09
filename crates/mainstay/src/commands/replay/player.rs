//! The node of a replay and its clock.

use cluster::forwarding;
use cluster::node::{Node, Transmit};
use flow::wire::checksum::Sum;
use flow::wire::ethernet::{self, ETHERNET_HEADER_BYTES};
use flow::wire::ipv4::IPV4_HEADER_BYTES;
use flow::wire::{self, MacAddress, Parsed, Transport};
use flow::{Checksum, Disposition, DropReason, Frame, Instant, PacketBatch, PortId};
use packet_io::pcap::{LinkType, SNAPSHOT_BYTES_MAX};

use super::ReplayError;
use super::neighbours::{self, OwnFrame};
use config::validated::{self, Config};
use daemon::gateway::build::{self, Secrets, SharedFunctions};

/// No packet of a capture is too large for its way out: those that a sending host's interface was still to cut are in
/// captures whole.
const MTU_BYTES: u32 = 1 << 20;
/// What is due in a gap between two packets is done at its time, so many times over; then time jumps to the packet.
const TIMEOUTS_PER_GAP_MAX: usize = 10_000;
/// Of these, each packet adds so many to those that are left: a replay takes the time of its packets, not of its gaps.
const TIMEOUTS_PER_PACKET: usize = 20;
/// Bytes that ICMP errors quote of the transport header at least (RFC 792).
const QUOTED_TRANSPORT_BYTES: usize = 8;
/// Where the checksum is in an IPv4 header, in bytes.
const IPV4_CHECKSUM_OFFSET: usize = 10;

/// A captured frame, made an Ethernet frame of its length on the wire.
pub(super) struct CapturedFrame<'a> {
    bytes: &'a mut Vec<u8>,
    /// Bytes that the capture holds; those behind are zero.
    kept_bytes: usize,
    checksum: Checksum,
    /// Its link type has no packets that a gateway could forward.
    is_foreign: bool,
}

impl<'a> CapturedFrame<'a> {
    /// `bytes` are what the capture holds of a frame that was `wire_bytes` long.
    pub(super) fn new(bytes: &'a mut Vec<u8>, link_type: LinkType, wire_bytes: u32, ignore_checksums: bool) -> Self {
        let is_foreign = !link_type.make_ethernet(bytes);
        let kept_bytes = bytes.len();
        let wire_bytes = wire_bytes.saturating_add_signed(link_type.added_bytes()).min(SNAPSHOT_BYTES_MAX) as usize;
        let is_truncated = wire_bytes > kept_bytes;
        if is_truncated {
            bytes.resize(wire_bytes, 0);
        }
        if ignore_checksums {
            complete_ipv4_header(bytes);
        }
        // A checksum over bytes that are not there is meaningless.
        let checksum = if ignore_checksums || is_truncated { Checksum::Valid } else { Checksum::Unverified };
        Self { bytes, kept_bytes, checksum, is_foreign }
    }

    /// The capture holds its beginning only.
    pub(super) fn is_truncated(&self) -> bool {
        self.bytes.len() > self.kept_bytes
    }

    /// What `look` sees in the frame, its checksums believed.
    pub(super) fn look<T>(&mut self, look: impl FnOnce(&Frame<'_>) -> T) -> Option<T> {
        let length_bytes = self.bytes.len();
        let mut frame = Frame::new(self.bytes, 0, length_bytes, PortId(0))?;
        frame.checksum = Checksum::Valid;
        Some(look(&frame))
    }

    /// Whether all headers that the node reads are among the bytes that the capture holds.
    fn has_its_headers(&mut self) -> bool {
        let parsed = self.look(wire::parse);
        let Some(Ok(Parsed::Ip(headers))) = parsed else { return !self.is_truncated() };
        let end = match headers.transport {
            Transport::IcmpError(error) => usize::from(error.inner_l4_offset) + QUOTED_TRANSPORT_BYTES,
            _ => headers.payload_offset.into(),
        };
        end <= self.kept_bytes
    }
}

/// Writes the checksum that the IPv4 header ought to have, if the frame has one behind an untagged Ethernet header.
fn complete_ipv4_header(frame: &mut [u8]) {
    let is_ipv4 = matches!(ethernet::network_layer(frame), Ok((ethernet::ether_type::IPV4, ETHERNET_HEADER_BYTES)));
    let Some(packet) = frame.get_mut(ETHERNET_HEADER_BYTES..).filter(|packet| is_ipv4 && !packet.is_empty()) else {
        return;
    };
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    if let Some(header) = packet.get_mut(..header_bytes).filter(|header| header.len() >= IPV4_HEADER_BYTES) {
        header[IPV4_CHECKSUM_OFFSET..IPV4_CHECKSUM_OFFSET + 2].fill(0);
        let checksum = Sum::of(header).checksum();
        header[IPV4_CHECKSUM_OFFSET..IPV4_CHECKSUM_OFFSET + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// A frame that the node sends.
pub(super) struct Sent<'a> {
    pub(super) port: PortId,
    /// As much of it as the capture holds of the frame that it was made from.
    pub(super) bytes: &'a [u8],
    pub(super) wire_bytes: u32,
}

/// What became of a captured packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// It went on, perhaps translated; or the node sent its answer.
    Forwarded,
    /// It went no further.
    Dropped(DropReason),
    /// It was for the node itself: ARP, neighbour discovery.
    Taken,
}

/// Addresses, ports and routes of a node in a replay.
pub(super) fn forwarding_config(config: &Config) -> forwarding::Config {
    let ports = config.ports.iter().map(|port| forwarding::Port {
        mac: MacAddress([0x02, 0, 0, 0, 0, port.id.0]),
        mtu_bytes: MTU_BYTES,
        own: Vec::new(),
        shared: build::forwarding_prefixes(port),
        mss_clamp: port.mss_clamp,
        reverse_path: port.reverse_path,
        router_advertisements: port.router_advertisements.clone(),
    });
    forwarding::Config {
        ports: ports.collect(),
        routes: build::forwarding_routes(config),
        direct_return: build::forwarding_direct_return(config),
        seed: 0,
    }
}

/// The node.
pub(super) struct Player {
    node: Node,
    macs: Vec<MacAddress>,
    now: Instant,
    /// Of [`TIMEOUTS_PER_GAP_MAX`].
    timeouts_left: usize,
    buffer: Vec<u8>,
}

impl Player {
    /// A node that has taken the shared addresses at `now`.
    pub(super) fn new(config: &Config, forwarding: forwarding::Config, now: Instant) -> Result<Self, ReplayError> {
        let macs = forwarding.ports.iter().map(|port| port.mac).collect();
        let workers = validated::Workers { count: 1, pin: false };
        let alone = Config { cluster: None, workers, ..config.clone() };
        let secrets = Secrets::known();
        let shared = SharedFunctions::new(&alone, None, &secrets)?;
        let node = Node::new(build::node_config_with(&alone, forwarding, &shared, &secrets)?, now)?;
        let mut player = Self { node, macs, now, timeouts_left: TIMEOUTS_PER_GAP_MAX, buffer: Vec::new() };
        player.node.handle_timeout(now);
        player.settle(usize::MAX, &mut |_, _| {});
        Ok(player)
    }

    /// Connections held now.
    pub(super) fn connections(&self) -> u32 {
        self.node.pipeline().table().len()
    }

    /// The node, to be asked what it counted.
    pub(super) const fn node(&self) -> &Node {
        &self.node
    }

    /// Plays a packet at its time, or at once when that has passed.
    pub(super) fn play(
        &mut self,
        at: Instant,
        ingress: PortId,
        mut captured: CapturedFrame<'_>,
        sent: &mut dyn FnMut(Instant, Sent<'_>),
    ) -> Outcome {
        self.advance(at, sent);
        if captured.is_foreign {
            return Outcome::Dropped(DropReason::UnsupportedLinkProtocol);
        }
        if captured.is_truncated() && !captured.has_its_headers() {
            return Outcome::Dropped(DropReason::Truncated);
        }
        self.address_to_node(ingress, &mut captured);
        let length_bytes = captured.bytes.len();
        let kept_bytes = if captured.is_truncated() { captured.kept_bytes } else { usize::MAX };
        let Some(mut frame) = Frame::new(captured.bytes, 0, length_bytes, ingress) else {
            return Outcome::Dropped(DropReason::Malformed);
        };
        frame.checksum = captured.checksum;
        let mut batch = PacketBatch::new();
        batch.push(frame);
        self.node.handle_packets(self.now, &mut batch);
        let frame = &batch[0];
        let outcome = match frame.disposition {
            Disposition::Transmit(port) => {
                sent(self.now, sent_frame(port, frame.bytes(), kept_bytes));
                Outcome::Forwarded
            }
            Disposition::Drop(reason) => Outcome::Dropped(reason),
            Disposition::Consumed | Disposition::Undecided => Outcome::Taken,
        };
        let released = self.settle(kept_bytes, sent);
        // A packet that waited for its neighbour has gone on by now.
        if outcome == Outcome::Taken && released > 0 { Outcome::Forwarded } else { outcome }
    }

    /// Frames of a capture are addressed to the node of that time; groups stay what they are.
    fn address_to_node(&self, ingress: PortId, captured: &mut CapturedFrame<'_>) {
        let mac = self.macs[usize::from(ingress.0)];
        if let Some(destination) = captured.bytes.first_chunk_mut::<6>()
            && !MacAddress(*destination).is_group()
        {
            *destination = mac.0;
        }
    }

    /// Does what is due up to `at`.
    fn advance(&mut self, at: Instant, sent: &mut dyn FnMut(Instant, Sent<'_>)) {
        let at = at.max(self.now);
        self.timeouts_left = (self.timeouts_left + TIMEOUTS_PER_PACKET).min(TIMEOUTS_PER_GAP_MAX);
        while self.timeouts_left > 0 {
            let Some(due) = self.node.poll_timeout().filter(|due| *due <= at) else { break };
            self.timeouts_left -= 1;
            self.now = due.max(self.now);
            self.node.handle_timeout(self.now);
            self.settle(usize::MAX, sent);
        }
        self.now = at;
        self.node.handle_timeout(at);
        self.settle(usize::MAX, sent);
        // There is no peer.
        while self.node.poll_event().is_some() {}
        drop(self.node.pipeline_mut().log().drain());
    }

    /// Takes the frames that the node has made, and answers its questions. Returns how many packets were among them.
    fn settle(&mut self, kept_bytes: usize, sent: &mut dyn FnMut(Instant, Sent<'_>)) -> usize {
        let mut packets = 0;
        while let Some(Transmit::Port { port, .. }) = self.node.poll_frame(self.now, &mut self.buffer) {
            match neighbours::examine(&mut self.buffer) {
                OwnFrame::Solicitation(mut answer) => {
                    let length_bytes = answer.len();
                    let mut batch: PacketBatch<'_> =
                        Frame::new(&mut answer, 0, length_bytes, port).into_iter().collect();
                    self.node.handle_packets(self.now, &mut batch);
                }
                OwnFrame::Announcement => {}
                OwnFrame::Packet => {
                    packets += 1;
                    sent(self.now, sent_frame(port, &self.buffer, kept_bytes));
                }
            }
        }
        packets
    }
}

fn sent_frame(port: PortId, bytes: &[u8], kept_bytes: usize) -> Sent<'_> {
    let wire_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    Sent { port, bytes: &bytes[..bytes.len().min(kept_bytes)], wire_bytes }
}
