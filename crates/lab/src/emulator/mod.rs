//! A link of known quality between two network namespaces: `mainstay link`, and [`Link`] for benchmarks and tests.
//!
//! A process of its own makes a tunnel device in each namespace and carries packets between them by its settings:
//! [`channel`] decides which arrive and when, without a clock; `process` moves them at that time, and reports how late
//! it was. Who measures through a link asks for its [`LinkReport`] and throws away runs in which it was late
//! ([`LinkReport::is_too_late`]).
//!
//! ```no_run
//! use std::time::Duration;
//! use lab::emulator::{BOTH, Direction, Link, LinkPlan};
//! use lab::emulator::channel::Settings;
//! use packet_io::namespace::Namespace;
//! use packet_io::netlink::Prefix;
//!
//! # fn main() -> Result<(), lab::emulator::LinkError> {
//! let ends = [Namespace::new()?, Namespace::new()?];
//! let plan = LinkPlan {
//!     addresses: [vec![Prefix::new([10, 0, 0, 1].into(), 30)], vec![Prefix::new([10, 0, 0, 2].into(), 30)]],
//!     ..LinkPlan::symmetric(Settings { delay: Duration::from_millis(25), ..Settings::default() })
//! };
//! let mut link = Link::start(&plan, [&ends[0], &ends[1]])?;
//! link.interrupt(&[Direction::Forward], Some(Duration::from_millis(500)))?;
//! link.command("backward loss 0.2")?;
//! link.restore(&BOTH)?;
//! assert!(!link.finish()?.is_too_late());
//! # Ok(())
//! # }
//! ```

mod args;
pub mod channel;
mod command;
mod link;
mod process;
mod report;
mod tardiness;

use serde::{Deserialize, Serialize};

pub use args::LinkArgs;
pub use link::{Link, LinkError, LinkPlan};
pub use process::{EmulatorError, run};
pub use report::{DirectionReport, LATENESS_P99_US_MAX, Lateness, LinkReport};

/// A direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the first namespace to the second.
    Forward,
    /// From the second to the first.
    Backward,
}

/// Both directions.
pub const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

impl Direction {
    /// As commands have it.
    const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        }
    }

    fn parse(name: &str) -> Option<&'static [Self]> {
        match name {
            "forward" => Some(&[Self::Forward]),
            "backward" => Some(&[Self::Backward]),
            _ => None,
        }
    }

    /// Which end its packets come from.
    const fn source(self) -> usize {
        match self {
            Self::Forward => 0,
            Self::Backward => 1,
        }
    }
}
