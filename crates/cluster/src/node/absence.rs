//! Having been away: a node whose process stood still, or whose machine did, must not take its own silence for its peers'.

use flow::Instant;

use super::Node;

impl Node {
    /// To be called before anything that judges how long a peer was silent.
    pub(super) fn note_service(&mut self, now: Instant) {
        let absence = now.saturating_since(self.served_at);
        self.served_at = now;
        if !self.peers.is_empty() {
            self.service_gap.note(now, absence);
        }
        self.roles.handle_absence(now, absence);
        for peer in &mut self.peers {
            peer.detector.handle_absence(now, absence);
        }
    }
}
