//! The sets of backups when connections are taken over, and when nodes come and go: see [`super::backups`].

use alloc::vec::Vec;
use core::time::Duration;

use flow::connection::flags;
use flow::table::Slot;
use flow::{Connection, Instant, NodeId, NodeSet, conntrack};
use replication::Handle;
use replication::representation::precise::{self, EndCause, Ended};

use super::backups::{BACKUPS_MAX, Backups, BackupsShape, Sweep, set_alive, tables};
use crate::node::peer::Peer;
use crate::node::peers::{Peers, Withdrawal};
use crate::pipeline::Pipeline;

/// Slots looked at in one call of [`Node::handle_timeout`](crate::node::Node::handle_timeout), at most: packets wait no longer than that.
pub(super) const SLOTS_PER_TIMEOUT_MAX: usize = 1024;
/// Packets of connections that a failure has moved mostly arrive within this time, and new backups acknowledge what they were sent.
pub(super) const SETTLES_WITHIN: Duration = Duration::from_secs(1);
/// A node claims any replica of an owner that is lost for so long: the node where its packets would land has none, or would have claimed it.
const CLAIMED_BY_ANY_AFTER: Duration = Duration::from_secs(3);
/// Whether backups have acknowledged what they were sent is looked at again after this time.
const CONFIRMS_WITHIN: Duration = Duration::from_millis(250);
/// It is looked at so often in a row. Then backups that have not acknowledged are reported, and the time between two sweeps doubles.
const CONFIRMATIONS_MAX: u32 = 12;
/// The longest time between two sweeps: each of them looks at all slots.
const CONFIRMS_WITHIN_MAX: Duration = Duration::from_secs(16);

const _: () = assert!(SETTLES_WITHIN.as_millis() * 2 < CLAIMED_BY_ANY_AFTER.as_millis());

/// Whether this node is to own a replica in the place of its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claim {
    /// The owner decides it, or another node claims it.
    No,
    /// It has no owner, and this node does not claim it yet.
    Later,
    /// At once.
    Now,
}

/// Members that come and go.
impl Backups {
    /// This node has become the owner of a connection. To be called while the sessions still hold it as a replica.
    /// `claimed_from`: the former owner, if this node has claimed it; the session with that one may be over.
    pub(super) fn take_over(
        &mut self,
        node: NodeId,
        pipeline: &Pipeline,
        peers: &[Peer],
        slot: Slot,
        claimed_from: Option<NodeId>,
    ) {
        let holds_copy = |peer: &&Peer| peer.session.as_ref().is_some_and(|session| session.holds_copy(Handle(slot.0)));
        let former: NodeSet = peers.iter().filter(holds_copy).map(|peer| peer.id).chain(claimed_from).collect();
        let lands_here = pipeline.connection(slot).is_some_and(|connection| self.landing(connection) == Some(node));
        // Where packets do not land, another node may claim the connection in the same moment: each receives the other's claim, and one yields.
        let claimants = if claimed_from.is_some() && !lands_here { self.live } else { NodeSet::EMPTY };
        let beside = former.union(self.of(slot)).union(claimants).without([node].into_iter().collect());
        self.begin(node, pipeline, slot);
        beside.iter().for_each(|node| self.add(slot, node));
        if let Some(at) = self.claimed_from.get_mut(slot.0 as usize)
            && !former.is_empty()
        {
            *at = former;
        }
    }

    /// Whether the peer claims connections of an owner that is drained.
    pub(super) fn claims(&self, peer: &Peer) -> bool {
        peer.can_back_up() && peer.is_forwarding && self.shape.edge_nodes.contains(peer.id)
    }

    /// Follows which nodes are up, forward and are drained. `forwards`: this node, `node`, forwards.
    pub(super) fn follow(&mut self, now: Instant, node: NodeId, peers: &Peers, forwards: bool) {
        let live = || peers.iter().filter(|peer| peer.can_back_up());
        let up: NodeSet = live().map(|peer| peer.id).chain([node]).collect();
        let forwarding = live().filter(|peer| peer.is_forwarding).map(|peer| peer.id);
        let forwarding = forwarding.chain(forwards.then_some(node)).collect();
        let edge_nodes = self.shape.edge_nodes;
        self.has_been_alone |= self.live.len() > 1 && up.len() == 1;
        let drained = peers.iter().filter(|peer| peer.drained_at.is_some()).map(|peer| peer.id);
        let withdrawn: NodeSet = drained.chain(peers.removed()).collect();
        let has_changed = core::mem::replace(&mut self.live, up) != up;
        let has_changed = core::mem::replace(&mut self.withdrawn, withdrawn) != withdrawn || has_changed;
        let has_changed = set_alive(&mut self.up, edge_nodes, up) || has_changed;
        if set_alive(&mut self.forwarding, edge_nodes, forwarding) || has_changed {
            self.begin_sweep(now);
        }
    }

    /// Connections have so many backups from now on, or the edges distribute packets to other nodes. Nodes that the edges have only now
    /// count as up and forwarding from the next [`Backups::follow`] on.
    pub(in crate::node) fn set_shape(&mut self, now: Instant, shape: BackupsShape) {
        let shape = BackupsShape { count: shape.count.clamp(1, BACKUPS_MAX), ..shape };
        if self.shape == shape {
            return;
        }
        if self.shape.edge_nodes != shape.edge_nodes {
            self.up = tables(shape.edge_nodes, self.up.alive());
            self.forwarding = tables(shape.edge_nodes, self.forwarding.alive());
        }
        self.shape = shape;
        self.begin_sweep(now);
    }

    /// Whether all live nodes back up every connection from now on, because one of them cannot look connections up.
    pub(super) fn set_complete(&mut self, now: Instant, is_complete: bool) {
        if self.is_complete != is_complete {
            self.is_complete = is_complete;
            self.begin_sweep(now);
        }
    }

    fn begin_sweep(&mut self, now: Instant) {
        self.sweep = Some(Sweep::new(false));
        self.settles_at = Some(now + SETTLES_WITHIN);
        self.is_unsettled = true;
        (self.unconfirmed_sweeps, self.silent) = (0, NodeSet::EMPTY);
    }

    /// Goes on with the sets' recomputation. Connections that are claimed are among the changes of the pipeline.
    pub(super) fn handle_timeout(&mut self, now: Instant, node: NodeId, pipeline: &mut Pipeline, peers: &mut Peers) {
        if self.sweep.is_none() && self.settles_at.is_some_and(|at| at <= now) {
            self.settles_at = None;
            self.sweep = Some(Sweep::new(true));
        }
        let Some(mut sweep) = self.sweep else { return };
        for _ in 0..SLOTS_PER_TIMEOUT_MAX {
            let Some(slot) = pipeline.table().next_occupied(sweep.next) else {
                self.end_sweep(now, sweep);
                return;
            };
            sweep.next = Slot(slot.0 + 1);
            let Some(connection) = pipeline.connection(slot) else { continue };
            if connection.owner == node {
                sweep.is_incomplete |= !self.update(node, connection, slot, sweep.is_final, peers);
                if sweep.is_final {
                    sweep.silent = sweep.silent.union(self.unacknowledged(now, pipeline, slot, peers));
                }
                continue;
            }
            match self.claim(now, node, connection, peers) {
                Claim::Now if sweep.is_final => {
                    pipeline.replicas().claim(now, slot);
                    sweep.has_claimed = true;
                }
                Claim::Now | Claim::Later => sweep.is_unclaimed = true,
                Claim::No => {}
            }
        }
        self.sweep = Some(sweep);
    }

    /// A sweep has seen all slots. Another final one follows while connections lack something.
    fn end_sweep(&mut self, now: Instant, sweep: Sweep) {
        self.sweep = None;
        if !sweep.is_final {
            return;
        }
        let is_superseded = self.settles_at.is_some();
        let is_unconfirmed = sweep.has_claimed || !sweep.silent.is_empty();
        self.is_unsettled = is_superseded || sweep.is_unclaimed || is_unconfirmed;
        self.unconfirmed_sweeps = if is_unconfirmed { self.unconfirmed_sweeps.saturating_add(1) } else { 0 };
        let ends_alone = self.has_been_alone && self.live.len() > 1 && !self.is_unsettled;
        self.has_been_alone &= !ends_alone;
        let beyond = self.unconfirmed_sweeps.saturating_sub(CONFIRMATIONS_MAX);
        self.silent = if beyond > 0 { sweep.silent } else { NodeSet::EMPTY };
        let repeats_after = match sweep {
            _ if is_unconfirmed => {
                Some(CONFIRMS_WITHIN.saturating_mul(1 << beyond.min(u8::BITS)).min(CONFIRMS_WITHIN_MAX))
            }
            Sweep { is_incomplete: true, .. } | Sweep { is_unclaimed: true, .. } => Some(SETTLES_WITHIN),
            _ => ends_alone.then_some(SETTLES_WITHIN),
        };
        self.settles_at = self.settles_at.or(repeats_after.map(|after| now + after));
    }

    /// The live backups that have not acknowledged the connection, though they have had the time to.
    fn unacknowledged(&self, now: Instant, pipeline: &Pipeline, slot: Slot, peers: &Peers) -> NodeSet {
        let backups = self.of(slot);
        let live = backups.without(backups.without(self.live));
        let entered_at =
            pipeline.table().cold(slot).map_or(Instant::ZERO, |cold| Instant::from_nanos(cold.created_at_nanos));
        if now < entered_at + SETTLES_WITHIN {
            return NodeSet::EMPTY;
        }
        live.iter().filter(|node| !has_acknowledged(peers, *node, Handle(slot.0))).collect()
    }

    /// When there is something to do next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.sweep.is_some() { Some(Instant::ZERO) } else { self.settles_at }
    }

    /// Computes the set of a connection of this node's anew. False if nodes have yet to leave it.
    fn update(&mut self, node: NodeId, connection: &Connection, slot: Slot, is_final: bool, peers: &mut Peers) -> bool {
        let handle = Handle(slot.0);
        let claimed_from = self.keep_claimed_from(connection, slot, peers);
        let all = if self.has_been_alone { self.live.without([node].into_iter().collect()) } else { NodeSet::EMPTY };
        let wanted = self.predict(node, connection).union(claimed_from).union(all);
        let before = self.of(slot);
        let gone = before.union(wanted).without(self.live);
        let surplus = before.without(gone).without(wanted);
        let is_shared = connection.flags & flags::SHARED != 0;
        let may_leave =
            is_final && !is_shared && (surplus.is_empty() || have_acknowledged(peers, wanted.without(gone), handle));
        let set = if may_leave { wanted } else { wanted.union(surplus) };
        self.set(slot, set);
        let mut name = Vec::new();
        for peer in peers {
            let Some(session) = peer.session.as_mut().filter(|session| session.is_open()) else { continue };
            if set.contains(peer.id) {
                if !session.is_replicated(handle) {
                    session.mark_changed(handle);
                }
            } else {
                if name.is_empty() {
                    precise::encode_ended(&Ended { cause: EndCause::TimedOut, ..Ended::from(connection) }, &mut name);
                }
                session.mark_deleted(handle, &name);
            }
        }
        may_leave || surplus.is_empty() || is_shared || !is_final
    }

    /// The former owners of a connection that was claimed: edges send its packets there until one arrives here, and a node that was not there
    /// for a while may own it still until it has acknowledged it.
    fn keep_claimed_from(&mut self, connection: &Connection, slot: Slot, peers: &Peers) -> NodeSet {
        let Some(at) = self.claimed_from.get_mut(slot.0 as usize) else { return NodeSet::EMPTY };
        if connection.flags & flags::REPLICA == 0 {
            *at = at.iter().filter(|node| !has_acknowledged(peers, *node, Handle(slot.0))).collect();
        }
        *at
    }

    /// Whether a replica's owner decides it no more, and packets of the connection would land here. A node that is lost may have died
    /// before the landing had the connection: then each node that has it claims it later.
    fn claim(&self, now: Instant, node: NodeId, connection: &Connection, peers: &Peers) -> Claim {
        let Some(withdrawal) = peers.withdrawal(connection.owner).filter(|_| is_claimed_once_lost(connection)) else {
            return Claim::No;
        };
        let lands_here = self.landing(connection) == Some(node);
        let due = match withdrawal {
            Withdrawal::Lost(since) | Withdrawal::Drained(since) if lands_here => since + SETTLES_WITHIN,
            Withdrawal::Lost(since) => since + CLAIMED_BY_ANY_AFTER,
            // It lives, and sends the connection to the landing.
            Withdrawal::Drained(_) => return Claim::No,
        };
        if due <= now { Claim::Now } else { Claim::Later }
    }
}

/// Whether a connection is claimed once its owner decides it no more: one that ends is left to its timeout.
pub(super) fn is_claimed_once_lost(connection: &Connection) -> bool {
    !conntrack::is_closing(connection.original.protocol, &connection.protocol)
}

/// Whether all these nodes receive what this one sends, and have acknowledged the connection.
fn have_acknowledged(peers: &Peers, nodes: NodeSet, handle: Handle) -> bool {
    nodes.iter().all(|node| has_acknowledged(peers, node, handle))
}

fn has_acknowledged(peers: &Peers, node: NodeId, handle: Handle) -> bool {
    let session = peers.get(node).and_then(|peer| peer.session.as_ref());
    session.is_some_and(|session| session.is_open() && session.is_acknowledged(handle))
}

#[cfg(test)]
mod tests {
    use flow::{Affinity, HashKey};

    use super::super::backups::BackupsConfig;
    use super::*;

    #[test]
    fn a_backup_that_never_acknowledges_is_reported_and_costs_few_sweeps() {
        let nodes: NodeSet = [NodeId(0), NodeId(1)].into_iter().collect();
        let silent: NodeSet = [NodeId(1)].into_iter().collect();
        let config = BackupsConfig {
            count: 1,
            edge_nodes: nodes,
            edge_hash_key: HashKey([1, 2]),
            edge_affinity: Affinity::Learned,
        };
        let mut backups = Backups::new(&config, 4);
        backups.begin_sweep(Instant::ZERO);
        let (mut sweeps, mut reported_at) = (0, None);
        while let Some(now) = backups.settles_at.take().filter(|at| *at < Instant::from_millis(3_600_000)) {
            backups.end_sweep(now, Sweep { silent, ..Sweep::new(true) });
            sweeps += 1;
            assert!(backups.status().is_unsettled);
            if backups.status().silent == silent {
                reported_at = reported_at.or(Some(now));
            }
        }
        assert!((200..300).contains(&sweeps), "{sweeps} in an hour");
        assert_eq!(reported_at, Some(Instant::ZERO + SETTLES_WITHIN + CONFIRMS_WITHIN * CONFIRMATIONS_MAX));
        // It acknowledges at last, and the next change of the members is looked at as often as the first.
        backups.end_sweep(Instant::from_millis(3_600_000), Sweep::new(true));
        assert!(!backups.status().is_unsettled && backups.status().silent.is_empty() && backups.settles_at.is_none());
        backups.end_sweep(Instant::from_millis(3_700_000), Sweep { silent, ..Sweep::new(true) });
        assert_eq!(backups.settles_at, Some(Instant::from_millis(3_700_000) + CONFIRMS_WITHIN));
    }
}
