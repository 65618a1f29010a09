//! Segments that come in fragments: the tracker sees the first, which has the header but not all of the data.

use super::{ProtocolState, peer_flags};
use crate::Direction;
use crate::serial::is_after;

/// A sender has sent up to `end` (exclusive), in a fragment behind the first. The receiver acknowledges the segment when
/// it has all of it, which is after all of it has gone by here.
pub(in crate::conntrack) fn extend(state: &mut ProtocolState, direction: Direction, end: u32) {
    let sender = &mut state.peers[direction.index()];
    // Nothing is known of a side that has no window: there is nothing to extend.
    if sender.window_max != 0 && is_after(end, sender.end) {
        sender.end = end;
        sender.flags |= peer_flags::UNACKNOWLEDGED;
    }
}
