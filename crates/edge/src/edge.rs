//! An edge: packets, time and the state of nodes in; packets and events out.

mod batch;
mod below;
mod reporting;
mod switching;

use alloc::vec;
use alloc::vec::Vec;

use flow::fast_path::Activity;
use flow::wire::tcp::SegmentOptions;
use flow::wire::{Headers, MacAddress, Parsed, TcpSegment, Transport, tcp_flags};
use flow::{
    BATCH_FRAMES_MAX, Checksum, Disposition, DropReason, Frame, Instant, NODES_MAX, NodeId, NodeSet, PacketBatch,
    PortId, Tuple,
};

use crate::config::{ConfigError, EdgeConfig, NodePort};
use crate::distribution::Distribution;
use crate::event::{EdgeCounters, EdgeEvent, Events};
use crate::fast_path::FastPath;
use crate::flows::{Flows, Index, Record};
use crate::link_control::{self, LinkControl};
use crate::local_recovery::{LocalRecovery, Outgoing, Passing, micros};
use crate::rate_control::{RateControl, set_window};
use crate::tcp::{End, Observed};

use batch::{Lookup, Pending};

/// Returns what was seen below of the flow in a place; packets and bytes are those since the last call.
type TakeActivity<'a> = &'a mut dyn FnMut(u32) -> Option<Activity>;

/// A frame that was polled: the port to send it by, and the state of its checksum. It stands for one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The port.
    pub port: PortId,
    /// The state of its transport checksum.
    pub checksum: Checksum,
}

/// The edge switch on one side of a cluster.
///
/// ```
/// use edge::{Edge, EdgeConfig, NodePort, NodeSet};
/// use flow::wire::{build, ip_protocol};
/// use flow::{Disposition, Frame, HashKey, Instant, NodeId, PacketBatch, PortId, Tuple};
/// use std::net::Ipv4Addr;
///
/// let nodes = (0..2).map(|n| NodePort { node: NodeId(n), port: PortId(1 + n), link_address: None }).collect();
/// let mut edge = Edge::new(EdgeConfig::new(PortId(0), nodes, HashKey([1, 2])))?;
/// let tuple = Tuple::v4(ip_protocol::UDP, (Ipv4Addr::new(10, 0, 0, 2), 4000), (Ipv4Addr::new(192, 0, 2, 1), 53));
/// let mut bytes = build::udp(&tuple, b"a query");
/// let length_bytes = bytes.len();
/// let mut batch = PacketBatch::new();
/// batch.push(Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap());
/// edge.handle_packets(Instant::ZERO, &mut batch);
/// let node = edge.predict(&tuple, NodeSet::EMPTY).unwrap();
/// assert_eq!(batch[0].disposition, Disposition::Transmit(PortId(1 + node.0)));
/// // If that node fails, the other one gets the flow.
/// edge.set_node_alive(Instant::ZERO, node, false);
/// assert_eq!(edge.predict(&tuple, NodeSet::EMPTY), Some(NodeId(1 - node.0)));
/// # Ok::<(), edge::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Edge {
    network_port: PortId,
    /// By the node's number.
    nodes: [Option<NodePort>; NODES_MAX],
    /// The numbers of all nodes, alive or not.
    numbers: NodeSet,
    distribution: Distribution,
    flows: Flows,
    recovery: Option<LocalRecovery>,
    rate_control: Option<RateControl>,
    fast_path: Option<FastPath>,
    is_network_up: bool,
    link_control: LinkControl,
    events: Events,
    counters: EdgeCounters,
    /// A place for each packet of a batch.
    pending: Vec<Pending>,
}

impl Edge {
    /// An edge all of whose nodes are alive.
    ///
    /// # Errors
    /// The configuration cannot be used; see [`EdgeConfig::check`].
    pub fn new(config: EdgeConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let mut nodes = [None; NODES_MAX];
        config.nodes.iter().for_each(|node| nodes[usize::from(node.node.0)] = Some(*node));
        let set = config.node_set();
        Ok(Self {
            network_port: config.network_port,
            nodes,
            numbers: set,
            distribution: Distribution::new(set, config.affinity, config.hash_key),
            flows: Flows::new(config.connections_max, config.idle_timeouts, config.hash_key),
            recovery: config.recovery.as_ref().map(LocalRecovery::new),
            rate_control: config.rate_control.map(|config| RateControl::new(config, set)),
            fast_path: None,
            is_network_up: true,
            link_control: LinkControl::default(),
            events: Events::default(),
            counters: EdgeCounters::default(),
            pending: vec![Pending::EMPTY; BATCH_FRAMES_MAX],
        })
    }

    /// Handles a batch of packets to completion: each frame's disposition is decided when this returns. Frames whose disposition is
    /// decided before are left alone.
    ///
    /// A frame to a group goes to all ports, as in a switch. Another one is dropped for the reason for which `flow::wire::parse`
    /// refuses it, and as [`DropReason::NoRoute`] if no node is alive or its port is not in the configuration.
    pub fn handle_packets(&mut self, now: Instant, batch: &mut PacketBatch<'_>) {
        self.handle_batch(now, batch, &mut |_| None);
    }

    fn handle_batch(&mut self, now: Instant, batch: &mut PacketBatch<'_>, take_activity: TakeActivity<'_>) {
        let mut pending = core::mem::take(&mut self.pending);
        self.look_at_batch(batch, &mut pending);
        for (frame, pending) in batch.iter_mut().zip(&mut pending) {
            if frame.disposition != Disposition::Undecided {
                continue;
            }
            let result = self.handle_frame(now, frame, pending, take_activity);
            frame.disposition = match result {
                Ok(port) if port == self.network_port => {
                    self.counters.left += 1;
                    Disposition::Transmit(port)
                }
                Ok(port) => {
                    self.counters.entered += 1;
                    Disposition::Transmit(port)
                }
                Err(reason) => {
                    self.counters.dropped[reason as usize] += 1;
                    Disposition::Drop(reason)
                }
            };
        }
        self.pending = pending;
    }

    /// All nodes and the ways to them.
    fn node_ports(&self) -> impl Iterator<Item = &NodePort> {
        self.numbers.iter().filter_map(|node| self.nodes[usize::from(node.0)].as_ref())
    }

    /// The port that a frame leaves by.
    fn handle_frame(
        &mut self,
        now: Instant,
        frame: &mut Frame<'_>,
        pending: &mut Pending,
        take_activity: TakeActivity<'_>,
    ) -> Result<PortId, DropReason> {
        let from = self.node_ports().find(|node| node.port == frame.ingress).map(|node| node.node);
        let is_entering = frame.ingress == self.network_port;
        if !is_entering && from.is_none() {
            return Err(DropReason::NoRoute);
        }
        let destination = link_control::destination(frame).ok_or(DropReason::Truncated)?;
        if destination.is_group() {
            return self.flood(frame, from);
        }
        let Pending { headers, lookup, .. } = pending;
        let parsed = pending.parsed?;
        let Some(from) = from else {
            let node = match parsed {
                Parsed::Arp(_) => self.node_of_link_control(frame),
                Parsed::Ip(()) => self.handle_entering(now, frame, (headers, *lookup), take_activity),
            };
            return self.send_to(node.ok_or(DropReason::NoRoute)?, frame);
        };
        if let Some(other) = self.node_with(destination).filter(|other| other.node != from) {
            return Ok(other.port);
        }
        match parsed {
            Parsed::Arp(offset) => self.learn_arp(from, frame, offset),
            Parsed::Ip(()) => self.handle_leaving(now, (from, destination), frame, (headers, *lookup), take_activity),
        }
        Ok(self.network_port)
    }

    /// A packet of the near host: selects its node.
    fn handle_entering(
        &mut self,
        now: Instant,
        frame: &Frame<'_>,
        (headers, lookup): (&mut Headers, Lookup),
        take_activity: TakeActivity<'_>,
    ) -> Option<NodeId> {
        let (entering, segment) = match headers.transport {
            _ if headers.is_fragment => {
                self.counters.fragments += 1;
                return self.distribution.select_fragment(&headers.tuple);
            }
            // An error goes to the node of the packet that it quotes, which left the cluster here.
            Transport::IcmpError(error) => return self.node_of_error(&error.inner.inverse()),
            Transport::IcmpOther(..) => return self.node_of_link_control(frame),
            Transport::IcmpQuery(_) if let Some(node) = self.node_of_query(headers) => return Some(node),
            Transport::Tcp(segment) => (headers.tuple, Some(segment)),
            _ => (headers.tuple, None),
        };
        let Some(index) = self.connection(now, &entering, lookup, segment.as_ref(), None) else {
            return self.distribution.select(&entering, None);
        };
        self.take_seen(now, index, take_activity);
        let node = self.place(&entering, index)?;
        if let Some(segment) = segment {
            let options = read_options(frame, headers);
            let observed = self.observe(now, index, End::Near, &segment, options);
            let passing = Passing { frame, headers, segment: &segment, observed, is_signed: options.is_signed };
            if let Some(recovery) = &mut self.recovery {
                recovery.handle_entering(now, &mut self.flows, index, passing);
            }
            if let Some(rate_control) = self.rate_control.as_mut().filter(|_| segment.payload_bytes > 0) {
                rate_control.note_entering(self.flows.get_mut(index), segment.payload_bytes);
            }
        }
        self.flows.touch(now, index);
        self.follow_below(index, None);
        Some(node)
    }

    fn node_of_error(&self, entering: &Tuple) -> Option<NodeId> {
        let known = self.flows.find(entering).map(|index| self.flows.get(index).node);
        self.distribution.select(entering, known)
    }

    /// The connection of a packet, which is entered in the table if it is new and to be kept there. `from`: the node that the
    /// packet comes from.
    fn connection(
        &mut self,
        now: Instant,
        entering: &Tuple,
        lookup: Lookup,
        segment: Option<&TcpSegment>,
        from: Option<NodeId>,
    ) -> Option<Index> {
        if let Some(index) = self.flows.find_likely(lookup.likely, lookup.hash, entering) {
            return Some(index);
        }
        let is_kept = match segment {
            Some(segment) => !segment.has(tcp_flags::RST),
            None => self.distribution.is_learned(),
        };
        if !is_kept {
            return None;
        }
        let node = from.or_else(|| self.distribution.select(entering, None))?;
        let (recovery, fast_path) = (&mut self.recovery, &mut self.fast_path);
        let index = self.flows.insert(now, entering, node, &mut |index, record| {
            release(recovery, fast_path, index, record);
        });
        let first_choice = self.distribution.first_choice(entering).filter(|first| *first != node && from.is_none());
        if let Some(failed) = first_choice.filter(|first| !self.distribution.is_alive(*first)) {
            self.flows.get_mut(index).set_moved_from(failed);
        }
        Some(index)
    }

    /// The node that a connection's next packet goes to. It moves if its node has failed.
    fn place(&mut self, entering: &Tuple, index: Index) -> Option<NodeId> {
        let before = self.flows.get(index).node;
        let node = self.distribution.select(entering, Some(before))?;
        if node != before {
            let record = self.flows.get_mut(index);
            if self.distribution.is_alive(before) {
                record.node = node;
            } else {
                record.move_to(node);
                self.counters.moved += 1;
            }
        }
        Some(node)
    }

    fn observe(
        &mut self,
        now: Instant,
        index: Index,
        from: End,
        segment: &TcpSegment,
        options: SegmentOptions,
    ) -> Observed {
        self.flows.get_mut(index).tcp.observe(micros(now), from, segment, options.timestamps)
    }

    /// A packet of the far host that leaves the cluster from the node `from`.
    fn handle_leaving(
        &mut self,
        now: Instant,
        (from, destination): (NodeId, MacAddress),
        frame: &mut Frame<'_>,
        (headers, lookup): (&mut Headers, Lookup),
        take_activity: TakeActivity<'_>,
    ) {
        let segment = match headers.transport {
            _ if headers.is_fragment => {
                self.counters.fragments += 1;
                return;
            }
            Transport::IcmpOther(..) => {
                self.link_control.learn_advertisement(from, frame, headers);
                return;
            }
            Transport::IcmpError(_) => return,
            Transport::Tcp(segment) => Some(segment),
            _ => None,
        };
        let entering = headers.tuple.inverse();
        let Some(index) = self.connection(now, &entering, lookup, segment.as_ref(), Some(from)) else { return };
        self.take_seen(now, index, take_activity);
        self.learn(from, index);
        if let Some(mut segment) = segment {
            let options = read_options(frame, headers);
            if !options.is_signed {
                self.clamp(frame, headers, &mut segment, index);
            }
            let observed = self.observe(now, index, End::Far, &segment, options);
            if let Some(rate_control) = &mut self.rate_control {
                rate_control.note_acknowledged(from, observed.acknowledged_bytes);
            }
            if let Some(recovery) = &mut self.recovery {
                let passing = Passing { frame, headers, segment: &segment, observed, is_signed: options.is_signed };
                recovery.handle_leaving(now, &mut self.flows, index, passing);
            }
        }
        self.flows.touch(now, index);
        self.follow_below(index, Some((from, destination)));
    }

    /// The node of a connection is the one that its first packet leaves from. After a failure it is learned once more. Packets
    /// that a failed node sent before teach nothing.
    fn learn(&mut self, from: NodeId, index: Index) {
        let record = self.flows.get_mut(index);
        let may_learn = !record.is_learned || !self.distribution.is_alive(record.node);
        if !self.distribution.is_learned() || !may_learn || !self.distribution.is_alive(from) {
            return;
        }
        if record.node != from && !self.distribution.is_alive(record.node) {
            record.move_to(from);
            self.counters.moved += 1;
        }
        if record.node != from {
            record.forget_passed();
        }
        record.node = from;
        record.is_learned = true;
    }

    /// Lowers the window of a segment to the near host while rate control is active.
    fn clamp(&mut self, frame: &mut Frame<'_>, headers: &mut Headers, segment: &mut TcpSegment, index: Index) {
        let Some(rate_control) = &mut self.rate_control else { return };
        if let Some(window) = rate_control.clamped_window(self.flows.get(index), segment) {
            set_window(frame, headers, segment, window);
        }
    }

    /// Packets to a node are addressed to this link address from now on. Unknown nodes are ignored.
    pub fn set_link_address(&mut self, node: NodeId, address: MacAddress) {
        if let Some(Some(node)) = self.nodes.get_mut(usize::from(node.0)) {
            node.link_address = Some(address);
        }
        self.follow_nodes();
    }

    /// A node is alive, or is not any more: flows go to live nodes at once. The failure detector decides (for example
    /// `cluster::failure_detector`).
    pub fn set_node_alive(&mut self, now: Instant, node: NodeId, is_alive: bool) {
        if !self.distribution.ecmp.set_alive(node, is_alive) {
            return;
        }
        self.events.push(now, if is_alive { EdgeEvent::NodeReturned(node) } else { EdgeEvent::NodeLost(node) });
        if let Some(recovery) = self.recovery.as_mut().filter(|_| is_alive) {
            recovery.note_heartbeats_lost(node, 0);
            recovery.node_returned(node);
        }
        if let Some(rate_control) = &mut self.rate_control {
            rate_control.set_failed(node, !is_alive);
        }
        self.follow_nodes();
        self.report(now);
    }

    /// A node has lost `count` heartbeats in a row; 0: it has sent one. See
    /// [`CachePolicy::FromSecondLostHeartbeat`](crate::CachePolicy::FromSecondLostHeartbeat).
    pub fn note_heartbeats_lost(&mut self, _now: Instant, node: NodeId, count: u32) {
        if let Some(recovery) = &mut self.recovery {
            recovery.note_heartbeats_lost(node, count);
        }
        self.follow_nodes();
    }

    /// The queue or the processor of a node is saturated, or is not any more. See
    /// [`Capacity::Measured`](crate::Capacity::Measured).
    pub fn note_saturated(&mut self, _now: Instant, node: NodeId, is_saturated: bool) {
        if let Some(rate_control) = &mut self.rate_control {
            rate_control.note_saturated(node, is_saturated);
        }
    }

    /// The connections of a failed node go on at the survivors, each of which must confirm it. A node that is still alive for the
    /// edge counts as failed from now on. Unknown nodes are ignored.
    pub fn switched_over(&mut self, now: Instant, failed: NodeId) {
        if self.nodes.get(usize::from(failed.0)).is_none_or(Option::is_none) {
            return;
        }
        self.set_node_alive(now, failed, false);
        if let Some(recovery) = &mut self.recovery {
            recovery.switched_over(failed);
        }
        self.events.push(now, EdgeEvent::SwitchedOver(failed));
    }

    /// A node has the state of all connections that it took over: the edge resends what they lost.
    pub fn owner_confirmed(&mut self, now: Instant, node: NodeId) {
        if let Some(recovery) = self.recovery.as_mut().filter(|_| self.distribution.is_alive(node)) {
            recovery.owner_confirmed(now, node);
        }
    }

    /// The node that a connection would go to if the nodes of `failed` failed, too [TRIPOD, section V-C]. `entering` is the tuple of
    /// its packets that enter the cluster here. `None`: no node would be alive.
    #[must_use]
    pub fn predict(&self, entering: &Tuple, failed: NodeSet) -> Option<NodeId> {
        let known = self.flows.find(entering).map(|index| self.flows.get(index).node);
        self.distribution.predict(entering, known, failed)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let (recovery, fast_path) = (&mut self.recovery, &mut self.fast_path);
        self.flows.expire(now, &mut |index, record| release(recovery, fast_path, index, record));
        if let Some(rate_control) = &mut self.rate_control {
            rate_control.handle_timeout(now);
            self.follow_nodes();
        }
        self.report(now);
    }

    /// When [`Edge::handle_timeout`] or [`Edge::poll_transmit`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let copies = self.link_control.has_copies().then_some(Instant::ZERO);
        let recovery = self.recovery.as_ref().and_then(LocalRecovery::poll_timeout);
        let rate_control = self.rate_control.as_ref().and_then(RateControl::poll_timeout);
        [self.flows.next_expiry(), copies, recovery, rate_control].into_iter().flatten().min()
    }

    /// Writes the next frame that the edge itself sends to `buffer`, or the next copy of a frame to a group. `None`: there is none now.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((port, checksum)) = self.link_control.poll(buffer) {
            return Some(Transmit { port, checksum });
        }
        let nodes = &self.nodes;
        let link_address = |node: NodeId| nodes[usize::from(node.0)].and_then(|node| node.link_address);
        let outgoing = self.recovery.as_mut()?.poll(now, &self.flows, &self.distribution, link_address, buffer);
        self.report(now);
        let port = match outgoing? {
            Outgoing::ToNode(node) => self.nodes[usize::from(node.0)]?.port,
            Outgoing::ToNetwork => self.network_port,
        };
        Some(Transmit { port, checksum: Checksum::Valid })
    }
}

/// A connection is being removed: what is held for it is freed, and it is removed below.
fn release(recovery: &mut Option<LocalRecovery>, fast_path: &mut Option<FastPath>, index: Index, record: &mut Record) {
    if let Some(recovery) = recovery {
        recovery.release_record(index, record);
    }
    if let Some(fast_path) = fast_path {
        fast_path.release_record(index);
    }
}

/// The options of a TCP segment in a frame.
fn read_options(frame: &Frame<'_>, headers: &Headers) -> SegmentOptions {
    let header = frame.bytes().get(usize::from(headers.l4_offset)..usize::from(headers.payload_offset));
    header.map(SegmentOptions::read).unwrap_or_default()
}
