//! Connections that were established before a node died, and of which the other knew, go on to their end.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::node::Node;
use flow::{Instant, Tuple};

use super::View;
use crate::host::Host;
use crate::host::tcp::{Endpoint, State};
use crate::report::{Outcome, Problem};
use crate::scenario::{Conversation, Kind};
use crate::stream::Way;
use crate::topology::NODES;

/// How long a node is given at most to be told of a connection, over the worst link.
const TELLING_MAX: Duration = Duration::from_secs(1);
/// How long a node is given after its start, or after the link was cut, to know everything.
const JOINING_MAX: Duration = Duration::from_secs(3);

/// What was promised to whom.
#[derive(Default)]
pub(crate) struct Survival {
    /// Established when a node died.
    at_risk: BTreeSet<u32>,
    /// Of those, the ones that the other node did not know of: nothing was promised.
    excused: BTreeSet<u32>,
    /// When each node started last.
    started_at: [Instant; NODES],
    /// When the replication link was cut or put right last.
    partitioned_at: Option<Instant>,
}

impl Survival {
    pub(super) fn is_excused(&self, conversation: u32) -> bool {
        self.excused.contains(&conversation)
    }

    pub(super) const fn started(&mut self, now: Instant, node: usize) {
        self.started_at[node] = now;
    }

    pub(super) const fn partitioned(&mut self, now: Instant) {
        self.partitioned_at = Some(now);
    }

    /// Whether `node` has had all the time that it needs to be told what was established by `since`.
    fn had_time(&self, now: Instant, node: usize, since: Instant) -> bool {
        let sound_since = self.started_at[node].max(self.partitioned_at.unwrap_or(Instant::ZERO));
        since + TELLING_MAX <= now && sound_since + JOINING_MAX <= now
    }

    /// Notes which conversations are under way through the node, and which of them the other node knows.
    pub(super) fn before_kill(&mut self, now: Instant, node: usize, view: &View<'_>, outcome: &mut Outcome) {
        let Some(dying) = view.nodes[node] else { return };
        outcome.kills += 1;
        let heir = view.nodes[1 - node].as_ref();
        let status = dying.status(now);
        let was_active = status.role.holds_addresses();
        if !was_active && heir.is_some() {
            return;
        }
        // A reply that was let go unconfirmed, or a backup that is not up to date, is no promise.
        let peer_is_ready = status.peers.iter().all(|peer| peer.could_take_over());
        let replies_were_held = !view.scenario.hold_first_reply.is_zero()
            && status.replies_overdue == 0
            && peer_is_ready
            && self.partitioned_at.is_none();
        for conversation in &view.scenario.conversations {
            let Some(tuple) = client_tuple(conversation, view.hosts) else { continue };
            if is_finished(conversation, view.hosts) {
                continue;
            }
            let established_at = established_at(conversation, view.hosts);
            let is_established = established_at.is_some();
            if is_established {
                self.at_risk.insert(conversation.number);
            }
            let is_untold = heir.is_none_or(|heir| !knows(heir, &tuple)) && (is_established || knows(dying, &tuple));
            let is_held = replies_were_held && conversation.kind == Kind::Tcp;
            if !is_untold || (is_held && !is_established) {
                continue;
            }
            // Established, or about to be: its first answer may be on the wire.
            self.excused.insert(conversation.number);
            let had_time = established_at.is_some_and(|at| self.had_time(now, 1 - node, at)) && heir.is_some();
            if (is_held || had_time) && knows(dying, &tuple) {
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
            if !finished {
                let text = format!("conversation {number} did not finish: {}", progress(conversation, view.hosts));
                outcome.problem(now, Problem::NotSurvived, text);
            }
            if let Some(text) = moved(conversation, view.hosts).filter(|_| self.partitioned_at.is_none()) {
                outcome.problem(now, Problem::Moved, text);
            }
        }
    }
}

fn knows(node: &Node, tuple: &Tuple) -> bool {
    node.pipeline().lookup(tuple).is_some()
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
        let end = client_end(conversation, hosts).filter(|end| end.state == State::Established);
        return end.map(|end| end.opened_at);
    }
    hosts[conversation.client].exchange(conversation.number)?.first_answer_at
}

/// TCP: both ends have all their bytes. Requests: all were sent, and the last ones answered.
fn is_finished(conversation: &Conversation, hosts: &[Host]) -> bool {
    if conversation.kind == Kind::Tcp {
        return [Way::Up, Way::Down]
            .into_iter()
            .all(|way| end(conversation, hosts, way).is_some_and(Endpoint::is_finished));
    }
    hosts[conversation.client].exchange(conversation.number).is_some_and(|exchange| exchange.is_over())
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
