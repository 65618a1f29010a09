//! What an edge has forwarded below it, and enters what was seen there.

use flow::fast_path::Activity;
use flow::wire::MacAddress;
use flow::{Instant, NodeId, PacketBatch};

use super::{Edge, TakeActivity};
use crate::fast_path::{FastPath, FastPathOrder, NodeForwarding};
use crate::flows::Index;
use crate::local_recovery::LocalRecovery;

impl Edge {
    /// From now on settled flows are forwarded below, at most `connections_max` at a time: see [`Edge::poll_fast_path`]. With hashed
    /// affinities none is.
    pub fn begin_fast_path(&mut self, connections_max: u32) {
        self.end_fast_path();
        self.fast_path = Some(FastPath::new(connections_max, self.recovery.as_ref().map(LocalRecovery::policy)));
        self.follow_nodes();
    }

    /// Nothing is forwarded below any more: whatever was installed is gone.
    pub fn end_fast_path(&mut self) {
        self.fast_path = None;
    }

    /// The next order for what forwards below. To be carried out before the frames of a batch are sent, and after each call that reports
    /// something of nodes.
    pub fn poll_fast_path(&mut self) -> Option<FastPathOrder> {
        self.fast_path.as_mut()?.poll()
    }

    /// The flow in a place could not be installed. It is tried again after some packets.
    pub fn note_refused(&mut self, place: u32) {
        if let Some(index) = self.fast_path.as_mut().and_then(|fast_path| fast_path.free(place)) {
            self.flows.get_mut(index).forget_passed();
        }
    }

    /// The flow in a place is removed. `activity`: what was seen of it at last.
    pub fn note_removed(&mut self, now: Instant, place: u32, activity: Option<&Activity>) {
        let index = self.fast_path.as_mut().and_then(|fast_path| fast_path.free(place));
        if let Some(activity) = activity {
            self.enter_activity(now, index, activity);
        }
    }

    /// What was seen of the flow in a place, from time to time: at least eight times in the shortest idle timeout of settled flows.
    pub fn note_activity(&mut self, now: Instant, place: u32, activity: &Activity) {
        let Some(index) = self.fast_path.as_ref().and_then(|fast_path| fast_path.flow(place)) else { return };
        self.enter_activity(now, Some(index), activity);
        if let Some(fast_path) = &mut self.fast_path {
            fast_path.keep(index, self.flows.get(index), None);
        }
    }

    /// The port of the network has carrier, or has none.
    pub fn set_network_up(&mut self, is_up: bool) {
        self.is_network_up = is_up;
        self.follow_nodes();
    }

    /// As [`Edge::handle_packets`]. `take_activity` returns what was seen below of the flow in a place; packets and bytes are those since
    /// the last call.
    pub fn handle_packets_beside(
        &mut self,
        now: Instant,
        batch: &mut PacketBatch<'_>,
        take_activity: &mut dyn FnMut(u32) -> Option<Activity>,
    ) {
        self.handle_batch(now, batch, take_activity);
    }

    /// Starts the nodes whose packets need nothing of the edge, and stops the others.
    pub(super) fn follow_nodes(&mut self) {
        let Some(fast_path) = &mut self.fast_path else { return };
        for node in self.numbers.iter() {
            let is_suspected = self.recovery.as_ref().is_some_and(|recovery| recovery.holds_for_suspected(node));
            let is_controlled = self.rate_control.as_ref().is_some_and(|control| control.is_controlled(node));
            let forwards = self.is_network_up && self.distribution.is_alive(node);
            let port = self.nodes[usize::from(node.0)].filter(|_| forwards && !is_suspected && !is_controlled);
            let started = |link_address| NodeForwarding::Started { link_address };
            fast_path.set_node(node, port.map_or(NodeForwarding::Stopped, |port| started(port.link_address)));
        }
    }

    /// Enters what was seen below of a flow, before one of its packets is handled.
    #[inline]
    pub(super) fn take_seen(&mut self, now: Instant, index: Index, take_activity: TakeActivity<'_>) {
        let Some(fast_path) = &self.fast_path else { return };
        if let Some(activity) = fast_path.installed(index).and_then(take_activity) {
            self.enter_activity(now, Some(index), &activity);
        }
    }

    /// A packet of the flow passed. `from`: it left from this node, to this link address.
    #[inline]
    pub(super) fn follow_below(&mut self, index: Index, from: Option<(NodeId, MacAddress)>) {
        let Some(fast_path) = &mut self.fast_path else { return };
        let record = self.flows.get_mut(index);
        match from {
            // It was not forwarded by the flow's node, and is not forwarded below.
            Some((node, _)) if node != record.node => {}
            _ => fast_path.follow(index, record, from.map(|(_, address)| address)),
        }
    }

    /// As if the packets had come through the edge.
    fn enter_activity(&mut self, now: Instant, index: Option<Index>, activity: &Activity) {
        let packets = activity.packets.map(u64::from);
        self.counters.entered += packets[0];
        self.counters.left += packets[1];
        if let Some(fast_path) = &mut self.fast_path {
            fast_path.counters.packets += packets.iter().sum::<u64>();
            fast_path.counters.bytes += activity.bytes.iter().sum::<u64>();
        }
        let Some(index) = index.filter(|_| activity.packets != [0; 2]) else { return };
        let seen_at = Instant::from_nanos(activity.last_packet_ns.min(now.as_nanos()));
        if let Some(windows) = &activity.windows {
            let record = self.flows.get_mut(index);
            let progress = record.tcp.raise(windows, super::micros(seen_at));
            if progress.acknowledged_bytes > 0 {
                record.set_recovered();
            }
            if let Some(rate_control) = &mut self.rate_control {
                let node = record.node;
                rate_control.note_acknowledged(node, progress.acknowledged_bytes);
                if progress.sent_bytes > 0 {
                    rate_control.note_entering(record, progress.sent_bytes);
                }
            }
        }
        self.flows.touch(seen_at, index);
    }
}
