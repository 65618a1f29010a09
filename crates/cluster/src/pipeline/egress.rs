//! Where a packet leaves the pipeline: what the chain said is done with it.

use flow::wire::Packet;
use flow::{Disposition, DropReason, Instant};
use network_functions::function::Verdict;

use super::edge::Edge;
use crate::observation::{Observation, Step};

/// Applies the chain's verdict to a packet.
#[inline(always)]
pub(super) fn send<E: Edge>(
    now: Instant,
    packet: &mut Packet<'_, '_>,
    verdict: Verdict,
    observation: &mut Observation,
    edge: &mut E,
) -> Result<Disposition, DropReason> {
    match verdict {
        Verdict::Forward => Ok(forward(now, packet, observation, edge)),
        Verdict::SendBack => Ok(Disposition::Transmit(packet.frame.ingress)),
        Verdict::Queued => Ok(Disposition::Consumed),
        Verdict::Drop(reason) => Err(reason),
    }
}

/// Forwards a packet, already translated.
#[inline]
pub(super) fn forward<E: Edge>(
    now: Instant,
    packet: &mut Packet<'_, '_>,
    observation: &mut Observation,
    edge: &mut E,
) -> Disposition {
    if observation.attends() {
        observation.step(Step::Routed(edge.way(&packet.headers.tuple)));
    }
    edge.forward(now, packet)
}

/// The packet leaves with its batch: no error is due.
#[inline(always)]
pub(super) const fn is_transmitted(sent: Result<Disposition, DropReason>) -> bool {
    matches!(sent, Ok(Disposition::Transmit(_)))
}
