//! Having been away: a node whose process stood still, or whose machine did, must not take its own silence for its peers'.

use core::time::Duration;

use flow::Instant;

use super::Node;

/// A pause that is noted even if packets are handled first. Shorter than any failure detection.
const ABSENCE_NOTED: Duration = Duration::from_millis(10);

impl Node {
    /// To be called before packets are handled. Those that wait after a pause are as old as the pause. If a peer may have taken
    /// the addresses meanwhile, their connections may go on there: none of them is begun here until the peer has answered.
    pub(super) fn note_absence(&mut self, now: Instant) {
        if now.saturating_since(self.served_at) >= ABSENCE_NOTED {
            self.note_service(now);
        }
        self.pipeline.set_begins(!self.roles.is_in_doubt(now));
    }

    /// To be called before anything that judges how long a peer was silent.
    pub(super) fn note_service(&mut self, now: Instant) {
        let absence = now.saturating_since(self.served_at);
        self.served_at = now;
        if !self.replication.peers.is_empty() {
            self.service_gap.note(now, absence);
        }
        self.roles.handle_absence(now, absence);
        for peer in &mut self.replication.peers {
            peer.detector.handle_absence(now, absence);
            peer.paths.handle_absence(now, absence);
        }
    }
}
