//! `mainstay study`.

use std::path::PathBuf;

use analysis::replication_study::{CONNECTIONS_MAX, Method, PROBES_MAX};
use analysis::trace::Admission;
use clap::{Args, Subcommand, ValueEnum};

use super::StudyRedundancyArgs;

/// `mainstay study`.
#[derive(Debug, Subcommand)]
pub enum StudyCommand {
    /// What each way of telling a backup of connections would cost on this traffic, and what the backup would know
    Replication(StudyReplicationArgs),
    /// What redundancy elimination would save on this traffic, where, and with which cache
    Redundancy(StudyRedundancyArgs),
}

/// `mainstay study replication`.
#[derive(Debug, Args)]
pub struct StudyReplicationArgs {
    /// Captures, pcap or pcapng, merged by time; - is standard input
    #[arg(value_name = "CAPTURE", required_unless_present = "url_log")]
    pub captures: Vec<PathBuf>,
    /// What is compared [default: all of them]: precise-eager, precise-selective, host-aggregate, flow-digest, multi-level-fa,
    /// multi-level-ll, multi-level-fa-symbols, multi-level-ll-symbols, multi-level-fa-established, d-left, counting-bloom
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = method)]
    pub methods: Vec<Method>,
    /// Ages in milliseconds from which connections are told, ascending from 0 [default: 0,50,100,200,320,500,650,1000,2000,5000,
    /// 10000,20000]
    #[arg(long, value_name = "MILLISECONDS", value_delimiter = ',')]
    pub thresholds: Vec<u32>,
    /// Study every method at every threshold, not only one of each kind; each filter takes memory
    #[arg(long)]
    pub all_thresholds: bool,
    /// Connections that filters have room for, and that are followed at a time
    #[arg(long, value_name = "COUNT", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(16..=i64::from(CONNECTIONS_MAX)))]
    pub connections: u32,
    /// Milliseconds that a filter's changes wait for more to share their datagram, as replication.filter.interval
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub batch_ms: u32,
    /// Seconds between two tellings of the flow digest and of the host aggregate
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub digest_interval: f64,
    /// Bits or cells of Bloom filters for each connection [default: 10]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub counters_per_item: Option<u8>,
    /// Bits of a fingerprint [default: as many as a cell has room for]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u8).range(4..=23))]
    pub fingerprint_bits: Option<u8>,
    /// Seconds of traffic between two simulated failovers
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub failover_every: f64,
    /// Connections, and tuples of none, that the backup is asked for at a failover
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=PROBES_MAX as i64))]
    pub probes: u32,
    /// Follow connections as the paper did: short timeouts, and none whose beginning is not in the capture
    #[arg(long)]
    pub as_in_the_paper: bool,
    /// What becomes of packets with wrong checksums, of which captures from end hosts are full: verify skips them, believe studies them
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ChecksumsChoice::Verify)]
    pub checksums: ChecksumsChoice,
    /// Study packets between loopback addresses too, as captures of lo have them
    #[arg(long)]
    pub loopback: bool,
    /// A list of URLs, one a line, whose categories would be replicated too
    #[arg(long, value_name = "FILE")]
    pub url_log: Option<PathBuf>,
    /// Write a page with plots, JSON and Parquet into a folder
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Threads that filters are divided among [default: one a processor]
    #[arg(long, value_name = "THREADS", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: Option<u8>,
    /// What is drawn at random is drawn from this
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What becomes of packets with wrong checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ChecksumsChoice {
    /// They are skipped, and counted
    Verify,
    /// Their checksums are believed
    Believe,
}

/// What a study takes in although a gateway would drop it.
#[must_use]
pub fn admission(checksums: ChecksumsChoice, admits_loopback: bool) -> Admission {
    Admission { believes_checksums: checksums == ChecksumsChoice::Believe, admits_loopback }
}

fn method(text: &str) -> Result<Method, String> {
    Method::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Method::ALL.into_iter().map(Method::name).collect();
        format!("there is no such method; there are {}", names.join(", "))
    })
}
