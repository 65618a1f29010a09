//! Datagrams of a client to a port of QUIC.
//!
//! A tuple has as many connections as its client likes: browsers use a socket for several, and each begins with an Initial packet under a connection
//! id of its own, whose key follows from that id. So every Initial packet is read, also behind packets of other kinds in its datagram, and decided by its
//! connection id. Packets of other kinds pass once a connection of the tuple is allowed: a refused one has never reached the server.
//!
//! | datagram | while reading | allowed | refused |
//! |---|---|---|---|
//! | with an Initial packet that its own id opens | decided | decided | decided |
//! | with another one: of a connection that goes on under the server's id | undecided | forwarded | dropped |
//! | of another version | undecided | undecided | dropped |
//! | without an Initial packet | undecided | forwarded | dropped |

use flow::DropReason;
use flow::wire::Packet;

use super::rules::{Action, Decided, Decision, Rule, Undecided};
use super::{Counter, Phase, UrlFilter, UrlState, log, stream};
use crate::function::{Context, Verdict};
use crate::inspect::quic::decryption::{ClientInitial, client_initial};
use crate::inspect::quic::{self, FirstPacket};
use crate::inspect::{HostName, Inspected};

/// Datagrams of a client that are read for its first ClientHello, which takes two at most in practice.
pub(super) const DATAGRAMS_READ_MAX: u8 = 8;
/// The number of a connection that has none.
const NO_CONNECTION: u64 = 0;

/// What a datagram shows of a connection.
struct Shown<'h> {
    /// The number of the connection.
    connection: u64,
    /// The host; `None`: it is undecided.
    host: Option<&'h HostName>,
}

/// The decision about a connection.
struct Settled<'r> {
    rule: &'r Rule,
    /// The index of the category.
    category: usize,
    is_blocked: bool,
}

impl UrlFilter {
    /// A datagram of the client.
    pub(super) fn read_datagram(
        &self,
        state: &mut UrlState,
        context: &mut Context<'_>,
        packet: &Packet<'_, '_>,
    ) -> Verdict {
        if packet.headers.is_fragment {
            // Packets of QUIC are not fragmented (RFC 9000 section 14).
            return Verdict::Drop(DropReason::UrlUnreadable);
        }
        let payload = packet.payload();
        match (quic::first_packet(payload), state.phase()) {
            (FirstPacket::Initial(at), _) => self.read_initial(state, context, &payload[at..]),
            (_, Phase::BlockedByReset | Phase::BlockedByPage) => Verdict::Drop(DropReason::UrlFiltered),
            (FirstPacket::Other, Phase::Initials) => Verdict::Forward,
            _ => self.settle(state, context, Shown { connection: NO_CONNECTION, host: None }),
        }
    }

    fn read_initial(&self, state: &mut UrlState, context: &mut Context<'_>, datagram: &[u8]) -> Verdict {
        let undecided = |connection| Shown { connection, host: None };
        match (client_initial(datagram), state.phase()) {
            (Inspected::Found(initial), _) => self.read_hello(state, context, &initial),
            (_, Phase::Reading) => self.settle(state, context, undecided(NO_CONNECTION)),
            (Inspected::Other, Phase::Initials) => Verdict::Forward,
            (Inspected::Other, _) => Verdict::Drop(DropReason::UrlFiltered),
            _ => Verdict::Drop(DropReason::UrlUnreadable),
        }
    }

    fn read_hello(&self, state: &mut UrlState, context: &mut Context<'_>, initial: &ClientInitial) -> Verdict {
        let connection = initial.connection;
        let stream = stream(context).of_connection(connection);
        let read = quic::client_hello(context.assemblies, &stream, initial);
        let is_reading = state.phase() == Phase::Reading;
        match read.map(|hello| hello.server_name) {
            Inspected::Found(Some(host)) => self.settle(state, context, Shown { connection, host: Some(&host) }),
            Inspected::Partial if !is_reading => Verdict::Forward,
            Inspected::Partial if state.datagrams_read() < DATAGRAMS_READ_MAX => {
                *state = UrlState::reading_datagrams(state.datagrams_read() + 1);
                Verdict::Forward
            }
            // The server lacks it for as long as the client repeats it.
            Inspected::Malformed => Verdict::Drop(DropReason::UrlUnreadable),
            _ => self.settle(state, context, Shown { connection, host: None }),
        }
    }

    /// A connection has named its host, or does not.
    fn settle(&self, state: &mut UrlState, context: &mut Context<'_>, shown: Shown<'_>) -> Verdict {
        let stream = stream(context).of_connection(shown.connection);
        let Some(rule) = self.rules.find(&context.original) else {
            // A reload has removed it.
            context.assemblies.remove(&stream);
            *state = UrlState::default();
            return Verdict::Forward;
        };
        let (category, is_blocked) = match shown.host {
            None => (self.rules.undecided(), rule.config.undecided == Undecided::Block),
            Some(host) => match self.rules.decide(context.now, rule, host, None) {
                Decision::Made(decision) => (decision.category, decision.is_blocked),
                // What came before is kept for when the datagram comes again.
                Decision::Wait(until) => {
                    context.handshake.waits_until = Some(until);
                    return Verdict::Drop(DropReason::UrlAwaiting);
                }
            },
        };
        context.assemblies.remove(&stream);
        let settled = Settled { rule, category, is_blocked };
        if !state.is_decided_of(shown.connection) {
            self.count_settled(context, &settled, shown.host);
        }
        let is_refused = is_blocked && (rule.config.action != Action::Log || shown.host.is_none());
        let category = self.rules.category_id(category);
        match (is_refused, state.phase()) {
            // Another connection of the tuple goes on.
            (true, Phase::Initials) => {}
            (true, _) => *state = UrlState::decided_of(Phase::BlockedByReset, category, shown.connection),
            (false, _) => *state = UrlState::decided_of(Phase::Initials, category, shown.connection),
        }
        if is_refused { Verdict::Drop(DropReason::UrlFiltered) } else { Verdict::Forward }
    }

    fn count_settled(&self, context: &mut Context<'_>, settled: &Settled<'_>, host: Option<&HostName>) {
        let Settled { rule, category, is_blocked } = *settled;
        if is_blocked {
            log(rule, context, host, self.rules.category_name(category));
        }
        let (decided, counter) = match (is_blocked, rule.config.action, host) {
            (false, ..) => (Decided::Allowed, Counter::Allowed),
            (true, Action::Log, Some(_)) => (Decided::Logged, Counter::Allowed),
            (true, ..) => (Decided::Blocked, Counter::Blocked),
        };
        rule.count(category, decided);
        if host.is_none() {
            context.count(Counter::Undecided as usize);
        }
        if host.is_some() || is_blocked {
            context.count(counter as usize);
        }
    }
}
