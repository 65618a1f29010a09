//! Segments in fragments: the tracker sees the first, which has the header but not all of the data.

use super::{ProtocolState, peer_flags};
use crate::Direction;
use crate::serial::is_after;

/// A sender has sent up to `end` (exclusive), in a later fragment. The receiver acknowledges the segment when it has
/// all of it, after all of it has passed here.
pub(in crate::conntrack) fn extend(state: &mut ProtocolState, direction: Direction, end: u32) {
    let sender = &mut state.peers[direction.index()];
    // A side without a window is unknown: there is nothing to extend.
    if sender.window_max != 0 && is_after(end, sender.end) {
        sender.end = end;
        sender.flags |= peer_flags::UNACKNOWLEDGED;
    }
}
