//! The fast path of an edge: the program in the kernel, as the edge has flows installed in it.
//!
//! The edge's places are mapped to the kernel's indices here. Each node has two next hops: to the node, and from the node to the network. Both
//! are set while the node is started, so one order stops all its flows.

use std::time::Duration;

use ::edge::{Edge, FastPathOrder, NodeForwarding, SettledFlow};
use api::{FastPathStatus, OutcomeCount};
use config::edge::EdgeSettings;
use config::validated::{Backend, Port};
use fast_path::{ConnectionIndex, Error, FastPath, Outcome};
use flow::fast_path::{Activity, Hook, NextHop, Plan};
use flow::wire::MacAddress;
use flow::wire::ethernet::ETHERNET_HEADER_BYTES;
use flow::{Instant, NodeId, PortId};
use packet_io::PortCounters;
use packet_io::netlink::Netlink;

use super::interfaces::{NETWORK, interfaces};
use crate::gateway::fast_path::ports::{AttachedProgram, warned};
use crate::gateway::fast_path::{ETHER_TYPES, HEARTBEAT_AGE_MAX_ALONE, HEARTBEAT_AGE_MAX_LEAST, host_obstacle, xdp};
use crate::ports::Receiving;

/// The time between sweeps …
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// … and the most places that one looks at.
const SWEPT_MAX: usize = 4096;

/// An installed flow.
#[derive(Clone, Copy)]
struct Installed {
    index: ConnectionIndex,
    node: NodeId,
}

/// See the [module](self).
pub(super) struct EdgeFastPath {
    attached: AttachedProgram,
    hook_reason: Option<String>,
    /// By node.
    nodes: Vec<(NodeId, NodeForwarding)>,
    /// By place.
    installed: Vec<Option<Installed>>,
    connections_max: u32,
    sweep_at: Instant,
    sweep_from: usize,
    /// By port.
    traffic: Vec<PortCounters>,
    full: u64,
    refused: u64,
}

/// Why an edge as configured has no fast path on this host, at this hook.
#[must_use]
pub fn obstacle(settings: &EdgeSettings, hook: Hook) -> Option<String> {
    configured_obstacle(settings).map(str::to_owned).or_else(|| host_obstacle(&interfaces(settings), hook))
}

fn configured_obstacle(settings: &EdgeSettings) -> Option<&'static str> {
    let obstacles = [
        (!settings.fast_path.enabled, "[fast_path] enabled = false"),
        (settings.backend != Backend::AfPacket, "edge.backend is not \"af_packet\""),
        (settings.affinity != ::edge::Affinity::Learned, "edge.affinity is not \"learned\""),
    ];
    obstacles.into_iter().find_map(|(applies, obstacle)| applies.then_some(obstacle))
}

impl EdgeFastPath {
    /// Loads the program, and attaches it to the ports. `None`: there is no fast path, and the log has why.
    pub(super) fn open(settings: &EdgeSettings, ports: &[Port]) -> Option<Self> {
        let opened = match configured_obstacle(settings) {
            Some(obstacle) => Err(obstacle.to_owned()),
            None => {
                let attach = |hook, reason| Self::attach(settings, ports, hook, reason);
                xdp::at_a_hook(settings.fast_path.hook, ports, attach).map_err(|error| error.to_string())
            }
        };
        match opened {
            Ok(opened) => {
                let (connections_max, hook) = (opened.connections_max, opened.attached.program.hook().name());
                tracing::info!(connections_max, hook, "the kernel forwards settled flows");
                Some(opened)
            }
            Err(reason) => {
                tracing::info!("all packets go through the edge, none by the fast path: {reason}");
                None
            }
        }
    }

    fn attach(settings: &EdgeSettings, ports: &[Port], hook: Hook, hook_reason: Option<String>) -> Result<Self, Error> {
        let detection = &settings.failure_detection;
        let detection_time = detection.desired_min_tx * u32::from(detection.detect_multiplier);
        let connections_max = settings.fast_path.connections_max.min(settings.connections_max);
        let program = FastPath::load(&fast_path::Config {
            connections_max,
            next_hops_max: 2 * ports.len() as u32,
            is_bridged: true,
            heartbeat_age_max: detection_time.clamp(HEARTBEAT_AGE_MAX_LEAST, HEARTBEAT_AGE_MAX_ALONE),
            hook,
            ..fast_path::Config::default()
        })?;
        let attached = AttachedProgram::attach(program, ports)?;
        attached.program.set_enabled(true);
        Ok(Self {
            attached,
            hook_reason,
            nodes: settings.nodes.iter().map(|node| (node.id, NodeForwarding::Stopped)).collect(),
            installed: vec![None; connections_max as usize],
            connections_max,
            sweep_at: Instant::ZERO,
            sweep_from: 0,
            traffic: vec![PortCounters::default(); ports.len()],
            full: 0,
            refused: 0,
        })
    }

    /// What the edge's packet sockets receive beside it.
    pub(super) fn receiving(fast_path: Option<&Self>) -> Receiving {
        match fast_path.map(|fast_path| fast_path.attached.program.hook()) {
            Some(Hook::Tc) => Receiving::ForAnyHost(&ETHER_TYPES),
            // XDP comes before the sockets that receive everything.
            Some(Hook::Xdp) | None => Receiving::Everything,
        }
    }

    /// Has the edge use it.
    pub(super) fn begin(&self, edge: &mut Edge) {
        edge.begin_fast_path(self.connections_max);
    }

    /// The edge process is alive.
    pub(super) fn beat(&self, now: Instant) {
        self.attached.program.beat(now);
    }

    /// What was seen of the flow in a place since the last call.
    pub(super) fn take_activity(&mut self, place: u32) -> Option<Activity> {
        let Installed { index, node } = (*self.installed.get(place as usize)?)?;
        let activity = self.attached.program.take(index)?;
        self.count(node, &activity);
        Some(activity)
    }

    /// Carries out the orders of the edge.
    pub(super) fn obey(&mut self, now: Instant, edge: &mut Edge) {
        while let Some(order) = edge.poll_fast_path() {
            match order {
                FastPathOrder::Install { place, flow } => {
                    if !self.install(place, &flow) {
                        edge.note_refused(place);
                    }
                }
                FastPathOrder::Remove { place } => {
                    let activity = self.remove(place);
                    edge.note_removed(now, place, activity.as_ref());
                }
                FastPathOrder::Raise { place, windows } => {
                    if let Some(Some(installed)) = self.installed.get(place as usize) {
                        self.attached.program.raise(installed.index, &windows);
                    }
                }
                FastPathOrder::SetNode { node, forwarding } => {
                    if let Some(at) = self.nodes.iter().position(|(known, _)| *known == node) {
                        self.nodes[at].1 = forwarding;
                        self.set_next_hops(at);
                    }
                }
            }
        }
    }

    /// Enters what was seen of some of the flows, if it is time.
    pub(super) fn sweep(&mut self, now: Instant, edge: &mut Edge) {
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + SWEEP_INTERVAL;
        for _ in 0..SWEPT_MAX.min(self.installed.len()) {
            self.sweep_from = (self.sweep_from + 1) % self.installed.len();
            let place = self.sweep_from as u32;
            if let Some(activity) = self.take_activity(place) {
                edge.note_activity(now, place, &activity);
            }
        }
        self.obey(now, edge);
    }

    /// A port's link has changed: the program follows interfaces that were made anew, and so do its next hops.
    pub(super) fn follow_interfaces(&mut self, now: Instant, edge: &mut Edge) {
        let indices = |attached: &AttachedProgram| -> Vec<_> {
            attached.ports.iter().map(|port| port.as_ref().map(|port| port.index)).collect()
        };
        let before = indices(&self.attached);
        self.attached.follow_interfaces();
        if indices(&self.attached) != before {
            // Flows come in on interfaces that are no more.
            edge.end_fast_path();
            for place in 0..self.connections_max {
                self.remove(place);
            }
            self.begin(edge);
            self.obey(now, edge);
        }
        (0..self.nodes.len()).for_each(|at| self.set_next_hops(at));
    }

    /// The port of a node, by its place among the nodes.
    const fn port_of(at: usize) -> usize {
        NETWORK.0 as usize + 1 + at
    }

    fn install(&mut self, place: u32, flow: &SettledFlow) -> bool {
        let at = self.nodes.iter().position(|(node, _)| *node == flow.node);
        let index_of = |port: usize| Some(self.attached.ports.get(port)?.as_ref()?.index);
        let interfaces = at.and_then(|at| Some([index_of(NETWORK.0.into())?, index_of(Self::port_of(at))?]));
        let (Some(at), Some(interfaces)) = (at, interfaces) else { return false };
        let [to_node, to_network] = Self::next_hops(at);
        let plan = Plan {
            link_addresses: [None, Some(flow.near_address.0)],
            ..Plan::bridged(&flow.entering, flow.windows, interfaces, [to_node, to_network])
        };
        match self.attached.program.install(&plan) {
            Ok(index) => {
                self.installed[place as usize] = Some(Installed { index, node: flow.node });
                return true;
            }
            Err(Error::Full { .. }) => self.full += 1,
            Err(error) => {
                tracing::debug!("{error}");
                self.refused += 1;
            }
        }
        false
    }

    fn remove(&mut self, place: u32) -> Option<Activity> {
        let Installed { index, node } = self.installed.get_mut(place as usize)?.take()?;
        let activity = warned(self.attached.program.remove(index)).flatten()?;
        self.count(node, &activity);
        Some(activity)
    }

    /// The next hops of a node, by its place among the nodes: to it, and from it to the network.
    const fn next_hops(at: usize) -> [u32; 2] {
        [2 * at as u32, 2 * at as u32 + 1]
    }

    /// Sets or clears the next hops of a node.
    fn set_next_hops(&mut self, at: usize) {
        let [to_node, to_network] = Self::next_hops(at);
        let hops = match self.nodes[at].1 {
            NodeForwarding::Stopped => [None; 2],
            NodeForwarding::Started { link_address } => {
                [self.next_hop(Self::port_of(at), link_address), self.next_hop(NETWORK.0.into(), None)]
            }
        };
        // Both or none: packets of one direction alone do not settle a flow.
        let hops = if hops.contains(&None) { [None; 2] } else { hops };
        for (number, hop) in [to_node, to_network].into_iter().zip(hops) {
            warned(self.attached.program.set_next_hop(number, hop.as_ref()));
        }
    }

    /// The way out of a port. `None`: the program cannot redirect there.
    fn next_hop(&self, port: usize, link_address: Option<MacAddress>) -> Option<NextHop> {
        let port = self.attached.ports.get(port)?.as_ref().filter(|port| port.is_target)?;
        let found = Netlink::open().and_then(|mut netlink| netlink.interface(port.interface())).ok()?;
        (found.index == port.index)
            .then(|| NextHop::bridged(port.index, link_address.map(|address| address.0), found.mtu_bytes))
    }

    /// Counts what ports received and sent of a flow.
    fn count(&mut self, node: NodeId, activity: &Activity) {
        let Some(at) = self.nodes.iter().position(|(known, _)| *known == node) else { return };
        let ports = [NETWORK.0.into(), Self::port_of(at)];
        for (direction, [ingress, egress]) in [ports, [ports[1], ports[0]]].into_iter().enumerate() {
            let frames = u64::from(activity.packets[direction]);
            let bytes = activity.bytes[direction] + frames * ETHERNET_HEADER_BYTES as u64;
            self.traffic[ingress].received_frames += frames;
            self.traffic[ingress].received_bytes += bytes;
            self.traffic[egress].sent_frames += frames;
            self.traffic[egress].sent_bytes += bytes;
        }
    }

    /// What a port received and sent by it.
    pub(super) fn traffic(&self, port: PortId) -> PortCounters {
        self.traffic.get(usize::from(port.0)).copied().unwrap_or_default()
    }

    /// Its status.
    pub(super) fn status(&self, edge: &Edge) -> FastPathStatus {
        let below = edge.status().fast_path.unwrap_or_default();
        let counters = warned(self.attached.program.counters()).unwrap_or_default();
        let outcome =
            |outcome: &Outcome| OutcomeCount { outcome: outcome.name().to_owned(), packets: counters.of(*outcome) };
        FastPathStatus {
            forwarding: self.nodes.iter().any(|(_, forwarding)| *forwarding != NodeForwarding::Stopped),
            hook: self.attached.program.hook().name().to_owned(),
            hook_reason: self.hook_reason.clone(),
            connections: below.installed.into(),
            packets: below.packets,
            bytes: below.bytes,
            full: below.full + self.full,
            refused: self.refused,
            outcomes: Outcome::ALL.iter().map(outcome).collect(),
        }
    }
}
