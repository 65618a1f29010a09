//! The state of a connection's automaton: the part of the record that [`conntrack`](crate::conntrack) reads and writes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The state of one side of a TCP connection as a sender (the window tracking of Guido van Rooij, "Real Stateful TCP
/// Packet Filtering in IP Filter", as Linux implements it).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TcpPeer {
    /// Highest sequence number sent, plus one. SCTP: the verification tag that the side's packets carry; 0 while it is not known.
    pub end: u32,
    /// Highest sequence number that the other side permits. SCTP: the tag that the other side offers in a second
    /// handshake beside an established association; 0 if there is none.
    pub end_max: u32,
    /// Largest advertised window, in bytes; 0 while this side is unknown.
    pub window_max: u32,
    /// Its highest acknowledgement; valid if [`peer_flags::ACKNOWLEDGED`] is set.
    pub acknowledged_max: u32,
    /// Shift of the windows that it advertises (RFC 7323).
    pub window_scale: u8,
    /// Bits of [`peer_flags`].
    pub flags: u8,
    /// While [`peer_flags::RELEARNING`] is set: the upper half of the sequence number whose acknowledgement ends
    /// relearning.
    pub relearnt_at: u16,
}

pub mod peer_flags {
    //! Bits of [`super::TcpPeer::flags`].
    /// The side offered window scaling.
    pub const WINDOW_SCALE: u8 = 1;
    /// The side permits selective acknowledgements.
    pub const SACK_PERMITTED: u8 = 2;
    /// The side sent FIN.
    pub const FIN_SENT: u8 = 4;
    /// Segments outside the window pass.
    pub const LIBERAL: u8 = 8;
    /// Some data is unacknowledged.
    pub const UNACKNOWLEDGED: u8 = 16;
    /// The side has acknowledged something.
    pub const ACKNOWLEDGED: u8 = 32;
    /// The connection was taken over, and this side may have sent more than was seen here. With `window_max` 0, no
    /// segment of the side has arrived since.
    pub const RELEARNING: u8 = 64;
    /// The side's segments do not pass here: the server answers the client directly. Of the reply side only.
    pub const DIRECT: u8 = 128;
}

pub mod last_flags {
    //! Bits of [`super::ProtocolState::last_flags`].
    /// The last SYN offered window scaling.
    pub const WINDOW_SCALE: u8 = super::peer_flags::WINDOW_SCALE;
    /// The last SYN permits selective acknowledgements.
    pub const SACK_PERMITTED: u8 = super::peer_flags::SACK_PERMITTED;
    /// A SYN was seen in LAST_ACK: the next ACK may be a challenge (RFC 5961 section 4) rather than that of the last
    /// FIN.
    pub const CHALLENGE_EXPECTED: u8 = 4;
    /// Both sides sent a SYN (RFC 9293 section 3.5, simultaneous open).
    pub const SIMULTANEOUS_OPEN: u8 = 8;
}

/// The state of a connection's automaton, for any protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProtocolState {
    /// The state's number, of the automaton that the tuple's protocol chooses ([`TcpState`](crate::conntrack::TcpState),
    /// [`UdpState`](crate::conntrack::UdpState), [`SctpState`](crate::conntrack::SctpState), else 0).
    pub state: u8,
    /// Last kind of segment seen (TCP; an index of the transition table).
    pub last_kind: u8,
    /// Direction of the last segment (TCP).
    pub last_direction: u8,
    /// Consecutive retransmissions of the same segment (TCP).
    pub retransmissions: u8,
    /// TCP: the last segment's sequence number. UDP: the time of the first reply, in milliseconds of
    /// [`Instant`](crate::Instant), modulo 2^32.
    pub last_sequence: u32,
    /// The last segment's acknowledgement (TCP).
    pub last_acknowledgement: u32,
    /// The last segment's end (TCP).
    pub last_end: u32,
    /// The last segment's window, not scaled (TCP).
    pub last_window: u16,
    /// The last SYN's window scale (TCP).
    pub last_window_scale: u8,
    /// Bits of [`last_flags`] (TCP).
    pub last_flags: u8,
    /// The two sides, by the direction in which they send (TCP, SCTP).
    pub peers: [TcpPeer; 2],
}

// With the record's own tick; see [`crate::Connection`].
const _: () = assert!(size_of::<ProtocolState>() == 60, "a connection's automaton fits one cache line");
