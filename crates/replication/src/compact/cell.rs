//! The state of a connection in a filter's cell.

use core::fmt;

use flow::Connection;
use flow::connection::flags;
use flow::conntrack::{ProtocolState, TcpPeer, TcpState, UdpState, peer_flags};
use flow::wire::ip_protocol;

/// Bits of a cell's state.
pub const STATE_BITS: u8 = 8;

/// Bits of [`CellState`] that hold the number of TCP's automaton.
const AUTOMATON: u8 = 0x0f;
const REPLIED: u8 = 0x10;
const ASSURED: u8 = 0x20;
/// In place of the number of TCP's automaton, which never is that: the connection has a class and is of another protocol, and not assured.
const UNASSURED: u8 = 0x0f;
/// The upper four bits of states with a class begin with this number.
const CLASS_FIRST: u8 = 4;
/// Classes that a cell can hold: numbers below this.
pub const CLASSES_MAX: u8 = 12;

/// A connection's state in a cell: what of it fits eight bits.
///
/// ```text
/// 7 … 4                                                   3 … 0
/// 0 … 3   bit 4: replied, bit 5: assured                  TCP's state, by its number ([`TcpState`]); else 0
/// 4 … 15  replied and assured; the class, by its number plus 4      the same; 15 of another protocol: not assured
/// ```
///
/// A class that the port does not show is known from the payload, so such a connection is replied to, and one of TCP assured. Releases
/// without classes read the lower bits alike; other protocols than TCP have none for them.
///
/// Windows, window scales and a function's state do not fit. Other users of cells (a category of a URL, for example) assign
/// numbers of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CellState(u8);

impl CellState {
    /// That of a connection.
    #[must_use]
    pub const fn of(connection: &Connection) -> Self {
        let automaton = match connection.original.protocol {
            ip_protocol::TCP if is_half_closed(&connection.protocol) => TcpState::CloseWait as u8,
            ip_protocol::TCP => connection.protocol.state & AUTOMATON,
            _ => 0,
        };
        let replied = if connection.flags & flags::REPLIED != 0 { REPLIED } else { 0 };
        let assured = if connection.flags & flags::ASSURED != 0 { ASSURED } else { 0 };
        Self(automaton | replied | assured)
    }

    /// The same with the class of the connection, by its number below [`CLASSES_MAX`]. The same without it if the connection is not replied to, or the
    /// number is higher.
    #[must_use]
    pub const fn with_class(self, class: u8) -> Self {
        if !self.is_replied() || class >= CLASSES_MAX {
            return self;
        }
        let automaton = match self.0 & AUTOMATON {
            0 if self.0 & ASSURED == 0 => UNASSURED,
            automaton => automaton,
        };
        Self(automaton | (CLASS_FIRST + class) << 4)
    }

    /// The number of the class, if the cell holds one.
    #[must_use]
    pub const fn class(self) -> Option<u8> {
        (self.0 >> 4).checked_sub(CLASS_FIRST)
    }

    /// The one with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        Self(number)
    }

    /// Its number, as cells hold it.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The connection's state, as far as a cell holds it: the automaton's state, with liberal windows, since TCP's numbers and
    /// window scales are unknown. A number that no state has is taken for ESTABLISHED, in which a connection can go on. The
    /// connection is taken over like any replica ([`flow::conntrack::Tracker::take_over`]).
    #[must_use]
    pub fn protocol_state(self, protocol: u8) -> ProtocolState {
        match protocol {
            ip_protocol::TCP => {
                let state = TcpState::from_u8(self.0 & AUTOMATON).filter(|state| *state != TcpState::None);
                let peer = TcpPeer { flags: peer_flags::SACK_PERMITTED | peer_flags::LIBERAL, ..TcpPeer::default() };
                let state = state.unwrap_or(TcpState::Established) as u8;
                ProtocolState { state, peers: [peer; 2], ..ProtocolState::default() }
            }
            ip_protocol::UDP if self.is_replied() => {
                ProtocolState { state: UdpState::Replied as u8, ..ProtocolState::default() }
            }
            _ => ProtocolState::default(),
        }
    }

    /// The flags of such a connection's record: REPLIED and ASSURED of [`flow::connection::flags`].
    #[must_use]
    pub const fn connection_flags(self) -> u8 {
        let replied = if self.is_replied() { flags::REPLIED } else { 0 };
        let is_assured = match self.class() {
            Some(_) => self.0 & AUTOMATON != UNASSURED,
            None => self.0 & ASSURED != 0,
        };
        let assured = if is_assured { flags::ASSURED } else { 0 };
        replied | assured
    }

    /// Whether a representation without states holds such a connection: both sides have agreed to talk and have not
    /// taken leave (MLCBF, section 2.1.1: inserted when established, taken out when terminated).
    #[must_use]
    pub fn is_established(self, protocol: u8) -> bool {
        if protocol != ip_protocol::TCP {
            return self.is_replied();
        }
        let open = [TcpState::Established, TcpState::FinWait, TcpState::CloseWait, TcpState::LastAck];
        TcpState::from_u8(self.0 & AUTOMATON).is_some_and(|state| open.contains(&state))
    }

    /// The same, as established where a connection of TCP is established or closing: a half-closed connection goes on as such.
    #[must_use]
    pub fn as_established(self, protocol: u8) -> Self {
        if protocol != ip_protocol::TCP || !self.is_established(protocol) {
            return self;
        }
        Self(self.0 & !AUTOMATON | TcpState::Established as u8)
    }

    /// Whether an end may take the connection for established: the other end's first answer has passed.
    #[must_use]
    pub fn is_answered(self, protocol: u8) -> bool {
        let answered = protocol == ip_protocol::TCP && self.0 & AUTOMATON == TcpState::SynRecv as u8;
        answered || self.is_established(protocol)
    }

    const fn is_replied(self) -> bool {
        self.0 & REPLIED != 0 || self.class().is_some()
    }
}

/// Whether one side alone has sent FIN, although the automaton is behind that: as the kernel's does, it takes a repeated FIN for the other
/// side's.
const fn is_half_closed(protocol: &ProtocolState) -> bool {
    let is_behind = protocol.state == TcpState::LastAck as u8 || protocol.state == TcpState::TimeWait as u8;
    let [original, reply] = [protocol.peers[0].flags, protocol.peers[1].flags];
    // A server that answers the client directly is never seen to close.
    is_behind && (original ^ reply) & peer_flags::FIN_SENT != 0 && reply & peer_flags::DIRECT == 0
}

impl fmt::Debug for CellState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CellState({:#x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Instant, NodeId, Tuple};

    fn connection(protocol: u8, state: u8, flags: u8) -> Connection {
        let tuple = Tuple::v4(protocol, ([10, 0, 0, 1].into(), 4000), ([192, 0, 2, 1].into(), 80));
        let protocol = ProtocolState { state, ..ProtocolState::default() };
        let mut connection = Connection::new(tuple, NodeId(0), protocol, Instant::ZERO);
        connection.flags = flags;
        connection
    }

    #[test]
    fn every_state_of_tcp_comes_back_with_liberal_windows() {
        for state in TcpState::ALL.into_iter().filter(|state| *state != TcpState::None) {
            for flags in [0, flags::REPLIED, flags::REPLIED | flags::ASSURED] {
                let cell = CellState::of(&connection(ip_protocol::TCP, state as u8, flags));
                let restored = cell.protocol_state(ip_protocol::TCP);
                assert_eq!((restored.state, cell.connection_flags()), (state as u8, flags));
                assert!(restored.peers.iter().all(|peer| peer.flags & peer_flags::LIBERAL != 0));
                assert_eq!(CellState::from_number(cell.number()), cell);
            }
        }
    }

    #[test]
    fn a_repeated_fin_of_one_side_does_not_end_the_connection_of_the_other() {
        let mut closing = connection(ip_protocol::TCP, TcpState::TimeWait as u8, flags::REPLIED | flags::ASSURED);
        closing.protocol.peers[0].flags = peer_flags::FIN_SENT;
        assert!(CellState::of(&closing).is_established(ip_protocol::TCP), "the server goes on");
        closing.protocol.peers[1].flags = peer_flags::FIN_SENT;
        assert!(!CellState::of(&closing).is_established(ip_protocol::TCP), "now both have closed");
        closing.protocol.peers[1].flags = peer_flags::DIRECT;
        assert!(!CellState::of(&closing).is_established(ip_protocol::TCP), "what the server sends is never seen");
        closing.protocol.peers = Default::default();
        assert!(!CellState::of(&closing).is_established(ip_protocol::TCP), "nobody knows of a FIN");
    }

    #[test]
    fn what_is_established_is_what_both_sides_have_agreed_to() {
        let established =
            |protocol, state, flags| CellState::of(&connection(protocol, state, flags)).is_established(protocol);
        let tcp = TcpState::ALL.map(|state| established(ip_protocol::TCP, state as u8, flags::REPLIED));
        assert_eq!(tcp, [false, false, false, true, true, true, true, false, false, false]);
        assert!(established(ip_protocol::UDP, UdpState::Replied as u8, flags::REPLIED));
        assert!(!established(ip_protocol::UDP, UdpState::Unreplied as u8, 0));
        assert!(established(47, 0, flags::REPLIED), "protocols without states by their answer");
    }

    #[test]
    fn a_class_takes_the_place_of_the_flags_that_it_implies() {
        for state in [TcpState::Established, TcpState::FinWait, TcpState::CloseWait, TcpState::TimeWait] {
            let cell = CellState::of(&connection(ip_protocol::TCP, state as u8, flags::REPLIED | flags::ASSURED));
            assert_eq!(cell.class(), None);
            for class in 0..CLASSES_MAX {
                let with_class = cell.with_class(class);
                assert_eq!(with_class.class(), Some(class));
                assert_eq!(with_class.connection_flags(), flags::REPLIED | flags::ASSURED);
                assert_eq!(with_class.protocol_state(ip_protocol::TCP), cell.protocol_state(ip_protocol::TCP));
                assert_eq!(with_class.is_established(ip_protocol::TCP), cell.is_established(ip_protocol::TCP));
            }
            assert_eq!(cell.with_class(CLASSES_MAX), cell);
        }
        let replied = CellState::of(&connection(ip_protocol::UDP, UdpState::Replied as u8, flags::REPLIED));
        for (cell, flags) in
            [(replied, flags::REPLIED), (CellState(replied.0 | ASSURED), flags::REPLIED | flags::ASSURED)]
        {
            for class in 0..CLASSES_MAX {
                let with_class = cell.with_class(class);
                assert_eq!((with_class.class(), with_class.connection_flags()), (Some(class), flags));
                assert_eq!(with_class.protocol_state(ip_protocol::UDP), cell.protocol_state(ip_protocol::UDP));
                assert!(with_class.is_established(ip_protocol::UDP));
            }
        }
        let unreplied = CellState::of(&connection(ip_protocol::UDP, 0, 0));
        assert_eq!(unreplied.with_class(3), unreplied, "its flags would be lost");
    }

    #[test]
    fn numbers_that_no_state_has_can_be_gone_on_with() {
        for number in 0..=255 {
            let state = CellState::from_number(number).protocol_state(ip_protocol::TCP).state;
            assert!((1..10).contains(&state), "{state}");
        }
    }
}
