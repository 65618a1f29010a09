//! `mainstay study`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use analysis::replication_study::{CONNECTIONS_MAX, Method, PROBES_MAX};
use analysis::trace::Admission;
use clap::{Args, Subcommand};

use super::{ChecksumsChoice, StudyRedundancyArgs};
use config::value::{DURATION_MAX, parse_duration_within};

/// `mainstay study`.
#[derive(Debug, Subcommand)]
pub enum StudyCommand {
    /// Study replication: what each representation of connections costs on this traffic, and what the backup knows
    Replication(StudyReplicationArgs),
    /// Study redundancy elimination: what it saves on this traffic, where, and with which cache
    Redundancy(StudyRedundancyArgs),
}

/// `mainstay study replication`.
#[derive(Debug, Args)]
pub struct StudyReplicationArgs {
    /// Captures, pcap or pcapng, merged by time; - is standard input
    #[arg(value_name = "CAPTURE", required_unless_present = "url_log")]
    pub captures: Vec<PathBuf>,
    /// Representations that are compared [default: all]: precise-eager, precise-selective, host-aggregate, flow-digest, multi-level-fa,
    /// multi-level-ll, multi-level-fa-symbols, multi-level-ll-symbols, multi-level-fa-established, d-left, counting-bloom
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = method)]
    pub methods: Vec<Method>,
    /// Ages from which connections are replicated, ascending from 0s [default: 0s,50ms,100ms,200ms,320ms,500ms,650ms,1s,2s,5s,
    /// 10s,20s]
    #[arg(long = "thresholds", value_name = "TIMES", value_delimiter = ',', value_parser = threshold_ms)]
    pub thresholds_ms: Vec<u32>,
    /// Study every method at every threshold, not only one of each kind; each filter takes memory
    #[arg(long)]
    pub all_thresholds: bool,
    /// Capacity of filters and of the connection table
    #[arg(long, value_name = "COUNT", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(16..=i64::from(CONNECTIONS_MAX)))]
    pub connections: u32,
    /// How long a filter's changes wait for more to share their datagram [default: as replication.filter.interval]
    #[arg(long = "batch-interval", value_name = "TIME", value_parser = batch_ms)]
    pub batch_ms: Option<u32>,
    /// Time between two updates of the flow digest and of the host aggregate [default: at once, as a gateway; 5s with --as-in-the-paper]
    #[arg(long = "digest-interval", value_name = "TIME", value_parser = interval_s)]
    pub digest_interval_s: Option<f64>,
    /// Bits or cells of Bloom filters for each connection [default: 10]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub counters_per_item: Option<u8>,
    /// Bits of a fingerprint [default: as many as a cell has room for]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u8).range(4..=23))]
    pub fingerprint_bits: Option<u8>,
    /// Time between two simulated failovers
    #[arg(long = "failover-interval", value_name = "TIME", default_value = "10s", value_parser = interval_s)]
    pub failover_interval_s: f64,
    /// Connections that are looked up at the backup at a failover, and as many tuples without a connection
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=PROBES_MAX as i64))]
    pub probes: u32,
    /// Track and replicate connections as MLCBF did: short timeouts, none whose beginning is not in the capture, each from its first packet on;
    /// every change waits
    #[arg(long)]
    pub as_in_the_paper: bool,
    /// Packets with wrong checksums, which captures on end hosts are full of: verify skips them, believe studies them
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ChecksumsChoice::Verify)]
    pub checksums: ChecksumsChoice,
    /// Study packets between loopback addresses too, as captures of lo have them
    #[arg(long)]
    pub loopback: bool,
    /// File of URLs, one a line, whose categories would be replicated too
    #[arg(long, value_name = "FILE")]
    pub url_log: Option<PathBuf>,
    /// Folder that a page with plots, JSON and Parquet are written to
    #[arg(long, short, alias = "out", value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Threads that share the filters [default: one a processor]
    #[arg(long, value_name = "THREADS", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: Option<u8>,
    /// Seed of the random numbers
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What a study takes in although a gateway would drop it.
#[must_use]
pub fn admission(checksums: ChecksumsChoice, admits_loopback: bool) -> Admission {
    Admission { believes_checksums: checksums == ChecksumsChoice::Believe, admits_loopback }
}

/// Ages from which connections can be replicated.
const THRESHOLD: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_millis(u32::MAX as u64);
/// How long a filter's changes can wait.
const BATCH: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(10);

fn threshold_ms(text: &str) -> Result<u32, String> {
    whole_ms(text, THRESHOLD)
}

fn batch_ms(text: &str) -> Result<u32, String> {
    whole_ms(text, BATCH)
}

fn whole_ms(text: &str, allowed: RangeInclusive<Duration>) -> Result<u32, String> {
    let ms = parse_duration_within(text, allowed)?.as_millis();
    u32::try_from(ms).map_err(|_| "this is too long".to_owned())
}

fn interval_s(text: &str) -> Result<f64, String> {
    parse_duration_within(text, Duration::from_millis(1)..=DURATION_MAX).map(|interval| interval.as_secs_f64())
}

fn method(text: &str) -> Result<Method, String> {
    Method::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Method::ALL.into_iter().map(Method::name).collect();
        format!("there is no such method; there are {}", names.join(", "))
    })
}
