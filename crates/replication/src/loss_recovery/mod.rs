//! The parts of loss recovery that several protocols have in common (RFC 9002 is the textbook).
//!
//! * [`LossRecovery`]: the datagrams or messages in flight, their numbers, and the timer that probes for acknowledgements.
//! * [`AckTimer`]: when a receiver's acknowledgement is due.
//! * [`RttEstimator`]: how long a datagram and its acknowledgement take.
//!
//! The native session and [`crate::compact`] use all of it. The tunnel between sites retransmits datagrams under their old numbers,
//! so it keeps them itself; it uses the timer of acknowledgements and the estimator.

mod ack_timer;
mod rtt;
mod sender;

pub use ack_timer::AckTimer;
pub use rtt::RttEstimator;
pub use sender::{LossRecovery, NeverSent, ProbeTimeouts};
