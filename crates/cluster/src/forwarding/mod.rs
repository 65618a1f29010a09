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
//! The node's own frames are polled by [`Forwarder::poll_transmit`].
//!
//! Shared addresses are of groups ([`crate::GroupId`]), each of which is held or not; a node that holds any forwards.
//! A standby node neither holds the shared addresses nor forwards, but learns neighbours from what it receives, so that after a
//! take-over nothing waits for resolution. It knows nothing of why it is active.
//!
//! Ports are untagged: a frame with an 802.1Q tag is not forwarded. An IPv4 packet that is too large for its way out is
//! fragmented if it allows that; otherwise its sender receives the MTU in an ICMP error.

mod address;
mod address_report;
mod advertising;
mod announcement;
mod answers;
mod as_received;
mod config;
mod conflict;
mod defence;
mod duplicate_address;
mod encapsulation;
mod error_cause;
mod error_message;
mod forwarder;
mod holding;
mod learning;
mod mss_clamp;
mod neighbour;
mod next_hop_link;
mod next_hop_probe;
mod out_frame;
mod oversize;
mod path_frames;
mod planned;
mod reconfigure;
mod refusal;
mod route;
mod router_advertising;
mod sharing;
mod source_check;
#[cfg(test)]
mod tests;
mod tunnel;

pub use address_report::{AddressReport, AddressReportKind};
pub use announcement::{ANNOUNCE_REFRESH_DEFAULT, ANNOUNCEMENT_ROUNDS};
pub use as_received::AsReceived;
pub use config::{
    ADDRESSES_PER_PORT_MAX, Config, ConfigError, MssClamp, Port, ROUTES_MAX, ReversePath, Route, RouterAdvertisements,
    Shared,
};
pub use conflict::{AddressConflict, CONFLICTS_MAX};
pub use duplicate_address::PROBED_ADDRESSES_MAX;
pub use error_message::{ERROR_BURST_MAX, ERRORS_PER_SECOND_MAX};
pub use flow::Prefix;
pub use forwarder::{Admission, CONTROL_FRAMES_MAX, Counters, Forwarder, NextHop};
pub use learning::{Learning, Sharing};
pub use neighbour::{
    NEIGHBOURS_MAX, NeighbourState, QUEUED_MAX_BYTES, QUEUED_PACKETS_MAX, QUEUED_PACKETS_PER_NEIGHBOUR_MAX,
    QUEUED_PER_NEIGHBOUR_MAX_BYTES, SOLICITATIONS_MAX,
};
pub use out_frame::OutFrame;
pub use oversize::FRAGMENT_FRAMES_MAX;
pub use path_frames::is_path_frame;
pub(crate) use path_frames::path_frame_worker;
pub(crate) use path_frames::{Kind as PathFrameKind, PathFrame, PathFrameTo, PathHeader};
pub use path_frames::{
    PATH_DATAGRAM_BYTES_MAX, PATH_ETHER_TYPE, PATH_FRAMES_MAX, PATH_HEADER_BYTES, PATH_MAC, PathId, PathTraffic,
};
pub use planned::PlannedLink;
pub use reconfigure::ReconfigureError;
pub use sharing::LEARNINGS_WAITING_MAX;
