//! TCP across a failover: how long connections stall, and when they complete, with and without local recovery.
//!
//! The formulas are those of \[HALR\] chapter 5. [`Model`] evaluates them for a [`FailoverConfig`], and [`simulate`] checks them against
//! a sender and a receiver that exchange segments. [`RetransmissionSchedule`] has the retransmission times of Linux and of \[HALR\]. The
//! module opens no file and reads no clock; an RNG seed reproduces every simulation.
//!
//! ```
//! use analysis::tcp_failover::{FailoverConfig, Kind, Model};
//!
//! let model = Model::new(&FailoverConfig { outage_s: 3.0, ..FailoverConfig::default() })?;
//! let estimate = model.estimate(Kind::Bulk);
//! // Without local recovery the sender waits for its next timeout although the path is back.
//! assert!(estimate.stall_s.without > 0.5 && estimate.stall_s.with == 0.0);
//! # Ok::<(), analysis::tcp_failover::ConfigError>(())
//! ```

mod config;
mod long_flow;
mod model;
mod page;
mod schedule;
mod short_flow;
mod simulation;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod validation;
mod window;

pub use config::{
    Arrival, ConfigError, Equations, FailoverConfig, Flow, Kind, OUTAGE_S_MAX, RecoveryPolicy, SEGMENTS_MAX,
    SHORT_SEGMENTS_MAX,
};
pub use long_flow::{LongFlow, throughput_per_s};
pub use model::{Estimate, Model, WithAndWithout, median};
pub use page::{SweepRow, report, sweep};
pub use schedule::{Backoff, RetransmissionSchedule, ScheduleKind};
pub use short_flow::ShortFlow;
pub use simulation::{SEEDS_MAX, simulate};
