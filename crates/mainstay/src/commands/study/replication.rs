//! `mainstay study replication`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use analysis::replication_study::{
    Cost, DIGEST_INTERVAL_OF_PAPER_S, Method, Outcome, Study, StudyConfig, datasets, report,
};
use analysis::trace::connections::ConnectionsConfig;
use analysis::trace::{Skip, Trace};

use super::{StudyError, footer, refuse_nothing, write_out};
use crate::cli::{StudyReplicationArgs, admission};
use crate::commands::CommandError;
use console::{Align, Progress, Table, Unit};

/// Packets between two updates of the progress line.
const PROGRESS_PACKETS: u64 = 1 << 16;
/// Bytes of a line of a URL log that are looked at.
const URL_BYTES_MAX: usize = 16 << 10;

/// Studies the captures and prints what was found.
///
/// # Errors
/// The captures cannot be opened, there is no such study, or the result cannot be written.
pub fn run(args: &StudyReplicationArgs) -> Result<(), CommandError> {
    let outcome = study(args)?;
    refuse_nothing(outcome.traffic.packets, &outcome.not_studied.frames)?;
    remarks(args, &outcome).iter().for_each(|remark| eprintln!("{remark}"));
    if let Some(folder) = &args.output {
        let page = report(&outcome, "Mainstay study replication", &footer());
        write_out(folder, "replication", &page, &outcome, &datasets(&outcome))?;
    }
    console::print_as(args.json, &outcome, || render(&outcome))?;
    Ok(())
}

/// What a reader of the figures must know of how they came about, and can do about it.
fn remarks(args: &StudyReplicationArgs, outcome: &Outcome) -> Vec<String> {
    let left_out = &outcome.not_studied;
    let frames = |skip: Skip| left_out.frames.get(skip.label()).copied().unwrap_or_default();
    let mut remarks: Vec<String> =
        left_out.damaged.iter().map(|damage| format!("{damage}; what came before it is studied")).collect();
    if left_out.table_full > 0 {
        let packets = console::count(left_out.table_full);
        remarks.push(format!(
            "{packets} packets would have begun a connection without room for it: give --connections more"
        ));
    }
    let broken = frames(Skip::TransportChecksum) + frames(Skip::IpChecksum);
    if broken > 0 {
        remarks.push(format!(
            "{} frames have wrong checksums and are left out. If they were captured on the host that sent them, or their addresses were \
             changed afterwards, --checksums believe studies them",
            console::count(broken)
        ));
    }
    if frames(Skip::Address) > 0 && !args.loopback {
        remarks.push(format!(
            "{} frames are from or to addresses that no wire carries and are left out; those between loopback addresses are studied \
             with --loopback",
            console::count(frames(Skip::Address))
        ));
    }
    if outcome.traffic.connections == 0 && !args.captures.is_empty() {
        remarks.push("the captures hold no connection: all figures are zero or missing".into());
    }
    remarks
}

fn study(args: &StudyReplicationArgs) -> Result<Outcome, StudyError> {
    let following = if args.as_in_the_paper { ConnectionsConfig::seed() } else { ConnectionsConfig::default() };
    let mut study = Study::new(config(args), following)?;
    let progress = Progress::new();
    if let Some(path) = &args.url_log {
        read_urls(path, &mut study)?;
    }
    if args.captures.is_empty() {
        return Ok(study.finish(None));
    }
    let mut trace = Trace::open(&args.captures)?.admitting(admission(args.checksums, args.loopback));
    let reading = progress.work(Unit::Bytes, trace.progress().total_bytes);
    let mut packets = 0_u64;
    while let Some(packet) = trace.next() {
        study.handle_packet(&packet);
        packets += 1;
        if packets.is_multiple_of(PROGRESS_PACKETS) {
            reading.show(trace.progress().read_bytes, &format!("{} packets", console::count(packets)));
        }
    }
    progress.show("waiting for the filters");
    Ok(study.finish(Some(&trace)))
}

fn config(args: &StudyReplicationArgs) -> StudyConfig {
    let usual = StudyConfig::default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    StudyConfig {
        methods: if args.methods.is_empty() { usual.methods } else { args.methods.clone() },
        thresholds_ms: if args.thresholds_ms.is_empty() { usual.thresholds_ms } else { args.thresholds_ms.clone() },
        has_all_thresholds: args.all_thresholds,
        connections_max: args.connections,
        batch_ms: args.batch_ms.unwrap_or(usual.batch_ms),
        digest_interval_s: args.digest_interval_s.or(args.as_in_the_paper.then_some(DIGEST_INTERVAL_OF_PAPER_S)),
        as_in_the_paper: args.as_in_the_paper,
        counters_per_item: args.counters_per_item,
        fingerprint_bits: args.fingerprint_bits,
        failover_every_s: args.failover_interval_s,
        probes: args.probes as usize,
        workers: args.jobs.map_or(processors, usize::from),
        seed: args.seed,
    }
}

fn read_urls(path: &Path, study: &mut Study) -> Result<(), StudyError> {
    let failed = |error| StudyError::File { path: path.to_owned(), error };
    let mut lines = BufReader::new(File::open(path).map_err(failed)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            return Ok(());
        }
        let url = line.trim_ascii();
        if !url.is_empty() {
            study.handle_url(&url[..url.len().min(URL_BYTES_MAX)]);
        }
    }
}

fn render(outcome: &Outcome) -> String {
    let traffic = &outcome.traffic;
    let mut text = format!(
        "{} connections in {:.1} s, {} at a time at most; {:.1} % were never answered\n\n",
        console::count(traffic.connections),
        traffic.busy_s,
        console::count(traffic.connections_max),
        traffic.one_way_share * 100.0
    );
    let columns = ["bytes", "messages", "saved", "overhead", "entries", "false +", "false -", "wrong state"];
    let mut headings = vec![("method", Align::Left)];
    headings.extend(columns.map(|name| (name, Align::Right)));
    let mut table = Table::new(&headings);
    let costs = Method::ALL.into_iter().filter_map(|of| Some((of.name(), &outcome.methods.get(of.name())?.cost)));
    costs.for_each(|(name, cost)| table.row(cells(name, cost)));
    text.push_str(&table.render());
    for sentence in outcome.advice.iter().flat_map(|advice| &advice.sentences) {
        text.push_str(&format!("\n{sentence}\n"));
    }
    if let Some(urls) = &outcome.urls {
        let found = urls.structures.get("multi-level-fa");
        let saved = found.map_or(0.0, |found| found.network_reduction * 100.0);
        text.push_str(&format!(
            "\ncategories of {} URLs ({:.0} bytes each): multi-level-fa saves {saved:.1} % of the bytes sent\n",
            console::count(urls.distinct),
            urls.mean_bytes
        ));
    }
    text
}

fn cells(name: &str, cost: &Cost) -> Vec<String> {
    let share =
        |share: Option<f64>, digits: usize| share.map_or("–".into(), |share| format!("{:.digits$} %", share * 100.0));
    vec![
        name.to_owned(),
        console::count(cost.bytes),
        console::count(cost.messages),
        share(cost.reduction, 1),
        cost.overhead.map_or("–".into(), |overhead| format!("{overhead:.5}")),
        console::count(cost.entries_at_backup),
        share(cost.false_positive, 4),
        share(cost.false_negative, 2),
        share(cost.inaccurate_state, 2),
    ]
}
