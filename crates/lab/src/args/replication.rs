//! `mainstay bench replication`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::emulator::LATENESS_P99_US_MAX;

/// A pair of gateways of which the active one is killed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum)]
pub enum Subject {
    /// Nodes with the native protocol, which forward first replies at once
    Native,
    /// The same, whose first replies wait until the standby has the connection
    NativeHeld,
    /// Linux routers with conntrackd, which uses its reliable protocol (FTFW)
    Conntrackd,
    /// The same, which sends every change once, over UDP (NOTRACK)
    ConntrackdUdp,
    /// The same, over TCP
    ConntrackdTcp,
}

impl Subject {
    /// What is compared unless something else is asked for.
    pub const ALL: [Self; 5] =
        [Self::Native, Self::NativeHeld, Self::Conntrackd, Self::ConntrackdUdp, Self::ConntrackdTcp];

    /// As it is called in tables and arguments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::NativeHeld => "native-held",
            Self::Conntrackd => "conntrackd",
            Self::ConntrackdUdp => "conntrackd-udp",
            Self::ConntrackdTcp => "conntrackd-tcp",
        }
    }
}

/// Round trips that an emulated distance can be asked for.
const RTT: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(2);
/// How late packets may be on an emulated link for a run to count: none is later.
const LATENESS: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);
/// The largest object: a flow is paced, and is not to outlast the experiment by far.
const OBJECT_KB: std::ops::RangeInclusive<i64> = 0..=100_000;

/// `mainstay bench replication`.
#[derive(Debug, Args)]
pub struct BenchReplicationArgs {
    /// What is compared [default: all that this machine has]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub subjects: Vec<Subject>,
    /// Shares of the packets between the gateways that are lost, 0 to 0.9 [default: 0,0.2]
    #[arg(long, value_name = "SHARE", value_delimiter = ',', value_parser = super::values::share)]
    pub losses: Vec<f64>,
    /// Round trips between client and server [default: 0ms,50ms]
    #[arg(long = "rtts", value_name = "TIMES", value_delimiter = ',', value_parser = rtt_ms)]
    pub rtts_ms: Vec<u32>,
    /// Sizes of the objects, in kilobytes [default: 0,1,5,10,50,100,1000]
    #[arg(long, value_name = "KB", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(OBJECT_KB))]
    pub objects_kb: Vec<u32>,
    /// Flows at a time, over all sizes
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub flows: u16,
    /// Kills for each combination [default: 2]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: Option<u32>,
    /// How long after the kill a flow that does not go on is given up [default: 6s]
    #[arg(long, value_name = "TIME", value_parser = super::values::measured_seconds)]
    pub give_up: Option<f64>,
    /// Throw a run away, and make it again, if more than one packet in a hundred was so much late on an emulated link [default: 2ms]
    #[arg(long = "lateness", value_name = "TIME", value_parser = lateness_ms)]
    pub lateness_ms: Option<f64>,
    /// What the links draw their losses from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Have both gateways at work, and kill one: only flows through that one count
    #[arg(long, conflicts_with = "rtts_ms")]
    pub multi_primary: bool,
    /// A small experiment: one kill for each combination, a near server, flows given up after 3 s
    #[arg(long)]
    pub quick: bool,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl BenchReplicationArgs {
    /// The list that was given, or what stands for none.
    fn or<T: Copy>(given: &[T], quick: bool, small: &[T], full: &[T]) -> Vec<T> {
        let default = if quick { small } else { full };
        if given.is_empty() { default.to_vec() } else { given.to_vec() }
    }

    /// What is compared.
    #[must_use]
    pub fn subjects(&self) -> Vec<Subject> {
        Self::or(&self.subjects, false, &[], &Subject::ALL)
    }

    /// The losses.
    #[must_use]
    pub fn losses(&self) -> Vec<f64> {
        Self::or(&self.losses, false, &[], &[0.0, 0.2])
    }

    /// The round trips.
    #[must_use]
    pub fn rtts_ms(&self) -> Vec<u32> {
        Self::or(&self.rtts_ms, self.quick || self.multi_primary, &[0], &[0, 50])
    }

    /// The sizes, each once, the smallest first.
    #[must_use]
    pub fn objects_kb(&self) -> Vec<u32> {
        let mut sizes = Self::or(&self.objects_kb, false, &[], &[0, 1, 5, 10, 50, 100, 1000]);
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The kills.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { 2 })
    }

    /// How late one packet in a hundred may be on an emulated link.
    #[must_use]
    pub fn lateness_ms(&self) -> f64 {
        self.lateness_ms.unwrap_or(LATENESS_P99_US_MAX as f64 / 1e3)
    }

    /// When flows are given up.
    #[must_use]
    pub fn give_up_s(&self) -> f64 {
        self.give_up.unwrap_or(if self.quick { 3.0 } else { 6.0 })
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive and within two seconds")]
fn rtt_ms(text: &str) -> Result<u32, String> {
    super::values::milliseconds_within(text, RTT).map(|ms| ms.round() as u32)
}

fn lateness_ms(text: &str) -> Result<f64, String> {
    super::values::milliseconds_within(text, LATENESS)
}

#[cfg(test)]
mod tests {
    use super::super::{BenchCommand, LabCommand, SideBySideCommand, parse};
    use super::*;

    fn parsed(line: &str) -> BenchReplicationArgs {
        match parse(&format!("bench replication {line}")).expect("it is right") {
            LabCommand::Bench(BenchCommand::SideBySide(SideBySideCommand::Replication(args))) => args,
            other => panic!("understood as {other:?}"),
        }
    }

    #[test]
    fn what_is_not_said_is_small_when_quick_and_the_whole_matrix_otherwise() {
        let full = parsed("");
        assert_eq!((full.subjects(), full.rtts_ms(), full.rounds()), (Subject::ALL.to_vec(), vec![0, 50], 2));
        let quick = parsed("--quick");
        assert_eq!((quick.losses(), quick.rtts_ms(), quick.rounds()), (vec![0.0, 0.2], vec![0], 1));
        let chosen = parsed("--subjects native-held,conntrackd-udp --losses 0.1 --objects-kb 10,1,10 --rounds 4");
        assert_eq!(chosen.subjects(), [Subject::NativeHeld, Subject::ConntrackdUdp]);
        assert_eq!((chosen.losses(), chosen.objects_kb(), chosen.rounds()), (vec![0.1], vec![1, 10], 4));
    }
}
