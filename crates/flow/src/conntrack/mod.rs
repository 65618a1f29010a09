//! Connection tracking: the automata of TCP, UDP, ICMP queries and everything else.

use core::time::Duration;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::wire::Headers;
use crate::{Direction, DropReason, Instant};

/// What is known of one side of a TCP connection as a sender (the window tracking of Guido van Rooij, "Real Stateful TCP
/// Packet Filtering in IP Filter", as Linux has it).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TcpPeer {
    /// Highest sequence number sent, plus one.
    pub end: u32,
    /// Highest sequence number that the other side lets it send.
    pub end_max: u32,
    /// Largest window that it advertised, scaled; 0 while nothing is known of this side.
    pub window_max: u32,
    /// Highest acknowledgement that it sent.
    pub acknowledged_max: u32,
    /// Shift of the windows that it advertises (RFC 7323).
    pub window_scale: u8,
    /// Bits of [`peer_flags`].
    pub flags: u8,
    #[doc(hidden)]
    pub reserved: [u8; 2],
}

pub mod peer_flags {
    //! Bits of [`super::TcpPeer::flags`].
    /// The side offered window scaling.
    pub const WINDOW_SCALE: u8 = 1;
    /// The side permits selective acknowledgements.
    pub const SACK_PERMITTED: u8 = 2;
    /// The side sent FIN.
    pub const FIN_SENT: u8 = 4;
    /// Segments outside the window are let through.
    pub const LIBERAL: u8 = 8;
    /// Data was sent that is not acknowledged.
    pub const UNACKNOWLEDGED: u8 = 16;
    /// An acknowledgement of data that was never seen was let through once (RFC 5961 challenge).
    pub const CHALLENGE: u8 = 32;
}

/// Where a connection's automaton stands, whatever its protocol: one cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProtocolState {
    /// The state's number, of the automaton that the tuple's protocol chooses.
    pub state: u8,
    /// Last kind of segment seen (TCP; an index of the transition table).
    pub last_kind: u8,
    /// Direction of the last segment (TCP).
    pub last_direction: u8,
    /// Retransmissions of the same segment seen in a row (TCP).
    pub retransmissions: u8,
    /// The last segment's sequence number (TCP).
    pub last_sequence: u32,
    /// The last segment's acknowledgement (TCP).
    pub last_acknowledgement: u32,
    /// The last segment's end (TCP).
    pub last_end: u32,
    /// The last segment's window, not scaled (TCP).
    pub last_window: u16,
    /// The last SYN's window scale (TCP).
    pub last_window_scale: u8,
    /// The last SYN's peer flags (TCP).
    pub last_flags: u8,
    /// The two sides, by the direction in which they send (TCP).
    pub peers: [TcpPeer; 2],
    #[doc(hidden)]
    pub reserved: [u8; 4],
}

/// How much a packet changed of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// Nothing that another node needs.
    None,
    /// Something within the state (a window, a flag).
    Detail,
    /// The automaton's state.
    State,
}

/// What becomes of a connection after a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It goes on.
    Keep,
    /// It has ended: remove it now.
    Close,
    /// It has ended and the packet begins a new one with the same tuple: remove it and begin again.
    Reopen,
}

/// What tracking says of a packet of a known connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advance {
    /// Whether the packet may pass.
    pub verdict: Result<(), DropReason>,
    /// How much changed.
    pub change: Change,
    /// What becomes of the connection.
    pub next: Next,
    /// How long the connection lives if nothing more comes; `None` leaves its expiry as it is.
    pub timeout: Option<Duration>,
}

/// The automata, with their timeouts and options: read-only while packets flow.
#[derive(Clone, Debug, Default)]
pub struct Tracker {}

impl Tracker {
    /// The first packet of a tuple that is in no table. Returns where its automaton starts and how long it lives unanswered.
    ///
    /// # Errors
    /// The packet begins no connection.
    pub fn begin(&self, headers: &Headers) -> Result<(ProtocolState, Duration), DropReason> {
        let _ = headers;
        Err(DropReason::NoConnection)
    }

    /// A packet of a known connection. `flags` are those of the connection's record ([`crate::connection::flags`]).
    pub fn advance(
        &self,
        now: Instant,
        state: &mut ProtocolState,
        flags: &mut u8,
        direction: Direction,
        headers: &Headers,
    ) -> Advance {
        let _ = (now, state, flags, direction, headers);
        Advance { verdict: Err(DropReason::NoConnection), change: Change::None, next: Next::Keep, timeout: None }
    }

    /// This node takes over a connection whose copy is older than what its peers have sent since: windows that a copy
    /// cannot know are learnt afresh from the next segment of each side. State and window scales stay.
    pub fn take_over(&self, protocol: u8, state: &mut ProtocolState) {
        let _ = (protocol, state);
    }
}
