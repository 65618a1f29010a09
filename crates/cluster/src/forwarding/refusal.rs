//! ICMP errors to the sender of a packet that cannot be sent on: about the packet as it was sent, not as the functions have
//! made it.

use flow::wire::Packet;
use flow::{Disposition, DropReason, Frame, Instant};

use super::as_received::AsReceived;
use super::error_cause::ErrorCause;
use super::forwarder::Forwarder;
use super::neighbour::QueuedPacket;

impl Forwarder {
    /// Drops a packet for a cause that [`Forwarder::note_not_sent`] reports to its sender.
    pub(super) const fn refuse(&mut self, reason: DropReason, cause: ErrorCause) -> Disposition {
        self.refusal = Some(cause);
        Disposition::Drop(reason)
    }

    /// The packet for which [`Forwarder::forward`] was called last does not leave at once; it came in
    /// `as_received`. If it was refused, its sender receives an error. If it waits for its next hop, an error about the packet as it came in
    /// follows should that not answer. To be called after each packet that is not to be transmitted; without effect on packets
    /// that cause no error.
    pub fn note_not_sent(&mut self, now: Instant, packet: &mut Packet<'_, '_>, as_received: &AsReceived) {
        if core::mem::take(&mut self.has_just_queued) {
            if let Some(queued) = self.neighbours.newest_queued() {
                queued.as_received = Some(*as_received);
            }
        } else if let Some(cause) = self.refusal.take() {
            as_received.restore(packet);
            self.send_error(now, packet.frame.ingress, packet.frame.bytes(), packet.headers, cause);
        }
    }

    /// Informs the sender of a packet why it begins no connection: no backend of the service takes connections, so the port is unreachable
    /// (RFC 1122 section 3.2.2.1, RFC 4443 section 3.1), or NAT has no port left (RFC 5508, REQ-8). TCP clients in their handshake then
    /// give up at once. Without effect for other reasons.
    pub fn refuse_connection(&mut self, now: Instant, packet: &Packet<'_, '_>, reason: DropReason) {
        let cause = match reason {
            DropReason::NoBackend => ErrorCause::ServiceUnavailable,
            DropReason::NatPortsExhausted | DropReason::NatBlockExhausted => ErrorCause::NoMapping,
            _ => return,
        };
        self.send_error(now, packet.frame.ingress, packet.frame.bytes(), packet.headers, cause);
    }

    /// The next hop of a packet that waited for it does not answer.
    pub(super) fn refuse_queued(&mut self, now: Instant, queued: QueuedPacket) {
        let QueuedPacket { ingress, mut bytes, mut headers, as_received, .. } = queued;
        let length_bytes = bytes.len();
        let Some(mut frame) = Frame::new(&mut bytes, 0, length_bytes, ingress) else { return };
        let mut packet = Packet { frame: &mut frame, headers: &mut headers };
        if let Some(as_received) = as_received {
            as_received.restore(&mut packet);
        }
        if self.holds_address(headers.tuple.source_ip()) {
            // The node made the packet itself, as the outer one of a tunnel.
            return;
        }
        self.send_error(now, ingress, frame.bytes(), &headers, ErrorCause::NeighbourUnreachable);
    }
}
