//! The node's ports as its pipeline sees them.

use core::time::Duration;

use flow::table::Slot;
use flow::wire::{Packet, TunnelEnd};
use flow::{Disposition, DropReason, Frame, Instant, Tuple};

use super::held::HeldReplies;
use super::peer::Peer;
use super::replication_set::{ReplicationSet, compact};
use super::tunnel_endpoint::TunnelEndpoint;
use crate::forwarding::{Admission, AsReceived, Forwarder, PlannedLink};
use crate::observation::RoutedTo;
use crate::pipeline::{Edge, FilterMatch};

/// How long after a take-over updates of the former owner may still arrive: until then, no segment is answered as one of no connection.
const SETTLING_TIME: Duration = Duration::from_millis(200);

/// What the pipeline needs from outside, lent for one batch: addresses and neighbours, the tunnel, and the peers that confirm
/// connections.
pub(super) struct Ports<'a> {
    pub(super) forwarder: &'a mut Forwarder,
    pub(super) replication: &'a ReplicationSet,
    /// Where first replies are kept back; `None` for those that were kept back before.
    pub(super) held: Option<&'a mut HeldReplies>,
    /// How long at most; zero keeps none back.
    pub(super) hold_max: Duration,
    /// The tunnel to another site; `None` also for what came out of it.
    pub(super) tunnel: Option<&'a mut TunnelEndpoint>,
}

impl Edge for Ports<'_> {
    fn handle_arp(&mut self, now: Instant, frame: &mut Frame<'_>, offset: u16) -> Disposition {
        self.forwarder.handle_arp(now, frame, offset)
    }

    fn handle_path_frame(&mut self, _: Instant, frame: &mut Frame<'_>) -> Disposition {
        self.forwarder.handle_path_frame(frame)
    }

    fn admit(&mut self, now: Instant, packet: &Packet<'_, '_>) -> Admission {
        let admission = self.forwarder.admit(now, packet);
        let is_own =
            admission == Admission::Local && self.tunnel.as_ref().is_some_and(|tunnel| tunnel.is_for_tunnel(packet));
        if is_own { Admission::Own } else { admission }
    }

    fn handle_local(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition {
        match &mut self.tunnel {
            Some(tunnel) if tunnel.is_for_tunnel(packet) => tunnel.handle_datagram(now, packet),
            _ => self.forwarder.handle_local(now, packet),
        }
    }

    fn holds_first_reply(&mut self, now: Instant, slot: Slot, packet: &Packet<'_, '_>) -> bool {
        let Some(held) = &mut self.held else { return false };
        !self.hold_max.is_zero()
            && !self.replication.is_backed_up(slot)
            && held.hold(now, self.hold_max, slot, packet.frame)
    }

    fn recovery_lookup(&self, original: &Tuple) -> Option<FilterMatch> {
        compact::recovery_lookup(&self.replication.peers, original)
    }

    fn forward(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition {
        let taken = self.tunnel.as_mut().and_then(|tunnel| tunnel.take(now, packet, self.forwarder));
        taken.unwrap_or_else(|| self.forwarder.forward(now, packet))
    }

    fn forward_in_tunnel(&mut self, now: Instant, packet: &mut Packet<'_, '_>, end: &TunnelEnd) -> Disposition {
        self.forwarder.forward_in_tunnel(now, packet, end)
    }

    fn plan_revision(&self) -> Option<u32> {
        // What goes into a tunnel is not forwarded.
        if self.tunnel.is_some() { None } else { self.forwarder.plan_revision() }
    }

    fn planned_hop(&self, outgoing: &Tuple) -> Option<u16> {
        self.forwarder.planned_hop(outgoing.destination_ip())
    }

    #[inline(always)]
    fn planned_link(&mut self, now: Instant, hop: u16, packet: &Packet<'_, '_>) -> Option<PlannedLink> {
        self.forwarder.planned_link(now, hop, packet)
    }

    fn post(&mut self, now: Instant, packet: &mut Packet<'_, '_>) {
        self.forwarder.post(now, packet);
    }

    fn routed_to(&self, tuple: &Tuple) -> Option<RoutedTo> {
        let destination = tuple.destination_ip();
        let next_hop = self.forwarder.route(destination)?;
        Some(RoutedTo { port: next_hop.port, next_hop: next_hop.gateway.unwrap_or(destination) })
    }

    fn may_reset_strays(&self, now: Instant) -> bool {
        let is_settled = self.forwarder.is_active_for(now, SETTLING_TIME);
        // A peer that was up and is not may live beyond a failed link, with connections that this node has never received.
        let has_no_others = |peer: &Peer| if peer.is_up() { peer.is_synchronised_or_away() } else { !peer.has_been_up };
        is_settled && self.replication.peers.iter().all(has_no_others)
    }

    fn refuse_connection(&mut self, now: Instant, packet: &Packet<'_, '_>, reason: DropReason) {
        self.forwarder.refuse_connection(now, packet, reason);
    }

    fn is_of_ingress(&self, packet: &Packet<'_, '_>) -> bool {
        self.forwarder.is_of_ingress(packet)
    }

    fn note_not_sent(&mut self, now: Instant, packet: &mut Packet<'_, '_>, as_received: &AsReceived) {
        self.forwarder.note_not_sent(now, packet, as_received);
    }
}
