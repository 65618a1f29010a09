//! The transport of frames and datagrams: links, and the switches between them.

use cluster::forwarding::PATH_ETHER_TYPE;
use flow::wire;
use flow::wire::ethernet::EthernetView;
use flow::{Frame, Instant, PortId};

use super::World;
use crate::Sabotage;
use crate::link::Link;
use crate::report::Problem;
use crate::sabotage;
use crate::schedule::Event;
use crate::topology::{self, HOSTS, NODES, Side};
use crate::trace::describe;

impl World<'_> {
    pub(super) fn send_datagram(&mut self, node: usize, is_detection: bool, bytes: &[u8]) {
        if self.options.sabotage == Some(Sabotage::FailedDetection) {
            return;
        }
        let machine = &mut self.machines[node];
        let is_heartbeat = !is_detection && cluster::role::is_heartbeat(bytes);
        let is_muted = match (is_detection, is_heartbeat) {
            (true, _) => machine.muted.detection,
            (_, true) => machine.muted.heartbeats,
            _ => machine.muted.replication,
        };
        let mut bytes = if is_detection { bytes.to_vec() } else { machine.interpreter.outgoing(bytes.to_vec()) };
        if is_heartbeat && self.options.sabotage == Some(Sabotage::OmittedTakeOvers) {
            bytes = sabotage::without_take_overs(&bytes);
        }
        if is_muted {
            return;
        }
        let link = &mut machine.replication;
        for arrival in link.carry(self.now, bytes.len()) {
            let mut bytes = bytes.clone();
            if arrival.is_corrupt && !self.scenario.damaged_datagrams_pass {
                self.outcome.datagrams_lost += 1;
                continue;
            }
            if arrival.is_corrupt {
                link.corrupt(&mut bytes, 0);
            }
            let event = Event::Datagram { node: 1 - node, is_detection, bytes };
            self.schedule.add(arrival.at, event);
        }
    }

    pub(super) fn send_from_node(&mut self, node: usize, port: PortId, mut bytes: Vec<u8>) {
        if self.options.sabotage == Some(Sabotage::SwappedBytes) {
            sabotage::swap_bytes(&mut bytes);
        }
        let mut copy = bytes.clone();
        let length_bytes = copy.len();
        let is_path_frame = ether_type(&bytes) == Some(PATH_ETHER_TYPE);
        let mut is_malformed =
            || Frame::new(&mut copy, 0, length_bytes, port).is_none_or(|frame| wire::parse(&frame).is_err());
        if !is_path_frame && is_malformed() {
            let text = format!("node {node} sends a frame that cannot be read: {}", describe(&bytes));
            self.outcome.problem(self.now, Problem::MalformedFrame, text);
        }
        if self.machines[node].muted.paths && is_path_frame {
            return;
        }
        let side = Side::of_port(port);
        let arrivals: Vec<_> = self.machines[node].ports[usize::from(port.0)].carry(self.now, bytes.len()).collect();
        for arrival in arrivals {
            let mut bytes = bytes.clone();
            if arrival.is_corrupt {
                corrupt_frame(&mut self.machines[node].ports[usize::from(port.0)], &mut bytes);
            }
            self.carry(side, None, Some(node), arrival.at, bytes);
        }
    }

    pub(super) fn send_from_host(&mut self, host: usize, frames: Vec<Vec<u8>>) {
        for frame in frames {
            let arrivals: Vec<_> = self.host_links[host].carry(self.now, frame.len()).collect();
            for arrival in arrivals {
                let mut bytes = frame.clone();
                if arrival.is_corrupt {
                    corrupt_frame(&mut self.host_links[host], &mut bytes);
                }
                self.carry(Side::of_host(host), Some(host), None, arrival.at, bytes);
            }
        }
        let due = self.hosts[host].poll_timeout(self.now).map(|at| at.max(self.now));
        if let Some(at) = due.filter(|at| self.host_timers[host].is_none_or(|set| *at < set)) {
            self.host_timers[host] = Some(at);
            self.schedule.add(at, Event::HostTimer { host });
        }
    }

    /// The link's switch: forwards a frame to its destination, or to all but its sender.
    fn carry(&mut self, side: Side, from_host: Option<usize>, from_node: Option<usize>, at: Instant, bytes: Vec<u8>) {
        let Ok(link) = EthernetView::new_checked(&bytes) else { return };
        let (to, to_all) = (link.destination(), link.destination().is_group());
        for host in (0..HOSTS).filter(|host| Side::of_host(*host) == side && Some(*host) != from_host) {
            if to_all || to == topology::host_mac(host) {
                self.schedule.add(at, Event::HostFrame { host, bytes: bytes.clone() });
            }
        }
        let are_deaf = from_node.is_some() && self.options.sabotage == Some(Sabotage::FailedDetection);
        for node in (0..NODES).filter(|node| Some(*node) != from_node && !are_deaf) {
            if to_all || to == topology::node_mac(node, side) {
                self.schedule.add(at, Event::NodeFrame { node, port: side.port(), bytes: bytes.clone() });
            }
        }
    }
}

/// Changes a byte behind the link header. Ethernet's checksum detects damage on a wire; damage within a switch or a
/// host is left to the upper checksums, and ARP has none.
fn corrupt_frame(link: &mut Link, bytes: &mut [u8]) {
    if ether_type(bytes) != Some(wire::ethernet::ether_type::ARP) {
        link.corrupt(bytes, wire::ethernet::ETHERNET_HEADER_BYTES);
    }
}

fn ether_type(frame: &[u8]) -> Option<u16> {
    EthernetView::new_checked(frame).ok().map(|view| view.ether_type())
}
