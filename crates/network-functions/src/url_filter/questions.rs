//! Questions for names: over UDP a message in each datagram, over TCP one after another behind their lengths (RFC 1035 section 4.2.2).
//!
//! A message over TCP is forwarded with the segment that completes it, if its name is allowed; until then the server has a part of it, which it does not
//! answer. What of the next message has come with it is read on.

use flow::wire::{Packet, TcpSegment};
use flow::{Direction, DropReason};

use super::answers::{self, ResponseCode};
use super::rules::{Action, Answer, DNS_PORT, Decided, Decision, DnsAction, Rule};
use super::{Answered, Counter, NoHost, Phase, UrlFilter, UrlState, answer, log, stream};
use crate::function::{Context, LastSent, Verdict};
use crate::inspect::assembly::ASSEMBLY_BYTES_MAX;
use crate::inspect::dns::{self, Query};

/// What a question gets.
struct Refused<'r> {
    rule: &'r Rule,
    /// The index of the category.
    category: usize,
    code: ResponseCode,
}

impl UrlFilter {
    /// Whether the client of a TCP connection sends questions that a rule looks at.
    pub(super) fn reads_questions(&self, context: &Context<'_>) -> bool {
        context.original.destination_port == DNS_PORT
            && self.rules.find(&context.original).is_some_and(|rule| rule.config.dns != DnsAction::Off)
    }

    /// A datagram to the port of DNS.
    pub(super) fn question(&self, context: &mut Context<'_>, packet: &mut Packet<'_, '_>) -> Verdict {
        if packet.headers.is_fragment {
            return Verdict::Drop(DropReason::UrlUnreadable);
        }
        let Some(refused) = self.refused(context, packet.payload()) else { return Verdict::Forward };
        if refused.rule.config.dns == DnsAction::NxDomain && answers::become_refusal(packet, refused.code) {
            refused.rule.count_answer(Answer::NxDomain);
            return Verdict::SendBack;
        }
        Verdict::Drop(DropReason::UrlFiltered)
    }

    /// Reads the messages that are held of a TCP connection.
    pub(super) fn read_questions(
        &self,
        state: &mut UrlState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        segment: &TcpSegment,
    ) -> Verdict {
        let stream = stream(context);
        let prefix = context.assemblies.prefix(&stream).to_vec();
        let mut rest = &prefix[..];
        while let Some(message) = dns::message_over_tcp(rest) {
            if let Some(refused) = self.refused(context, message) {
                return self.refuse_question(state, context, packet, segment, (&refused, message));
            }
            rest = &rest[dns::LENGTH_BYTES + message.len()..];
        }
        if rest.len() >= ASSEMBLY_BYTES_MAX {
            return self.conclude(state, context, packet, Direction::Original, NoHost::Undecided);
        }
        if rest.len() < prefix.len() {
            let start = context.assemblies.advance(&stream, prefix.len() - rest.len());
            *state = state.reading_on(start);
        }
        Verdict::Forward
    }

    /// The rule that refuses a message, with the category that decides. `None`: it passes, and is counted.
    fn refused(&self, context: &mut Context<'_>, message: &[u8]) -> Option<Refused<'_>> {
        let rule = self.rules.find(&context.original)?;
        let (category, code) = match dns::query(message) {
            Query::Other => return None,
            Query::Malformed => {
                context.count(Counter::Malformed as usize);
                log(rule, context, None, self.rules.category_name(self.rules.malformed()));
                (self.rules.malformed(), ResponseCode::FormatError)
            }
            // A question does not wait: the connection that follows it does.
            Query::Name(name) => match self.rules.decide(context.now, rule, &name, None) {
                Decision::Wait(_) => return None,
                Decision::Made(decision) if !decision.is_blocked => {
                    rule.count(decision.category, Decided::Allowed);
                    return None;
                }
                Decision::Made(decision) => {
                    log(rule, context, Some(&name), self.rules.category_name(decision.category));
                    (decision.category, ResponseCode::NameError)
                }
            },
        };
        let is_logged = rule.config.action == Action::Log;
        rule.count(category, if is_logged { Decided::Logged } else { Decided::Blocked });
        (!is_logged).then_some(Refused { rule, category, code })
    }

    /// Answers a message over TCP, and ends the connection with the answer: what the server sends would have other numbers.
    fn refuse_question(
        &self,
        state: &mut UrlState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        segment: &TcpSegment,
        (refused, message): (&Refused<'_>, &[u8]),
    ) -> Verdict {
        let Refused { rule, category, code } = *refused;
        context.assemblies.remove(&stream(context));
        context.count(Counter::Blocked as usize);
        *state = UrlState::decided(Phase::BlockedByReset, self.rules.category_id(category));
        let response = answers::over_tcp(message, code).filter(|_| rule.config.dns == DnsAction::NxDomain);
        let last_sent = LastSent {
            sequence: segment.acknowledgement,
            payload_bytes: response.as_ref().map_or(0, |response| response.len() as u32),
            acknowledgement: segment.end(),
        };
        let response = response.map(|bytes| (Answer::NxDomain, bytes));
        let answered = Answered { rule: Some(rule), response, last_sent: Some(last_sent) };
        answer(context, packet, segment, Direction::Original, &answered)
    }
}
