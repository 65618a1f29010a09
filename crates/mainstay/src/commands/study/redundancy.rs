//! `mainstay study redundancy`.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use analysis::redundancy_study::options::STANDARD_INPUT;
use analysis::redundancy_study::{
    Options, Progress as Far, RedundancyResult, Site, Source, State, StudyError as Error, TraceSource, Watch,
    digest_of, page, run as study,
};
use analysis::trace::Skip;
use redundancy::Window;

use super::{StudyError, footer, refuse_nothing, write_out};
use crate::cli::{StudyRedundancyArgs, admission};
use crate::commands::CommandError;
use console::{Progress, Table, Unit, Work};

/// Studies the captures and prints what was found.
///
/// # Errors
/// The captures cannot be opened, or the result cannot be written.
pub fn run(args: &StudyRedundancyArgs) -> Result<(), CommandError> {
    let (options, sites) = (options(args), sites(args));
    let outcome = find(args, &options, &sites)?;
    refuse_nothing(outcome.traffic.packets, &outcome.skipped.frames)?;
    for damaged in &outcome.skipped.damaged {
        eprintln!("{damaged}; what came before it is studied");
    }
    let skipped: u64 = outcome.skipped.frames.values().sum();
    if skipped > 0 {
        let reasons =
            outcome.skipped.frames.iter().map(|(reason, frames)| format!("{} {reason}", console::count(*frames)));
        eprintln!("{} frames were not studied: {}", console::count(skipped), reasons.collect::<Vec<_>>().join(", "));
    }
    let wrong: u64 = WRONG_CHECKSUMS.iter().filter_map(|skip| outcome.skipped.frames.get(skip.label())).sum();
    if wrong > 0 {
        eprintln!(
            "{} of them have wrong checksums: if they were captured on the host that sent them, or their addresses were changed \
             afterwards, --checksums believe studies them",
            console::count(wrong)
        );
    }
    for left_out in &outcome.left_out {
        eprintln!("left out: {left_out}; give --memory-megabytes more");
    }
    if let Some(folder) = &args.output {
        let tables = page::tables(&outcome);
        write_out(folder, "redundancy", &page::report(&outcome, footer()), &outcome, &tables)?;
    }
    console::print_as(args.json, &outcome, || render(&outcome))?;
    Ok(())
}

fn options(args: &StudyRedundancyArgs) -> Options {
    let usual = Options::default();
    Options {
        method: args.method.into(),
        window: Window::new(args.window.into()).unwrap_or(usual.window),
        period: args.period,
        cache_bytes: usize::from(args.cache_megabytes) << 20,
        inside: args.inside.clone(),
        skips_encrypted: args.skip_encrypted,
        admission: admission(args.checksums, args.loopback),
        is_quick: args.quick,
        threads: args.jobs.unwrap_or(usual.threads),
        memory_bytes: u64::from(args.memory_megabytes) << 20,
    }
}

fn sites(args: &StudyRedundancyArgs) -> Vec<Site> {
    if args.together {
        return vec![Site::of(args.captures.clone())];
    }
    args.captures.iter().map(|capture| Site::of(vec![capture.clone()])).collect()
}

fn find(args: &StudyRedundancyArgs, options: &Options, sites: &[Site]) -> Result<RedundancyResult, StudyError> {
    // What comes on standard input is not there a second time: there is nothing to go on with.
    let is_kept = !sites.iter().any(Site::is_standard_input);
    let mut state = match &args.output {
        Some(folder) if is_kept => {
            let digest = digest_of(sites, options).map_err(|(path, source)| Error::File { path, source })?;
            State::open(folder, &digest)?
        }
        _ => State::in_memory(),
    };
    if state.resumed() > 0 {
        eprintln!("resuming from an earlier run: {} finished", console::counted(state.resumed(), "job"));
    }
    if args.captures.iter().filter(|path| path.as_os_str() == STANDARD_INPUT).count() > 1 {
        return Err(analysis::trace::TraceError::StandardInputTwice.into());
    }
    // What cannot be read is said now, and not in an hour.
    for site in sites.iter().filter(|site| !site.is_standard_input()) {
        TraceSource::open(&site.captures, options.admission)?;
    }
    let progress = Progress::new();
    let line = PassLine::new(&progress, sites);
    let show = |far: &Far| line.show(far);
    let open = |site: &Site| Ok(Box::new(TraceSource::open(&site.captures, options.admission)?) as Box<dyn Source>);
    let left_out = study(sites, options, &mut state, &open, &Watch { progress: &show, stop: &AtomicBool::new(false) })?;
    Ok(RedundancyResult::new(sites, options, &state, &left_out))
}

/// The line that shows how far the captures of each site are read, for the jobs that read them at the same time.
struct PassLine<'a> {
    progress: &'a Progress,
    sites: &'a [Site],
    /// By site: the jobs that were finished before, and the reading for the next ones.
    passes: Vec<Mutex<Option<(usize, Work<'a>)>>>,
}

impl<'a> PassLine<'a> {
    fn new(progress: &'a Progress, sites: &'a [Site]) -> Self {
        Self { progress, sites, passes: sites.iter().map(|_| Mutex::new(None)).collect() }
    }

    fn show(&self, far: &Far) {
        let Far { site, jobs_finished, jobs, read_bytes: [read, total] } = *far;
        let mut pass = self.passes[site].lock().unwrap_or_else(PoisonError::into_inner);
        if pass.as_ref().is_none_or(|(finished, _)| *finished != jobs_finished) {
            *pass = Some((jobs_finished, self.progress.work(Unit::Bytes, total)));
        }
        if let Some((_, reading)) = &*pass {
            let jobs = console::counted(jobs, "job");
            reading.show(read.unwrap_or(0), &format!("{}: {jobs_finished} of {jobs} finished", self.sites[site].name));
        }
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or("–".into(), |share| format!("{:.1} %", share * 100.0))
}

fn render(outcome: &RedundancyResult) -> String {
    let traffic = &outcome.traffic;
    let mut text = format!(
        "{} packets, {} from the IP header on, {} over {}\n\n",
        console::count(traffic.packets),
        console::scaled(traffic.bytes as f64, "B"),
        console::counted(outcome.sites.len(), "site"),
        page::lasting(traffic.seconds)
    );
    let mut table = Table::of("saved by|>Max-Match|>Chunk-Match");
    for (method, saved) in &outcome.saved {
        table.row([method.to_uppercase(), percent(saved.max_match), percent(saved.chunk_match)]);
    }
    table.row(["at most, between packets".to_owned(), percent(outcome.optimal), String::new()]);
    table.row(["and within packets".to_owned(), percent(outcome.optimal_with_own), String::new()]);
    text.push_str(&table.render());
    let mut table = Table::of("protocol|>of all bytes|>saved of them");
    for row in outcome.by_protocol.iter().take(PROTOCOLS_SHOWN) {
        table.row([row.protocol.clone(), percent(Some(row.share)), percent(Some(row.saved))]);
    }
    text.push_str(&format!("\n{}", table.render()));
    let mut table = Table::of(">cache|>saved");
    for row in &outcome.cache_sizes {
        table.row([console::scaled(row.cache_bytes as f64, "B"), percent(Some(row.saved))]);
    }
    text.push_str(&format!("\n{}", table.render()));
    let origins = &outcome.origins.shares;
    let same_hosts = ["intra_flow", "inter_flow"].iter().filter_map(|origin| origins.get(origin)).sum();
    let retransmitted = percent(Some(traffic.saved_of_retransmissions));
    text.push_str(&format!(
        "\n{} of what is saved is from the same two hosts; {retransmitted} of all bytes is saved of retransmissions\n",
        percent(Some(same_hosts))
    ));
    text
}

/// Frames that are studied if checksums are believed.
const WRONG_CHECKSUMS: [Skip; 2] = [Skip::IpChecksum, Skip::TransportChecksum];
/// Protocols in the table for people; all are in the JSON.
const PROTOCOLS_SHOWN: usize = 8;
