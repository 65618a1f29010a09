//! What redundancy elimination would save on one's own traffic: the measurement study of RE, chapter 2 and section 4.5.
//!
//! ```text
//!  captures ─► Trace ─► classify ─► batches ─┬► thread: jobs ─┐
//!                                            └► thread: jobs ─┴► outcomes ─► State (a line a job) ─► RedundancyResult ─► Report, JSON
//! ```
//! A study consists of [`plan::Job`]s: a codec with its parameters, a bound, a compression library, a microscope. Each sees every
//! packet of a site once, in order, with one cache for each way over the link. Several go over the captures together, as many as
//! fit the memory that is allowed; what they found is kept when they are through, and a study that was interrupted goes on with
//! those that are not. Captures of different links are sites of their own, studied at the same time; what was found is added up.
//!
//! Nothing is held of a capture but a few batches and what the caches of the jobs hold ([`limits`]).

mod analysis;
mod classify;
mod compressors;
mod end_hosts;
mod http;
mod ledger;
pub mod limits;
mod link;
mod magnitudes;
mod microscope;
pub mod optimal;
pub mod options;
mod outcome;
mod packet;
pub mod page;
pub mod plan;
mod protocol;
pub mod result;
mod run;
mod second_stage;
mod source;
mod state;
mod tally;
#[cfg(test)]
mod tests;
mod trained;
mod training;

use std::io;
use std::path::PathBuf;

pub use self::options::{Network, Options, Site, digest_of};
pub use self::packet::{Observed, SiteDirection};
pub use self::result::RedundancyResult;
pub use self::run::{Open, Progress, Watch, run};
pub use self::source::{Source, TraceSource};
pub use self::state::State;
use crate::trace::TraceError;

/// Why a study does not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// Captures cannot be opened.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A file of the study's own, or a capture when it is looked at the first time.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Two studies cannot write one state.
    #[error("{}: another study of the same captures is at work: wait for it, or write to another folder", .0.display())]
    InUse(PathBuf),
    /// It was stopped on request.
    #[error("the study was stopped: what is finished is kept, and the same command goes on from there")]
    Stopped,
    /// A mistake of the program's.
    #[error("the study failed within itself, which is a mistake of the program's: please report it with the capture")]
    Panicked,
    /// A cache that no encoder takes.
    #[error("a cache has from 65536 to 268435456 bytes, not {0}: 10485760 is usual")]
    Cache(usize),
}
