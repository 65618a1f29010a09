//! Lazy insertion: connections are told once they have lived for a while (MLCBF, section 3.5).
//!
//! Most connections are short, and telling a backup of one that is about to end is work for nothing. So a connection is
//! *put off*: only when it is older than a threshold, it is told; one that ends before costs no message at all. What a
//! failover then loses is connections younger than the threshold, which their users begin again most easily.
//!
//! ```text
//!             threshold 0, or must be told                       older than the threshold
//!   begun ──┬───────────────────────────────► told ◄───────────────────────────────┬── idle: no packet since long
//!           └──────────────────────────────► put off ──► looked at when due ───────┴──────►──┘      │ looked at again
//!                                               │ ends, or says its farewell                        ▼
//!                                               └──────────────────────────────► spared: nobody is told
//! ```
//!
//! * [`Config`]: a fixed threshold, or [`Dynamic`]: as long as the processor is busier than it should be, more and more of the
//!   connections are put off.
//! * [`Controller`] is the seed's algorithm 2 as a value: [`Lifetimes`] and utilisation in, a threshold out.
//! * [`LazyInsertion`] knows which connections are put off, and when each is due.
//!
//! It knows no connection, only [`Handle`](crate::Handle)s: whether one that is due is still there, and how long packets have come for
//! it, its owner says ([`Age`]).

mod config;
mod controller;
mod insertion;
mod lifetimes;
mod queue;
#[cfg(test)]
mod tests;

pub use config::{Config, ConfigError, Dynamic, LEVELS_MAX, LIFETIME_BINS_MAX};
pub use controller::Controller;
pub use insertion::{Age, Due, IDLE_LOOK_AGAIN, LazyInsertion, LazyStatus, TICK};
pub use lifetimes::Lifetimes;
