//! TCP segments of no connection.

use flow::wire::Packet;

use super::Chain;
use crate::function::Stray;

impl Chain {
    /// Whether a TCP segment of no connection may be answered by a reset: the functions up to the first that would translate it permit
    /// its connection. Without one that would, the answer is `is_always`.
    #[must_use]
    pub fn may_reset_stray(&self, packet: &Packet<'_, '_>, is_always: bool) -> bool {
        for link in &self.links {
            match link.function.classify_stray(packet) {
                Stray::Denied => return false,
                Stray::Served => return true,
                Stray::Unknown => {}
            }
        }
        is_always
    }
}
