//! What the studies' analyses have in common.

use super::packet::Packet;

/// What sees every packet of a site, in order.
pub(super) trait Analysis: Send {
    /// What comes of it.
    type Outcome;

    fn handle(&mut self, packet: &Packet, payload: &[u8]);

    fn finish(self) -> Self::Outcome;
}
