//! What a study found, as figures. Shares are of one; those called `saved` are of all bytes on the wire, headers and what could
//! not be encoded among them, as the seed's bandwidth savings are.

mod book;
mod end_hosts;
mod http;
mod matches;
mod over_time;
mod series;
mod sites;

use std::collections::BTreeMap;

use redundancy::{Matcher, Method};
use serde::Serialize;

use self::book::Book;
pub use self::end_hosts::{EndHosts, HostMemory};
pub use self::http::Http;
pub use self::matches::{Hits, MatchLengths, Origins, Step};
pub use self::over_time::{Energy, OverTime, Volume, WayOverTime};
pub use self::series::{CacheSize, PeriodRow, WindowRow};
pub use self::sites::SiteRow;
use super::compressors::Library;
use super::microscope::ZipfFit;
use super::options::{Codec, Options, Site};
use super::plan::{self, Job};
use super::state::State;
use super::tally::{Savings, Tally, share};

/// All of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RedundancyResult {
    /// How it was studied.
    pub settings: Settings,
    /// What there was.
    pub traffic: Traffic,
    /// What of it was not studied, or cannot be saved.
    pub skipped: Skipped,
    /// What is saved with the settings' codec.
    pub saved_by_way: BTreeMap<&'static str, f64>,
    /// By method: what both matchers save.
    pub saved: BTreeMap<&'static str, Saved>,
    /// What could be saved at most with the same window and cache, of what repeats between packets: the seed's bound.
    pub optimal: Option<f64>,
    /// The same with what repeats within packets, which a codec whose pointers may lead into the packet itself saves too.
    pub optimal_with_own: Option<f64>,
    /// SAMPLEBYTE with a table that was trained on the beginning of the traffic.
    pub trained: Option<Trained>,
    /// With a compression library, alone and after the codec.
    pub combined: Vec<Combined>,
    /// By protocol, those with most bytes first.
    pub by_protocol: Vec<ProtocolRow>,
    /// HTTP's objects; none if there was no HTTP.
    pub http: Option<Http>,
    /// Where matches come from.
    pub origins: Origins,
    /// Matches within packets, which all that is said of matches leaves out: they need no cache.
    pub within_packets: WithinPackets,
    /// How long matches are.
    pub match_lengths: MatchLengths,
    /// How far back the copies lie: share of the cache, share of what is saved up to there.
    pub distances: Vec<Step>,
    /// How old the copies are: seconds, share of what is saved up to there.
    pub ages: Vec<Step>,
    /// Seconds between a chunk's first hit and its last, share of chunks up to there.
    pub chunk_lifetimes: Vec<Step>,
    /// How often chunks are found.
    pub hits: Hits,
    /// The slope of hits over ranks, the hundred most popular and those found once left out; none if too few are left.
    pub zipf_alpha: Option<f64>,
    /// The same with all chunks.
    pub zipf_all: Option<ZipfFit>,
    /// By period.
    pub periods: Vec<PeriodRow>,
    /// By window.
    pub windows: Vec<WindowRow>,
    /// By cache.
    pub cache_sizes: Vec<CacheSize>,
    /// The smallest cache that saves nine tenths of what the largest does.
    pub cache_enough_bytes: Option<usize>,
    /// Over time, at the site with most bytes.
    pub over_time: Option<OverTime>,
    /// What end hosts would need, had they caches of their own instead of gateways.
    pub end_hosts: EndHosts,
    /// The sites.
    pub sites: Vec<SiteRow>,
    /// What was not done because it does not fit the memory, in words.
    pub left_out: Vec<String>,
}

/// SAMPLEBYTE with a table of its own.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trained {
    /// What is saved.
    pub saved: f64,
    /// The table's bytes by way; of several sites the first's.
    pub tables: BTreeMap<&'static str, Vec<u8>>,
}

/// Matches within packets.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct WithinPackets {
    /// How many there are.
    pub matches: u64,
    /// What they save, as a share of all bytes.
    pub saved: f64,
}

/// How it was studied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Settings {
    /// The method where methods are not compared.
    pub method: &'static str,
    /// The window w.
    pub window_bytes: usize,
    /// The period p.
    pub period_bytes: usize,
    /// The cache, one for each way.
    pub cache_bytes: usize,
    /// Encrypted packets were left out of the caches.
    pub skips_encrypted: bool,
}

/// What there was.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Their bytes from the IP header on.
    pub bytes: u64,
    /// Their bytes behind the transport's header.
    pub payload_bytes: u64,
    /// Bytes by way.
    pub bytes_by_way: BTreeMap<&'static str, u64>,
    /// Payload that was sent before in the same flow: what of this is saved would be no gain, as a gateway does not encode a
    /// retransmission against its own first copy before that is known to have arrived.
    pub retransmitted_bytes: u64,
    /// What of the savings is of retransmissions, as a share of all bytes.
    pub saved_of_retransmissions: f64,
    /// From the first packet to the last; of several sites, the longest.
    pub seconds: f64,
    /// Addresses at the sites.
    pub hosts: u64,
}

/// What was not studied, or cannot be saved.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Skipped {
    /// Frames that were not studied, by reason.
    pub frames: BTreeMap<String, u64>,
    /// Captures that end before they should.
    pub damaged: Vec<String>,
    /// Encrypted by the port: bytes' share of all, and what is saved of them.
    pub encrypted_by_port: Part,
    /// Payloads of other ports that are spread as evenly as chance would: encrypted, or compressed well.
    pub encrypted_by_entropy: Part,
}

/// A part of the traffic.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Part {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Their share of all bytes.
    pub share: f64,
    /// What is saved of them.
    pub saved: f64,
}

/// What the matchers save.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Saved {
    /// Max-Match.
    pub max_match: Option<f64>,
    /// Chunk-Match.
    pub chunk_match: Option<f64>,
    /// What Max-Match saves of the bound.
    pub of_optimal: Option<f64>,
}

/// A library, alone or after a codec.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Combined {
    /// The method before it; none: the library alone.
    pub method: Option<&'static str>,
    /// The library.
    pub library: &'static str,
    /// Each packet by itself.
    pub by_packet: f64,
    /// Packets of 10 ms together.
    pub gathered_10_ms: f64,
}

/// A protocol.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProtocolRow {
    /// Its name.
    pub protocol: String,
    /// Its bytes.
    pub bytes: u64,
    /// Their share of all.
    pub share: f64,
    /// What is saved of them.
    pub saved: f64,
    /// Its share of all that is saved.
    pub share_of_saved: f64,
}

impl RedundancyResult {
    /// Puts together what was found at the sites.
    #[must_use]
    pub fn new(sites: &[Site], options: &Options, state: &State, left_out: &[Vec<Job>]) -> Self {
        let base = Codec::of(options);
        let book = Book::new(sites.len(), state);
        let ledger = book.ledger();
        let savings = book.savings(&Job::Savings(base)).unwrap_or_default();
        let microscope = book.microscope(&base);
        let optimal = book.saved(&plan::optimal(&base));
        let chunks = &microscope.chunks;
        let cache_sizes = series::cache_sizes(&book, &base);
        let traffic = &ledger.traffic;
        let total = traffic.total();
        Self {
            settings: Settings::of(options),
            skipped: Skipped {
                frames: ledger.skipped.clone(),
                damaged: ledger.damaged.clone(),
                encrypted_by_port: Part::of(&savings.encrypted[0], &total),
                encrypted_by_entropy: Part::of(&savings.encrypted[1], &total),
            },
            saved_by_way: by_way(&savings),
            saved: Method::ALL.map(|method| (method.name(), Saved::of(&book, &base, method, optimal))).into(),
            optimal,
            optimal_with_own: book.bound_with_own(&plan::optimal(&base)),
            trained: book.trained(&plan::trained(&base)).map(|trained| Trained {
                saved: trained.savings.total().saved(),
                tables: super::SiteDirection::ALL.map(|way| (way.name(), trained.tables[way as usize].clone())).into(),
            }),
            combined: combined(&book, &base),
            by_protocol: protocols(&savings),
            http: Http::of(&book.http(&base)),
            origins: Origins::of(&microscope),
            within_packets: WithinPackets {
                matches: microscope.within_packets[0],
                saved: share(microscope.within_packets[1] as f64, total.bytes),
            },
            match_lengths: MatchLengths::of(&microscope),
            distances: matches::distances(&microscope),
            ages: matches::ages(&microscope),
            chunk_lifetimes: matches::lifetimes(chunks),
            hits: Hits::of(chunks),
            zipf_alpha: chunks.fit_bulk().map(|fit| fit.alpha),
            zipf_all: chunks.fit_all(),
            periods: series::periods(&book, &base),
            windows: series::windows(&book, &base),
            cache_enough_bytes: series::enough(&cache_sizes),
            cache_sizes,
            over_time: over_time::of_largest(sites, state, &base),
            end_hosts: EndHosts::of(&book.end_hosts()),
            sites: sites.iter().enumerate().map(|(at, site)| SiteRow::of(site, &book.of_site(at), &base)).collect(),
            left_out: left_out
                .iter()
                .zip(sites)
                .flat_map(|(jobs, site)| jobs.iter().map(|job| left(job, site)))
                .collect(),
            traffic: Traffic {
                packets: total.packets,
                bytes: total.bytes,
                payload_bytes: total.payload_bytes,
                bytes_by_way: super::SiteDirection::ALL.map(|way| (way.name(), traffic.way(way).bytes)).into(),
                retransmitted_bytes: traffic.repeated.payload_bytes,
                saved_of_retransmissions: share(savings.repeated.saved_bytes as f64, total.bytes),
                seconds: ledger.time_nanos.map_or(0.0, |[first, last]| (last - first) as f64 / 1e9),
                hosts: ledger.hosts,
            },
        }
    }
}

fn left(job: &Job, site: &Site) -> String {
    let megabytes = job.memory_bytes().div_ceil(1 << 20);
    format!("{}: {}, which needs {megabytes} MB", site.name, job.described())
}

impl Settings {
    fn of(options: &Options) -> Self {
        Self {
            method: options.method.name(),
            window_bytes: options.window.bytes(),
            period_bytes: options.period.bytes(),
            cache_bytes: options.cache_bytes,
            skips_encrypted: options.skips_encrypted,
        }
    }
}

impl Part {
    fn of(tally: &Tally, total: &Tally) -> Self {
        let Tally { packets, bytes, .. } = *tally;
        Self { packets, bytes, share: share(bytes as f64, total.bytes), saved: tally.saved() }
    }
}

impl Saved {
    fn of(book: &Book<'_>, base: &Codec, method: Method, optimal: Option<f64>) -> Self {
        let [max_match, chunk_match] = [Matcher::MaxMatch, Matcher::ChunkMatch]
            .map(|matcher| book.saved(&Job::Savings(base.with(method, matcher))));
        let of_optimal = max_match.zip(optimal.filter(|optimal| *optimal > 0.0));
        Self {
            max_match,
            chunk_match,
            of_optimal: of_optimal.map(|(saved, optimal)| super::tally::rounded(saved / optimal)),
        }
    }
}

fn by_way(savings: &Savings) -> BTreeMap<&'static str, f64> {
    super::SiteDirection::ALL.map(|way| (way.name(), savings.way(way).saved())).into()
}

fn combined(book: &Book<'_>, base: &Codec) -> Vec<Combined> {
    let of = |codec: Option<Codec>, library: Library| {
        let stages = book.stages(&Job::Stages(codec, library))?;
        Some(Combined {
            method: codec.map(|codec| codec.method().name()),
            library: library.name(),
            by_packet: stages.by_packet.saved(),
            gathered_10_ms: stages.gathered.saved(),
        })
    };
    [None, Some(*base)].into_iter().flat_map(|codec| Library::ALL.map(|library| of(codec, library))).flatten().collect()
}

fn protocols(savings: &Savings) -> Vec<ProtocolRow> {
    let total = savings.total();
    let saved_bytes = u64::try_from(total.saved_bytes).unwrap_or(0);
    let row = |(protocol, tally): (&String, &Tally)| ProtocolRow {
        protocol: protocol.clone(),
        bytes: tally.bytes,
        share: share(tally.bytes as f64, total.bytes),
        saved: tally.saved(),
        share_of_saved: share(tally.saved_bytes as f64, saved_bytes),
    };
    let mut rows: Vec<ProtocolRow> = savings.protocols.iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    rows
}
