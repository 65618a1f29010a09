//! The SYN proxy: it answers SYNs for servers by cookies, and opens a connection when the client has acknowledged one (RFC 4987).
//!
//! ```text
//!   client                          node                                server
//!     │──SYN──────────────────────►│  no record: SYN/ACK with a cookie     │
//!     │◄──────SYN/ACK, window 0────│                                       │
//!     │──ACK──────────────────────►│  the cookie is valid: record begins   │
//!     │                            │──SYN─────────────────────────────────►│
//!     │                            │◄─────────────────────────────SYN/ACK──│
//!     │◄──────────ACK with window──│──ACK─────────────────────────────────►│
//!     │◄═══════ data, with the server's numbers and timestamps shifted ═══►│
//! ```
//!
//! **A flood** costs a parse, the functions in front of this one and one keyed hash a SYN. Neither a SYN nor an ACK without a valid cookie
//! leaves anything behind, and a spoofed SYN's answer goes to where its frame came from, without a neighbour being resolved.
//!
//! **Place in the chain.** Behind the firewall, so that denied SYNs are not answered; before all functions that translate, which see only
//! clients that have proved their address.
//!
//! **Any node** of the cluster accepts a cookie: see [`crate::syn_cookie`]. The server's SYN/ACK gives the connection its
//! offsets, which lie in its replicated state ([`SynProxyState`]), so every node with the record translates alike.
//!
//! **Options.** The client is offered what the rule announces for its servers. A server that scales its windows otherwise is translated:
//! window fields are shifted. A server without timestamps or SACK gives what it gives; the rule should be corrected.
//!
//! **Data** cannot come before the server has answered, because the SYN/ACK closes the window. A client that has data probes it, so a lost
//! acknowledgement or window is made up for. A client that waits for the server's first data, and whose acknowledgement is lost, waits
//! in vain, as with all SYN cookies.
//!
//! **A tuple that is used again.** A SYN on a connection that is closing, or whose server has not answered, is answered as any other, and the
//! connection stays. It ends when the client acknowledges the cookie. A server that still holds the older connection answers the SYN by an acknowledgement, and is reset at
//! that number, as its client would do.
//!
//! **Limits.** Explicit congestion notification and TCP Fast Open are not negotiated through the proxy. Packets of proxied connections do
//! not take the fast path, as each is renumbered ([`NetworkFunction::needs_packets`]).

mod rules;
pub mod server_handshake;
pub mod state;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use flow::wire::build::Tcp;
use flow::wire::tcp::SegmentOptions;
use flow::wire::{Packet, QuotedTcp, TcpSegment, Transport, tcp_flags};
use flow::{Direction, DropReason, Instant, Tuple};

use crate::function::{
    AcceptedClient, Context, HandshakeProxy, NetworkFunction, Renumbering, ServerAcknowledgement, ToServer, Verdict,
};
use crate::restoration::{Restoring, Unrestorable};
use crate::syn_cookie::{ClientOptions, Cookie, Rejection};
use rules::Counter;
pub use rules::{Mode, Offered, RULES_MAX, Rule, RuleConfig, RuleView, RulesError, SynProxyRules, Thresholds, rule_id};
use state::Scales;
pub use state::{Phase, SynProxyState};

/// The name of the function.
pub const NAME: &str = "syn_proxy";

/// The time to live of what the proxy sends itself (RFC 1700).
const TTL: u8 = 64;
/// The maximum segment size of a peer that announces none (RFC 9293 section 3.7.1).
const SEGMENT_SIZE_BYTES_V4: u16 = 536;
const SEGMENT_SIZE_BYTES_V6: u16 = 1220;
/// By how much an IPv6 header is longer than one of IPv4.
const IPV6_EXTRA_BYTES: u16 = 20;

/// The SYN proxy of one worker; see the [module](self).
pub struct SynProxy {
    rules: Arc<SynProxyRules>,
}

impl SynProxy {
    /// A proxy with these rules, which all workers share.
    #[must_use]
    pub const fn new(rules: Arc<SynProxyRules>) -> Self {
        Self { rules }
    }

    /// The client of a segment, if its acknowledgement is a valid cookie. A probe of the closed window is numbered one before the next
    /// byte, so both are tried.
    fn verify(&self, now: Instant, packet: &Packet<'_, '_>, segment: &TcpSegment) -> Result<AcceptedClient, Rejection> {
        let (unix_ms, tuple) = (self.rules.unix_ms(now), &packet.headers.tuple);
        let timestamps = SegmentOptions::read(packet.tcp_header()).timestamps;
        let cookie =
            Cookie { sequence: segment.acknowledgement.wrapping_sub(1), timestamp: timestamps.map(|(_, echo)| echo) };
        let verify = |sequence: u32| {
            let options = self.rules.keys.verify(unix_ms, tuple, sequence, cookie)?;
            let window = u32::from(segment.window) << options.window_scale.unwrap_or(0);
            Ok(AcceptedClient {
                rule: 0,
                cookie,
                sequence,
                timestamp: timestamps.map_or(0, |(value, _)| value),
                window: window.min(u32::from(u16::MAX)) as u16,
                options,
            })
        };
        verify(segment.sequence.wrapping_sub(1)).or_else(|_| verify(segment.sequence))
    }
}

impl HandshakeProxy for SynProxy {
    fn check(&self, now: Instant, packet: &Packet<'_, '_>) -> Option<Result<AcceptedClient, DropReason>> {
        let Transport::Tcp(segment) = packet.headers.transport else { return None };
        let kind = segment.flags & (tcp_flags::SYN | tcp_flags::FIN | tcp_flags::RST | tcp_flags::ACK);
        if kind & tcp_flags::RST == 0 && kind != tcp_flags::ACK {
            return None;
        }
        let rule = self.rules.find(&packet.headers.tuple).filter(|rule| rule.config.mode != Mode::Off)?;
        if kind & tcp_flags::RST != 0 {
            return rule.is_guarding(now).then(|| {
                rule.count(Counter::Resets);
                Err(DropReason::SynProxyReset)
            });
        }
        let (counter, reason) = match self.verify(now, packet, &segment) {
            Ok(client) => {
                rule.count(Counter::Accepted);
                return Some(Ok(AcceptedClient { rule: rule.id, ..client }));
            }
            Err(Rejection::Expired) => (Counter::Expired, DropReason::SynCookieExpired),
            Err(Rejection::Invalid) => (Counter::Invalid, DropReason::SynCookieInvalid),
        };
        rule.is_guarding(now).then(|| {
            rule.count(counter);
            Err(reason)
        })
    }

    fn guards(&self, now: Instant, packet: &Packet<'_, '_>) -> bool {
        self.rules.find(&packet.headers.tuple).is_some_and(|rule| rule.is_active(now))
    }

    fn client(&self, now: Instant, packet: &Packet<'_, '_>) -> Option<AcceptedClient> {
        let Transport::Tcp(segment) = packet.headers.transport else { return None };
        let rule = self.rules.find(&packet.headers.tuple).filter(|rule| rule.config.mode != Mode::Off)?;
        let client = self.verify(now, packet, &segment).ok()?;
        Some(AcceptedClient { rule: rule.id, ..client })
    }

    fn note_accepted(&self, rule: u16) {
        if let Some(rule) = self.rules.by_id(rule) {
            rule.count(Counter::Accepted);
        }
    }

    fn answer(&self, now: Instant, packet: &mut Packet<'_, '_>) -> bool {
        let Transport::Tcp(segment) = packet.headers.transport else { return false };
        let tuple = packet.headers.tuple;
        let Some(rule) = self.rules.find(&tuple).filter(|rule| rule.config.mode != Mode::Off) else { return false };
        let timestamps = SegmentOptions::read(packet.tcp_header()).timestamps;
        let offered = &rule.config.offered;
        let size = segment.maximum_segment_bytes.unwrap_or_else(|| segment_size_default(&tuple));
        let with_timestamps = offered.timestamps && timestamps.is_some();
        let scale = rule.offered_scale();
        let options = ClientOptions {
            segment_size_index: ClientOptions::index_of_segment_size(size),
            window_scale: segment.window_scale.filter(|_| with_timestamps && scale.is_some()),
            sack_permitted: segment.sack_permitted && offered.sack && with_timestamps,
            timestamps: with_timestamps,
        };
        let cookie = self.rules.keys.make(self.rules.unix_ms(now), &tuple, segment.sequence, &options);
        let echo = timestamps.map_or(0, |(value, _)| value);
        let syn_ack = Tcp {
            flags: tcp_flags::SYN | tcp_flags::ACK,
            sequence: cookie.sequence,
            acknowledgement: segment.sequence.wrapping_add(1),
            window: 0,
            maximum_segment_bytes: Some(offered_size(offered.segment_size_bytes, &tuple)),
            window_scale: options.window_scale.and(scale),
            sack_permitted: options.sack_permitted,
            timestamps: cookie.timestamp.map(|value| (value, echo)),
            ..Tcp::default()
        };
        if !packet.become_segment(&tuple.inverse(), TTL, &syn_ack) || !packet.turn_back() {
            return false;
        }
        rule.count(Counter::Answered);
        true
    }

    fn note_unanswered(&self, rule: u16) {
        if let Some(rule) = self.rules.by_id(rule) {
            rule.count(Counter::Unanswered);
        }
    }
}

const fn segment_size_default(tuple: &Tuple) -> u16 {
    if tuple.version == 4 { SEGMENT_SIZE_BYTES_V4 } else { SEGMENT_SIZE_BYTES_V6 }
}

const fn offered_size(bytes: u16, tuple: &Tuple) -> u16 {
    if tuple.version == 4 { bytes } else { bytes.saturating_sub(IPV6_EXTRA_BYTES) }
}

/// The SYN to the server of a client whose first number is `sequence`, for the connection's `state`. `None` if the connection has no
/// handshake that is open.
#[must_use]
pub fn syn_to_server(state: &SynProxyState, sequence: u32, window: u16) -> Option<Tcp<'static>> {
    if !matches!(state.phase(), Phase::Begun | Phase::Awaiting) {
        return None;
    }
    let options = state.options();
    Some(Tcp {
        flags: tcp_flags::SYN,
        sequence,
        window,
        maximum_segment_bytes: Some(options.segment_size_bytes()),
        window_scale: options.window_scale,
        sack_permitted: options.sack_permitted,
        timestamps: options.timestamps.then_some((state.client_timestamp, 0)),
        ..Tcp::default()
    })
}

/// The SYN to the server of an accepted client.
#[must_use]
pub fn first_syn(client: &AcceptedClient) -> Tcp<'static> {
    Tcp {
        flags: tcp_flags::SYN,
        sequence: client.sequence,
        window: client.window,
        maximum_segment_bytes: Some(client.options.segment_size_bytes()),
        window_scale: client.options.window_scale,
        sack_permitted: client.options.sack_permitted,
        timestamps: client.options.timestamps.then_some((client.timestamp, 0)),
        ..Tcp::default()
    }
}

/// The reset to a client whose server does not answer. `sequence` is the client's first number.
#[must_use]
pub fn reset_to_client(state: &SynProxyState, sequence: u32) -> Tcp<'static> {
    Tcp {
        flags: tcp_flags::RST | tcp_flags::ACK,
        sequence: state.sequence.wrapping_add(1),
        acknowledgement: sequence.wrapping_add(1),
        window: 0,
        ..Tcp::default()
    }
}

impl SynProxyState {
    /// What is added to the server's sequence numbers towards the client; 0 until the server has answered.
    #[must_use]
    pub const fn sequence_offset(&self) -> u32 {
        match self.phase() {
            Phase::Open => self.sequence,
            _ => 0,
        }
    }

    /// Whether a client's segment acknowledges the cookie that began the connection, and no byte of its server.
    #[must_use]
    pub const fn is_acknowledged_by(&self, segment: &TcpSegment) -> bool {
        segment.acknowledgement == self.sequence.wrapping_add(1)
    }

    /// The rule of the connection.
    #[must_use]
    pub const fn rule_id(&self) -> u16 {
        self.rule()
    }

    /// The server has answered the SYN with this segment: offsets follow. Returns what the server is to be sent, and the segment becomes
    /// what the client is sent. A repeated SYN/ACK is answered again.
    fn answer_server(
        &mut self,
        packet: &mut Packet<'_, '_>,
        segment: &TcpSegment,
    ) -> Result<ServerAcknowledgement, DropReason> {
        let server = SegmentOptions::read(packet.tcp_header()).timestamps.map(|(value, _)| value);
        let mut next = *self;
        if self.phase() == Phase::Awaiting {
            next = next.with_phase(Phase::Open);
            next.sequence = self.sequence.wrapping_sub(segment.sequence);
            next.timestamp = self.timestamp.wrapping_sub(server.unwrap_or_default());
            next.set_server_scale(segment.window_scale);
            if server.is_none() {
                next.clear_timestamps();
            }
        }
        let timestamps = server.filter(|_| next.has_timestamps());
        let window = match next.scales().offered {
            // The window of a SYN is not scaled.
            Some(shift) => shrink(segment.window.into(), shift),
            None => segment.window,
        };
        let to_client = Tcp {
            flags: tcp_flags::ACK,
            sequence: segment.sequence.wrapping_add(next.sequence).wrapping_add(1),
            acknowledgement: segment.acknowledgement,
            window,
            timestamps: timestamps.map(|value| (value.wrapping_add(next.timestamp), next.client_timestamp)),
            ..Tcp::default()
        };
        let (tuple, ttl) = (packet.headers.tuple, packet.headers.ttl);
        if !packet.become_segment(&tuple, ttl, &to_client) {
            return Err(DropReason::PayloadUnchangeable);
        }
        *self = next;
        Ok(ServerAcknowledgement {
            sequence: segment.acknowledgement,
            acknowledgement: segment.sequence.wrapping_add(1),
            timestamps: timestamps.map(|value| (next.client_timestamp, value)),
        })
    }

    /// The server refuses: its reset becomes one that the client accepts.
    fn refuse(&self, packet: &mut Packet<'_, '_>, segment: &TcpSegment) -> Verdict {
        let client = segment.acknowledgement.wrapping_sub(1);
        let (tuple, ttl) = (packet.headers.tuple, packet.headers.ttl);
        if packet.become_segment(&tuple, ttl, &reset_to_client(self, client)) {
            Verdict::Forward
        } else {
            Verdict::Drop(DropReason::PayloadUnchangeable)
        }
    }

    /// Translates a segment of an open connection.
    fn translate(&self, packet: &mut Packet<'_, '_>, segment: &TcpSegment, direction: Direction) {
        let (offset, echo_offset) = (self.sequence, if self.has_timestamps() { self.timestamp } else { 0 });
        match direction {
            Direction::Original => {
                let acknowledgement = segment.acknowledgement.wrapping_sub(offset);
                packet.renumber_tcp(segment.sequence, acknowledgement, |edge| edge.wrapping_sub(offset));
                packet.shift_timestamps(0, echo_offset.wrapping_neg());
            }
            Direction::Reply => {
                packet.renumber_tcp(segment.sequence.wrapping_add(offset), segment.acknowledgement, |edge| edge);
                packet.shift_timestamps(echo_offset, 0);
            }
        }
        if let Some(window) = translated_window(self.scales(), segment, direction) {
            packet.set_tcp_window(window);
        }
    }
}

/// The window field that the receiver is to see, if it is another one.
fn translated_window(scales: Scales, segment: &TcpSegment, direction: Direction) -> Option<u16> {
    let (own, expected) = shifts(scales, direction);
    if own == expected || segment.has(tcp_flags::SYN) {
        return None;
    }
    Some(shrink(u32::from(segment.window) << own, expected))
}

/// The shift of the windows that a side advertises, and the one that the other side expects.
fn shifts(scales: Scales, direction: Direction) -> (u8, u8) {
    let (own, expected) = match direction {
        // Windows are scaled if both sides offer it (RFC 7323 section 1.3).
        Direction::Original => (scales.client, scales.client.filter(|_| scales.server.is_some())),
        Direction::Reply => (scales.server.filter(|_| scales.client.is_some()), scales.offered),
    };
    (own.unwrap_or(0), expected.unwrap_or(0))
}

/// A window as a field with this shift. A window that is open stays open.
fn shrink(bytes: u32, shift: u8) -> u16 {
    let field = (bytes >> shift).max(u32::from(bytes != 0));
    field.min(u32::from(u16::MAX)) as u16
}

impl NetworkFunction for SynProxy {
    type State = SynProxyState;
    const COUNTS_CONNECTIONS: bool = true;

    fn name(&self) -> &'static str {
        NAME
    }

    fn handshake_proxy(&self) -> Option<&dyn HandshakeProxy> {
        Some(self)
    }

    fn on_init(&self, context: &mut Context<'_>, packet: &Packet<'_, '_>) -> Result<SynProxyState, DropReason> {
        if let Some(client) = context.handshake.accepted {
            let offered_scale = self.rules.by_id(client.rule).and_then(Rule::offered_scale);
            let mut state = SynProxyState::begun(client.rule, &client.options, offered_scale);
            state.sequence = client.cookie.sequence;
            state.timestamp = client.cookie.timestamp.unwrap_or_default();
            state.client_timestamp = client.timestamp;
            return Ok(state);
        }
        let Transport::Tcp(segment) = packet.headers.transport else { return Ok(SynProxyState::default()) };
        let is_syn = segment.flags & (tcp_flags::SYN | tcp_flags::ACK) == tcp_flags::SYN;
        if context.expected.is_some() || !is_syn {
            return Ok(SynProxyState::default());
        }
        let Some(rule) = self.rules.find(&context.original) else { return Ok(SynProxyState::default()) };
        if rule.answers(context.now, context.taking) {
            return Err(DropReason::SynProxied);
        }
        Ok(if rule.counts_half_open() { SynProxyState::watched(rule.id) } else { SynProxyState::default() })
    }

    #[inline]
    fn on_packet(
        &self,
        state: &mut SynProxyState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Verdict {
        let phase = state.phase();
        if phase == Phase::None {
            return Verdict::Forward;
        }
        let Transport::Tcp(segment) = packet.headers.transport else { return Verdict::Forward };
        let is_syn_ack = segment.has(tcp_flags::SYN | tcp_flags::ACK);
        match (phase, direction) {
            (Phase::None, _) => {}
            (Phase::Watched, _) => self.watch(state, &segment, direction),
            (Phase::Begun, _) => *state = state.with_phase(Phase::Awaiting),
            (Phase::Awaiting, Direction::Original) => return Verdict::Drop(DropReason::SynProxyAwaiting),
            (Phase::Awaiting, Direction::Reply) if segment.has(tcp_flags::RST) => {
                self.count(state, Counter::Refused);
                return state.refuse(packet, &segment);
            }
            (Phase::Awaiting | Phase::Open, Direction::Reply) if is_syn_ack => {
                let before = *state;
                match state.answer_server(packet, &segment) {
                    Ok(acknowledgement) => {
                        context.handshake.to_server = Some(ToServer::Acknowledgement(acknowledgement));
                    }
                    Err(reason) => return Verdict::Drop(reason),
                }
                self.count_opened(&before, state);
            }
            (Phase::Awaiting, Direction::Reply) => {
                if segment.has(tcp_flags::ACK) {
                    context.handshake.to_server = Some(ToServer::ResetOlder(segment.acknowledgement));
                }
                return Verdict::Drop(DropReason::InvalidTcpState);
            }
            (Phase::Open, _) => state.translate(packet, &segment, direction),
        }
        Verdict::Forward
    }

    fn needs_packets(&self, state: &SynProxyState) -> bool {
        state.phase() != Phase::None
    }

    fn renumbering(&self) -> Option<&dyn Renumbering<SynProxyState>> {
        Some(self)
    }

    fn on_enter(&self, state: &SynProxyState, _original: &Tuple, _reply: &Tuple) {
        if state.phase() == Phase::Watched {
            self.count_half_open(state, true);
        }
    }

    fn on_leave(&self, state: &SynProxyState, _original: &Tuple, _reply: &Tuple) {
        if state.phase() == Phase::Watched {
            self.count_half_open(state, false);
        }
    }

    /// Except for proxied connections, whose numbers are shifted by what the server chose.
    fn restorable(&self) -> Result<(), Unrestorable> {
        Ok(())
    }

    fn is_restorable(&self, state: &SynProxyState) -> bool {
        matches!(state.phase(), Phase::None | Phase::Watched)
    }

    fn restore(&self, _restoring: &mut Restoring) -> Option<SynProxyState> {
        Some(SynProxyState::default())
    }
}

impl Renumbering<SynProxyState> for SynProxy {
    fn as_sent(&self, state: &SynProxyState, segment: &mut TcpSegment, direction: Direction) {
        if state.phase() != Phase::Open || direction == Direction::Reply {
            return;
        }
        if let Some(window) = translated_window(state.scales(), segment, direction) {
            segment.window = window;
        }
        if segment.has(tcp_flags::ACK) {
            segment.acknowledgement = segment.acknowledgement.wrapping_sub(state.sequence);
            segment.sack_end = segment.sack_end.wrapping_sub(state.sequence);
        }
    }

    fn restore(&self, state: &SynProxyState, quoted: &mut QuotedTcp<'_>, direction: Direction) {
        if state.phase() != Phase::Open {
            return;
        }
        let (offset, echo_offset) = (state.sequence, if state.has_timestamps() { state.timestamp } else { 0 });
        match direction {
            Direction::Original => {
                quoted.renumber(|sequence| sequence, |acknowledged| acknowledged.wrapping_add(offset));
                quoted.shift_timestamps(0, echo_offset);
            }
            Direction::Reply => {
                quoted.renumber(|sequence| sequence.wrapping_sub(offset), |acknowledged| acknowledged);
                quoted.shift_timestamps(echo_offset.wrapping_neg(), 0);
            }
        }
        let (own, expected) = shifts(state.scales(), direction);
        if own != expected {
            quoted.map_window(|window| shrink(u32::from(window) << expected, own));
        }
    }
}

impl SynProxy {
    /// A half-open connection that is not proxied: it opens by the client's acknowledgement, or ends.
    fn watch(&self, state: &mut SynProxyState, segment: &TcpSegment, direction: Direction) {
        let is_acknowledged =
            direction == Direction::Original && !segment.has(tcp_flags::SYN) && segment.has(tcp_flags::ACK);
        if is_acknowledged || segment.has(tcp_flags::RST) {
            self.count_half_open(state, false);
            *state = SynProxyState::default();
        }
    }

    fn count_half_open(&self, state: &SynProxyState, is_one_more: bool) {
        if let Some(rule) = self.rules.by_id(state.rule()) {
            rule.count_half_open(is_one_more);
        }
    }

    fn count_opened(&self, before: &SynProxyState, after: &SynProxyState) {
        if before.phase() == Phase::Awaiting {
            self.count(after, Counter::Opened);
            if before.has_timestamps() != after.has_timestamps() {
                self.count(after, Counter::Mismatched);
            }
        }
    }

    fn count(&self, state: &SynProxyState, counter: Counter) {
        if let Some(rule) = self.rules.by_id(state.rule()) {
            rule.count(counter);
        }
    }
}
