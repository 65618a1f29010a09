//! The forwarder itself: its state, the way of a packet through it, and what it sends on its own account.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use flow::steering::is_link_local_control;
use flow::wire::ethernet::{self, ETHERNET_HEADER_BYTES, EthernetView};
use flow::wire::{MacAddress, Packet, Transport, build, icmpv6};
use flow::{Checksum, Disposition, DropReason, Frame, Instant, NodeId, PortId, Prefix, TokenBucket};

use super::address::{LocalAddresses, is_link_local, link_local};
use super::address_report::AddressReport;
use super::advertising::Advertising;
use super::announcement::{Announcement, Refresh};
use super::config::{Config, ConfigError, Port};
use super::conflict::Conflicts;
use super::error_cause::ErrorCause;
use super::learning::{Learning, Sharing};
use super::neighbour::{Due, Entry, NEIGHBOURS_MAX, NeighbourState, Neighbours, QueuedPacket, REACHABLE_TIME, Slot};
use super::out_frame::{OutFrame, Pending};
use super::oversize::{FRAGMENT_FRAMES_MAX, fragment_packet, may_be_fragmented, wire_bytes};
use super::path_frames::{
    PATH_DATAGRAM_BYTES_MAX, PATH_HEADER_BYTES, PathFrame, PathFrameTo, PathFrames, PathId, PathTraffic,
};
use super::route::RouteTable;

use super::source_check::Sources;
use crate::group::GroupSet;

/// Frames of the node's own (answers, errors) that wait to be sent. When there are more, the newest is dropped and
/// counted: their askers will ask again.
pub const CONTROL_FRAMES_MAX: usize = 512;
/// Packets of the node's own making that wait to be polled, with those whose neighbour became known; what comes beyond is
/// dropped.
const POSTED_FRAMES_MAX: usize = 4096;
/// After a take-over, neighbours are asked to confirm their link addresses, so many at a time …
const WARMED_AT_ONCE: usize = 32;
/// … and so often.
const WARMING_INTERVAL: Duration = Duration::from_millis(5);
/// How often gateways are asked to confirm their link addresses, whatever the role.
const GATEWAY_REFRESH_INTERVAL: Duration = Duration::from_secs(20);
const _: () = assert!(GATEWAY_REFRESH_INTERVAL.as_nanos() < REACHABLE_TIME.as_nanos());

/// What is to be done with an IP packet that came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// On to the functions, and then to [`Forwarder::forward`].
    Transit,
    /// It is for this node: on to [`Forwarder::handle_local`] or a service of the node's own.
    Local,
    /// It is for a service of the node's own, whatever connections there are: on to [`Forwarder::handle_local`]'s caller.
    Own,
    /// It goes no further. Its sender has received an error if one is due.
    Refused(DropReason),
}

/// Where a packet goes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// The port that it leaves by.
    pub port: PortId,
    /// Who forwards it from there. `None`: its destination is on the port's link.
    pub gateway: Option<IpAddr>,
    /// The gateway's entry in the neighbour cache.
    slot: Option<Slot>,
}

impl NextHop {
    /// The gateway's entry in the neighbour cache.
    pub(super) const fn slot(&self) -> Option<Slot> {
        self.slot
    }
}

/// Counters of what happened besides the packets, whose [`Disposition`] is returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets that wait for their next hop's link address now.
    pub waiting_packets: u64,
    /// Queued packets dropped because their next hop did not answer ([`DropReason::NeighbourUnresolved`]).
    pub unresolved_packets: u64,
    /// Queued packets dropped because the node ceased to be active ([`DropReason::NotActive`]).
    pub abandoned_packets: u64,
    /// The node's own frames dropped because [`CONTROL_FRAMES_MAX`] were waiting.
    pub control_frames_dropped: u64,
    /// ICMP errors sent.
    pub errors_sent: u64,
    /// ICMP errors not sent because of their rate limit.
    pub errors_limited: u64,
    /// Packets cut into fragments because the link that they left by does not take them whole.
    pub packets_fragmented: u64,
    /// Frames in which another link address claimed one of the addresses that this node holds.
    pub address_conflicts: u64,
    /// Requests for link addresses sent.
    pub solicitations: u64,
    /// Announcements of shared addresses sent.
    pub announcements: u64,
    /// Of those, the ones that answered another host's claim.
    pub defences: u64,
    /// Router advertisements sent, answers among them.
    pub router_advertisements: u64,
    /// Probes for shared addresses sent (RFC 5227, RFC 4862).
    pub probes: u64,
}

/// A walk over the neighbour cache to have link addresses confirmed: of gateways from time to time, so that also a node
/// that is standby knows them; of everybody after a take-over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warming {
    /// The next neighbour, and when it is its turn.
    pub(super) slot: usize,
    pub(super) at: Instant,
    pub(super) everybody: bool,
}

/// The routed edge of a node; see the [module](super).
#[derive(Clone, Debug)]
pub struct Forwarder {
    pub(super) ports: Vec<Port>,
    pub(super) addresses: LocalAddresses,
    pub(super) routes: RouteTable,
    pub(super) sources: Sources,
    pub(super) next_hops: Vec<NextHop>,
    pub(super) neighbours: Neighbours,
    /// The groups of shared addresses that this node holds. It forwards if there is any.
    pub(super) held: GroupSet,
    /// Since when it has held any.
    pub(super) active_since: Option<Instant>,
    pub(super) announcement: Option<Announcement>,
    pub(super) refresh: Refresh,
    pub(super) advertising: Advertising,
    pub(super) conflicts: Conflicts,
    /// Groups that another node is about to take: its claims are no conflicts.
    pub(super) leaving: GroupSet,
    /// What was found of shared addresses while they were probed; see [`Forwarder::probe_addresses`].
    pub(super) address_reports: VecDeque<AddressReport>,
    pub(super) is_probing: bool,
    pub(super) warming: Option<Warming>,
    /// Packets whose next hop answered and pieces of packets that were cut, then the node's own frames. The first were
    /// bounded while they waited, the second are by [`FRAGMENT_FRAMES_MAX`].
    pub(super) released: VecDeque<Pending>,
    pub(super) sharing: Sharing,
    pub(super) learnings: VecDeque<Learning>,
    pub(super) control: VecDeque<Pending>,
    pub(super) error_tokens: TokenBucket,
    pub(super) counters: Counters,
    /// Why the packet that was forwarded last was refused, until the error is sent to its sender.
    pub(super) refusal: Option<ErrorCause>,
    /// The packet that was forwarded last is the newest of those that wait for a neighbour.
    pub(super) has_just_queued: bool,
    /// Some port clamps segments.
    pub(super) clamps_segments: bool,
    /// The links that are paths of failure detection, and what arrived on them.
    pub(super) path_frames: PathFrames,
    /// How often plans were voided, but for evictions of neighbours; see [`Forwarder::plan_revision`].
    pub(super) plan_revision: u32,
}

impl Forwarder {
    /// A standby forwarder.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let mut neighbours = Neighbours::new(config.seed);
        let (routes, next_hops) = route_table(&config, &mut neighbours, Instant::ZERO);
        Ok(Self {
            addresses: LocalAddresses::new(&config.ports),
            sources: Sources::new(&config, port_to(&routes, &next_hops)),
            advertising: Advertising::new(config.seed, &config.ports),
            routes,
            clamps_segments: config.ports.iter().any(|port| port.mss_clamp.is_some()),
            ports: config.ports,
            next_hops,
            neighbours,
            held: GroupSet::EMPTY,
            active_since: None,
            announcement: None,
            refresh: Refresh::new(config.seed),
            conflicts: Conflicts::default(),
            leaving: GroupSet::EMPTY,
            address_reports: VecDeque::new(),
            is_probing: false,
            warming: (!config.routes.is_empty()).then_some(Warming { slot: 0, at: Instant::ZERO, everybody: false }),
            sharing: Sharing::Alone,
            learnings: VecDeque::new(),
            released: VecDeque::new(),
            control: VecDeque::new(),
            error_tokens: TokenBucket::default(),
            counters: Counters::default(),
            refusal: None,
            has_just_queued: false,
            path_frames: PathFrames::default(),
            plan_revision: 1,
        })
    }

    /// Looks at a packet that came in, before the functions do: afterwards an error could no longer quote it as it was.
    pub fn admit(&mut self, now: Instant, packet: &Packet<'_, '_>) -> Admission {
        let ingress = packet.frame.ingress;
        let Some(port) = self.ports.get(usize::from(ingress.0)) else {
            return Admission::Refused(DropReason::LocalUnhandled);
        };
        let Ok(link) = EthernetView::new_checked(packet.frame.bytes()) else {
            return Admission::Refused(DropReason::Truncated);
        };
        let (to_group, to_port) = (link.destination().is_group(), link.destination() == port.mac);
        let destination = packet.headers.tuple.destination_ip();
        if !to_group && !to_port {
            return Admission::Refused(DropReason::OtherHost);
        }
        let local = self.addresses.find_destination(&packet.headers.tuple, ingress);
        if local.is_none() && (to_group || destination.is_multicast() || self.sources.is_broadcast(destination)) {
            let is_discovery = packet.headers.tuple.version == 6 && destination.is_multicast();
            return if is_discovery { Admission::Local } else { Admission::Refused(DropReason::LinkBroadcast) };
        }
        // Who holds another group forwards whatever is sent to its port, so also what is for a translated connection.
        if !self.is_active() && local.is_none_or(|local| local.group.is_some()) {
            let is_for_group = local.is_some();
            return if is_for_group {
                self.admit_while_not_held(packet)
            } else {
                Admission::Refused(DropReason::NotActive)
            };
        }
        // Two nodes that both hold an address must receive from each other.
        if !is_link_local_control(packet.headers)
            && let Err(reason) = self.check_source(ingress, packet.headers.tuple.source_ip())
        {
            return Admission::Refused(reason);
        }
        if local.is_some() {
            return Admission::Local;
        }
        // No host sends itself a packet by way of a router.
        let source = packet.headers.tuple.source_ip();
        if source == destination || is_link_local(destination) || is_link_local(source) {
            return Admission::Refused(DropReason::MartianAddress);
        }
        if usize::from(packet.headers.l3_offset) != ETHERNET_HEADER_BYTES {
            return Admission::Refused(DropReason::UnsupportedLinkProtocol);
        }
        if packet.headers.ttl <= 1 {
            self.send_error(now, ingress, packet.frame.bytes(), packet.headers, ErrorCause::TimeExceeded);
            return Admission::Refused(DropReason::TtlExceeded);
        }
        Admission::Transit
    }

    /// Checks the source of a packet that came in by a port.
    fn check_source(&self, ingress: PortId, source: IpAddr) -> Result<(), DropReason> {
        self.sources.check(ingress, source, &self.addresses, port_to(&self.routes, &self.next_hops))
    }

    /// The next hop to an address, by the longest matching prefix.
    #[must_use]
    #[inline]
    pub fn route(&self, destination: IpAddr) -> Option<NextHop> {
        self.routes.lookup(destination).map(|index| self.next_hops[usize::from(index)])
    }

    /// Sends a packet, which [`Forwarder::admit`] let pass, to where its destination (as it is now) lies: takes one off
    /// its time to live and gives it new link addresses. [`Disposition::Consumed`]: a copy waits for the next hop's link
    /// address, or pieces of it are to be sent, and come out of [`Forwarder::poll_transmit`]. After any other disposition
    /// than [`Disposition::Transmit`], call [`Forwarder::note_not_sent`].
    pub fn forward(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition {
        if !self.is_active() {
            return Disposition::Drop(DropReason::NotActive);
        }
        let destination = packet.headers.tuple.destination_ip();
        if is_link_local(packet.headers.tuple.source_ip()) {
            // What came to an address of the node's own and was translated was not looked at by `admit`.
            return Disposition::Drop(DropReason::MartianAddress);
        }
        let Some(next_hop) = self.routes.lookup(destination).map(|index| &self.next_hops[usize::from(index)]) else {
            return self.refuse(DropReason::NoRoute, ErrorCause::NoRoute);
        };
        let egress = next_hop.port;
        let port = &self.ports[usize::from(egress.0)];
        let (mtu_bytes, mac) = (port.mtu_bytes, port.mac);
        let is_oversize = wire_bytes(packet.headers, &packet.frame.segmentation) > mtu_bytes;
        if is_oversize && !may_be_fragmented(packet) {
            return self.refuse(DropReason::PacketTooBig, ErrorCause::TooBig { mtu_bytes });
        }
        if self.clamps_segments {
            self.clamp_segments(packet, egress);
        }
        let slot = next_hop.slot.or_else(|| {
            let neighbour = next_hop.gateway.unwrap_or(destination);
            self.neighbours.find_or_insert(now, egress, neighbour)
        });
        let Some(slot) = slot else { return Disposition::Drop(DropReason::NeighbourUnresolved) };
        if let Err(reason) = packet.decrement_ttl() {
            // Nor was its time to live.
            return self.refuse(reason, ErrorCause::TimeExceeded);
        }
        match self.neighbours.link_address(now, slot) {
            Some(to) => {
                ethernet::set_addresses(packet.frame.bytes_mut(), to, mac);
                if is_oversize {
                    let (l3_offset, checksum) = (packet.headers.l3_offset, packet.frame.checksum);
                    return self.send_in_pieces(egress, l3_offset, packet.frame.bytes_mut(), checksum);
                }
                Disposition::Transmit(egress)
            }
            None => self.wait_for_neighbour(now, slot, packet),
        }
    }

    /// Sends a packet of the node's own making as [`Forwarder::forward`] would; it comes out of [`Forwarder::poll_transmit`].
    /// One for which there is no room or no way is dropped.
    pub fn post(&mut self, now: Instant, packet: &mut Packet<'_, '_>) {
        let Disposition::Transmit(port) = self.forward(now, packet) else { return };
        if self.released.len() >= POSTED_FRAMES_MAX {
            self.counters.control_frames_dropped += 1;
            return;
        }
        let (checksum, segmentation) = (packet.frame.checksum, packet.frame.segmentation);
        let bytes = packet.frame.bytes().to_vec();
        self.released.push_back(Pending { bytes, frame: OutFrame { port, checksum, segmentation } });
    }

    /// Time has passed: neighbours may have to be asked, or given up.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.warm(now);
        self.refresh_announcements(now);
        self.defend(now);
        self.advertise_routers(now);
        while let Some(due) = self.neighbours.poll_due(now) {
            match due {
                Due::Solicit(entry) => self.solicit(&entry),
                Due::Unreachable(packets) => {
                    self.counters.unresolved_packets += packets.len() as u64;
                    packets.into_iter().for_each(|packet| self.refuse_queued(now, packet));
                }
            }
        }
    }

    /// When [`Forwarder::handle_timeout`] or [`Forwarder::poll_transmit`] next has something to do;
    /// [`Instant::ZERO`] while frames are waiting.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let has_frames = !self.released.is_empty() || !self.control.is_empty();
        let waiting = has_frames.then_some(Instant::ZERO);
        let announcement = self.announcement.and_then(|announcement| announcement.due());
        let warming = self.warming.map(|warming| warming.at);
        let refresh = self.refresh.due().filter(|_| self.is_active());
        let advertising = self.advertising_due();
        let (neighbours, conflicts) = (self.neighbours.poll_timeout(), self.conflicts.poll_timeout());
        let timers = [waiting, announcement, warming, neighbours, refresh, conflicts, advertising];
        timers.into_iter().flatten().min()
    }

    /// Replaces `bytes` by a frame that is to be sent now, from its link header on, and returns what goes with it.
    pub fn poll_transmit(&mut self, now: Instant, bytes: &mut Vec<u8>) -> Option<OutFrame> {
        if let Some(pending) = self.released.pop_front().or_else(|| self.control.pop_front()) {
            *bytes = pending.bytes;
            return Some(pending.frame);
        }
        let (port, frame) = self.next_announcement(now)?;
        *bytes = frame;
        self.counters.announcements += 1;
        Some(OutFrame::of_own(port))
    }

    /// The ports whose links are paths to the peers, and the node that frames on them must be for.
    pub(crate) fn set_paths(&mut self, node: NodeId, paths: Vec<(PortId, PathId)>) {
        self.path_frames.set_paths(node, paths);
    }

    /// Edges may send frames to this node, by any port.
    pub(crate) const fn set_edges(&mut self, node: NodeId) {
        self.path_frames.set_edges(node);
    }

    /// Keeps a frame of a peer until it is polled.
    pub(crate) fn handle_path_frame(&mut self, frame: &Frame<'_>) -> Disposition {
        self.path_frames.handle(frame)
    }

    /// The next frame that a peer sent.
    pub(crate) fn poll_path_frame(&mut self) -> Option<PathFrame> {
        self.path_frames.poll()
    }

    /// Writes the frame that carries `datagram` to a peer or an edge by the port over `out`. `None`: there is no such path, or the
    /// datagram does not fit.
    pub(crate) fn write_path_frame(
        &mut self,
        port: PortId,
        frame: PathFrameTo,
        datagram: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let mac = self.ports.get(usize::from(port.0))?.mac;
        self.path_frames.write((port, mac), frame, datagram, out)
    }

    /// Bytes of a datagram that a frame on the port's link has room for.
    pub(crate) fn path_datagram_bytes_max(&self, port: PortId) -> usize {
        let mtu_bytes = self.ports.get(usize::from(port.0)).map_or(0, |port| port.mtu_bytes);
        (mtu_bytes as usize).saturating_sub(PATH_HEADER_BYTES).min(PATH_DATAGRAM_BYTES_MAX)
    }

    /// What the port has sent and received of the frames between nodes, and between nodes and edges.
    #[must_use]
    pub fn path_traffic(&self, port: PortId) -> PathTraffic {
        self.path_frames.traffic(port)
    }

    /// Counters of what happened besides the packets, whose disposition is returned.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        counters.waiting_packets = self.neighbours.queued_packets() as u64;
        counters.unresolved_packets += self.neighbours.evicted_packets();
        counters
    }

    /// Packets that wait for a link address.
    #[must_use]
    pub fn queued_packets(&self) -> usize {
        self.neighbours.queued_packets()
    }

    /// What is known of a neighbour.
    #[must_use]
    pub fn neighbour(&self, port: PortId, address: IpAddr) -> Option<(NeighbourState, MacAddress)> {
        let entry = self.neighbours.entry(self.neighbours.find(port, address)?)?;
        Some((entry.state, entry.mac))
    }

    /// Whether this node holds the address on the port now.
    pub(super) fn holds_on_port(&self, address: IpAddr, port: PortId) -> bool {
        self.addresses.find(address, port).is_some_and(|local| local.port == port && local.is_held(self.held))
    }

    /// Whether echo requests to this address are answered on a port: to one that the node holds, on whatever port, but for link-local ones.
    pub(super) fn answers_echo(&self, address: IpAddr, port: PortId) -> bool {
        self.addresses
            .find(address, port)
            .is_some_and(|local| local.is_held(self.held) && (local.port == port || !is_link_local(address)))
    }

    /// Whether the packet is for an address of the port that it came in on.
    pub(crate) fn is_of_ingress(&self, packet: &Packet<'_, '_>) -> bool {
        let ingress = packet.frame.ingress;
        self.addresses.find_destination(&packet.headers.tuple, ingress).is_none_or(|local| local.port == ingress)
    }

    /// Sends a packet that waited, now that its next hop's link address is known.
    pub(super) fn release(&mut self, port: PortId, to: MacAddress, packet: QueuedPacket) {
        if !self.is_active() {
            self.counters.abandoned_packets += 1;
            return;
        }
        let QueuedPacket { mut bytes, headers, checksum, segmentation, .. } = packet;
        let Port { mac, mtu_bytes, .. } = self.ports[usize::from(port.0)];
        ethernet::set_addresses(&mut bytes, to, mac);
        if wire_bytes(&headers, &segmentation) > mtu_bytes {
            let disposition = self.send_in_pieces(port, headers.l3_offset, &mut bytes, checksum);
            self.counters.unresolved_packets += u64::from(disposition != Disposition::Consumed);
            return;
        }
        self.released.push_back(Pending { bytes, frame: OutFrame { port, checksum, segmentation } });
    }

    /// Sends the frame in pieces by `port`, its link addresses already set. The pieces come out of
    /// [`Forwarder::poll_transmit`].
    fn send_in_pieces(&mut self, port: PortId, l3_offset: u16, bytes: &mut [u8], checksum: Checksum) -> Disposition {
        let pieces = match fragment_packet(bytes, l3_offset, checksum, self.ports[usize::from(port.0)].mtu_bytes) {
            Ok(pieces) => pieces,
            Err(reason) => return Disposition::Drop(reason),
        };
        if self.released.len() + pieces.len() > FRAGMENT_FRAMES_MAX {
            return Disposition::Drop(DropReason::TransmitFailed);
        }
        self.counters.packets_fragmented += 1;
        let frame = OutFrame::of_own(port);
        self.released.extend(pieces.into_iter().map(|bytes| Pending { bytes, frame }));
        Disposition::Consumed
    }

    pub(super) fn push_control(&mut self, port: PortId, bytes: Vec<u8>) {
        if self.control.len() < CONTROL_FRAMES_MAX {
            self.control.push_back(Pending { bytes, frame: OutFrame::of_own(port) });
        } else {
            self.counters.control_frames_dropped += 1;
        }
    }

    /// Neighbours that solicit a shared address of a standby node are worth knowing.
    fn admit_while_not_held(&self, packet: &Packet<'_, '_>) -> Admission {
        let is_solicitation =
            matches!(packet.headers.transport, Transport::IcmpOther(icmpv6::kind::NEIGHBOUR_SOLICITATION, _));
        if is_solicitation { Admission::Local } else { Admission::Refused(DropReason::NotActive) }
    }

    fn wait_for_neighbour(&mut self, now: Instant, slot: Slot, packet: &Packet<'_, '_>) -> Disposition {
        let copy = || QueuedPacket {
            ingress: packet.frame.ingress,
            bytes: packet.frame.bytes().to_vec(),
            headers: *packet.headers,
            checksum: packet.frame.checksum,
            segmentation: packet.frame.segmentation,
            as_received: None,
        };
        if !self.neighbours.solicit(now, slot) {
            return Disposition::Drop(DropReason::NeighbourUnresolved);
        }
        if !self.neighbours.enqueue(slot, packet.frame.bytes().len(), copy) {
            return Disposition::Drop(DropReason::NeighbourQueueFull);
        }
        self.has_just_queued = true;
        self.handle_timeout(now);
        Disposition::Consumed
    }

    /// Asks some of the neighbours to confirm their link addresses, which also shows them this node's.
    fn warm(&mut self, now: Instant) {
        let Some(mut warming) = self.warming.filter(|warming| warming.at <= now) else { return };
        let mut asked = 0;
        while warming.slot < NEIGHBOURS_MAX && asked < WARMED_AT_ONCE {
            let slot = Slot::try_from(warming.slot).expect("NEIGHBOURS_MAX is less");
            if self.neighbours.is_worth_asking(slot, warming.everybody) {
                if !self.neighbours.solicit(now, slot) {
                    break;
                }
                asked += 1;
            }
            warming.slot += 1;
        }
        let is_done = warming.slot == NEIGHBOURS_MAX;
        self.warming = Some(if is_done {
            Warming { slot: 0, at: now + GATEWAY_REFRESH_INTERVAL, everybody: false }
        } else {
            Warming { at: now + WARMING_INTERVAL, ..warming }
        });
    }

    /// Asks for a link address: everybody on the link, or the last known owner.
    pub(super) fn solicit(&mut self, entry: &Entry) {
        let mac = self.ports[usize::from(entry.port.0)].mac;
        let source = self.addresses.source_for(entry.port, entry.address, self.held);
        let mut frame = match (entry.address, source) {
            (IpAddr::V4(target), Some(IpAddr::V4(source))) => build::arp_request(mac, source, target),
            // A standby node without an address of its own must not claim a shared one: it sends a probe
            // (RFC 5227 section 1.1), which is answered but not learnt from.
            (IpAddr::V4(target), _) => build::arp_request(mac, core::net::Ipv4Addr::UNSPECIFIED, target),
            (IpAddr::V6(target), Some(IpAddr::V6(source))) => build::neighbour_solicitation(mac, source, target),
            (IpAddr::V6(target), _) => build::neighbour_solicitation(mac, link_local(mac), target),
        };
        if entry.state == NeighbourState::Probe {
            ethernet::set_addresses(&mut frame, entry.mac, mac);
        }
        self.counters.solicitations += 1;
        self.push_control(entry.port, frame);
    }
}

/// The port that leads to an address.
pub(super) fn port_to(routes: &RouteTable, next_hops: &[NextHop]) -> impl Fn(IpAddr) -> Option<PortId> {
    move |address| routes.lookup(address).map(|index| next_hops[usize::from(index)].port)
}

/// The routes of a sound configuration, and the next hops that they lead to. Gateways' entries are pinned.
pub(super) fn route_table(config: &Config, neighbours: &mut Neighbours, now: Instant) -> (RouteTable, Vec<NextHop>) {
    let mut next_hops = Vec::new();
    let mut routes: Vec<(Prefix, u16)> = Vec::new();
    let mut add = |prefix: Prefix, next_hop: NextHop| {
        let index = next_hops.iter().position(|known| *known == next_hop).unwrap_or(next_hops.len());
        if index == next_hops.len() {
            next_hops.push(next_hop);
        }
        routes.push((prefix, u16::try_from(index).expect("ROUTES_MAX is less")));
    };
    for route in &config.routes {
        let slot = neighbours.find_or_insert(now, route.port, route.gateway);
        slot.into_iter().for_each(|slot| neighbours.pin(slot));
        add(route.destination, NextHop { port: route.port, gateway: Some(route.gateway), slot });
    }
    for (port, id) in config.ports.iter().zip((0..=u8::MAX).map(PortId)) {
        // Nothing is routed to link-local networks.
        for prefix in port.networks().filter(|prefix| !is_link_local(prefix.address)) {
            add(*prefix, NextHop { port: id, gateway: None, slot: None });
        }
    }
    (RouteTable::new(&routes), next_hops)
}
