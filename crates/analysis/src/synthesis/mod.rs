//! Traffic of stated statistics, for where captures are not to be had.
//!
//! [`ReplicationTraffic`] is made of connections: how many begin, how long they last, how many are never answered.
//! [`RedundancyTraffic`] is made of bytes: how many of them were sent before, where and in runs of what length. Both are
//! streams of Ethernet frames in the order of their times, in bounded memory, with right checksums and sequence numbers, so
//! that what follows connections follows these. The same configuration and seed give the same frames, in one release
//! of the program.

mod calendar;
mod endpoints;
mod random;

pub mod redundancy;
pub mod replication;

use flow::Instant;

pub use random::Quantiles;

pub use redundancy::{RedundancyConfig, RedundancyTraffic};
pub use replication::{ReplicationConfig, ReplicationTraffic};

/// The default begin of synthetic captures: 1 January 2024, 00:00 UTC.
pub const BEGINS_AT: Instant = Instant::from_nanos(1_704_067_200_000_000_000);

/// A configuration that no traffic can be made of.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A number is not within what is possible.
    #[error("{what} is {value}: it must be from {least} to {most}")]
    OutOfRange {
        /// Which one.
        what: &'static str,
        /// What it is.
        value: f64,
        /// The least that it can be.
        least: f64,
        /// The most that it can be.
        most: f64,
    },
    /// Shares do not sum to 1.
    #[error("the shares of {what} sum to {sum}, and must sum to 1")]
    Shares {
        /// Of what.
        what: &'static str,
        /// What they sum to.
        sum: f64,
    },
    /// A distribution that is none.
    #[error("a distribution of {0} must have shares that rise from 0 to 1 and values that do not fall")]
    Distribution(&'static str),
    /// More connections would be open at a time than are kept.
    #[error(
        "about {expected:.0} connections would be open at a time, and {most} are kept: lower the rate or the lifetimes"
    )]
    TooManyOpen {
        /// How many to expect.
        expected: f64,
        /// How many are kept.
        most: u32,
    },
    /// Clients would use a port again while the connection that has it is open.
    #[error(
        "{clients} clients have too few ports for {rate:.0} connections a second of up to {longest_s:.0} s: ask for at least {needed} clients"
    )]
    TooFewClients {
        /// How many there are.
        clients: u32,
        /// Connections a second.
        rate: f64,
        /// The longest connection, in seconds.
        longest_s: f64,
        /// How many there would have to be.
        needed: u64,
    },
    /// More is to be redundant than can be.
    #[error(
        "a redundancy of {redundancy} cannot be had with {encrypted} of the bytes encrypted: what is encrypted repeats nothing"
    )]
    NothingToRepeat {
        /// The share asked for.
        redundancy: f64,
        /// The share that is encrypted.
        encrypted: f64,
    },
}

/// Refuses a number that is not within a range, or is no number at all.
pub(crate) fn within(what: &'static str, value: f64, range: std::ops::RangeInclusive<f64>) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(ConfigError::OutOfRange { what, value, least: *range.start(), most: *range.end() })
}

/// Refuses shares that do not sum to 1.
pub(crate) fn sums_to_one(what: &'static str, shares: impl Iterator<Item = f64>) -> Result<(), ConfigError> {
    let sum: f64 = shares.sum();
    if (sum - 1.0).abs() < 1e-6 { Ok(()) } else { Err(ConfigError::Shares { what, sum }) }
}
