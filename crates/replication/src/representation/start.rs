//! From which packet on a connection is replicated.
//!
//! Most SYNs of a scan or a flood are never answered. So by default a connection with a handshake is replicated once its handshake is
//! answered: until then its initiator repeats its first packet, which begins the connection anew at any node. Other protocols have no
//! repetition, and a stream in one direction has no answer at all. Its translation must not change at a failover, so its first packet
//! counts.

use flow::Connection;
use flow::connection::flags;
use flow::conntrack::{self, SctpState, TcpState};
use flow::wire::ip_protocol;

/// The packet from which on a connection is replicated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Start {
    /// The first packet.
    FirstPacket,
    /// The first reply where the protocol has a handshake (TCP, SCTP); the first packet of other protocols.
    #[default]
    HandshakeReply,
    /// The first reply. A stream without replies is never replicated.
    FirstReply,
    /// The packet that establishes the connection (MLCBF, section 2.2.4): the first reply where a protocol has no handshake. A filter then
    /// has no entry for other states.
    Established,
}

impl Start {
    /// All, with the names that operators write.
    pub const ALL: [(&'static str, Self); 4] = [
        ("first-packet", Self::FirstPacket),
        ("handshake-reply", Self::HandshakeReply),
        ("first-reply", Self::FirstReply),
        ("established", Self::Established),
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FirstPacket => "first-packet",
            Self::HandshakeReply => "handshake-reply",
            Self::FirstReply => "first-reply",
            Self::Established => "established",
        }
    }

    /// Whether the connection has come so far. One that was picked up behind its handshake, or whose replies pass elsewhere, has.
    #[must_use]
    pub fn is_reached(self, connection: &Connection) -> bool {
        let (protocol, state) = (connection.original.protocol, &connection.protocol);
        let has_handshake = matches!(protocol, ip_protocol::TCP | ip_protocol::SCTP);
        let is_replied =
            connection.flags & flags::REPLIED != 0 || has_handshake && !is_unreplied_state(protocol, state.state);
        match self {
            Self::FirstPacket => true,
            _ if conntrack::is_one_sided(protocol, state) => true,
            Self::HandshakeReply => !has_handshake || is_replied,
            Self::FirstReply => is_replied,
            Self::Established => is_replied && !is_handshaking(protocol, state),
        }
    }
}

/// Only the initiator has sent something.
const fn is_unreplied_state(protocol: u8, state: u8) -> bool {
    match protocol {
        ip_protocol::TCP => state == TcpState::SynSent as u8,
        _ => state == SctpState::CookieWait as u8,
    }
}

fn is_handshaking(protocol: u8, state: &conntrack::ProtocolState) -> bool {
    let sctp = [SctpState::CookieWait as u8, SctpState::CookieEchoed as u8];
    conntrack::is_in_handshake(protocol, state) || protocol == ip_protocol::SCTP && sctp.contains(&state.state)
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;
    use std::vec::Vec;

    use flow::conntrack::{ProtocolState, Tracker, UdpState};
    use flow::{Instant, NodeId, Tuple};

    use super::*;

    fn connection(protocol: u8, state: u8, flags: u8) -> Connection {
        let tuple = Tuple::v4(protocol, (Ipv4Addr::new(10, 0, 0, 1), 40_000), (Ipv4Addr::new(192, 0, 2, 1), 80));
        let state = ProtocolState { state, ..ProtocolState::default() };
        let mut connection = Connection::new(tuple, NodeId(0), state, Instant::ZERO);
        connection.flags = flags;
        connection
    }

    /// The starts that the connection has reached.
    fn reached(connection: &Connection) -> Vec<&'static str> {
        Start::ALL.iter().filter(|(_, start)| start.is_reached(connection)).map(|(name, _)| *name).collect()
    }

    #[test]
    fn a_handshake_is_replicated_from_its_answer_on() {
        let tcp = |state: TcpState, flags| reached(&connection(ip_protocol::TCP, state as u8, flags));
        assert_eq!(tcp(TcpState::SynSent, 0), ["first-packet"]);
        let answered = ["first-packet", "handshake-reply", "first-reply"];
        assert_eq!(tcp(TcpState::SynRecv, flags::REPLIED), answered);
        let all = ["first-packet", "handshake-reply", "first-reply", "established"];
        assert_eq!(tcp(TcpState::Established, flags::REPLIED), all);
        assert_eq!(tcp(TcpState::Established, 0), all, "it was picked up in the middle");
        let sctp = |state: SctpState, flags| reached(&connection(ip_protocol::SCTP, state as u8, flags));
        assert_eq!(sctp(SctpState::CookieWait, 0), ["first-packet"]);
        assert_eq!(sctp(SctpState::CookieWait, flags::REPLIED), answered);
        assert_eq!(sctp(SctpState::Established, flags::REPLIED), all);
    }

    #[test]
    fn a_stream_without_replies_is_replicated_at_once_unless_replies_are_asked_for() {
        for protocol in [ip_protocol::UDP, ip_protocol::ICMP, 47] {
            assert_eq!(reached(&connection(protocol, 0, 0)), ["first-packet", "handshake-reply"]);
            let replied = connection(protocol, UdpState::Replied as u8, flags::REPLIED);
            assert_eq!(reached(&replied).len(), Start::ALL.len());
        }
    }

    #[test]
    fn a_connection_whose_replies_pass_elsewhere_is_replicated_at_once() {
        let mut one_sided = connection(ip_protocol::TCP, TcpState::SynSent as u8, 0);
        Tracker::default().see_one_side(Instant::ZERO, ip_protocol::TCP, &mut one_sided.protocol);
        assert_eq!(reached(&one_sided).len(), Start::ALL.len());
    }

    #[test]
    fn names_are_those_of_the_list() {
        assert!(Start::ALL.iter().all(|(name, start)| *name == start.name()));
    }
}
