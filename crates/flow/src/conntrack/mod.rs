//! Connection tracking: the automata of TCP, UDP, SCTP, ICMP queries and other protocols, with the behaviour of Linux's
//! `nf_conntrack`. In addition, a connection can continue from a replica that is older than the end points' state
//! ([`Tracker::take_over`]).
//!
//! [`Tracker::begin`] handles the first packet of a tuple, [`Tracker::advance`] all later ones. ICMP errors belong to
//! the connection that they quote and bypass the tracker.
//!
//! Sequence numbers are compared as received. A function that renumbers segments (a SYN proxy) must present both
//! directions in the numbering of one side.

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
pub(crate) use tcp::note_acknowledgement;
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

    /// Handles the first packet of an unknown tuple. Returns the automaton's initial state and its lifetime without an
    /// answer. The packet is then accounted for; passing it to [`Tracker::advance`] as well is harmless.
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

    /// Only the packets of the original direction of a TCP or UDP connection, which [`Tracker::begin`] has just begun, pass here: the
    /// server answers the client directly. TCP is then followed by the client's segments, and UDP needs no reply to become a stream.
    pub fn see_one_side(&self, now: Instant, protocol: u8, state: &mut ProtocolState) {
        match protocol {
            ip_protocol::TCP => tcp::see_one_side(state),
            ip_protocol::UDP => udp::see_one_side(now, state),
            _ => {}
        }
    }

    /// Advances a known connection by a packet. `flags` are those of the connection's record
    /// ([`crate::connection::flags`]); REPLIED and ASSURED are set here.
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

    /// Accounts for a later fragment of a segment whose first fragment [`Tracker::advance`] saw; `end` is the sequence
    /// number behind it. Otherwise the segment's acknowledgement would seem to acknowledge unsent data.
    pub fn extend(&self, state: &mut ProtocolState, direction: Direction, end: u32) {
        tcp::extend(state, direction, end);
    }

    /// The fast path of [`Tracker::advance`]: a TCP segment that passes and changes neither replicated state nor the
    /// connection's status. Returns the connection's lifetime. `None`, without side effects, for other segments and for
    /// connections that are not established.
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

    /// The lifetime of a connection in this state after any packet. `flags` are those of the connection's record.
    #[must_use]
    pub fn timeout(&self, protocol: u8, state: &ProtocolState, flags: u8) -> Duration {
        let timeouts = &self.config.timeouts;
        let is_assured = flags & connection::flags::ASSURED != 0;
        match protocol {
            ip_protocol::TCP => tcp::timeout(&self.config, state),
            ip_protocol::UDP if is_assured => timeouts.udp_stream,
            ip_protocol::UDP => timeouts.udp,
            ip_protocol::SCTP => SctpState::from_u8(state.state).map_or(Duration::ZERO, |state| timeouts.sctp(state)),
            ip_protocol::ICMP | ip_protocol::ICMPV6 => timeouts.icmp,
            _ => timeouts.generic,
        }
    }

    /// The lifetime of a TCP connection after its last segment, as its state implies: at most [`Tracker::timeout`],
    /// less where data is unacknowledged, for example. `None` for other protocols.
    #[must_use]
    pub fn timeout_after_last(&self, protocol: u8, state: &ProtocolState, flags: u8) -> Option<Duration> {
        (protocol == ip_protocol::TCP).then(|| tcp::timeout_after_last(&self.config, state, flags))
    }

    /// Takes over a connection whose replica is older than the end points' state. Windows are relearnt from the next
    /// segments of each side; state and window scales stay.
    pub fn take_over(&self, protocol: u8, state: &mut ProtocolState) {
        match protocol {
            ip_protocol::TCP => tcp::take_over(state),
            ip_protocol::SCTP => sctp::take_over(state),
            _ => {}
        }
    }
}

/// Merges the views of two nodes that each saw a part of one TCP connection. `received` is the other node's view and
/// takes precedence. The function adds a finished handshake, a FIN or a RST that only `local` contains. Returns whether
/// it added anything.
pub fn merge(protocol: u8, received: &mut ProtocolState, local: &ProtocolState) -> bool {
    protocol == ip_protocol::TCP && tcp::merge(received, local)
}

/// Whether the connection is a TCP connection in its handshake. Every node receives all segments of such a handshake,
/// with sequence numbers.
#[must_use]
pub fn is_in_handshake(protocol: u8, state: &ProtocolState) -> bool {
    let handshake = [TcpState::SynSent, TcpState::SynRecv, TcpState::SynSent2];
    protocol == ip_protocol::TCP && TcpState::from_u8(state.state).is_some_and(|state| handshake.contains(&state))
}

/// Whether only the client's segments of a TCP connection pass here; see [`Tracker::see_one_side`].
#[must_use]
pub const fn is_one_sided(protocol: u8, state: &ProtocolState) -> bool {
    protocol == ip_protocol::TCP && tcp::is_one_sided(state)
}

/// Whether the connection is established: TCP and SCTP in ESTABLISHED, UDP with a reply. Protocols without such a state
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

/// Whether the connection is closing: TCP after its first FIN or RST, SCTP after its first SHUTDOWN or ABORT.
#[must_use]
pub fn is_closing(protocol: u8, state: &ProtocolState) -> bool {
    match protocol {
        ip_protocol::TCP => TcpState::from_u8(state.state).is_some_and(TcpState::is_closing),
        ip_protocol::SCTP => SctpState::from_u8(state.state).is_some_and(SctpState::is_closing),
        _ => false,
    }
}

/// Whether a packet begins a new connection with the tuple of one that has ended: a SYN after both FINs or a RST. A half-closed
/// connection may live for long, so a SYN that may be forged does not end it. Before the last acknowledgement, the SYN must have a
/// later number than all that its sender has sent (RFC 9293 section 3.6.1).
#[must_use]
pub fn begins_anew(protocol: u8, state: &ProtocolState, direction: Direction, headers: &Headers) -> bool {
    protocol == ip_protocol::TCP && tcp::begins_anew(state, direction, headers)
}

/// Whether a packet, which [`Tracker::advance`] has just passed, shows that the end points have replaced the connection: a SYN/ACK
/// that acknowledges a SYN which passed on the connection in state `before`.
#[must_use]
pub fn has_restarted(protocol: u8, before: u8, state: &ProtocolState, headers: &Headers) -> bool {
    protocol == ip_protocol::TCP && tcp::has_restarted(before, state, headers)
}

/// The state's name, as Linux's tools print it for TCP and SCTP; empty for protocols without states, "INVALID" for an
/// unknown number.
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
