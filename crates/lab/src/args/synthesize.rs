//! `mainstay synthesize`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use analysis::synthesis::Quantiles;
use analysis::synthesis::redundancy::Shares;
use analysis::synthesis::replication::presets::{PRESETS, Preset, preset};
use clap::{Args, Subcommand};

use config::value::DURATION_MAX;

/// `mainstay synthesize`.
#[derive(Debug, Subcommand)]
pub enum SynthesizeCommand {
    /// Connections of a stated rate, mixture and lifetime
    Replication(SynthesizeReplicationArgs),
    /// Bytes of which a stated share was sent before
    Redundancy(SynthesizeRedundancyArgs),
}

/// Where synthetic traffic goes.
#[derive(Debug, Args)]
pub struct SynthesizeOutputArgs {
    /// File that the capture (pcap) is written to; - is standard output
    #[arg(long, short, alias = "write", value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// Write what was made to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Print what was made as one JSON object: on standard error if the capture goes to standard output
    #[arg(long)]
    pub json: bool,
    /// The same seed gives the same traffic
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
}

/// `mainstay synthesize replication`.
#[derive(Debug, Args)]
pub struct SynthesizeReplicationArgs {
    /// What is changed by the other options: mixed, ipls-1, ipls-3, auck-4, flow-digest, classification, short-connections;
    /// --presets describes each
    #[arg(long, value_name = "NAME", default_value = "mixed", value_parser = preset_of_name)]
    pub preset: &'static Preset,
    /// Print what presets there are
    #[arg(long)]
    pub presets: bool,
    /// Connections that begin in a second [default: the preset's]
    #[arg(long, value_name = "RATE")]
    pub connections_per_second: Option<f64>,
    /// How long connections begin [default: the preset's]
    #[arg(long = "duration", value_name = "TIME", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Let connections that are open then go on to their ends
    #[arg(long)]
    pub run_out: bool,
    /// Sessions arrive in bursts: how many times the mean rate they arrive at in one
    #[arg(long, value_name = "TIMES")]
    pub burst_peak: Option<f64>,
    /// How long a burst lasts
    #[arg(long = "burst", value_name = "TIME", default_value = "100ms", value_parser = milliseconds, requires = "burst_peak")]
    pub burst_ms: f64,
    /// The share of the connections that nobody answers [default: the preset's]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub one_way: Option<f64>,
    /// The share of the connections that are of UDP [default: the preset's]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub udp: Option<f64>,
    /// The share of the clients that use IPv6 [default: the preset's]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub ipv6: Option<f64>,
    /// Connections that begin together between two hosts, on average; scans stay as they are [default: the preset's]
    #[arg(long, value_name = "COUNT")]
    pub together: Option<f64>,
    /// How long connections last that are answered: shares and what they do not exceed in seconds, ascending, for example
    /// 0:0.01,0.5:0.3,0.9:2,1:60 [default: the preset's]
    #[arg(long, value_name = "SHARE:SECONDS,...", value_parser = |text: &str| quantiles("lifetimes", text))]
    pub lifetimes: Option<Quantiles>,
    /// Connections that stand from the first second to the end beside the others
    #[arg(long, value_name = "COUNT")]
    pub persistent: Option<u32>,
    /// Round trip of a handshake [default: the preset's]
    #[arg(long = "rtt", value_name = "TIME", value_parser = milliseconds)]
    pub round_trip_ms: Option<f64>,
    /// Hosts that begin connections [default: the preset's, or as many as have the ports]
    #[arg(long, value_name = "COUNT")]
    pub clients: Option<u32>,
    /// Hosts that they go to [default: the preset's]
    #[arg(long, value_name = "COUNT")]
    pub servers: Option<u32>,
    /// The capture, and its description.
    #[command(flatten)]
    pub output: SynthesizeOutputArgs,
}

/// `mainstay synthesize redundancy`.
#[derive(Debug, Args)]
pub struct SynthesizeRedundancyArgs {
    /// The share of what TCP carries that was sent before
    #[arg(long, value_name = "SHARE", default_value_t = 0.4, value_parser = share)]
    pub redundancy: f64,
    /// How long repeated runs are: shares and what they do not exceed in bytes, ascending [default: 0:48,0.4:80,0.7:150,0.85:600,
    /// 0.92:1459,1:1460]
    #[arg(long, value_name = "SHARE:BYTES,...", value_parser = |text: &str| quantiles("lengths", text))]
    pub matches: Option<Quantiles>,
    /// Where repeated bytes were last: enterprise, university, or the shares of the same connection, the same two hosts, the
    /// same source, the same destination, other hosts
    #[arg(long, value_name = "NAME|SHARES", default_value = "enterprise", value_parser = origins)]
    pub origins: Shares,
    /// Zipf's exponent of how often what several hosts have in common is repeated
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.97)]
    pub popularity: f64,
    /// Megabytes of payload that lie between a repeat and what it repeats at most: what a cache must hold
    #[arg(long, value_name = "MB", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub distance_megabytes: u32,
    /// The share of the payload that is encrypted, and repeats nothing
    #[arg(long, value_name = "SHARE", default_value_t = 0.2, value_parser = share)]
    pub encrypted: f64,
    /// The share of the connections in the clear that carry text, which compresses
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share)]
    pub text: f64,
    /// Megabits a second on the link
    #[arg(long, value_name = "RATE", default_value_t = 100.0)]
    pub mbit_per_second: f64,
    /// How long the traffic is
    #[arg(long = "duration", value_name = "TIME", default_value = "10s", value_parser = seconds)]
    pub seconds: f64,
    /// Connections at a time
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub connections: u32,
    /// Hosts that fetch objects
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub clients: u32,
    /// Hosts that have them
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    pub servers: u32,
    /// The capture, and its description.
    #[command(flatten)]
    pub output: SynthesizeOutputArgs,
}

/// How long traffic can be asked for: a year at most.
const TRAFFIC: RangeInclusive<Duration> = Duration::from_millis(1)..=DURATION_MAX;

fn seconds(text: &str) -> Result<f64, String> {
    super::values::seconds_within(text, TRAFFIC)
}

fn milliseconds(text: &str) -> Result<f64, String> {
    super::values::milliseconds_within(text, Duration::ZERO..=DURATION_MAX)
}

fn share(text: &str) -> Result<f64, String> {
    super::values::number_within(text, 0.0..=1.0)
}

fn preset_of_name(name: &str) -> Result<&'static Preset, String> {
    preset(name).ok_or_else(|| {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        format!("there is no such preset; there are {}", names.join(", "))
    })
}

/// `0:0.01,0.5:0.3,1:60`.
fn quantiles(what: &'static str, text: &str) -> Result<Quantiles, String> {
    let point = |text: &str| {
        let (share, value) = text.split_once(':')?;
        Some((share.trim().parse::<f64>().ok()?, value.trim().parse::<f64>().ok()?))
    };
    let points: Option<Vec<(f64, f64)>> = text.split(',').map(point).collect();
    let points = points.ok_or("write shares and values in pairs, such as 0:1,0.5:20,1:300")?;
    Quantiles::new(what, &points).map_err(|error| error.to_string())
}

fn origins(text: &str) -> Result<Shares, String> {
    match text {
        "enterprise" => return Ok(Shares::ENTERPRISE),
        "university" => return Ok(Shares::UNIVERSITY),
        _ => {}
    }
    let shares: Option<Vec<f64>> = text.split(',').map(|share| share.trim().parse().ok()).collect();
    let shares = shares.and_then(|shares| shares.try_into().ok());
    shares
        .map(|shares| Shares { shares })
        .ok_or_else(|| "write enterprise, university, or five shares, such as 0.4,0.3,0.2,0.05,0.05".into())
}
