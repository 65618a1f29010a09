//! A segment of a known connection.

use super::automaton::Kind;
use super::state::TcpState;
use crate::connection::Direction;
use crate::conntrack::timeouts::TrackerConfig;
use crate::protocol_state::ProtocolState;
use crate::wire::TcpSegment;

/// A segment with the context of its evaluation.
pub(super) struct Arrival<'a> {
    pub(super) config: &'a TrackerConfig,
    pub(super) state: &'a mut ProtocolState,
    pub(super) flags: &'a mut u8,
    pub(super) direction: Direction,
    pub(super) kind: Kind,
    pub(super) segment: &'a TcpSegment,
    /// The state that the segment is checked against.
    pub(super) from: TcpState,
}
