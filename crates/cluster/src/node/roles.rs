//! What follows from the node's roles: for which addresses it answers, for which connections it speaks, and when copies of
//! others' connections end.

use flow::{Instant, NodeId};

use super::peer::Peer;
use super::{Node, NodeEvent};
use crate::group::{GroupId, GroupSet};
use crate::pipeline::CopyExpiry;
use crate::role::{self, State};

/// Connections whose time has come that are ended in one call of [`Node::handle_timeout`].
const EXPIRIES_PER_TIMEOUT_MAX: usize = 256;
/// A copy whose own timer runs out while its master lives is looked at again after this time.
const COPY_LOOK_AGAIN: core::time::Duration = core::time::Duration::from_secs(60);

impl Node {
    /// Whether this node holds shared addresses, of whichever group.
    #[must_use]
    pub fn holds_addresses(&self) -> bool {
        self.roles.holds_any()
    }

    /// Whether this node forwards packets of any group.
    pub(super) fn forwards_any(&self) -> bool {
        self.roles.forwards_any()
    }

    /// The groups whose addresses this node holds.
    #[must_use]
    pub fn held_groups(&self) -> GroupSet {
        self.roles.held()
    }

    /// Whether this node speaks for all connections, whoever was their master: it holds the addresses of all groups. One that
    /// shares them with others speaks for those that it is master of.
    pub(super) fn speaks_for_all(&self) -> bool {
        self.roles.speaks_for_all()
    }

    pub(super) fn handle_role_events(&mut self, now: Instant) {
        while let Some((group, event)) = self.roles.poll_event() {
            match event {
                role::Event::BecomeActive { term } => {
                    // Copies lie in the table that packets are looked up in: there is nothing to commit but to have the other
                    // workers forward.
                    self.awaiting_first_packet = Some(self.pipeline.counters().taken_over);
                    self.events.push(now, NodeEvent::BecameActive { group, term });
                    self.judge_as_roles_are();
                    self.begin_recovery(now, true);
                    if !self.awaits_others(now, group, term) {
                        self.roles.handle_state_usable(now, group);
                    }
                }
                role::Event::AnnounceAddresses { term } => {
                    self.forwarder.set_held(now, self.roles.held());
                    self.forwarder.announce(now, GroupSet::EMPTY.with(group));
                    self.events.push(now, NodeEvent::AddressesAnnounced { group, term });
                }
                role::Event::BecomeStandby => self.give_up(now, group),
            }
        }
    }

    fn give_up(&mut self, now: Instant, group: GroupId) {
        self.await_nobody(group);
        self.replicate_deferred(now);
        self.forwarder.set_held(now, self.roles.held());
        self.judge_as_roles_are();
        self.stand_by(now);
        self.events.push(now, NodeEvent::BecameStandby { group });
    }

    /// Where nothing is forwarded any more, nothing is to be recovered, and what this node is master of may be another's.
    pub(super) fn stand_by(&mut self, now: Instant) {
        if !self.forwards_any() {
            self.replication.leave_recovery_to_others(now, &mut self.pipeline);
            self.replication.begin_standing_by(now);
            self.replication.compact.iter_mut().for_each(|compact| compact.sender.flush(now));
        }
    }

    /// Takes up judging connections, or leaves it off, as the roles say now. Who forwards but some groups judges its own.
    pub(super) fn judge_as_roles_are(&mut self) {
        if !self.roles.forwards_any() {
            self.judging.leave_off(&mut self.pipeline);
        } else {
            self.judging.take_up(&mut self.pipeline, self.roles.are_all(State::forwards));
        }
    }

    /// Ends connections whose time has come. True when more may be waiting.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let (holds, speaks_for_all) = (self.holds_addresses(), self.speaks_for_all());
        let lost = |peer: &Peer| Some((peer.id, peer.orphaned_at?));
        let peers = &self.replication.peers;
        let copies = |owner| copy_expiry(peers.iter().filter_map(lost), owner, holds, speaks_for_all);
        self.pipeline.expire(now, EXPIRIES_PER_TIMEOUT_MAX, copies)
    }
}

/// What becomes of the owner's copies whose own timer runs out. They end with this node if it holds addresses and their
/// owner is dead; if it holds all of them, nobody else can be master of any, whoever died.
fn copy_expiry(
    lost: impl Iterator<Item = (NodeId, Instant)>,
    owner: NodeId,
    holds: bool,
    speaks_for_all: bool,
) -> CopyExpiry {
    let concerned = lost.filter(|(peer, _)| speaks_for_all || *peer == owner);
    match concerned.map(|(_, at)| at).max() {
        Some(at) if holds => CopyExpiry::Since(at),
        _ => CopyExpiry::PutOff(COPY_LOOK_AGAIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_the_dead_end_with_whoever_holds_addresses_and_those_of_the_living_with_their_master() {
        let (alive, dead, died_at) = (NodeId(1), NodeId(2), Instant::from_millis(7));
        let expiry =
            |owner, holds, speaks_for_all| copy_expiry([(dead, died_at)].into_iter(), owner, holds, speaks_for_all);
        let put_off = CopyExpiry::PutOff(COPY_LOOK_AGAIN);
        assert_eq!(expiry(dead, true, false), CopyExpiry::Since(died_at));
        assert_eq!(expiry(alive, true, false), put_off, "it holds a group as well, and is master still");
        assert_eq!(expiry(alive, true, true), CopyExpiry::Since(died_at), "it holds nothing any more");
        assert_eq!((expiry(dead, false, false), expiry(alive, false, false)), (put_off, put_off));
    }
}
