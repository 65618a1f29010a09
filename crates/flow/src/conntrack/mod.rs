//! Connection tracking: the automata of TCP, UDP, SCTP, ICMP queries and everything else, in behaviour those of Linux's
//! `nf_conntrack`, with one thing more: a connection can go on from a copy that is older than what its end points
//! have sent since ([`Tracker::take_over`]).
//!
//! [`Tracker::begin`] looks at the first packet of a tuple, [`Tracker::advance`] at all that follow. ICMP errors belong
//! to the connection that they quote, and are not for the tracker. Sequence numbers are held against each other as they
//! come in: who renumbers a connection's segments (a SYN proxy) shows the tracker those of one side of the renumbering
//! in both directions.

mod advance;
mod generic;
mod icmp;
mod replica;
mod sctp;
mod tcp;
mod timeouts;
mod udp;

use core::time::Duration;

use crate::wire::{Headers, Transport, ip_protocol};
use crate::{Direction, DropReason, Instant, connection};

use self::advance::note_reply;
pub use self::advance::{Advance, Change, Next};
pub use crate::protocol_state::{ProtocolState, TcpPeer, last_flags, peer_flags};
pub use replica::{attribute, decode_protocol_state, encode_protocol_state};
pub use sctp::SctpState;
pub use tcp::{TCP_RETRANSMISSIONS_MAX, TcpState};
pub use timeouts::{Timeouts, TrackerConfig};
pub use udp::{UDP_STREAM_AFTER, UdpState};

/// The automata, with their timeouts and options: read-only while packets flow.
///
/// ```
/// use flow::conntrack::{Tracker, TrackerConfig};
///
/// let tracker = Tracker::new(TrackerConfig { liberal: true, ..TrackerConfig::default() });
/// assert_eq!(tracker.config().timeouts.tcp_established.as_secs(), 432_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    config: TrackerConfig,
}

impl Tracker {
    /// A tracker with these timeouts and options.
    #[must_use]
    pub const fn new(config: TrackerConfig) -> Self {
        Self { config }
    }

    /// Its timeouts and options.
    #[must_use]
    pub const fn config(&self) -> &TrackerConfig {
        &self.config
    }

    /// The first packet of a tuple that is in no table. Returns where its automaton starts and how long it lives
    /// unanswered. The packet is then accounted for; handing it to [`Tracker::advance`] as well does no harm.
    ///
    /// # Errors
    /// The packet begins no connection.
    pub fn begin(&self, headers: &Headers) -> Result<(ProtocolState, Duration), DropReason> {
        match &headers.transport {
            Transport::Tcp(segment) => tcp::begin(&self.config, segment),
            Transport::Udp => Ok(udp::begin(&self.config.timeouts)),
            Transport::Sctp(packet) => sctp::begin(&self.config, packet),
            Transport::IcmpQuery(query) => icmp::begin(&self.config.timeouts, query),
            Transport::IcmpError(_) => Err(DropReason::UnrelatedIcmpError),
            Transport::IcmpOther(..) => Err(DropReason::UnsupportedIcmp),
            Transport::Other => Ok(generic::begin(&self.config.timeouts)),
        }
    }

    /// A packet of a known connection. `flags` are those of the connection's record ([`crate::connection::flags`]), of
    /// which REPLIED and ASSURED are set here.
    pub fn advance(
        &self,
        now: Instant,
        state: &mut ProtocolState,
        flags: &mut u8,
        direction: Direction,
        headers: &Headers,
    ) -> Advance {
        match &headers.transport {
            Transport::Tcp(segment) => tcp::advance(&self.config, state, flags, direction, segment),
            Transport::Udp => udp::advance(&self.config.timeouts, now, state, flags, direction),
            Transport::Sctp(packet) => sctp::advance(&self.config.timeouts, state, flags, direction, packet),
            Transport::IcmpQuery(query) => icmp::advance(&self.config.timeouts, flags, direction, query),
            Transport::IcmpError(_) => Advance::refuse(DropReason::UnrelatedIcmpError),
            Transport::IcmpOther(..) => Advance::refuse(DropReason::UnsupportedIcmp),
            Transport::Other => generic::advance(self.config.timeouts.generic, flags, direction),
        }
    }

    /// A later fragment of a segment of which [`Tracker::advance`] saw the first: `end` is the sequence number behind it.
    /// Without this the segment's acknowledgement would look like one of data that nobody sent.
    pub fn extend(&self, state: &mut ProtocolState, direction: Direction, end: u32) {
        tcp::extend(state, direction, end);
    }

    /// [`Tracker::advance`] of what most packets are, without its many answers: a TCP segment that passes, changes nothing
    /// worth telling and leaves the connection as it is. Says how long the connection then lives. `None`, and nothing
    /// noted, if it is not one of these or the connection is not settled.
    #[inline]
    pub fn advance_plain(
        &self,
        state: &mut ProtocolState,
        flags: u8,
        direction: Direction,
        headers: &Headers,
    ) -> Option<Duration> {
        match &headers.transport {
            Transport::Tcp(segment) => tcp::pass_plain(&self.config, state, flags, direction, segment),
            _ => None,
        }
    }

    /// How long a connection in this state lives after its last packet, whatever that packet was. `flags` are those of
    /// the connection's record.
    #[must_use]
    pub fn timeout(&self, protocol: u8, state: &ProtocolState, flags: u8) -> Duration {
        let timeouts = &self.config.timeouts;
        let is_assured = flags & connection::flags::ASSURED != 0;
        match protocol {
            ip_protocol::TCP => TcpState::from_u8(state.state).map_or(Duration::ZERO, |state| timeouts.tcp(state)),
            ip_protocol::UDP if is_assured => timeouts.udp_stream,
            ip_protocol::UDP => timeouts.udp,
            ip_protocol::SCTP => SctpState::from_u8(state.state).map_or(Duration::ZERO, |state| timeouts.sctp(state)),
            ip_protocol::ICMP | ip_protocol::ICMPV6 => timeouts.icmp,
            _ => timeouts.generic,
        }
    }

    /// How long a TCP connection was given by its last segment, as far as its state tells: [`Tracker::timeout`] or less, where
    /// data is not acknowledged, for example. `None` for other protocols.
    #[must_use]
    pub fn timeout_after_last(&self, protocol: u8, state: &ProtocolState, flags: u8) -> Option<Duration> {
        (protocol == ip_protocol::TCP).then(|| tcp::timeout_after_last(&self.config, state, flags))
    }

    /// This node takes over a connection whose copy is older than what its peers have sent since: windows that a copy
    /// cannot know are learnt afresh from the next segments of each side. State and window scales stay.
    pub fn take_over(&self, protocol: u8, state: &mut ProtocolState) {
        match protocol {
            ip_protocol::TCP => tcp::take_over(state),
            ip_protocol::SCTP => sctp::take_over(state),
            _ => {}
        }
    }
}

/// What two nodes know of one TCP connection, each having seen a part of it, goes together: `told` is what another node says
/// of it, which counts, `known` what is known here. Of the latter is added what `told` lacks: that the handshake is over, a FIN,
/// a RST. True if there was something to add.
pub fn merge(protocol: u8, told: &mut ProtocolState, known: &ProtocolState) -> bool {
    protocol == ip_protocol::TCP && tcp::merge(told, known)
}

/// Whether the connection is one of TCP whose handshake is not over: of such a one every node is told all that the others
/// saw, numbers included.
#[must_use]
pub fn is_in_handshake(protocol: u8, state: &ProtocolState) -> bool {
    let handshake = [TcpState::SynSent, TcpState::SynRecv, TcpState::SynSent2];
    protocol == ip_protocol::TCP && TcpState::from_u8(state.state).is_some_and(|state| handshake.contains(&state))
}

/// Whether both sides have agreed to talk: TCP and SCTP in ESTABLISHED, UDP that was answered. Protocols without such a state
/// never are.
#[must_use]
pub fn is_established(protocol: u8, state: &ProtocolState) -> bool {
    match protocol {
        ip_protocol::TCP => state.state == TcpState::Established as u8,
        ip_protocol::UDP => state.state == UdpState::Replied as u8,
        ip_protocol::SCTP => state.state == SctpState::Established as u8,
        _ => false,
    }
}

/// Whether the connection is on its way out: TCP after its first FIN or RST, SCTP after its first SHUTDOWN or ABORT.
#[must_use]
pub fn is_closing(protocol: u8, state: &ProtocolState) -> bool {
    match protocol {
        ip_protocol::TCP => TcpState::from_u8(state.state).is_some_and(TcpState::is_closing),
        ip_protocol::SCTP => SctpState::from_u8(state.state).is_some_and(SctpState::is_closing),
        _ => false,
    }
}

/// The state's name, as Linux's tools print it for TCP and SCTP; empty for protocols without states, "INVALID" for a number that
/// no state has.
#[must_use]
pub fn state_name(protocol: u8, state: &ProtocolState) -> &'static str {
    match protocol {
        ip_protocol::TCP => TcpState::from_u8(state.state).map_or("INVALID", TcpState::name),
        ip_protocol::UDP => UdpState::from_u8(state.state).map_or("INVALID", UdpState::name),
        ip_protocol::SCTP => SctpState::from_u8(state.state).map_or("INVALID", SctpState::name),
        _ => "",
    }
}

#[cfg(test)]
mod tests;
