//! Segments of connections that no filter names, perhaps because the last update came before them: TCP cold start and the
//! intentional block (MLCBF, section 2.1.2).

use flow::wire::{Packet, Transport, tcp_flags};
use flow::{Direction, DropReason, PortId, Tuple};
use network_functions::chain::Chain;
use network_functions::function::Verdict;
use network_functions::restoration::Restored;

use super::super::edge::FilterMatch;
use super::Current;
use super::context::Context;
use super::keep_alive::{make_keep_alive, translate};
use super::outcome::RecoveryOutcome;

impl Current {
    /// The outcome of a segment without a match in any filter.
    pub(super) fn handle_unnamed(&mut self, context: &mut Context<'_>, packet: &mut Packet<'_, '_>) -> RecoveryOutcome {
        let Transport::Tcp(segment) = packet.headers.transport else { return RecoveryOutcome::Unknown };
        if segment.flags & (tcp_flags::SYN | tcp_flags::RST) != 0 || !segment.has(tcp_flags::ACK) {
            return RecoveryOutcome::Unknown;
        }
        let (tuple, ingress) = (packet.headers.tuple, packet.frame.ingress);
        if self.config.cold_start.contains(&ingress) {
            let outcome = self.restore_established(context, &tuple, ingress);
            context.counters.cold_started += u64::from(matches!(outcome, RecoveryOutcome::Known(..)));
            return outcome;
        }
        let (probes, blocks) = (!self.config.cold_start.is_empty(), self.config.blocks);
        if blocks && self.blocked.is_retransmission(context.connections.directed_hash(&tuple), segment.sequence) {
            let outcome = self.restore_established(context, &tuple, ingress);
            context.counters.unblocked += u64::from(matches!(outcome, RecoveryOutcome::Known(..)));
            return outcome;
        }
        if probes && let Some(verdict) = self.probe(context, packet) {
            context.counters.probed += 1;
            return RecoveryOutcome::KeepAlive(verdict);
        }
        if blocks {
            context.counters.blocked += 1;
            return RecoveryOutcome::Dropped(DropReason::RecoveryBlocked);
        }
        RecoveryOutcome::Unknown
    }

    /// The tuple that the connection of a packet began with, where its packets then come in, and what the functions make of it.
    /// `None` if the rules would not let it begin, or the match is ambiguous: where source NAT is computed, one outside port
    /// stands for several inside ports, of which only a filter can select the right one.
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
    fn restore_established(&self, context: &mut Context<'_>, tuple: &Tuple, ingress: PortId) -> RecoveryOutcome {
        let found = self.only_original(&context.connections.functions.chain, tuple, ingress);
        let Some((original, ingress, _)) = found.filter(|(original, ..)| context.lies_here(original)) else {
            return RecoveryOutcome::Unknown;
        };
        let filter_match =
            FilterMatch { owner: context.connections.node, state: None, class: None, is_of_hosts: false };
        context.restore((original, ingress, filter_match), tuple).unwrap_or(RecoveryOutcome::Unknown)
    }

    /// Sends a segment on without its payload and numbered one before it: an end point that has the connection answers such a
    /// keep-alive (RFC 1122 section 4.2.3.6) with an acknowledgement, and that comes from a trusted port.
    fn probe(&self, context: &mut Context<'_>, packet: &mut Packet<'_, '_>) -> Option<Verdict> {
        let Transport::Tcp(segment) = packet.headers.transport else { return None };
        let tuple = packet.headers.tuple;
        if packet.headers.is_fragment {
            return None;
        }
        let chain = &context.connections.functions.chain;
        let (original, _, restored) = self.only_original(chain, &tuple, packet.frame.ingress)?;
        if !make_keep_alive(packet, segment.sequence, segment.acknowledgement) {
            return None;
        }
        let direction = if original == tuple { Direction::Original } else { Direction::Reply };
        Some(translate(context.connections, context.now, packet, original, &restored, direction))
    }
}
