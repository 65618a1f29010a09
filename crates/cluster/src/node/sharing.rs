//! Other nodes forward beside this one: see the pipeline's `sharing`.

use alloc::vec;

use flow::connection::flags;
use flow::conntrack::{Change, TcpState};
use flow::table::Slot;
use flow::wire::ip_protocol;
use flow::{Connection, Instant};
use replication::Handle;

use super::Node;
use super::peer::{Peer, sessions};
use crate::pipeline::Released;

impl Peer {
    /// Its connections are its own, and what happens to them is told: it lives, hears this node and has told what it has.
    fn holds_its_own(&self) -> bool {
        let is_heard = self.session.as_ref().is_some_and(replication::PeerSession::is_open);
        self.is_up() && self.refused.is_none() && is_heard && self.resync.is_settled()
    }
}

impl Node {
    /// Says to the pipeline whose connections are in living hands.
    #[inline]
    pub(super) fn note_living(&mut self) {
        if self.pipeline.is_sharing() {
            let living = self.peers.iter().filter(|peer| peer.holds_its_own()).map(|peer| peer.id);
            self.pipeline.set_living(living);
        }
    }

    /// This node has become master of the connection in a slot.
    pub(super) fn tell_taken_over(&mut self, slot: Slot) {
        // A first reply may wait until the former master has heard of it.
        let is_awaited = self.pipeline.is_sharing() && !self.hold_first_reply.is_zero();
        for session in sessions(&mut self.peers) {
            session.mark_changed(Handle(slot.0));
            if is_awaited {
                session.ask_for_acknowledgement();
            }
        }
    }

    /// Hands in again what a peer has told of, or what has waited long enough for that.
    pub(super) fn release_waiting(&mut self, now: Instant) {
        for Released { origin, frame } in self.pipeline.take_released(now) {
            self.hand_in_again_as(now, vec![frame], origin);
        }
    }
}

/// Whether a change of a shared connection is told whatever the selection says: the other node's automaton sees a part of the
/// segments and needs it.
pub(super) fn is_worth_telling(connection: &Connection, change: Change) -> bool {
    let is_shared = connection.original.protocol == ip_protocol::TCP && connection.flags & flags::SHARED != 0;
    is_shared && change == Change::State && connection.protocol.state != TcpState::CloseWait as u8
}
