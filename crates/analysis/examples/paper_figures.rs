//! The figures of MLCBF made again: `cargo run --release -p analysis --example paper_figures -- FOLDER [NAME…]`.
//!
//! Each run is synthetic traffic that is studied at its full length, as `mainstay synthesize replication | mainstay study
//! replication` would. It leaves `FOLDER/NAME.json`, and prints what it found beside the paper. With names, only those runs whose names
//! begin so; without any, all of them, which takes some ten minutes of a processor.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use analysis::replication_study::{DIGEST_INTERVAL_OF_PAPER_S, Method, Outcome, Study, StudyConfig};
use analysis::synthesis::ReplicationTraffic;
use analysis::synthesis::replication::presets::preset;
use analysis::trace::{ConnectionsConfig, Trace};
use packet_io::pcap::PcapWriter;

/// Bytes of capture that are made ready at a time.
const BUFFER_BYTES: usize = 1 << 18;
/// Flows that the paper's classifier has room for.
const CLASSIFIED_FLOWS: u32 = 20_000;
/// Table III: access lists with their requests, distinct URLs and mean lengths.
const ACCESS_LISTS: [(&str, u32, u32, usize); 6] = [
    ("bo2-2007-01-09", 241_173, 144_852, 57),
    ("bo2-2007-01-10", 207_704, 133_420, 56),
    ("rtp-2007-01-09", 3_176_785, 1_653_579, 59),
    ("rtp-2007-01-10", 2_986_122, 1_501_494, 58),
    ("sd-2007-01-09", 1_426_885, 879_114, 55),
    ("sd-2007-01-10", 1_497_891, 933_756, 55),
];

/// Synthetic traffic as the bytes of a capture.
struct Piped {
    traffic: ReplicationTraffic,
    /// The next frames as a capture, the file's header cut off behind the first time.
    writer: PcapWriter<Vec<u8>>,
    ready: Vec<u8>,
    read: usize,
    is_over: bool,
}

impl Piped {
    fn new(traffic: ReplicationTraffic) -> Self {
        let writer = PcapWriter::new(Vec::new()).expect("memory can be written");
        Self { traffic, writer, ready: Vec::new(), read: 0, is_over: false }
    }

    fn refill(&mut self) {
        let mut bytes = 0;
        while bytes < BUFFER_BYTES && !self.is_over {
            match self.traffic.next() {
                Some((at, frame)) => {
                    self.writer.write(at, frame).expect("memory can be written");
                    bytes += frame.len();
                }
                None => self.is_over = true,
            }
        }
        let next = PcapWriter::new(Vec::new()).expect("memory can be written");
        let whole = std::mem::replace(&mut self.writer, next).finish().expect("memory can be written");
        let is_first = self.ready.is_empty();
        let header_bytes = PcapWriter::new(Vec::new()).and_then(PcapWriter::finish).map_or(0, |header| header.len());
        self.ready = whole;
        self.read = if is_first { 0 } else { header_bytes };
    }
}

impl Read for Piped {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.read == self.ready.len() && !self.is_over {
            self.refill();
        }
        let count = buffer.len().min(self.ready.len() - self.read);
        buffer[..count].copy_from_slice(&self.ready[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}

/// Traffic, and how it is studied.
struct Run {
    name: String,
    preset: &'static str,
    connections_per_second: Option<f64>,
    seconds: Option<u64>,
    persistent: u32,
    config: StudyConfig,
}

fn run(name: impl Into<String>, preset: &'static str, config: StudyConfig) -> Run {
    Run { name: name.into(), preset, connections_per_second: None, seconds: None, persistent: 0, config }
}

impl Run {
    fn at(self, connections_per_second: f64, seconds: u64) -> Self {
        Self { connections_per_second: Some(connections_per_second), seconds: Some(seconds), ..self }
    }

    fn study(&self) -> Outcome {
        let mut config = preset(self.preset).expect("it is one").config();
        if let Some(rate) = self.connections_per_second {
            let grown = f64::from(config.clients) * (rate / config.connections_per_second).max(1.0);
            (config.clients, config.connections_per_second) = (grown as u32, rate);
        }
        config.duration = self.seconds.map_or(config.duration, Duration::from_secs);
        config.persistent = self.persistent;
        let traffic = ReplicationTraffic::new(config, 1).expect("the preset is right");
        let source = vec![(self.name.clone().into(), Box::new(Piped::new(traffic)) as Box<dyn Read + Send>, None)];
        let mut trace = Trace::merge(source).expect("it is a capture");
        let mut study = Study::new(self.config.clone(), ConnectionsConfig::seed()).expect("the study can be made");
        while let Some(packet) = trace.next() {
            study.handle_packet(&packet);
        }
        study.finish(Some(&trace))
    }
}

/// What the paper does, and a gateway need not.
fn of_paper() -> StudyConfig {
    StudyConfig { digest_interval_s: Some(DIGEST_INTERVAL_OF_PAPER_S), as_in_the_paper: true, ..StudyConfig::default() }
}

/// Methods at no threshold but 0.
fn only(methods: &[Method]) -> StudyConfig {
    StudyConfig { methods: methods.to_vec(), thresholds_ms: vec![0], ..of_paper() }
}

/// Figures 6 and 7, and the differences of section 2.1.4.
fn flow_digests() -> Vec<Run> {
    let digest = |connections_max, digest_interval_s| StudyConfig {
        connections_max,
        digest_interval_s: Some(digest_interval_s),
        counters_per_item: Some(4),
        ..only(&[Method::PreciseSelective, Method::FlowDigest])
    };
    let mut runs = Vec::new();
    // Connections last for 17.5 s on average: after half a minute as many end as begin.
    for (rate, seconds) in [(5_000.0, 120), (10_000.0, 120), (20_000.0, 60), (90_000.0, 30)] {
        runs.push(run(format!("figure-6-at-{rate}"), "flow-digest", digest(1 << 20, 5.0)).at(rate, seconds));
        runs.push(run(format!("figure-7-at-{rate}"), "flow-digest", digest(1 << 20, 30.0)).at(rate, seconds.max(60)));
    }
    for (size, connections_max) in [("256k", 1 << 18), ("512k", 1 << 19)] {
        runs.push(run(format!("figure-6-for-{size}"), "flow-digest", digest(connections_max, 5.0)).at(5_000.0, 60));
    }
    for rate in [500.0, 5_000.0] {
        runs.push(run(format!("differences-at-{rate}"), "flow-digest", digest(1 << 20, 2.0)).at(rate, 60));
    }
    runs
}

/// Figures 8 to 12 and 23 to 25, section 4.1 B.
fn traces() -> Vec<Run> {
    let mut runs: Vec<Run> = ["ipls-1", "ipls-3", "auck-4"].map(|name| run(name, name, of_paper())).into();
    let at_once = StudyConfig { batch_ms: 0, thresholds_ms: vec![0], ..of_paper() };
    runs.push(Run { seconds: Some(600), ..run("auck-4-each-change-by-itself", "auck-4", at_once) });
    runs
}

/// Figure 18, by rate and by the load that the filter has already.
fn classifications() -> Vec<Run> {
    let methods = [
        Method::PreciseSelective,
        Method::MultiLevelFa,
        Method::MultiLevelLl,
        Method::MultiLevelFaSymbols,
        Method::DLeft,
        Method::CountingBloom,
    ];
    let config = || StudyConfig { connections_max: CLASSIFIED_FLOWS, fingerprint_bits: Some(20), ..only(&methods) };
    let mut runs = Vec::new();
    for rate in [2_000.0, 4_000.0, 6_000.0, 8_000.0, 10_000.0] {
        for persistent in [0, 8_000] {
            let name = format!("figure-18-at-{rate}-beside-{persistent}");
            runs.push(Run { persistent, ..run(name, "classification", config()).at(rate, 30) });
        }
    }
    runs
}

/// Table III: URLs of the lengths and repetitions of an access list.
fn access_list(requests: u32, distinct: u32, mean_bytes: usize) -> Outcome {
    let mut study = Study::new(only(&[Method::PreciseSelective]), ConnectionsConfig::seed()).expect("it can be made");
    for number in 0..requests {
        // What is asked for again is something from before.
        let number = if number < distinct { number } else { number.wrapping_mul(2_654_435_761) % distinct };
        let url = format!("http://host-{}.example.org/{number:07}", number % 4999);
        // Lengths about the mean, half as long to half as long again.
        let wanted = mean_bytes / 2 + number as usize * 7919 % (mean_bytes + 1);
        let url = format!("{url}{:x<width$}", "", width = wanted.saturating_sub(url.len()));
        study.handle_url(url.as_bytes());
    }
    study.finish(None)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("name a folder for the results");
    let wanted: Vec<String> = arguments.collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|prefix| name.starts_with(prefix));
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    for run in flow_digests().into_iter().chain(traces()).chain(classifications()) {
        if is_wanted(&run.name) {
            write_result(&folder, &run.name, &run.study());
        }
    }
    for (name, requests, distinct, mean_bytes) in ACCESS_LISTS {
        let name = format!("table-iii-{name}");
        if is_wanted(&name) {
            write_result(&folder, &name, &access_list(requests, distinct, mean_bytes));
        }
    }
}

fn write_result(folder: &str, name: &str, outcome: &Outcome) {
    let json = serde_json::to_string_pretty(outcome).expect("it is plain data");
    std::fs::write(Path::new(folder).join(format!("{name}.json")), json).expect("the result can be written");
    println!("{name}: {} connections in {:.0} s", outcome.traffic.connections, outcome.traffic.duration_s);
    for row in &outcome.beside_the_paper {
        println!("  {:8.3} {:8.3}  {}", row.seed * 100.0, row.here.unwrap_or_default() * 100.0, row.what);
    }
}
