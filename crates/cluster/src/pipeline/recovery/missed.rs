//! Segments of connections that no filter names, perhaps because the last update came before them: TCP cold start and the
//! intentional block (seed 000, section 2.1.2).

use flow::connection::flags;
use flow::wire::{Packet, Transport, tcp_flags};
use flow::{Connection, Direction, DropReason, Instant, PortId, Segmentation, Tuple};
use network_functions::chain::Runtime;
use network_functions::function::Verdict;
use network_functions::restoration::Restored;

use super::{Edge, Pipeline, Recalled, Recollection, Recovery, assumed_state};

impl Pipeline {
    /// What becomes of a segment that no filter names.
    pub(super) fn make_good<E: Edge>(
        &mut self,
        now: Instant,
        recovery: &mut Recovery,
        packet: &mut Packet<'_, '_>,
        edge: &mut E,
    ) -> Recollection {
        let Transport::Tcp(segment) = packet.headers.transport else { return Recollection::Unknown };
        if segment.flags & (tcp_flags::SYN | tcp_flags::RST) != 0 || !segment.has(tcp_flags::ACK) {
            return Recollection::Unknown;
        }
        let (tuple, ingress) = (packet.headers.tuple, packet.frame.ingress);
        if recovery.config.cold_start.contains(&ingress) {
            let recollection = self.begin_in_the_middle(now, recovery, &tuple, ingress);
            self.recovery_counters.cold_started += u64::from(matches!(recollection, Recollection::Known(..)));
            return recollection;
        }
        let name = self.name_of(&tuple);
        let Recovery { config, blocked, .. } = recovery;
        if config.blocks && blocked.is_sent_again(name, segment.sequence) {
            let recollection = self.begin_in_the_middle(now, recovery, &tuple, ingress);
            self.recovery_counters.unblocked += u64::from(matches!(recollection, Recollection::Known(..)));
            return recollection;
        }
        let (probes, blocks) = (!config.cold_start.is_empty(), config.blocks);
        if probes && let Some(sent) = self.probe(now, recovery, packet, edge) {
            self.recovery_counters.probed += 1;
            return sent;
        }
        if blocks {
            self.recovery_counters.blocked += 1;
            return Recollection::Done(Err(DropReason::RecoveryBlocked));
        }
        Recollection::Unknown
    }

    /// The tuple that the connection of a packet began with, where its packets then come in, and what the functions make of it.
    /// `None` if the rules would not let it begin, or an answer may be to several connections: where source NAT is computed,
    /// one outside port stands for several inside ports, of which only a filter can tell the right one.
    fn only_original(
        &self,
        recovery: &Recovery,
        tuple: &Tuple,
        ingress: PortId,
    ) -> Option<(Tuple, Option<PortId>, Restored)> {
        if let Some(restored) = self.chain.restore(tuple, Some(ingress)) {
            return Some((*tuple, Some(ingress), restored));
        }
        let [original] = recovery.originals[..] else { return None };
        Some((original, None, self.chain.restore(&original, None)?))
    }

    /// Enters the connection of a segment as one that both sides have agreed to, if the rules would let it begin.
    fn begin_in_the_middle(
        &mut self,
        now: Instant,
        recovery: &Recovery,
        tuple: &Tuple,
        ingress: PortId,
    ) -> Recollection {
        let found = self.only_original(recovery, tuple, ingress).filter(|(original, ..)| self.lies_here(original));
        let Some((original, ingress, _)) = found else { return Recollection::Unknown };
        match self.restore(now, original, ingress, Recalled { owner: self.node, state: None, is_of_hosts: false }) {
            Ok(Some(())) => self.known_by(tuple),
            Ok(None) => Recollection::Unknown,
            Err(reason) => Recollection::Done(Err(reason)),
        }
    }

    /// Sends a segment on without its payload and numbered one before it: an end point that has the connection answers such a
    /// keep-alive (RFC 1122 section 4.2.3.6) with an acknowledgement, and that comes from a trusted port.
    fn probe<E: Edge>(
        &mut self,
        now: Instant,
        recovery: &Recovery,
        packet: &mut Packet<'_, '_>,
        edge: &mut E,
    ) -> Option<Recollection> {
        let Transport::Tcp(segment) = packet.headers.transport else { return None };
        let tuple = packet.headers.tuple;
        if packet.headers.is_fragment {
            return None;
        }
        let (original, _, restored) = self.only_original(recovery, &tuple, packet.frame.ingress)?;
        if !make_keep_alive(packet, segment.sequence, segment.acknowledgement) {
            return None;
        }
        let direction = if original == tuple { Direction::Original } else { Direction::Reply };
        let verdict = self.translate(now, packet, original, &restored, direction);
        Some(Recollection::Done(self.send(now, packet, verdict, edge)))
    }

    /// Has the functions translate a packet as one of the connection that they make of this tuple, which is in no table.
    pub(super) fn translate(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        original: Tuple,
        restored: &Restored,
        direction: Direction,
    ) -> Verdict {
        let (protocol, told) = assumed_state(original.protocol);
        let mut passing = Connection::new(original, self.node, protocol, now);
        (passing.reply, passing.functions, passing.flags) = (restored.reply, restored.functions, told | flags::COPY);
        let mut runtime = Runtime {
            now,
            node: self.node,
            counters: &mut self.chain_counters,
            log: &mut self.log,
            expectations: &mut self.expectations,
        };
        self.chain.process(&mut runtime, &mut passing, packet, direction).verdict
    }
}

/// Makes a segment a keep-alive: without its payload and its FIN, and numbered one before it. False if that cannot be.
pub(super) fn make_keep_alive(packet: &mut Packet<'_, '_>, sequence: u32, acknowledgement: u32) -> bool {
    let payload_bytes = packet.payload().len();
    if !packet.replace_payload(0..payload_bytes, &[]) {
        return false;
    }
    packet.frame.segmentation = Segmentation::default();
    packet.clear_tcp_flags(tcp_flags::FIN);
    packet.renumber_tcp(sequence.wrapping_sub(1), acknowledgement, |edge| edge);
    true
}
