//! Bidirectional Forwarding Detection (RFC 5880) in asynchronous mode over one hop (RFC 5881), as a value.
//!
//! A [`Session`] takes packets and the time, and yields packets and events. It knows no socket: its owner carries its packets
//! in UDP datagrams to port 3784 with a time to live of 255, from a source port in 49152–65535 (RFC 5881 section 4).
//!
//! With the default [`Config`] a silent peer is detected after 100 ms. Ten intervals of 10 ms rather than three of
//! 33 ms, for the same delay: a link that loses a fifth of its packets breaks three in a row every few seconds,
//! ten in a row once in 10⁷ packets.
//!
//! Not supported: demand mode, the echo function, authentication, multipoint.

mod config;
mod diagnostic;
mod error;
mod packet;
mod session;
mod state;
#[cfg(test)]
mod tests;

pub use config::{Config, ConfigError};
pub use diagnostic::Diagnostic;
pub use error::BfdError;
pub use packet::{CONTROL_PACKET_BYTES, ControlPacket};
pub use session::{EVENTS_PENDING_MAX, Event, Pace, Session, Status};
pub use state::State;

/// The time to live that a packet must arrive with: it has crossed no router (RFC 5881 section 5).
pub const TIME_TO_LIVE: u8 = 255;
/// The UDP port that control packets are sent to (RFC 5881 section 4).
pub const UDP_PORT: u16 = 3784;
