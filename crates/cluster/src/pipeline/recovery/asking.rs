//! Replies with an ambiguous match: the inside hosts are probed.
//!
//! Behind a computed translation one outside port stands for many inside ports. For a reply that comes first after a take-over,
//! the filter matches some of them: the right one, and false positives, or all where it holds no ports. Each matching end point
//! gets a keep-alive in the reply's place (as a TCP cold start sends it: MLCBF, section 2.1.2). The one that has the connection
//! acknowledges it, which restores the connection as any packet of the original direction does. The others reset it, and these
//! resets are not passed on: they would end the right one's connection. The reply itself is dropped; its sender repeats it, and
//! if need be those are probed again that have not denied yet.
//!
//! ```text
//!   server               node that has taken over           inside ports that may be meant
//!     │─ segment ──────────────►│── keep-alive ──────────────────►│ │ │
//!     │                         │◄───────────── RST ──────────────│ │     dropped: recovery_denial
//!     │                         │◄───────────── ACK ──────────────│       restored
//!     │◄──────────── ACK ───────│
//!     │─ segment again ────────►│── segment ─────────────────────►│
//! ```
//!
//! **Several workers.** Where the candidates lie with several workers, each asks those of its own, also if it has a single match: another
//! worker may have the right one. The end point's acknowledgement comes to the connection's worker.
//!
//! Strangers can have questions sent as well. Questions are charged to the budgets of [`super::work`], and a question is smaller
//! than what it was asked for, or as large.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::time::Duration;

use flow::wire::{Headers, Packet, Parsed, Transport, parse_into, tcp_flags};
use flow::{Direction, Instant, OwnedFrame, Tuple};
use network_functions::function::Verdict;

use super::super::connections::Connections;
use super::super::edge::{Edge, FilterMatch};
use super::context::Context;
use super::keep_alive::{make_keep_alive, translate};

/// Replies of which it is remembered who has denied them; the oldest is discarded, and its next repetition causes new probes.
const ANSWERS_MAX: usize = 4096;
/// From a question to the next one about the same answer: a sender's window of segments asks once.
const QUESTION_INTERVAL: Duration = Duration::from_millis(50);

/// What is known of an answer that may be to several connections.
#[derive(Debug)]
struct Answer {
    /// Names of the tuples that it is not to.
    denied: BTreeSet<u64>,
    asked_at: Instant,
}

/// The questions of a recovery.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// By the answer's name.
    answers: BTreeMap<u64, Answer>,
    order: VecDeque<u64>,
}

impl Asking {
    /// Whether those inside may be asked now about an answer. If so, it is remembered.
    fn may_ask(&mut self, now: Instant, answer: u64) -> bool {
        if self.answers.get(&answer).is_some_and(|known| now < known.asked_at + QUESTION_INTERVAL) {
            return false;
        }
        if let Some(known) = self.answers.get_mut(&answer) {
            known.asked_at = now;
            return true;
        }
        if self.answers.len() >= ANSWERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
        self.answers.insert(answer, Answer { denied: BTreeSet::new(), asked_at: now });
        self.order.push_back(answer);
        true
    }

    fn has_denied(&self, answer: u64, name: u64) -> bool {
        self.answers.get(&answer).is_some_and(|known| known.denied.contains(&name))
    }

    /// Whether the packet is an end point's reset in answer to a keep-alive. If so, that end point is not asked again.
    pub(super) fn is_denial(&mut self, connections: &Connections, packet: &Packet<'_, '_>) -> bool {
        let is_reset = matches!(packet.headers.transport, Transport::Tcp(segment) if segment.has(tcp_flags::RST));
        if !is_reset || self.answers.is_empty() {
            return false;
        }
        let tuple = packet.headers.tuple;
        let restored = connections.functions.chain.restore(&tuple, Some(packet.frame.ingress));
        let Some(restored) = restored else { return false };
        let name = connections.directed_hash(&tuple);
        let Some(known) = self.answers.get_mut(&connections.directed_hash(&restored.reply)) else { return false };
        known.denied.insert(name);
        true
    }

    /// The answer `packet` may be to any of the connections in `filter_match`: each end point that has not denied it is asked.
    /// Returns how many were.
    pub(super) fn ask<E: Edge>(
        &mut self,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        filter_match: &[(Tuple, FilterMatch)],
        edge: &mut E,
    ) -> usize {
        context.counters.ambiguous += 1;
        let Transport::Tcp(segment) = packet.headers.transport else { return 0 };
        if !is_of_open_connection(packet) {
            return 0;
        }
        let answer = context.connections.directed_hash(&packet.headers.tuple);
        if !self.may_ask(context.now, answer) || !make_keep_alive(packet, segment.sequence, segment.acknowledgement) {
            return 0;
        }
        let mut asked = 0;
        for (original, _) in filter_match {
            let has_denied = self.has_denied(answer, context.connections.directed_hash(original));
            if !has_denied && context.connections.lookup(original).is_none() {
                let passes = ask_one(context.connections, context.now, *original, packet, edge);
                context.counters.asked += u64::from(passes);
                asked += 1;
            }
        }
        asked
    }
}

/// Whether the end points can be asked about a packet.
pub(super) fn is_of_open_connection(packet: &Packet<'_, '_>) -> bool {
    let Transport::Tcp(segment) = packet.headers.transport else { return false };
    let is_open = segment.has(tcp_flags::ACK) && segment.flags & (tcp_flags::SYN | tcp_flags::RST) == 0;
    is_open && !packet.headers.is_fragment
}

/// Sends a copy of a keep-alive to the end point of one connection that it may belong to. False if the rules do not let it
/// pass.
fn ask_one<E: Edge>(
    connections: &mut Connections,
    now: Instant,
    original: Tuple,
    keep_alive: &Packet<'_, '_>,
    edge: &mut E,
) -> bool {
    let Some(restored) = connections.functions.chain.restore(&original, None) else { return false };
    let mut copy = OwnedFrame::copy_of(keep_alive.frame);
    let (mut frame, mut headers) = (copy.frame(), Headers::NONE);
    if !matches!(parse_into(&frame, &mut headers), Ok(Parsed::Ip(()))) {
        return false;
    }
    let mut packet = Packet { frame: &mut frame, headers: &mut headers };
    let verdict = translate(connections, now, &mut packet, original, &restored, Direction::Reply);
    let passes = verdict == Verdict::Forward;
    if passes {
        edge.post(now, &mut packet);
    }
    passes
}
