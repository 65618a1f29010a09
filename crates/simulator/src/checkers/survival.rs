//! Connections that were established before a node failed, and that the other node had, continue to their end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::node::Node;
use cluster::role::State;
use flow::{DropReason, Instant, NodeId, Tuple};
use replication::compact::{CellState, Representation};
use replication::deferral::IDLE_RECHECK_INTERVAL;

use super::{Conditions, View};
use crate::host::Host;
use crate::host::tcp::{self, Endpoint};
use crate::report::{Outcome, Problem};
use crate::scenario::{Closing, Kind, Scenario, Transfer};
use crate::stream::StreamDirection;
use crate::topology::NODES;

/// The maximum time to replicate a connection, over the worst link.
const REPLICATION_MAX: Duration = Duration::from_secs(1);
/// The maximum time for a full resynchronisation after a start or a cut of the link.
const JOINING_MAX: Duration = Duration::from_secs(3);

/// The state of the survival guarantees.
#[derive(Default)]
pub(crate) struct Survival {
    /// Established when the serving node failed, or another one took over from it.
    at_risk: BTreeSet<u32>,
    /// Of those, the ones that the other node did not have: nothing is guaranteed.
    excused: BTreeSet<u32>,
    /// Requests and replies that a leaping clock expired: they continue, but possibly with another translation.
    may_move: BTreeSet<u32>,
    /// When a full table last evicted the connection of a transfer: its continuation is another connection.
    evicted_at: BTreeMap<u32, Instant>,
    /// When each node started last.
    started_at: [Instant; NODES],
    /// Since when replication works in both directions, if it does.
    replicating_since: Option<Instant>,
    /// Whether replication works in both directions.
    can_replicate: bool,
    /// Which nodes run, and are not paused.
    works: [bool; NODES],
    /// Nodes without room for received updates.
    pub(crate) full: [bool; NODES],
    /// Whether both nodes held the addresses at some time.
    was_split: bool,
    /// Since when both have held the addresses.
    split_since: Option<Instant>,
    /// The nodes that hold the addresses.
    holds: [bool; NODES],
    /// The age at which connections are replicated, plus a check interval for those that were idle meanwhile.
    deferral: Duration,
}

impl Survival {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let deferral = match scenario.deferral {
            Duration::ZERO => Duration::ZERO,
            deferral => deferral + IDLE_RECHECK_INTERVAL,
        };
        Self { deferral, ..Self::default() }
    }

    pub(super) fn is_excused(&self, transfer: u32) -> bool {
        self.excused.contains(&transfer)
    }

    pub(super) fn started(&mut self, now: Instant, node: usize) {
        self.started_at[node] = now;
        self.full[node] = false;
    }

    pub(super) fn conditions(&mut self, now: Instant, conditions: Conditions) {
        self.works = conditions.works;
        if self.can_replicate != conditions.can_replicate {
            self.can_replicate = conditions.can_replicate;
            self.replicating_since = conditions.can_replicate.then_some(now);
        }
    }

    /// A node has no room for a received update.
    pub(crate) const fn ran_full(&mut self, node: usize) {
        self.full[node] = true;
    }

    /// A node with a full table has evicted a connection that was never answered, or whose end points had not yet
    /// confirmed it. The victim is absent, or its next packet in the same step has begun another connection.
    pub(super) fn note_eviction(&mut self, now: Instant, node: usize, value: &Node, view: &View<'_>) {
        for transfer in &view.scenario.transfers {
            let tuple = client_tuple(transfer, view.hosts);
            let goes_on = |tuple| knows(value, &tuple) && !has_begun_now(value, node, &tuple);
            if tuple.is_none_or(goes_on) || is_finished(transfer, view.hosts) {
                continue;
            }
            self.may_move.insert(transfer.number);
            self.evicted_at.insert(transfer.number, now);
            if transfer.kind == Kind::Tcp {
                self.excused.insert(transfer.number);
            }
        }
    }

    /// A node's clock leapt to `own_now`: its owned connections with an earlier expiry have ended for it, and nothing
    /// else.
    pub(crate) fn leapt(&mut self, now: Instant, node: usize, own_now: Instant, view: &View<'_>) {
        self.replicating_since = self.replicating_since.map(|_| now);
        let Some(value) = view.nodes[node] else { return };
        for transfer in &view.scenario.transfers {
            let Some(tuple) = client_tuple(transfer, view.hosts) else { continue };
            let known = value.pipeline().lookup(&tuple).and_then(|(slot, _)| value.pipeline().connection(slot));
            let is_own = known.filter(|known| known.owner == NodeId(node as u8));
            if is_own.is_none_or(|known| known.expires_at_nanos > own_now.as_nanos()) {
                continue;
            }
            self.may_move.insert(transfer.number);
            if transfer.kind == Kind::Tcp && !is_finished(transfer, view.hosts) {
                self.excused.insert(transfer.number);
            }
        }
    }

    /// Whether `node` has received all connections that were established long enough ago.
    pub(super) fn is_informed(&self, now: Instant, node: usize) -> bool {
        let since = self.replicating_since.map(|since| since.max(self.started_at[node]));
        since.is_some_and(|since| since + JOINING_MAX <= now)
    }

    /// Whether `node` had enough time to receive the connections established by `since`.
    fn had_time(&self, now: Instant, node: usize, since: Instant) -> bool {
        since + self.deferral + REPLICATION_MAX <= now && self.is_informed(now, node) && !self.full[node]
    }

    /// Records the transfers in progress through the node, and those that the other node has.
    pub(super) fn before_kill(&mut self, now: Instant, node: usize, view: &View<'_>, outcome: &mut Outcome) {
        let Some(dying) = view.nodes[node] else { return };
        outcome.kills += 1;
        self.holds[node] = false;
        if self.split_since.is_some() {
            self.excuse_split_ownership(node, view);
        }
        self.end_split(now, view);
        // A node that has shut down may be the only one with the connections, too.
        if dying.holds_addresses() || !self.is_informed(now, 1 - node) || view.nodes[1 - node].is_none() {
            self.hand_over(now, node, view, outcome);
        }
    }

    /// A node has taken the addresses, or given them up: handles the connections of the former active node.
    pub(super) fn role_changed(
        &mut self,
        now: Instant,
        node: usize,
        holds: bool,
        view: &View<'_>,
        outcome: &mut Outcome,
    ) {
        self.holds[node] = holds;
        let other = 1 - node;
        let Some(peer) = view.nodes[other] else { return };
        let is_leaving = |value: &Node| matches!(value.role(), State::Leaving | State::Left);
        let is_sound = self.is_informed(now, 0) && self.is_informed(now, 1);
        if holds {
            // A node that shuts down waits until the other has everything.
            if self.holds[other] && !(is_leaving(peer) && is_sound) {
                if !is_leaving(peer) {
                    self.was_split = true;
                    self.split_since = Some(now);
                }
                self.hand_over(now, other, view, outcome);
            }
            if !self.holds[other] && !self.works[other] {
                self.note_begun_anew(node, view);
            }
        } else {
            if self.holds[other] {
                self.end_split(now, view);
            }
            let leaves = view.nodes[node].as_ref().is_some_and(is_leaving);
            if !(leaves && is_sound) {
                self.hand_over(now, node, view, outcome);
            }
        }
    }

    /// Ends a split brain. Meanwhile either node may have seen a part of a new transfer, or begun it with another
    /// translation: only one is right, and no rule determines which. Connections that both had before remain
    /// guaranteed.
    ///
    /// Ended transfers are no exception: the other translation may be a separate connection at the server, which is
    /// reset.
    fn end_split(&mut self, now: Instant, view: &View<'_>) {
        let Some(since) = self.split_since.take() else { return };
        for transfer in &view.scenario.transfers {
            if transfer.begins_at <= now && since <= transfer.begins_at + REPLICATION_MAX {
                self.may_move.insert(transfer.number);
                if transfer.kind == Kind::Tcp {
                    self.excused.insert(transfer.number);
                }
            }
        }
    }

    /// The dying node took connections over from its peer, which could not receive its updates and owns them as well.
    /// The peer continues from its last state, which packets through the dying node may have left behind.
    fn excuse_split_ownership(&mut self, node: usize, view: &View<'_>) {
        let is_owner = |node: usize, tuple: &Tuple| {
            let value = view.nodes[node].as_ref()?.pipeline();
            value.connection(value.lookup(tuple)?.0).map(|known| known.owner == NodeId(node as u8))
        };
        for transfer in view.scenario.transfers.iter().filter(|transfer| transfer.kind == Kind::Tcp) {
            let Some(tuple) = client_tuple(transfer, view.hosts) else { continue };
            let have_both = is_owner(node, &tuple) == Some(true) && is_owner(1 - node, &tuple) == Some(true);
            if have_both && !is_finished(transfer, view.hosts) {
                self.excused.insert(transfer.number);
            }
        }
    }

    /// `node` serves, and its peer, which is paused, has connections that it lacks. The requests of their clients begin them anew.
    fn note_begun_anew(&mut self, node: usize, view: &View<'_>) {
        let (Some(serving), Some(other)) = (view.nodes[node], view.nodes[1 - node]) else { return };
        for transfer in &view.scenario.transfers {
            let Some(tuple) = client_tuple(transfer, view.hosts) else { continue };
            if knows(other, &tuple) && !knows(serving, &tuple) {
                self.may_move.insert(transfer.number);
            }
        }
    }

    /// Passes the guarantees for the connections of `node` to the other node.
    fn hand_over(&mut self, now: Instant, node: usize, view: &View<'_>, outcome: &mut Outcome) {
        let Some(former) = view.nodes[node] else { return };
        let heir = view.nodes[1 - node].as_ref();
        let status = former.status(now);
        // A reply that was released unconfirmed, or an outdated backup, gives no guarantee.
        let peer_is_ready = status.peers.iter().all(|peer| peer.could_take_over());
        let replies_were_held = !view.scenario.hold_first_reply.is_zero()
            && status.replies_overdue == 0
            && peer_is_ready
            && !self.full[1 - node]
            && self.is_informed(now, 1 - node)
            && self.is_informed(now, node);
        for transfer in &view.scenario.transfers {
            let Some(tuple) = client_tuple(transfer, view.hosts) else { continue };
            if is_finished(transfer, view.hosts) {
                continue;
            }
            let evicted_at = self.evicted_at.get(&transfer.number).copied();
            let established_at =
                established_at(transfer, view.hosts).map(|at| evicted_at.map_or(at, |evicted_at| at.max(evicted_at)));
            let is_established = established_at.is_some();
            if is_established {
                self.at_risk.insert(transfer.number);
            }
            let is_known = heir.is_some_and(|heir| knows(heir, &tuple));
            if is_known && self.was_split && heir.is_some_and(|heir| differ(former, heir, &tuple)) {
                // Both nodes began it with different translations: one of them is right.
                self.excused.insert(transfer.number);
            }
            let is_missing = !is_known && (is_established || knows(former, &tuple));
            let is_held = replies_were_held && transfer.kind == Kind::Tcp && heir.is_some();
            if !is_missing || (is_held && !is_established) {
                continue;
            }
            if !is_established && is_unanswered(former, &tuple) {
                // Its client repeats the SYN, which begins it anew at the other node, with another translation where ports are chosen.
                self.may_move.insert(transfer.number);
                continue;
            }
            // Established, or about to be: its first reply may be on the wire.
            let is_new = self.excused.insert(transfer.number);
            let had_time = established_at.is_some_and(|at| self.had_time(now, 1 - node, at)) && heir.is_some();
            let is_replicated = is_replicated(view.scenario, former, &tuple);
            if (is_held || had_time) && knows(former, &tuple) && is_replicated && is_new {
                let duty = if had_time { "it had time" } else { "first replies are held" };
                let text = format!(
                    "transfer {} was established at {established_at:?} and the backup lacks it, although {duty}: {tuple}",
                    transfer.number
                );
                outcome.problem(now, Problem::Unreplicated, text);
            }
        }
    }

    /// Whether every transfer has finished.
    pub(crate) fn is_done(&self, transfers: &[Transfer], hosts: &[Host]) -> bool {
        transfers.iter().all(|transfer| self.is_excused(transfer.number) || is_finished(transfer, hosts))
    }

    pub(super) fn finish(&self, now: Instant, view: &View<'_>, outcome: &mut Outcome) {
        outcome.transfers = view.scenario.transfers.len() as u64;
        outcome.connections = self.at_risk.len() as u64;
        for transfer in &view.scenario.transfers {
            let number = transfer.number;
            let finished = is_finished(transfer, view.hosts);
            outcome.survived += u64::from(self.at_risk.contains(&number) && finished);
            if self.is_excused(number) {
                continue;
            }
            // Nothing is guaranteed to connections that a full table refuses.
            let is_refused =
                established_at(transfer, view.hosts).is_none() && view.nodes.iter().any(|node| refuses(node));
            if !finished && !is_refused {
                let text = format!("transfer {number} did not finish: {}", progress(transfer, view.hosts));
                outcome.problem(now, Problem::NotSurvived, text);
            }
            if let Some(text) = moved(transfer, view.hosts).filter(|_| !self.may_move.contains(&number)) {
                outcome.problem(now, Problem::Moved, text);
            }
        }
    }
}

/// The node has refused connections, as its table was full.
fn refuses(node: &Option<Node>) -> bool {
    let counters = node.as_ref().map(|node| node.pipeline().counters());
    counters.is_some_and(|counters| counters.early_dropped > 0 || counters.drops[DropReason::TableFull as usize] > 0)
}

/// Both nodes have the connection with different translations.
fn differ(one: &Node, other: &Node, tuple: &Tuple) -> bool {
    let reply = |node: &Node| {
        node.pipeline().lookup(tuple).and_then(|(slot, _)| node.pipeline().connection(slot).map(|known| known.reply))
    };
    let replies = (reply(one), reply(other));
    replies.0.is_some() && replies.1.is_some() && replies.0 != replies.1
}

/// Whether the replication of `node` includes this connection: filters without states contain connections whose
/// handshake is complete and that neither end has closed.
fn is_replicated(scenario: &Scenario, node: &Node, tuple: &Tuple) -> bool {
    let has_states = scenario.representation.is_none_or(Representation::has_states);
    let known = || node.pipeline().lookup(tuple).and_then(|(slot, _)| node.pipeline().connection(slot));
    has_states || known().is_none_or(|known| CellState::of(known).is_established(known.original.protocol))
}

/// The node has forwarded no reply of this connection, and has not replicated it therefore.
fn is_unanswered(node: &Node, tuple: &Tuple) -> bool {
    node.pipeline().lookup(tuple).is_some_and(|(slot, _)| node.is_unanswered(slot))
}

fn knows(node: &Node, tuple: &Tuple) -> bool {
    node.pipeline().lookup(tuple).is_some() || node.recovery_lookup(tuple).is_some()
}

/// Whether the node itself began the connection, with its only packet so far.
fn has_begun_now(value: &Node, node: usize, tuple: &Tuple) -> bool {
    let slot = value.pipeline().lookup(tuple).map(|(slot, _)| slot);
    let known = slot.and_then(|slot| value.pipeline().connection(slot));
    known.is_some_and(|known| known.owner == NodeId(node as u8) && known.packets.iter().sum::<u64>() <= 1)
}

fn client_end<'a>(transfer: &Transfer, hosts: &'a [Host]) -> Option<&'a Endpoint> {
    end(transfer, hosts, StreamDirection::Up)
}

fn end<'a>(transfer: &Transfer, hosts: &'a [Host], way: StreamDirection) -> Option<&'a Endpoint> {
    let ends = hosts.iter().flat_map(|host| &host.endpoints);
    let mut named = ends
        .filter(|end| end.direction() == way && end.transfer.as_ref().is_some_and(|of| of.number == transfer.number));
    named.next()
}

/// The tuple with which a transfer's client sends, if it has begun.
fn client_tuple(transfer: &Transfer, hosts: &[Host]) -> Option<Tuple> {
    if transfer.kind == Kind::Tcp {
        return client_end(transfer, hosts).map(|end| end.tuple);
    }
    hosts[transfer.client].exchange(transfer.number).map(|exchange| exchange.tuple)
}

/// When the client received its first reply.
fn established_at(transfer: &Transfer, hosts: &[Host]) -> Option<Instant> {
    if transfer.kind == Kind::Tcp {
        let end = client_end(transfer, hosts).filter(|end| end.state == tcp::State::Established);
        return end.map(|end| end.opened_at);
    }
    hosts[transfer.client].exchange(transfer.number)?.first_reply_at
}

/// TCP: both ends have all their bytes, and know that the other has. An end whose peer finished with a lost reset
/// cannot know it. Requests: all were sent, and the last ones were answered.
fn is_finished(transfer: &Transfer, hosts: &[Host]) -> bool {
    if transfer.kind == Kind::Tcp {
        return [StreamDirection::Up, StreamDirection::Down]
            .into_iter()
            .all(|way| end(transfer, hosts, way).is_some_and(|end| is_end_finished(transfer, end)));
    }
    hosts[transfer.client].exchange(transfer.number).is_some_and(|exchange| exchange.is_over())
}

fn is_end_finished(transfer: &Transfer, end: &Endpoint) -> bool {
    let may_have_missed_reset = transfer.closing == Closing::Reset && end.direction() == StreamDirection::Down;
    end.is_finished() || (may_have_missed_reset && end.received_bytes() >= transfer.bytes[0])
}

/// A server saw the transfer from two addresses: its translation was not kept.
fn moved(transfer: &Transfer, hosts: &[Host]) -> Option<String> {
    let addresses = hosts.iter().find_map(|host| host.seen_peers.get(&transfer.number))?;
    let [(first, _), (second, at), ..] = &addresses.addresses[..] else { return None };
    Some(format!("transfer {} came from {first}, then at {at:?} from {second}", transfer.number))
}

fn progress(transfer: &Transfer, hosts: &[Host]) -> String {
    if transfer.kind != Kind::Tcp {
        let answered = hosts[transfer.client].exchange(transfer.number);
        return format!("{:?}, last reply at {:?}", transfer.kind, answered.and_then(|one| one.last_reply_at));
    }
    let [up, down] = transfer.bytes;
    let of = |way, bytes| {
        end(transfer, hosts, way).map_or_else(
            || String::from("no end point"),
            |end| format!("{:?}, {} of {bytes} bytes received", end.state, end.received_bytes()),
        )
    };
    let client = client_end(transfer, hosts).map(|end| end.tuple.to_string()).unwrap_or_default();
    format!("{client}: client {}; server {}", of(StreamDirection::Up, down), of(StreamDirection::Down, up))
}
