//! `mainstay bench sync`.

use clap::{Args, ValueEnum};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum)]
pub enum Part {
    /// Short connections a second, and processor time for each
    Rate,
    /// Connections that break when the dedicated link loses packets and the router dies
    Loss,
    /// Taking over a large table, and the memory it needs
    Table,
    /// What is missing in the end when the buffer for the kernel's events is far too small
    Buffer,
    /// Closed connections that the survivor holds for established
    #[value(alias = "ghosts")]
    Stale,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Rate, Self::Loss, Self::Table, Self::Buffer, Self::Stale];
}

/// What replicates the routers' connections.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Subject {
    /// Nothing
    Off,
    /// `mainstay sync` with its default configuration
    Mainstay,
    /// The same, which receives all events of the kernel
    MainstayAllEvents,
    /// conntrackd as its documentation recommends: FTFW, events of all states, an external cache
    Conntrackd,
    /// The same, with only those states that its documentation recommends to replicate
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
}

/// `mainstay bench sync`.
#[derive(Debug, Args)]
pub struct BenchSyncArgs {
    /// What is measured [default: all]
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub parts: Vec<Part>,
    /// What is compared [default: all that this machine has]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub subjects: Vec<Subject>,
    /// Rounds of connections a second, in each of which all that is compared is measured once [default: 5]. More than nine
    /// would fill the kernel's table: connections that are over stay in it for two minutes
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=9))]
    pub rounds: Option<u32>,
    /// How long each is measured in such a round [default: 1s]
    #[arg(long = "duration", value_name = "TIME", value_parser = super::values::measured_seconds)]
    pub seconds: Option<f64>,
    /// Short connections that the client has open at a time
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub in_flight: u16,
    /// Kills of each at a loss of 20 % [default: 3]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub kills: Option<u32>,
    /// Connections that are established before the kill [default: 8000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=30_000))]
    pub connections: Option<u32>,
    /// How many of them are begun in a second
    #[arg(long = "ramp-per-second", alias = "ramp-per-s", value_name = "RATE", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub ramp_per_s: u32,
    /// Take-overs of a large table by each [default: 3]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub tables: Option<u32>,
    /// Connections in the large table [default: 200000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=250_000))]
    pub entries: Option<u32>,
    /// A small measurement: less of everything
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl BenchSyncArgs {
    const fn or<T: Copy>(&self, given: Option<T>, small: T, full: T) -> T {
        match given {
            Some(given) => given,
            None if self.quick => small,
            None => full,
        }
    }

    /// What is measured.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        Part::ALL.into_iter().filter(|part| self.parts.is_empty() || self.parts.contains(part)).collect()
    }

    /// What is compared.
    #[must_use]
    pub fn subjects(&self) -> Vec<Subject> {
        Subject::ALL.into_iter().filter(|one| self.subjects.is_empty() || self.subjects.contains(one)).collect()
    }

    /// Rounds of connections a second.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.or(self.rounds, 2, 5)
    }

    /// Seconds of each in a round.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.or(self.seconds, 0.5, 1.0)
    }

    /// Kills of each.
    #[must_use]
    pub fn kills(&self) -> u32 {
        self.or(self.kills, 1, 3)
    }

    /// Connections before a kill.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.or(self.connections, 2000, 8000)
    }

    /// Take-overs of a large table.
    #[must_use]
    pub fn tables(&self) -> u32 {
        self.or(self.tables, 1, 3)
    }

    /// Connections in it.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.or(self.entries, 20_000, 200_000)
    }

    /// How often a small buffer is tried.
    #[must_use]
    pub const fn overruns(&self) -> u32 {
        1
    }

    /// Seconds of load while the buffer is small.
    #[must_use]
    pub fn overrun_seconds(&self) -> f64 {
        self.or(None, 1.0, 3.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BenchCommand, LabCommand, SideBySideCommand, parse};
    use super::*;

    fn parsed(line: &str) -> BenchSyncArgs {
        match parse(&format!("bench sync {line}")).expect("it is right") {
            LabCommand::Bench(BenchCommand::SideBySide(SideBySideCommand::Sync(args))) => args,
            other => panic!("understood as {other:?}"),
        }
    }

    #[test]
    fn what_is_not_said_is_less_when_quick() {
        let full = parsed("");
        assert_eq!((full.parts(), full.entries(), full.connections()), (Part::ALL.to_vec(), 200_000, 8000));
        let quick = parsed("--quick --kills 4");
        assert_eq!((quick.rounds(), quick.entries(), quick.kills()), (2, 20_000, 4));
        // In the order in which they are measured, whatever the order in which they are named.
        assert_eq!(parsed("--parts table,rate").parts(), [Part::Rate, Part::Table]);
    }
}
