//! The routed edge of a node: where a packet goes next, and to which link address.
//!
//! A [`Forwarder`] holds the ports' addresses, the routes, and the neighbours (ARP, RFC 826; Neighbour Discovery,
//! RFC 4861). The way of a packet:
//!
//! ```text
//!   frame ── ARP ────────────► handle_arp
//!     │ IP
//!   admit ── Local ──────────► handle_local      (neighbour discovery, echo)
//!     │   └─ Refused(reason)                     (not active, time to live run out, not for this node)
//!     │ Transit
//!   the node's functions (which may change the destination)
//!     │
//!   forward ── Transmit(port) | Consumed (kept until the next hop's link address is known) | Drop(reason)
//! ```
//! What it has to say on its own account is polled by [`Forwarder::poll_transmit`].
//!
//! Shared addresses are of groups ([`crate::GroupId`]), each of which is held or not; a node that holds any forwards.
//! A node that stands by neither answers for the shared addresses nor forwards, but learns neighbours from what it
//! hears, so that after a take-over nothing waits for resolution. It knows nothing of why it is active.
//!
//! Ports are untagged: a frame with an 802.1Q tag is not forwarded. An IPv4 packet that is too large for its way out is cut
//! into fragments if it allows that; of others that are, the sender is told the way's MTU.

mod address;
mod announcement;
mod answers;
mod config;
mod error_message;
mod forwarder;
mod holding;
mod mss_clamp;
mod neighbour;
mod oversize;
mod probe;
mod reconfigure;
mod refusal;
mod route;
mod sharing;
#[cfg(test)]
mod tests;
mod tunnel;

pub use announcement::ANNOUNCEMENT_ROUNDS;
pub use config::{ADDRESSES_PER_PORT_MAX, Config, ConfigError, Port, Prefix, ROUTES_MAX, Route, Shared};
pub use error_message::{ERROR_BURST_MAX, ERRORS_PER_SECOND_MAX};
pub use forwarder::{Admission, CONTROL_FRAMES_MAX, Counters, Forwarder, NextHop, OutFrame};
pub use mss_clamp::MssClamp;
pub use neighbour::{
    NEIGHBOURS_MAX, NeighbourState, QUEUED_MAX_BYTES, QUEUED_PACKETS_MAX, QUEUED_PACKETS_PER_NEIGHBOUR_MAX,
    QUEUED_PER_NEIGHBOUR_MAX_BYTES, SOLICITATIONS_MAX,
};
pub use oversize::CUT_FRAMES_MAX;
pub use reconfigure::ReconfigureError;
pub use sharing::{LEARNINGS_WAITING_MAX, Learning, Sharing};
