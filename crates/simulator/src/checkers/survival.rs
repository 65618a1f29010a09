//! Connections that were established before a node died, and of which the other knew, go on to their end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::node::Node;
use cluster::role::State;
use flow::{DropReason, Instant, NodeId, Tuple};
use replication::compact::{CellState, Representation};
use replication::lazy::IDLE_LOOK_AGAIN;

use super::{Conditions, View};
use crate::host::Host;
use crate::host::tcp::{self, Endpoint};
use crate::report::{Outcome, Problem};
use crate::scenario::{Closing, Conversation, Kind, Scenario};
use crate::stream::Way;
use crate::topology::NODES;

/// How long a node is given at most to be told of a connection, over the worst link.
const TELLING_MAX: Duration = Duration::from_secs(1);
/// How long a node is given after its start, or after the link was cut, to know everything.
const JOINING_MAX: Duration = Duration::from_secs(3);

/// What was promised to whom.
#[derive(Default)]
pub(crate) struct Survival {
    /// Established when the node that served them died, or another took over from it.
    at_risk: BTreeSet<u32>,
    /// Of those, the ones that the other node did not know of: nothing was promised.
    excused: BTreeSet<u32>,
    /// Requests and answers that a leaping clock took for over: they go on, but perhaps from elsewhere.
    may_move: BTreeSet<u32>,
    /// When a full table last gave up the connection of a conversation: what goes on is another connection.
    given_up_at: BTreeMap<u32, Instant>,
    /// When each node started last.
    started_at: [Instant; NODES],
    /// Since when the nodes can tell each other everything, if they can.
    telling_since: Option<Instant>,
    /// Whether they can.
    can_tell: bool,
    /// Nodes that had no room for what they were told.
    pub(crate) full: [bool; NODES],
    /// Both nodes held the addresses at some time.
    was_split: bool,
    /// Both hold the addresses since.
    split_since: Option<Instant>,
    /// Who holds the addresses.
    holds: [bool; NODES],
    /// Connections are told at this age, and some that fell silent meanwhile a look later.
    put_off: Duration,
}

impl Survival {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let put_off = match scenario.put_off {
            Duration::ZERO => Duration::ZERO,
            put_off => put_off + IDLE_LOOK_AGAIN,
        };
        Self { put_off, ..Self::default() }
    }

    pub(super) fn is_excused(&self, conversation: u32) -> bool {
        self.excused.contains(&conversation)
    }

    pub(super) fn started(&mut self, now: Instant, node: usize) {
        self.started_at[node] = now;
        self.full[node] = false;
    }

    pub(super) fn conditions(&mut self, now: Instant, conditions: Conditions) {
        if self.can_tell != conditions.tell {
            self.can_tell = conditions.tell;
            self.telling_since = conditions.tell.then_some(now);
        }
    }

    /// A node has no room for what it is told.
    pub(crate) const fn ran_full(&mut self, node: usize) {
        self.full[node] = true;
    }

    /// A node whose table is full has given up a connection for another: one that was never answered, or whose ends had yet
    /// to prove that they go on. Which one, its absence tells; or that its next packet, dealt with in the same step, has begun
    /// another one.
    pub(super) fn gave_up(&mut self, now: Instant, node: usize, value: &Node, view: &View<'_>) {
        for conversation in &view.scenario.conversations {
            let tuple = client_tuple(conversation, view.hosts);
            let goes_on = |tuple| knows(value, &tuple) && !has_begun_now(value, node, &tuple);
            if tuple.is_none_or(goes_on) || is_finished(conversation, view.hosts) {
                continue;
            }
            self.may_move.insert(conversation.number);
            self.given_up_at.insert(conversation.number, now);
            if conversation.kind == Kind::Tcp {
                self.excused.insert(conversation.number);
            }
        }
    }

    /// A node's clock leapt to `own_now`: what it is master of and what was to be remembered until then at most is over
    /// for it, and nothing else.
    pub(crate) fn leapt(&mut self, now: Instant, node: usize, own_now: Instant, view: &View<'_>) {
        self.telling_since = self.telling_since.map(|_| now);
        let Some(value) = view.nodes[node] else { return };
        for conversation in &view.scenario.conversations {
            let Some(tuple) = client_tuple(conversation, view.hosts) else { continue };
            let known = value.pipeline().lookup(&tuple).and_then(|(slot, _)| value.pipeline().connection(slot));
            let is_own = known.filter(|known| known.owner == NodeId(node as u8));
            if is_own.is_none_or(|known| known.expires_at_nanos > own_now.as_nanos()) {
                continue;
            }
            self.may_move.insert(conversation.number);
            if conversation.kind == Kind::Tcp && !is_finished(conversation, view.hosts) {
                self.excused.insert(conversation.number);
            }
        }
    }

    /// Whether `node` has been told everything that was established long enough ago.
    pub(super) fn is_informed(&self, now: Instant, node: usize) -> bool {
        let since = self.telling_since.map(|since| since.max(self.started_at[node]));
        since.is_some_and(|since| since + JOINING_MAX <= now)
    }

    /// Whether `node` has had all the time that it needs to be told what was established by `since`.
    fn had_time(&self, now: Instant, node: usize, since: Instant) -> bool {
        since + self.put_off + TELLING_MAX <= now && self.is_informed(now, node) && !self.full[node]
    }

    /// Notes which conversations are under way through the node, and which of them the other node knows.
    pub(super) fn before_kill(&mut self, now: Instant, node: usize, view: &View<'_>, outcome: &mut Outcome) {
        let Some(dying) = view.nodes[node] else { return };
        outcome.kills += 1;
        self.holds[node] = false;
        if self.split_since.is_some() {
            self.excuse_of_two_masters(node, view);
        }
        self.end_split(now, view);
        // A node that has left may be the only one that knows the connections, too.
        if dying.holds_addresses() || !self.is_informed(now, 1 - node) || view.nodes[1 - node].is_none() {
            self.hand_over(now, node, view, outcome);
        }
    }

    /// A node has taken the addresses, or given them up: whoever served before, this is what it leaves behind.
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
        let Some(partner) = view.nodes[other] else { return };
        let is_leaving = |value: &Node| matches!(value.role(), State::Leaving | State::Left);
        let is_sound = self.is_informed(now, 0) && self.is_informed(now, 1);
        if holds {
            // Who leaves in good order waits until the other has everything.
            if self.holds[other] && !(is_leaving(partner) && is_sound) {
                if !is_leaving(partner) {
                    self.was_split = true;
                    self.split_since = Some(now);
                }
                self.hand_over(now, other, view, outcome);
            }
        } else {
            if self.holds[other] {
                self.end_split(now, view);
            }
            let leaves = view.nodes[node].as_ref().is_some_and(is_leaving);
            if leaves && is_sound {
                self.excuse_handshakes(node, view);
            } else {
                self.hand_over(now, node, view, outcome);
            }
        }
    }

    /// While both nodes held the addresses, either may have seen a part of what began then, or begun it with a translation
    /// of its own: one of them is right, and no rule can tell which. What both knew before is promised all the same. One that
    /// has ended is no exception: its other translation may be a connection of its own at the server, which is reset.
    fn end_split(&mut self, now: Instant, view: &View<'_>) {
        let Some(since) = self.split_since.take() else { return };
        for conversation in &view.scenario.conversations {
            if conversation.begins_at <= now && since <= conversation.begins_at + TELLING_MAX {
                self.may_move.insert(conversation.number);
                if conversation.kind == Kind::Tcp {
                    self.excused.insert(conversation.number);
                }
            }
        }
    }

    /// The dying node took connections over from the other, which could not hear of it and is their master as well: it goes
    /// on from what it saw last, and what went by the dying node may be too far ahead for it.
    fn excuse_of_two_masters(&mut self, node: usize, view: &View<'_>) {
        let is_master = |node: usize, tuple: &Tuple| {
            let value = view.nodes[node].as_ref()?.pipeline();
            value.connection(value.lookup(tuple)?.0).map(|known| known.owner == NodeId(node as u8))
        };
        for conversation in view.scenario.conversations.iter().filter(|conversation| conversation.kind == Kind::Tcp) {
            let Some(tuple) = client_tuple(conversation, view.hosts) else { continue };
            let have_both = is_master(node, &tuple) == Some(true) && is_master(1 - node, &tuple) == Some(true);
            if have_both && !is_finished(conversation, view.hosts) {
                self.excused.insert(conversation.number);
            }
        }
    }

    /// `node` has left in good order. A filter without states has no entry for a connection whose handshake is under way: its
    /// answer may be on the wire, and the other node cannot know it.
    fn excuse_handshakes(&mut self, node: usize, view: &View<'_>) {
        let (Some(former), heir) = (view.nodes[node], view.nodes[1 - node].as_ref()) else { return };
        for conversation in view.scenario.conversations.iter().filter(|conversation| conversation.kind == Kind::Tcp) {
            let Some(tuple) = client_tuple(conversation, view.hosts) else { continue };
            let is_handshake = knows(former, &tuple) && !is_told_of(view.scenario, former, &tuple);
            let is_new = established_at(conversation, view.hosts).is_none();
            if is_handshake && is_new && !heir.is_some_and(|heir| knows(heir, &tuple)) {
                self.excused.insert(conversation.number);
            }
        }
    }

    /// What `node` served is the other's from now on.
    fn hand_over(&mut self, now: Instant, node: usize, view: &View<'_>, outcome: &mut Outcome) {
        let Some(former) = view.nodes[node] else { return };
        let heir = view.nodes[1 - node].as_ref();
        let status = former.status(now);
        // A reply that was let go unconfirmed, or a backup that is not up to date, is no promise.
        let peer_is_ready = status.peers.iter().all(|peer| peer.could_take_over());
        let replies_were_held = !view.scenario.hold_first_reply.is_zero()
            && status.replies_overdue == 0
            && peer_is_ready
            && !self.full[1 - node]
            && self.is_informed(now, 1 - node)
            && self.is_informed(now, node);
        for conversation in &view.scenario.conversations {
            let Some(tuple) = client_tuple(conversation, view.hosts) else { continue };
            if is_finished(conversation, view.hosts) {
                continue;
            }
            let given_up_at = self.given_up_at.get(&conversation.number).copied();
            let established_at = established_at(conversation, view.hosts)
                .map(|at| given_up_at.map_or(at, |given_up_at| at.max(given_up_at)));
            let is_established = established_at.is_some();
            if is_established {
                self.at_risk.insert(conversation.number);
            }
            let is_known = heir.is_some_and(|heir| knows(heir, &tuple));
            if is_known && self.was_split && heir.is_some_and(|heir| differ(former, heir, &tuple)) {
                // Both began it, each with a translation of its own: one of them is right.
                self.excused.insert(conversation.number);
            }
            let is_untold = !is_known && (is_established || knows(former, &tuple));
            let is_held = replies_were_held && conversation.kind == Kind::Tcp && heir.is_some();
            if !is_untold || (is_held && !is_established) {
                continue;
            }
            // Established, or about to be: its first answer may be on the wire.
            let is_new = self.excused.insert(conversation.number);
            let had_time = established_at.is_some_and(|at| self.had_time(now, 1 - node, at)) && heir.is_some();
            let is_told_of = is_told_of(view.scenario, former, &tuple);
            if (is_held || had_time) && knows(former, &tuple) && is_told_of && is_new {
                let why = if had_time { "it had time" } else { "first replies are held" };
                let text = format!(
                    "conversation {} was established at {established_at:?} and the backup does not know it, though {why}: {tuple}",
                    conversation.number
                );
                outcome.problem(now, Problem::Untold, text);
            }
        }
    }

    /// Whether every conversation has come to its end.
    pub(crate) fn is_done(&self, conversations: &[Conversation], hosts: &[Host]) -> bool {
        conversations
            .iter()
            .all(|conversation| self.is_excused(conversation.number) || is_finished(conversation, hosts))
    }

    pub(super) fn finish(&self, now: Instant, view: &View<'_>, outcome: &mut Outcome) {
        outcome.conversations = view.scenario.conversations.len() as u64;
        outcome.connections = self.at_risk.len() as u64;
        for conversation in &view.scenario.conversations {
            let number = conversation.number;
            let finished = is_finished(conversation, view.hosts);
            outcome.survived += u64::from(self.at_risk.contains(&number) && finished);
            if self.is_excused(number) {
                continue;
            }
            // Nothing is promised to whom a full table refuses.
            let is_refused =
                established_at(conversation, view.hosts).is_none() && view.nodes.iter().any(|node| refuses(node));
            if !finished && !is_refused {
                let text = format!("conversation {number} did not finish: {}", progress(conversation, view.hosts));
                outcome.problem(now, Problem::NotSurvived, text);
            }
            if let Some(text) = moved(conversation, view.hosts).filter(|_| !self.may_move.contains(&number)) {
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

/// Two nodes know the connection, and translate it differently.
fn differ(one: &Node, other: &Node, tuple: &Tuple) -> bool {
    let reply = |node: &Node| {
        node.pipeline().lookup(tuple).and_then(|(slot, _)| node.pipeline().connection(slot).map(|known| known.reply))
    };
    let replies = (reply(one), reply(other));
    replies.0.is_some() && replies.1.is_some() && replies.0 != replies.1
}

/// The way in which nodes tell of connections tells of this one as `node` has it: filters without states hold those that both
/// ends have agreed to and have not taken leave from.
fn is_told_of(scenario: &Scenario, node: &Node, tuple: &Tuple) -> bool {
    let has_states = scenario.representation.is_none_or(Representation::has_states);
    let known = || node.pipeline().lookup(tuple).and_then(|(slot, _)| node.pipeline().connection(slot));
    has_states || known().is_none_or(|known| CellState::of(known).is_established(known.original.protocol))
}

fn knows(node: &Node, tuple: &Tuple) -> bool {
    node.pipeline().lookup(tuple).is_some() || node.recalls(tuple).is_some()
}

/// Whether the node itself began the connection, with the only packet of it so far.
fn has_begun_now(value: &Node, node: usize, tuple: &Tuple) -> bool {
    let slot = value.pipeline().lookup(tuple).map(|(slot, _)| slot);
    let known = slot.and_then(|slot| value.pipeline().connection(slot));
    known.is_some_and(|known| known.owner == NodeId(node as u8) && known.packets.iter().sum::<u64>() <= 1)
}

fn client_end<'a>(conversation: &Conversation, hosts: &'a [Host]) -> Option<&'a Endpoint> {
    end(conversation, hosts, Way::Up)
}

fn end<'a>(conversation: &Conversation, hosts: &'a [Host], way: Way) -> Option<&'a Endpoint> {
    let ends = hosts.iter().flat_map(|host| &host.endpoints);
    let mut named = ends
        .filter(|end| end.way() == way && end.conversation.as_ref().is_some_and(|of| of.number == conversation.number));
    named.next()
}

/// The tuple with which a conversation's client sends, if it has begun.
fn client_tuple(conversation: &Conversation, hosts: &[Host]) -> Option<Tuple> {
    if conversation.kind == Kind::Tcp {
        return client_end(conversation, hosts).map(|end| end.tuple);
    }
    hosts[conversation.client].exchange(conversation.number).map(|exchange| exchange.tuple)
}

/// When the client had its first answer.
fn established_at(conversation: &Conversation, hosts: &[Host]) -> Option<Instant> {
    if conversation.kind == Kind::Tcp {
        let end = client_end(conversation, hosts).filter(|end| end.state == tcp::State::Established);
        return end.map(|end| end.opened_at);
    }
    hosts[conversation.client].exchange(conversation.number)?.first_answer_at
}

/// TCP: both ends have all their bytes and know that the other has; but whose end is reset by one that is done, and that
/// word is lost, cannot know it. Requests: all were sent, and the last ones answered.
fn is_finished(conversation: &Conversation, hosts: &[Host]) -> bool {
    if conversation.kind == Kind::Tcp {
        return [Way::Up, Way::Down]
            .into_iter()
            .all(|way| end(conversation, hosts, way).is_some_and(|end| is_end_finished(conversation, end)));
    }
    hosts[conversation.client].exchange(conversation.number).is_some_and(|exchange| exchange.is_over())
}

fn is_end_finished(conversation: &Conversation, end: &Endpoint) -> bool {
    let may_have_missed_reset = conversation.closing == Closing::Reset && end.way() == Way::Down;
    end.is_finished() || (may_have_missed_reset && end.received_bytes() >= conversation.bytes[0])
}

/// A server saw the conversation come from elsewhere than before: its translation was not kept.
fn moved(conversation: &Conversation, hosts: &[Host]) -> Option<String> {
    let addresses = hosts.iter().find_map(|host| host.seen_peers.get(&conversation.number))?;
    let [(first, _), (second, at), ..] = &addresses.addresses[..] else { return None };
    Some(format!("conversation {} came from {first}, then at {at:?} from {second}", conversation.number))
}

fn progress(conversation: &Conversation, hosts: &[Host]) -> String {
    if conversation.kind != Kind::Tcp {
        let answered = hosts[conversation.client].exchange(conversation.number);
        return format!("{:?}, last answer at {:?}", conversation.kind, answered.and_then(|one| one.answered_at));
    }
    let [up, down] = conversation.bytes;
    let of = |way, bytes| {
        end(conversation, hosts, way).map_or_else(
            || String::from("no end point"),
            |end| format!("{:?}, {} of {bytes} bytes came", end.state, end.received_bytes()),
        )
    };
    let client = client_end(conversation, hosts).map(|end| end.tuple.to_string()).unwrap_or_default();
    format!("{client}: client {}; server {}", of(Way::Up, down), of(Way::Down, up))
}
