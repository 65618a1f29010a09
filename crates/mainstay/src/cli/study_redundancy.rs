//! `mainstay study redundancy`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use analysis::redundancy_study::Network;
use clap::{Args, ValueEnum};
use redundancy::Method;

use super::study::ChecksumsChoice;

/// `mainstay study redundancy`.
#[derive(Debug, Args)]
pub struct StudyRedundancyArgs {
    /// Captures, pcap or pcapng, each of a site of its own; - is standard input
    #[arg(value_name = "CAPTURE", required = true)]
    pub captures: Vec<PathBuf>,
    /// The captures are all of one site, and merged by time
    #[arg(long)]
    pub together: bool,
    /// Networks at the site's side of the link [default: private addresses, else clients]
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',')]
    pub inside: Vec<Network>,
    /// The method where methods are not compared
    #[arg(long, value_name = "METHOD", value_enum, default_value_t = MethodChoice::Samplebyte)]
    pub method: MethodChoice,
    /// The window w: the shortest run of bytes worth finding, 12 to 128
    #[arg(long, value_name = "BYTES", default_value_t = 32, value_parser = clap::value_parser!(u8).range(12..=128))]
    pub window: u8,
    /// The period p: one place of so many stands for a packet, a power of two from 4 to 1024
    #[arg(long, value_name = "BYTES", default_value = "32", value_parser = period)]
    pub period: redundancy::Period,
    /// Megabytes of the cache, for each way, where sizes are not compared
    #[arg(long, value_name = "MB", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub cache_megabytes: u16,
    /// Leave encrypted packets out of the caches, as a rule at a gateway would
    #[arg(long)]
    pub skip_encrypted: bool,
    /// What becomes of packets with wrong checksums, of which captures from end hosts are full: verify skips them, believe studies them
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ChecksumsChoice::Verify)]
    pub checksums: ChecksumsChoice,
    /// Study packets between loopback addresses too, as captures of lo have them
    #[arg(long)]
    pub loopback: bool,
    /// Do not try other periods and windows
    #[arg(long)]
    pub quick: bool,
    /// Megabytes that caches and indexes of all that is studied at once may take
    #[arg(long, value_name = "MB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    pub memory_megabytes: u32,
    /// Threads that study [default: one a processor]
    #[arg(long, value_name = "THREADS")]
    pub jobs: Option<NonZeroUsize>,
    /// Write a page with plots, JSON and Parquet into a folder; a study that is interrupted goes on with what it left there
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How places that stand for a packet are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MethodChoice {
    /// Rabin fingerprints of all windows, those that are 0 modulo p
    Modp,
    /// Local maxima
    Maxp,
    /// Every p-th byte
    Fixed,
    /// Bytes of a table
    Samplebyte,
}

impl From<MethodChoice> for Method {
    fn from(choice: MethodChoice) -> Self {
        match choice {
            MethodChoice::Modp => Self::Modp,
            MethodChoice::Maxp => Self::Maxp,
            MethodChoice::Fixed => Self::Fixed,
            MethodChoice::Samplebyte => Self::SampleByte,
        }
    }
}

fn period(text: &str) -> Result<redundancy::Period, String> {
    let bytes: usize = text.parse().map_err(|_| "this is no number".to_owned())?;
    redundancy::Period::new(bytes).map_err(|error| error.to_string())
}
