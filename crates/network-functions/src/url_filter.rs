//! The URL filter: connections are refused by the category of the host that they ask for (\[MLCBF\] section 4.4.2).
//!
//! ```text
//!   SYN ─► a rule matches ─► Reading ─► the client's first bytes name a host ─► its categories ─┬─► allowed: no packet is needed any more
//!                                  └─► they name none: `undecided` of the rule                  └─► refused: client and server are answered
//! ```
//!
//! **Host.** The name in a TLS ClientHello, over TCP or in the first datagrams of a QUIC connection, or that of an HTTP/1 request, whose path counts, too. What comes before the name is complete is
//! forwarded; the segment that completes it is forwarded only if the host is allowed. At most
//! [`ASSEMBLY_BYTES_MAX`](crate::inspect::assembly::ASSEMBLY_BYTES_MAX) bytes are read. A server that sends before the name is complete ends
//! the reading, too: its protocol is another one. `reading` and `datagrams` state how the server is kept from reading other bytes than these.
//!
//! **Refusal.** The client's segment becomes the page or the reset that leaves by where it came in. The server is reset by the pipeline
//! ([`RefusedConnection`]), which also has connection tracking see that the stream has ended. The record stays, so a retransmission is
//! answered again, by every node that has the record. Datagrams of a refused QUIC connection are dropped: clients go on over TCP.
//!
//! **Place in the chain.** Behind the firewall, so that denied connections are not answered; before all functions that translate or
//! renumber, which would have to translate the answers.
//!
//! **Server.** Hosts in no list may be asked about ([`server`]). The segment that completes the name then waits in the pipeline
//! ([`HandshakeExchange::waits_until`](crate::function::HandshakeExchange)), and is handled once more when an answer has come.
//!
//! **Paths.** An HTTP connection is decided by its first request, and then needs no packets, unless a list has paths of its host: then
//! every request whose head begins a segment is looked at.
//!
//! **Failover.** The verdict is the state ([`UrlState`]), and is replicated when it is made. Bytes that were held are not: another node decides
//! by `undecided` when the server answers, or by the next request.

mod answers;
mod datagrams;
pub mod lists;
pub mod path;
mod questions;
mod reading;
pub mod rules;
pub mod server;
pub mod state;
pub mod store;
#[cfg(test)]
mod tests;
pub mod views;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use flow::wire::{Packet, TcpSegment, Transport, ip_protocol, tcp_flags};
use flow::{Direction, DropReason, Tuple};

use crate::class::Class;
use crate::function::{
    Context, LastSent, NetworkFunction, ReevaluationOutcome, RefusedConnection, Verdict, state_attribute,
};
use crate::inspect::assembly::StreamKey;
use crate::inspect::{HostName, Inspected, Progress};
use crate::log::LogSource;
use crate::restoration::{Restoring, Unrestorable};
use crate::shared_values::SharedValues;
use path::NormalPath;
use rules::{Action, Answer, DNS_PORT, Decided, Decision, Rule, UNCATEGORISED_ID, Undecided, UrlFilterRules};
pub use state::{Phase, UrlState};

/// The name of the function.
pub const NAME: &str = "url_filter";

/// The counters, in their order.
#[derive(Clone, Copy)]
enum Counter {
    Allowed,
    Blocked,
    Undecided,
    Malformed,
}

const COUNTER_NAMES: [&str; 4] = ["allowed", "blocked", "undecided", "malformed"];

/// Why a connection shows no host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NoHost {
    /// It is something else than the filter reads, or names none.
    Undecided,
    /// Recipients read it in different ways.
    Malformed,
}

/// The URL filter of one worker; see the [module](self).
pub struct UrlFilter {
    rules: Arc<UrlFilterRules>,
}

/// What a client asks for.
struct Asked {
    host: HostName,
    /// Of HTTP only.
    request: Option<HttpRequest>,
}

struct HttpRequest {
    path: Option<NormalPath>,
    is_head: bool,
}

/// What a client's first bytes show; found as `None` if they are TLS or HTTP without a name.
fn asked(prefix: &[u8], progress: &mut Progress) -> Inspected<Option<Asked>> {
    match progress.client_hello.read(prefix) {
        Inspected::Other => {}
        hello => return hello.map(|hello| hello.server_name.map(|host| Asked { host, request: None })),
    }
    progress.request.read(prefix).map(|request| {
        let path = request.path().map(NormalPath::new);
        let is_head = request.method == b"HEAD";
        request.host.map(|host| Asked { host, request: Some(HttpRequest { path, is_head }) })
    })
}

/// The same of a segment that begins a request.
fn asked_at_once(payload: &[u8]) -> Inspected<Option<Asked>> {
    asked(payload, &mut Progress::default())
}

/// A refusal of a connection.
struct Refusal<'r> {
    rule: &'r Rule,
    /// The index of the category.
    category: usize,
    /// The request, if a page can be the response.
    request: Option<HttpRequest>,
}

impl UrlFilter {
    /// A filter with these rules, which all workers share.
    #[must_use]
    pub const fn new(rules: Arc<UrlFilterRules>) -> Self {
        Self { rules }
    }

    /// The client has named a host.
    fn decide(
        &self,
        state: &mut UrlState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        asked: Asked,
    ) -> Verdict {
        let Some(rule) = self.rules.find(&context.original) else {
            // A reload has removed it.
            context.assemblies.remove(&stream(context));
            *state = UrlState::default();
            return Verdict::Forward;
        };
        let path = asked.request.as_ref().and_then(|request| request.path.as_ref());
        let decision = match self.rules.decide(context.now, rule, &asked.host, path) {
            Decision::Made(decision) => decision,
            // What came before is kept for when the segment comes again.
            Decision::Wait(until) => {
                context.handshake.waits_until = Some(until);
                return Verdict::Drop(DropReason::UrlAwaiting);
            }
        };
        if decision.is_blocked {
            log(rule, context, Some(&asked.host), self.rules.category_name(decision.category));
        }
        if decision.is_blocked && rule.config.action != Action::Log {
            context.assemblies.remove(&stream(context));
            let refusal = Refusal { rule, category: decision.category, request: asked.request };
            return self.refuse(state, context, packet, refusal, Direction::Original);
        }
        rule.count(decision.category, if decision.is_blocked { Decided::Logged } else { Decided::Allowed });
        if state.phase() != Phase::Watched {
            context.count(Counter::Allowed as usize);
        }
        let is_watched = decision.has_paths && asked.request.is_some();
        let phase = if is_watched || state.phase() == Phase::Watched { Phase::Watched } else { Phase::Confirming };
        *state = UrlState::decided(phase, self.rules.category_id(decision.category));
        Verdict::Forward
    }

    /// A segment of the client on a connection of which every request is looked at.
    fn watch(&self, state: &mut UrlState, context: &mut Context<'_>, packet: &mut Packet<'_, '_>) -> Verdict {
        match asked_at_once(packet.payload()) {
            Inspected::Found(Some(asked)) => self.decide(state, context, packet, asked),
            _ => Verdict::Forward,
        }
    }

    /// The connection shows no host.
    fn conclude(
        &self,
        state: &mut UrlState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
        shown: NoHost,
    ) -> Verdict {
        context.assemblies.remove(&stream(context));
        let Some(rule) = self.rules.find(&context.original) else {
            *state = UrlState::default();
            return Verdict::Forward;
        };
        let (counter, category, is_blocked) = match shown {
            NoHost::Undecided => {
                (Counter::Undecided, self.rules.undecided(), rule.config.undecided == Undecided::Block)
            }
            NoHost::Malformed => (Counter::Malformed, self.rules.malformed(), true),
        };
        context.count(counter as usize);
        if is_blocked {
            log(rule, context, None, self.rules.category_name(category));
        }
        let is_logged = is_blocked && shown == NoHost::Malformed && rule.config.action == Action::Log;
        if is_blocked && !is_logged {
            return self.refuse(state, context, packet, Refusal { rule, category, request: None }, direction);
        }
        rule.count(category, if is_logged { Decided::Logged } else { Decided::Allowed });
        *state = UrlState::decided(Phase::Allowed, self.rules.category_id(category));
        Verdict::Forward
    }

    /// Refuses the connection with this packet.
    fn refuse(
        &self,
        state: &mut UrlState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        refusal: Refusal<'_>,
        direction: Direction,
    ) -> Verdict {
        let Refusal { rule, category, request } = refusal;
        rule.count(category, Decided::Blocked);
        context.count(Counter::Blocked as usize);
        let request = request.filter(|_| rule.config.action == Action::BlockPage);
        let phase = if request.is_some() { Phase::BlockedByPage } else { Phase::BlockedByReset };
        *state = UrlState::decided(phase, self.rules.category_id(category));
        let Transport::Tcp(segment) = packet.headers.transport else {
            return Verdict::Drop(DropReason::UrlFiltered);
        };
        if packet.headers.is_fragment {
            return Verdict::Drop(DropReason::UrlFiltered);
        }
        let page = request.map(|request| answers::page(self.rules.category_name(category), request.is_head));
        let last_sent = match direction {
            Direction::Original => LastSent {
                sequence: segment.acknowledgement,
                payload_bytes: page.as_ref().map_or(0, |page| page.len() as u32),
                acknowledgement: segment.end(),
            },
            Direction::Reply => {
                LastSent { sequence: segment.end(), payload_bytes: 0, acknowledgement: segment.acknowledgement }
            }
        };
        let response = page.map(|page| (Answer::Page, page.into_bytes()));
        let answered = Answered { rule: Some(rule), response, last_sent: Some(last_sent) };
        answer(context, packet, &segment, direction, &answered)
    }

    /// A packet of a connection that was refused.
    fn blocked(
        &self,
        state: UrlState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        segment: &TcpSegment,
        direction: Direction,
    ) -> Verdict {
        if segment.has(tcp_flags::RST) {
            // The other end learns it, and connection tracking has seen it.
            return Verdict::Forward;
        }
        if packet.headers.is_fragment {
            return Verdict::Drop(DropReason::UrlFiltered);
        }
        let rule = self.rules.find(&context.original);
        let mut answered = Answered { rule, response: None, last_sent: None };
        if state.phase() == Phase::BlockedByReset {
            return answer(context, packet, segment, direction, &answered);
        }
        if direction == Direction::Reply {
            // The client reads the page; the server goes on until it is reset.
            context.handshake.refused =
                Some(RefusedConnection { reset_sequence: segment.acknowledgement, last_sent: None });
            return Verdict::Drop(DropReason::UrlFiltered);
        }
        if let Inspected::Found(Some(Asked { request: Some(request), .. })) = asked_at_once(packet.payload()) {
            let name = state.category().map_or("", |id| self.category_name_of(id));
            answered.response = Some((Answer::Page, answers::page(name, request.is_head).into_bytes()));
            return answer(context, packet, segment, direction, &answered);
        }
        if segment.has(tcp_flags::FIN) {
            return answer(context, packet, segment, direction, &answered);
        }
        // An acknowledgement of the page, or the rest of the request's content.
        Verdict::Drop(DropReason::UrlFiltered)
    }

    fn category_name_of(&self, id: u16) -> &str {
        self.rules.categories().map(|(name, _)| name).find(|name| rules::category_id(name) == id).unwrap_or(match id {
            UNCATEGORISED_ID => rules::UNCATEGORISED,
            rules::UNANSWERED_ID => rules::UNANSWERED,
            rules::MALFORMED_ID => rules::MALFORMED,
            _ => rules::UNDECIDED,
        })
    }
}

/// The connection's stream, as this function reads it.
const fn stream(context: &Context<'_>) -> StreamKey {
    StreamKey::new(state_attribute::URL_FILTER, &context.original)
}

/// How a refused connection's segment is answered.
struct Answered<'r> {
    /// The rule that counts it, if it is still there.
    rule: Option<&'r Rule>,
    /// What is sent in the server's place; otherwise a reset.
    response: Option<(Answer, Vec<u8>)>,
    /// What connection tracking is to see.
    last_sent: Option<LastSent>,
}

/// Answers a segment of a refused connection, and has the server reset.
fn answer(
    context: &mut Context<'_>,
    packet: &mut Packet<'_, '_>,
    segment: &TcpSegment,
    direction: Direction,
    answered: &Answered<'_>,
) -> Verdict {
    let reset_sequence = match direction {
        Direction::Original => segment.sequence,
        Direction::Reply => segment.acknowledgement,
    };
    context.handshake.refused = Some(RefusedConnection { reset_sequence, last_sent: answered.last_sent });
    let count = |answer| {
        if let Some(rule) = answered.rule {
            rule.count_answer(answer);
        }
    };
    if direction == Direction::Reply {
        // It goes to the client.
        return if answers::become_reset_of_receiver(packet, segment) {
            count(Answer::Reset);
            Verdict::Forward
        } else {
            Verdict::Drop(DropReason::UrlFiltered)
        };
    }
    let to_client = context.original.inverse();
    if let Some((kind, response)) = &answered.response
        && answers::become_response(packet, &to_client, segment, response)
    {
        count(*kind);
        return Verdict::SendBack;
    }
    if answers::become_reset_of_client(packet, &to_client, segment) {
        count(Answer::Reset);
        Verdict::SendBack
    } else {
        Verdict::Drop(DropReason::UrlFiltered)
    }
}

/// Logs what a rule blocks, if it is to be logged.
fn log(rule: &Rule, context: &mut Context<'_>, host: Option<&HostName>, category: &str) {
    if rule.config.log || rule.config.action == Action::Log {
        let name = &rule.config.name;
        let source = LogSource { function: NAME, name };
        context.log.push_limited(context.now, source, context.original, || match host {
            Some(host) => format!("rule {name}: {host} is in the category {category}"),
            None => format!("rule {name}: the first bytes are {category}"),
        });
    }
}

impl NetworkFunction for UrlFilter {
    type State = UrlState;

    fn name(&self) -> &'static str {
        NAME
    }

    fn counter_names(&self) -> Vec<String> {
        COUNTER_NAMES.map(|name| name.to_string()).into()
    }

    fn on_init(&self, context: &mut Context<'_>, packet: &Packet<'_, '_>) -> Result<UrlState, DropReason> {
        if context.expected.is_some() || self.rules.find(&context.original).is_none() {
            return Ok(UrlState::default());
        }
        let Transport::Tcp(segment) = &packet.headers.transport else {
            let is_dns = context.original.destination_port == DNS_PORT;
            return Ok(if is_dns {
                UrlState::decided(Phase::Dns, UNCATEGORISED_ID)
            } else {
                UrlState::reading_datagrams(0)
            });
        };
        if segment.has(tcp_flags::SYN) {
            // Data of TCP Fast Open would be at the server before it is decided. The client repeats the SYN without (RFC 7413 section 4.1.3).
            return if segment.payload_bytes == 0 {
                Ok(UrlState::reading(segment.sequence.wrapping_add(1), packet.headers.ttl))
            } else {
                Err(DropReason::UrlFiltered)
            };
        }
        // Picked up in the middle: its next bytes may begin a request.
        Ok(UrlState::reading(segment.sequence, packet.headers.ttl).answered(segment.sequence))
    }

    #[inline]
    fn on_packet(
        &self,
        state: &mut UrlState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Verdict {
        let phase = state.phase();
        if matches!(phase, Phase::Unfiltered | Phase::Allowed) {
            return Verdict::Forward;
        }
        let segment = match (&packet.headers.transport, direction) {
            (Transport::Tcp(segment), _) => *segment,
            (Transport::Udp, Direction::Original) if phase == Phase::Dns => return self.question(context, packet),
            (Transport::Udp, Direction::Original) => return self.read_datagram(state, context, packet),
            (Transport::Udp, _) if phase.is_blocked() => return Verdict::Drop(DropReason::UrlFiltered),
            _ => return Verdict::Forward,
        };
        match phase {
            Phase::BlockedByPage | Phase::BlockedByReset => self.blocked(*state, context, packet, &segment, direction),
            Phase::Reading => self.handle_reading(state, context, packet, &segment, direction),
            _ => match self.confirm(state, context, packet, &segment, direction) {
                Verdict::Forward if phase == Phase::Watched && direction == Direction::Original => {
                    self.watch(state, context, packet)
                }
                verdict => verdict,
            },
        }
    }

    fn is_replicated_change(&self, before: &UrlState, after: &UrlState) -> bool {
        before.replicated() != after.replicated()
    }

    fn needs_packets(&self, state: &UrlState) -> bool {
        !matches!(state.phase(), Phase::Unfiltered | Phase::Allowed)
    }

    fn is_refused(&self, state: &UrlState) -> bool {
        state.phase().is_blocked()
    }

    /// The answers of a server.
    fn shared_values(&self) -> Option<&dyn SharedValues> {
        self.rules.server().map(|server| -> &dyn SharedValues { server })
    }

    /// By the category that decided: the host is not kept.
    fn reevaluate(&self, state: &mut UrlState, outgoing: &Tuple, _class: Class) -> ReevaluationOutcome {
        let is_open = matches!(state.phase(), Phase::Allowed | Phase::Watched | Phase::Confirming | Phase::Initials);
        let Some(category) = state.category().filter(|_| is_open) else { return ReevaluationOutcome::Allowed };
        match self.rules.find(outgoing) {
            Some(rule) if self.rules.blocks(rule, category) => ReevaluationOutcome::Denied,
            _ => ReevaluationOutcome::Allowed,
        }
    }

    /// Connections that are not decided, or refused, are replicated precisely.
    fn restorable(&self) -> Result<(), Unrestorable> {
        Ok(())
    }

    fn is_restorable(&self, state: &UrlState) -> bool {
        matches!(state.phase(), Phase::Unfiltered | Phase::Allowed | Phase::Dns | Phase::Confirming | Phase::Initials)
    }

    fn restore(&self, restoring: &mut Restoring) -> Option<UrlState> {
        let is_filtered = self.rules.find(&restoring.original).is_some();
        Some(match restoring.original.protocol {
            _ if !is_filtered => UrlState::default(),
            ip_protocol::UDP if restoring.original.destination_port == DNS_PORT => {
                UrlState::decided(Phase::Dns, UNCATEGORISED_ID)
            }
            ip_protocol::UDP => UrlState::decided(Phase::Initials, UNCATEGORISED_ID),
            _ => UrlState::decided(Phase::Allowed, UNCATEGORISED_ID),
        })
    }
}
