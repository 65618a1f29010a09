//! What an edge does as a switch: frames to groups, link addresses, ARP and neighbour discovery.

use arrayvec::ArrayVec;
use flow::wire::arp::ArpView;
use flow::wire::{self, Headers, MacAddress, Parsed, Transport};
use flow::{Disposition, DropReason, Frame, NODES_MAX, NodeId, PortId};

use super::Edge;
use crate::config::NodePort;
use crate::link_control;

impl Edge {
    /// A frame to a group goes to every port but its own. The first of them is returned.
    pub(super) fn flood(&mut self, frame: &Frame<'_>, from: Option<NodeId>) -> Result<PortId, DropReason> {
        if let Some(from) = from {
            self.learn_announced(from, frame);
        }
        let nodes = self.node_ports().filter(|node| Some(node.node) != from).map(|node| node.port);
        let mut ports: ArrayVec<PortId, NODES_MAX> = nodes.collect();
        let first = if from.is_some() { self.network_port } else { ports.pop_at(0).ok_or(DropReason::NoRoute)? };
        let lost = self.link_control.copy(frame, &ports);
        self.counters.dropped[DropReason::TransmitFailed as usize] += lost;
        Ok(first)
    }

    /// Drops a frame that is not for the hosts, for this reason.
    pub fn refuse(&mut self, frame: &mut Frame<'_>, reason: DropReason) {
        self.counters.dropped[reason as usize] += 1;
        frame.disposition = Disposition::Drop(reason);
    }

    /// A frame between nodes goes to the node with its link address, or to all other nodes, and never to the network.
    pub fn carry_between_nodes(&mut self, frame: &mut Frame<'_>) {
        let from = self.node_ports().find(|node| node.port == frame.ingress).map(|node| node.node);
        let destination = link_control::destination(frame);
        let addressed = destination.and_then(|address| self.node_with(address)).map(|node| node.node);
        let is_meant = |node: &&NodePort| Some(node.node) != from && addressed.is_none_or(|only| only == node.node);
        let mut ports: ArrayVec<PortId, NODES_MAX> =
            self.node_ports().filter(is_meant).map(|node| node.port).filter(|_| from.is_some()).collect();
        frame.disposition = Disposition::Consumed;
        if let Some(first) = ports.pop() {
            let lost = self.link_control.copy(frame, &ports);
            self.counters.dropped[DropReason::TransmitFailed as usize] += lost;
            frame.disposition = Disposition::Transmit(first);
        }
    }

    /// Learns from a frame that a node sends to a group which address it announces.
    fn learn_announced(&mut self, from: NodeId, frame: &Frame<'_>) {
        let mut headers = Headers::NONE;
        match wire::parse_into(frame, &mut headers) {
            Ok(Parsed::Arp(offset)) => self.learn_arp(from, frame, offset),
            Ok(Parsed::Ip(())) => self.link_control.learn_advertisement(from, frame, &headers),
            Err(_) => {}
        }
    }

    pub(super) fn learn_arp(&mut self, from: NodeId, frame: &Frame<'_>, offset: u16) {
        if let Some(Ok(arp)) = frame.bytes().get(usize::from(offset)..).map(ArpView::new_checked) {
            self.link_control.learn_arp(from, &arp);
        }
    }

    /// The node with this link address.
    pub(super) fn node_with(&self, address: MacAddress) -> Option<NodePort> {
        self.node_ports().find(|node| node.link_address == Some(address)).copied()
    }

    pub(super) fn send_to(&self, node: NodeId, frame: &mut Frame<'_>) -> Result<PortId, DropReason> {
        let node = self.nodes[usize::from(node.0)].ok_or(DropReason::NoRoute)?;
        let is_group = frame.bytes().first().is_some_and(|first| first & 1 != 0);
        if let (Some(MacAddress(address)), false) = (node.link_address, is_group) {
            frame.bytes_mut()[..address.len()].copy_from_slice(&address);
        }
        Ok(node.port)
    }

    /// The node for ARP and neighbour discovery: that with the frame's link address, else the live node with the lowest number.
    pub(super) fn node_of_link_control(&self, frame: &Frame<'_>) -> Option<NodeId> {
        let addressed = link_control::destination(frame).and_then(|address| self.node_with(address));
        addressed.map(|node| node.node).or_else(|| self.distribution.ecmp.alive().iter().next())
    }

    /// The node that answers a query to one of the addresses that nodes hold.
    pub(super) fn node_of_query(&self, headers: &Headers) -> Option<NodeId> {
        let Transport::IcmpQuery(_) = headers.transport else { return None };
        let announcer = self.link_control.announcer(headers.tuple.destination_ip());
        announcer.filter(|node| self.distribution.is_alive(*node))
    }
}
