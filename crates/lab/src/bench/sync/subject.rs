//! Whether a subject can be measured on this machine.

use std::process::Command;

use crate::args::sync_bench::Subject;
use crate::bench::kernel_routers::conntrackd;

impl Subject {
    /// Why it cannot be measured on this machine, if it cannot.
    #[must_use]
    pub fn hindrance(self) -> Option<String> {
        match self {
            Self::Off | Self::Mainstay | Self::MainstayAllEvents => {
                let runs = Command::new("nft").arg("-v").output();
                runs.err().map(|error| format!("nft cannot be run ({error}): install the package nftables"))
            }
            Self::Conntrackd | Self::ConntrackdFiltered | Self::ConntrackdFewEvents => conntrackd::available().err(),
        }
    }
}
