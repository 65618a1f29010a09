//! Lazy insertion: connections are replicated once they have lived for a while (MLCBF, section 3.5).
//!
//! Most connections are short, and replicating one that is about to end is work for nothing. So a connection is *deferred*: it
//! is replicated when it is older than a threshold, and costs no message if it ends before. A failover then loses connections
//! younger than the threshold, which their users begin again most easily.
//!
//! ```text
//!            threshold 0, or urgent                         older than the threshold
//!   begun ──┬───────────────────────────────► replicated ◄────────────────────────┬── idle: no packet since long
//!           └──────────────────────────────► deferred ──► looked at when due ─────┴──────►──┘      │ looked at again
//!                                               │ ends or closes                                   ▼
//!                                               └─────────────────────────► never replicated ◄─────┘
//! ```
//!
//! * [`Config`]: a fixed threshold, or [`Dynamic`]: as long as the processor is busier than it should be, more and more of the
//!   connections are deferred.
//! * [`Controller`] is algorithm 2 of MLCBF as a value: [`Lifetimes`] and utilisation in, a threshold out.
//! * [`DeferralQueue`] knows which connections are deferred, and when each is due.
//!
//! It knows no connection, only [`Handle`](crate::Handle)s. The owner supplies whether one that is due is still there, and how
//! long packets have come for it ([`Age`]).

mod config;
mod controller;
mod insertion;
mod lifetimes;
mod queue;
#[cfg(test)]
mod tests;

pub use config::{Config, ConfigError, Dynamic, LEVELS_MAX, LIFETIME_BINS_MAX};
pub use controller::Controller;
pub use insertion::{Age, DeferralQueue, DeferralStatus, Due, IDLE_RECHECK_INTERVAL, TICK};
pub use lifetimes::Lifetimes;
