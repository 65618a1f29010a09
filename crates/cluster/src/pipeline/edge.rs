//! What the pipeline needs from outside: addresses, routes, neighbours and the filters of other nodes.

use flow::conntrack::ProtocolState;
use flow::table::Slot;
use flow::wire::{Packet, TunnelEnd};
use flow::{Disposition, DropReason, Frame, Instant, NodeId, PortId, Tuple};
use network_functions::chain::Chain;
use network_functions::class::Class;

use crate::forwarding::{Admission, AsReceived, PlannedLink};
use crate::observation::RoutedTo;

/// What lies around the pipeline: the node's own addresses, the ways out, and the backups.
pub trait Edge {
    /// An ARP packet that begins at `offset` in the frame.
    fn handle_arp(&mut self, now: Instant, frame: &mut Frame<'_>, offset: u16) -> Disposition;

    /// A frame by which a peer is detected over this link (see [`crate::forwarding::PATH_ETHER_TYPE`]).
    fn handle_path_frame(&mut self, now: Instant, frame: &mut Frame<'_>) -> Disposition {
        let _ = (now, frame);
        Disposition::Drop(DropReason::UnsupportedLinkProtocol)
    }

    /// Whether a packet is to pass, is for the node itself, or is refused: decided as it came in, before any function.
    fn admit(&mut self, now: Instant, packet: &Packet<'_, '_>) -> Admission;

    /// A packet for the node itself that belongs to no connection: neighbour discovery, a ping.
    fn handle_local(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition;

    /// Whether the first answer to a connection is kept back until a backup knows the connection. True takes the packet:
    /// the edge keeps a copy and hands it in again.
    fn holds_first_reply(&mut self, now: Instant, slot: Slot, packet: &Packet<'_, '_>) -> bool {
        let _ = (now, slot, packet);
        false
    }

    /// The match for this original tuple in the filter of another node that is gone, or is standby. Only while a recovery lasts
    /// ([`super::Recovery::begin`]).
    fn recovery_lookup(&self, original: &Tuple) -> Option<FilterMatch> {
        let _ = original;
        None
    }

    /// Forwards a packet, already translated.
    fn forward(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition;

    /// As [`Edge::forward`], for a packet that leaves in a tunnel. The frame is the outer packet's afterwards, and `packet.headers` stay
    /// those of the packet inside.
    fn forward_in_tunnel(&mut self, now: Instant, packet: &mut Packet<'_, '_>, end: &TunnelEnd) -> Disposition {
        let _ = (now, packet, end);
        Disposition::Drop(DropReason::TunnelUnusable)
    }

    /// Changes whenever [`Edge::admit`] or [`Edge::forward`] may do something else with plain packets of a connection than before:
    /// what was planned is void. `None`: nothing is planned.
    fn plan_revision(&self) -> Option<u32> {
        None
    }

    /// The next hop of packets with this tuple, already translated, for [`Edge::planned_link`]. `None`: it is not known.
    fn planned_hop(&self, outgoing: &Tuple) -> Option<u16> {
        let _ = outgoing;
        None
    }

    /// The link by which a packet leaves that goes to a planned next hop. `None`, and nothing done: it must be given to
    /// [`Edge::admit`] and [`Edge::forward`].
    fn planned_link(&mut self, now: Instant, hop: u16, packet: &Packet<'_, '_>) -> Option<PlannedLink> {
        let _ = (now, hop, packet);
        None
    }

    /// Sends a packet that the pipeline made itself, already translated: it leaves with the node's own frames, or not at all
    /// where there is no room for it. While a recovery lasts, or where a function answers handshakes.
    fn post(&mut self, now: Instant, packet: &mut Packet<'_, '_>) {
        let _ = (now, packet);
    }

    /// Where [`Edge::forward`] would send a packet with this tuple, for those who look on.
    fn routed_to(&self, tuple: &Tuple) -> Option<RoutedTo> {
        let _ = tuple;
        None
    }

    /// The packet would have begun a connection, but for this reason: its sender may have to be informed.
    fn refuse_connection(&mut self, now: Instant, packet: &Packet<'_, '_>, reason: DropReason) {
        let _ = (now, packet, reason);
    }

    /// Whether a packet for the node itself is for an address of the port that it came in on.
    fn is_of_ingress(&self, packet: &Packet<'_, '_>) -> bool {
        let _ = packet;
        true
    }

    /// The packet that was given to [`Edge::forward`] last, or was not for a function's verdict, does not leave at once: it was
    /// dropped, or it waits for something. It came in `as_received`. Its sender may have to receive an error,
    /// now or later, about the packet as it was sent.
    fn note_not_sent(&mut self, now: Instant, packet: &mut Packet<'_, '_>, as_received: &AsReceived) {
        let _ = (now, packet, as_received);
    }
}

/// The entry of a connection in another node's filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilterMatch {
    /// The node whose filter it is.
    pub owner: NodeId,
    /// Where its automaton stands, with the record's [`flow::connection::flags`]; `None`: the filter has no states.
    pub state: Option<(ProtocolState, u8)>,
    /// Its class, if that is not the one of its port; `None`: the entry holds no class.
    pub class: Option<Class>,
    /// The filter holds pairs of hosts. It holds no translated connection: those are replicated as records.
    pub is_of_hosts: bool,
}

impl FilterMatch {
    /// Whether the answer of a filter may stand for the connection that began with `original`. A pair of hosts never stands for
    /// a translated connection: the same two hosts may have others that are not translated, or translated another way, and a
    /// packet under the wrong translation is reset by the host that receives it.
    #[must_use]
    pub fn may_stand_for(&self, chain: &Chain, original: &Tuple, ingress: Option<PortId>) -> bool {
        let is_translated =
            || chain.restore(original, ingress).is_some_and(|restored| restored.reply != original.inverse());
        !self.is_of_hosts || !is_translated()
    }
}
