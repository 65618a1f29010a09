//! Other nodes forward beside this one: see the pipeline's `sharing`.

use alloc::vec;

use flow::Instant;

use super::Node;
use super::peer::Peer;
use crate::pipeline::Released;

impl Peer {
    /// Its connections are its own, and what happens to them is told: it lives, hears this node and has told what it has.
    fn holds_its_own(&self) -> bool {
        let is_heard = self.session.as_ref().is_some_and(replication::Session::is_open);
        self.is_up() && self.refused.is_none() && is_heard && self.resync.is_settled()
    }
}

impl Node {
    /// Says to the pipeline whose connections are in living hands.
    #[inline]
    pub(super) fn note_living(&mut self) {
        if self.pipeline.is_sharing() {
            let living = self.replication.peers.iter().filter(|peer| peer.holds_its_own()).map(|peer| peer.id);
            self.pipeline.set_live_owners(living);
        }
    }

    /// Hands in again what a peer has told of, or what has waited long enough for that.
    pub(super) fn release_waiting(&mut self, now: Instant) {
        for Released { origin, frame } in self.pipeline.take_released(now) {
            self.hand_in_again_as(now, vec![frame], origin);
        }
    }
}
