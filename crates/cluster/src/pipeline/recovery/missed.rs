//! Segments of connections that no filter names, perhaps because the last update came before them: TCP cold start and the
//! intentional block (seed 000, section 2.1.2).

use flow::wire::{Packet, Transport, tcp_flags};
use flow::{Direction, DropReason, Instant, PortId, Tuple};
use network_functions::chain::Chain;
use network_functions::function::Verdict;
use network_functions::restoration::Restored;

use super::super::connections::Connections;
use super::super::edge::Recalled;
use super::counters::RecoveryCounters;
use super::keep_alive::{make_keep_alive, translate};
use super::{Current, Recollection, known_by, lies_here, restore};

impl Current {
    /// What becomes of a segment that no filter names.
    pub(super) fn make_good(
        &mut self,
        connections: &mut Connections,
        counters: &mut RecoveryCounters,
        now: Instant,
        packet: &mut Packet<'_, '_>,
    ) -> Recollection {
        let Transport::Tcp(segment) = packet.headers.transport else { return Recollection::Unknown };
        if segment.flags & (tcp_flags::SYN | tcp_flags::RST) != 0 || !segment.has(tcp_flags::ACK) {
            return Recollection::Unknown;
        }
        let (tuple, ingress) = (packet.headers.tuple, packet.frame.ingress);
        if self.config.cold_start.contains(&ingress) {
            let recollection = self.begin_in_the_middle(connections, counters, now, &tuple, ingress);
            counters.cold_started += u64::from(matches!(recollection, Recollection::Known(..)));
            return recollection;
        }
        let (probes, blocks) = (!self.config.cold_start.is_empty(), self.config.blocks);
        if blocks && self.blocked.is_sent_again(connections.directed_hash(&tuple), segment.sequence) {
            let recollection = self.begin_in_the_middle(connections, counters, now, &tuple, ingress);
            counters.unblocked += u64::from(matches!(recollection, Recollection::Known(..)));
            return recollection;
        }
        if probes && let Some(verdict) = self.probe(connections, now, packet) {
            counters.probed += 1;
            return Recollection::KeepAlive(verdict);
        }
        if blocks {
            counters.blocked += 1;
            return Recollection::Dropped(DropReason::RecoveryBlocked);
        }
        Recollection::Unknown
    }

    /// The tuple that the connection of a packet began with, where its packets then come in, and what the functions make of it.
    /// `None` if the rules would not let it begin, or an answer may be to several connections: where source NAT is computed,
    /// one outside port stands for several inside ports, of which only a filter can tell the right one.
    fn only_original(
        &self,
        chain: &Chain,
        tuple: &Tuple,
        ingress: PortId,
    ) -> Option<(Tuple, Option<PortId>, Restored)> {
        if let Some(restored) = chain.restore(tuple, Some(ingress)) {
            return Some((*tuple, Some(ingress), restored));
        }
        let [original] = self.originals[..] else { return None };
        Some((original, None, chain.restore(&original, None)?))
    }

    /// Enters the connection of a segment as one that both sides have agreed to, if the rules would let it begin.
    fn begin_in_the_middle(
        &self,
        connections: &mut Connections,
        counters: &mut RecoveryCounters,
        now: Instant,
        tuple: &Tuple,
        ingress: PortId,
    ) -> Recollection {
        let found = self.only_original(&connections.functions.chain, tuple, ingress);
        let Some((original, ingress, _)) = found.filter(|(original, ..)| lies_here(connections, original)) else {
            return Recollection::Unknown;
        };
        let recalled = Recalled { owner: connections.node, state: None, is_of_hosts: false };
        match restore(connections, counters, now, original, ingress, recalled) {
            Ok(true) => known_by(connections, tuple),
            Ok(false) => Recollection::Unknown,
            Err(reason) => Recollection::Dropped(reason),
        }
    }

    /// Sends a segment on without its payload and numbered one before it: an end point that has the connection answers such a
    /// keep-alive (RFC 1122 section 4.2.3.6) with an acknowledgement, and that comes from a trusted port.
    fn probe(&self, connections: &mut Connections, now: Instant, packet: &mut Packet<'_, '_>) -> Option<Verdict> {
        let Transport::Tcp(segment) = packet.headers.transport else { return None };
        let tuple = packet.headers.tuple;
        if packet.headers.is_fragment {
            return None;
        }
        let chain = &connections.functions.chain;
        let (original, _, restored) = self.only_original(chain, &tuple, packet.frame.ingress)?;
        if !make_keep_alive(packet, segment.sequence, segment.acknowledgement) {
            return None;
        }
        let direction = if original == tuple { Direction::Original } else { Direction::Reply };
        Some(translate(connections, now, packet, original, &restored, direction))
    }
}
