//! What the table and the tracker know of a segment's connection.

use flow::conntrack::{TcpState, peer_flags};
use flow::table::Table;
use flow::{Connection, Direction, Tuple};

/// A number for a tuple, and another one for its inverse; the table's hash is the same for both.
pub(in crate::pipeline) fn directed_hash(table: &Table, tuple: &Tuple) -> u64 {
    let is_reversed = (tuple.source, tuple.source_port) > (tuple.destination, tuple.destination_port);
    table.hash(tuple) ^ u64::from(is_reversed)
}

/// The lowest number of `direction` that its receiver has not acknowledged. `None`: nothing is known.
pub(in crate::pipeline) fn unacknowledged(connection: &Connection, direction: Direction) -> Option<u32> {
    let receiver = &connection.protocol.peers[direction.reverse().index()];
    let is_known = receiver.flags & peer_flags::ACKNOWLEDGED != 0;
    is_known.then_some(receiver.acknowledged_max)
}

/// The connection has ended, and only late segments may come.
pub(in crate::pipeline) fn is_closed(connection: &Connection) -> bool {
    matches!(TcpState::from_u8(connection.protocol.state), Some(TcpState::TimeWait | TcpState::Close))
}
