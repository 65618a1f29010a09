//! `mainstay study redundancy`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use analysis::redundancy_study::Network;
use clap::{Args, ValueEnum};
use redundancy::Method;

use super::ChecksumsChoice;

/// `mainstay study redundancy`.
#[derive(Debug, Args)]
pub struct StudyRedundancyArgs {
    /// Captures, pcap or pcapng, one for each site; - is standard input
    #[arg(value_name = "CAPTURE", required = true)]
    pub captures: Vec<PathBuf>,
    /// All captures are of one site: merge them by time
    #[arg(long)]
    pub together: bool,
    /// Networks at the site's side of the link [default: private addresses, else clients]
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',')]
    pub inside: Vec<Network>,
    /// Fingerprint method, where methods are not compared
    #[arg(long, value_name = "METHOD", value_enum, default_value_t = MethodChoice::Samplebyte)]
    pub method: MethodChoice,
    /// Window w: the shortest match, 12 to 128
    #[arg(long, value_name = "BYTES", default_value_t = 32, value_parser = clap::value_parser!(u8).range(12..=128))]
    pub window: u8,
    /// Period p: one position of so many is fingerprinted, a power of two from 4 to 1024
    #[arg(long, value_name = "BYTES", default_value = "32", value_parser = period)]
    pub period: redundancy::Period,
    /// Megabytes of the cache, for each direction, where sizes are not compared
    #[arg(long, value_name = "MB", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub cache_megabytes: u16,
    /// Keep encrypted packets out of the caches, as a rule at a gateway would
    #[arg(long)]
    pub skip_encrypted: bool,
    /// Packets with wrong checksums, which captures on end hosts are full of: verify skips them, believe studies them
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ChecksumsChoice::Verify)]
    pub checksums: ChecksumsChoice,
    /// Study packets between loopback addresses too, as captures of lo have them
    #[arg(long)]
    pub loopback: bool,
    /// Do not try other periods and windows
    #[arg(long)]
    pub quick: bool,
    /// Megabytes that the caches and indexes of concurrent jobs may take
    #[arg(long, value_name = "MB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    pub memory_megabytes: u32,
    /// Threads [default: one a processor]
    #[arg(long, value_name = "THREADS")]
    pub jobs: Option<NonZeroUsize>,
    /// Folder that a page with plots, JSON and Parquet are written to; an interrupted study resumes from the state it left there
    #[arg(long, short, alias = "out", value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How the positions that are fingerprinted are chosen.
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
