//! The model of TCP across a failover, beside flows in ns-3: `mainstay model failover --ns3`.
//!
//! The scenario is `crates/lab/ns3/failover.cc`. [`Ns3`] compiles it with g++ against an installed ns-3 and runs it; [`compare`] runs it for each
//! kind and outage, and has the model's figures beside the medians, as \[HALR\] section 7.3 does with ns-2.

mod comparison;
mod flows;
mod program;

use std::io;
use std::path::PathBuf;

use analysis::tcp_failover::ConfigError;

pub use comparison::{AGREES_WITHIN_S, AGREES_WITHIN_SHARE, Comparison, Row, compare};
pub use flows::{FlowsError, OutageFlows};
pub use program::Ns3;

/// Packages that the comparison needs, as Debian names them.
const PACKAGES: &str = "apt-get install --no-install-recommends libns3-dev g++ pkg-config";

/// Why there are no figures of ns-3.
#[derive(Debug, thiserror::Error)]
pub enum Ns3Error {
    /// A program or library is missing.
    #[error("{what} is not installed ({reason}): {PACKAGES}")]
    NotInstalled {
        /// Which one.
        what: &'static str,
        /// What shows it.
        reason: String,
    },
    /// A file cannot be written.
    #[error("{} cannot be written: {error}: choose another directory by --ns3-dir", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        error: io::Error,
    },
    /// The compiler refuses the scenario.
    #[error("the scenario does not compile against ns-3 {version} (3.37 is known to work): {message}")]
    NotCompiled {
        /// The version that is installed.
        version: String,
        /// What the compiler said last.
        message: String,
    },
    /// The program ended with an error.
    #[error("the ns-3 program failed ({status}); this is a defect of the scenario or of ns-3: {message}")]
    Failed {
        /// Its exit status.
        status: String,
        /// What it said last.
        message: String,
    },
    /// The program cannot be started.
    #[error("{} cannot be started: {error}: choose a directory without the mount option noexec by --ns3-dir", path.display())]
    NotStarted {
        /// The program.
        path: PathBuf,
        /// What the operating system said.
        error: io::Error,
    },
    /// The program printed something else than figures.
    #[error(transparent)]
    Flows(#[from] FlowsError),
    /// A parameter is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A parameter that the scenario does not have.
    #[error("flows in ns-3 have no {option}: receivers acknowledge every segment at once; leave the option out")]
    Unsupported {
        /// The option.
        option: &'static str,
    },
}
