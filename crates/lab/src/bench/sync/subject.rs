//! What is compared.

use std::process::Command;

use clap::ValueEnum;

use crate::bench::kernel_routers::conntrackd;

/// What replicates the routers' connections.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Subject {
    /// Nothing
    Off,
    /// `mainstay sync`, as it is configured when nothing else is said
    Mainstay,
    /// The same, which hears all events of the kernel
    MainstayAllEvents,
    /// conntrackd as its documentation recommends: FTFW, events of all states, an external cache
    Conntrackd,
    /// The same, to which the kernel lets through only those states that the documentation names as those worth telling
    ConntrackdFiltered,
    /// conntrackd as recommended, beside the rule that `mainstay sync` has the kernel make fewer events by
    ConntrackdFewEvents,
}

impl Subject {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 6] = [
        Self::Off,
        Self::Mainstay,
        Self::MainstayAllEvents,
        Self::Conntrackd,
        Self::ConntrackdFiltered,
        Self::ConntrackdFewEvents,
    ];

    /// As it is called in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Mainstay => "mainstay",
            Self::MainstayAllEvents => "mainstay_all_events",
            Self::Conntrackd => "conntrackd",
            Self::ConntrackdFiltered => "conntrackd_filtered",
            Self::ConntrackdFewEvents => "conntrackd_few_events",
        }
    }

    /// What it is, for people.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Off => "replication off",
            Self::Mainstay => "mainstay sync",
            Self::MainstayAllEvents => "mainstay sync, events = \"all\"",
            Self::Conntrackd => "conntrackd",
            Self::ConntrackdFiltered => "conntrackd, State Accept",
            Self::ConntrackdFewEvents => "conntrackd, few events",
        }
    }

    /// One of the two that are held against each other in every part.
    #[must_use]
    pub const fn is_principal(self) -> bool {
        matches!(self, Self::Mainstay | Self::Conntrackd)
    }

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
