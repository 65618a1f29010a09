//! What sessions learn of copies: what lies in a slot, and which ends are to be remembered.

use flow::table::Slot;
use flow::{Instant, NodeId};
use replication::representation::precise::Ended;
use replication::representation::{self, precise};
use replication::{Handle, Holding, PeerSession, Session};

use super::Node;
use crate::pipeline::Pipeline;

/// What lies in a slot, as the session of `node` with `peer` sees it.
pub(super) fn holding(pipeline: &Pipeline, node: NodeId, peer: NodeId, key: u64, slot: Slot) -> Holding {
    match pipeline.connection(slot) {
        None => Holding::Nothing,
        Some(connection) if connection.owner == node => Holding::Own,
        Some(connection) if connection.owner == peer => Holding::Peers(representation::item(key, connection)),
        Some(_) => Holding::Others,
    }
}

impl Node {
    /// A copy in the slot came, changed, went, or has another master.
    pub(super) fn note_copied(&mut self, slot: Slot) {
        let (pipeline, node) = (&self.pipeline, self.id);
        for peer in &mut self.peers {
            let session = peer.session.as_mut().and_then(PeerSession::native);
            let id = peer.id;
            session.into_iter().for_each(|session| {
                session.note_copy(Handle(slot.0), |key| holding(pipeline, node, id, key, slot));
            });
        }
    }

    /// A connection of this node's has ended.
    pub(super) fn tell_ended(&mut self, slot: Slot, ended: &Ended) {
        // Who was its master before knows it, even if it was never told of this one.
        let had_another_master = ended.owner == self.id && ended.version >> 16 != 0;
        self.attributes.clear();
        precise::encode_ended(ended, &mut self.attributes);
        for session in super::peer::sessions(&mut self.peers) {
            if had_another_master {
                session.mark_deleted_anyway(Handle(slot.0), &self.attributes);
            } else {
                session.mark_deleted(Handle(slot.0), &self.attributes);
            }
        }
    }

    /// A peer told of a connection that has ended here.
    pub(super) fn tell_refused(&mut self, to: NodeId, ended: &Ended) {
        let peer = self.peers.get_mut(to);
        let session: Option<&mut Session> = peer.and_then(|peer| peer.session.as_mut()?.native());
        if let Some(session) = session {
            self.attributes.clear();
            precise::encode_ended(ended, &mut self.attributes);
            session.tell_end(&self.attributes);
        }
    }

    /// Remembers the ends that peers cannot be told of.
    pub(super) fn remember_untold(&mut self, now: Instant) {
        for peer in &mut self.peers {
            let Some(session) = peer.session.as_mut().and_then(PeerSession::native) else { continue };
            while session.poll_untold_end(&mut self.attributes) {
                // They were encoded here.
                if let Ok(ended) = precise::decode_ended(&self.attributes) {
                    self.pipeline.remember_ended(now, &ended);
                }
            }
        }
    }
}
