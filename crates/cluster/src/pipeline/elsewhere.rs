//! This node's own connections whose packets another node may have forwarded meanwhile.
//!
//! While a peer is silent and not known to be standby, or is known to hold addresses that this node holds too, it may forward
//! packets of connections that this node owns. What it forwarded, this node has not seen: the windows of TCP that it knows are
//! older than the connection, and a segment that is right would be out of window. So the windows are relearnt, as a replica's
//! are at a take-over (see [`flow::conntrack::Tracker::take_over`]).
//!
//! What that weakens is bounded. It concerns a connection of which no packet was seen here for [`QUIET_MIN`], and whose last
//! packet here lies before the end of such a time. The first packet after that is not checked against windows, whatever its sender; a
//! RST among the first does not end the connection. A connection that goes on here without such a pause is checked strictly
//! throughout, and one that was checked once after the end of such a time is checked strictly ever after.

use core::time::Duration;

use flow::connection::flags;
use flow::conntrack::Tracker;
use flow::{Connection, Instant};

/// A connection whose packets come here does not pause so long while its packets are forwarded elsewhere as well.
pub const QUIET_MIN: Duration = Duration::from_millis(200);

/// When another node may have forwarded packets of this node's connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum ForwardedElsewhere {
    /// At no time.
    #[default]
    Never,
    /// Now.
    Now,
    /// Last at this time.
    Until(Instant),
}

impl ForwardedElsewhere {
    /// A peer may be forwarding packets of this node's connections now, or may not any more.
    pub(super) fn set(&mut self, now: Instant, may_be: bool) {
        *self = match *self {
            _ if may_be => Self::Now,
            Self::Now => Self::Until(now),
            before => before,
        };
    }

    /// Whether packets of the connection, which is this node's own, may have been forwarded elsewhere since its last packet
    /// was seen here.
    #[inline]
    pub(super) fn concerns(self, now: Instant, tracker: &Tracker, connection: &Connection) -> bool {
        match self {
            Self::Never => false,
            Self::Now => is_quiet(now, tracker, connection, now),
            Self::Until(until) => is_quiet(now, tracker, connection, until),
        }
    }
}

/// Whether the last packet was seen before `until` and [`QUIET_MIN`] ago. Connections that are known to be shared are not held
/// against windows at all.
#[cold]
fn is_quiet(now: Instant, tracker: &Tracker, connection: &Connection, until: Instant) -> bool {
    if connection.flags & flags::SHARED != 0 {
        return false;
    }
    let protocol = connection.original.protocol;
    let lives_for = tracker.timeout_after_last(protocol, &connection.protocol, connection.flags);
    let Some(lives_for) = lives_for else { return false };
    // The expiry is the time of the last packet and what the connection was given then: what its state implies, or all if that
    // is less by now. A segment slightly beyond the window, for example, leaves data unacknowledged and does not extend a lifetime.
    let expires_at = connection.expires_at();
    let is_more = expires_at > now + lives_for;
    let given = if is_more { tracker.timeout(protocol, &connection.protocol, connection.flags) } else { lives_for };
    expires_at < until + given && expires_at + QUIET_MIN <= now + given
}
