//! `mainstay bench operations`: instructions and nanoseconds of the operations that packets, updates and lookups consist of.
//!
//! Each is carried out some thousand times on inputs that are made before, from fixed seeds and without a clock. So the number of its
//! instructions is a property of the program, not of the machine. `cargo run -p xtask -- performance` compares it with a reviewed
//! snapshot, `… compare` with another revision. Where an operation has variants for instruction sets, each is named and measured by
//! itself. AVX-512 is not among them: callgrind does not know it; `bench filters` and `bench redundancy` time what a processor has.

mod connections;
mod datagrams;
mod filter;
mod operation;
mod packets;
mod parsers;
mod redundancy;
mod report;
#[cfg(test)]
mod tests;

use std::time::Duration;

use packet_io::usage::thread_cpu_time;

use self::operation::{Made, Operation};
use self::report::{Report, Row};
use super::BenchError;
use super::callgrind::{self, CountedRun};
use super::rounds::{self, Rounds};
use crate::args::BenchOperationsArgs;
use console::Progress;

/// What makes it, with its name.
type Maker = (&'static str, fn() -> Made);
/// An operation with its name.
type Named = (&'static str, Box<dyn Operation>);

/// All operations, by the names that the snapshot and the reports have.
const CATALOGUE: [Maker; 36] = [
    ("filter_hit_portable", filter::hit_portable),
    ("filter_hit_avx2", filter::hit_avx2),
    ("filter_miss_portable", filter::miss_portable),
    ("filter_miss_avx2", filter::miss_avx2),
    ("filter_batch_portable", filter::batch_portable),
    ("filter_batch_avx2", filter::batch_avx2),
    ("filter_modify_avx2", filter::modify_avx2),
    ("redundancy_encode_1460_portable", redundancy::encode_portable),
    ("redundancy_encode_1460_avx2", redundancy::encode_avx2),
    ("redundancy_decode_1460", redundancy::decode),
    ("packet_planned", packets::planned),
    ("packet_established", packets::established),
    ("packet_established_ipv6", packets::established_ipv6),
    ("packet_first", packets::first),
    ("packet_closing", packets::last),
    ("packet_replicated", packets::replicated),
    ("packet_balanced", packets::balanced),
    ("packet_chain_of_five", packets::chain_of_five),
    ("packet_edge", packets::edge),
    ("rule_match_1000", connections::rule_match),
    ("syn_cookie_make", connections::cookie_make),
    ("syn_cookie_verify", connections::cookie_verify),
    ("update_encode", connections::update_encode),
    ("update_decode", connections::update_decode),
    ("datagram_seal_1439", datagrams::seal),
    ("datagram_open_1439", datagrams::open),
    ("parser_tls", parsers::tls_ordinary),
    ("parser_tls_worst", parsers::tls_worst),
    ("parser_http", parsers::http_ordinary),
    ("parser_http_worst", parsers::http_worst),
    ("parser_quic", parsers::quic_ordinary),
    ("parser_quic_worst", parsers::quic_worst),
    ("parser_dns", parsers::dns_ordinary),
    ("parser_dns_worst", parsers::dns_worst),
    ("parser_ftp", parsers::ftp_ordinary),
    ("parser_ftp_worst", parsers::ftp_worst),
];

/// What operations cost each time that they are carried out.
#[derive(Debug)]
pub(super) struct Cost {
    /// In instructions; otherwise in nanoseconds.
    pub(super) is_counted: bool,
    pub(super) each: Vec<(String, f64)>,
}

/// Rounds where instructions cannot be counted.
const ROUNDS_UNCOUNTED: u32 = 5;

/// The cost of the operations with these names: instructions where callgrind is there, and unless they are not wanted.
pub(super) fn costs(names: &[&str], no_instructions: bool) -> Result<Cost, BenchError> {
    let only: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    match if no_instructions { None } else { Some(callgrind::count(&only)) } {
        Some(Ok(each)) => return Ok(Cost { is_counted: true, each }),
        Some(Err(error)) if !matches!(error, callgrind::CallgrindError::NoValgrind(_)) => return Err(error.into()),
        _ => {}
    }
    let rows = measure(&BenchOperationsArgs {
        only,
        rounds: ROUNDS_UNCOUNTED,
        no_instructions: true,
        json: false,
        counted: false,
    })?;
    let each = rows.into_iter().filter_map(|row| Some((row.operation, row.ns?)));
    Ok(Cost { is_counted: false, each: each.collect() })
}

/// Measures and prints.
///
/// # Errors
/// An operation fails, which is a defect, instructions cannot be counted, or the result cannot be printed.
pub fn run(args: &BenchOperationsArgs) -> Result<(), BenchError> {
    if args.counted {
        return run_counted(args);
    }
    let mut rows = if args.rounds == 0 { Vec::new() } else { measure(args)? };
    if !args.no_instructions {
        let progress = Progress::new();
        progress.show("counting instructions");
        for (operation, instructions) in callgrind::count(&args.only)? {
            match rows.iter_mut().find(|row| row.operation == operation) {
                Some(row) => row.set_instructions(instructions),
                None => rows.push(Row::of_instructions(operation, instructions)),
            }
        }
    }
    let report = Report { rounds: args.rounds, operations: rows };
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

/// The operations that are asked for.
fn chosen(args: &BenchOperationsArgs) -> Result<Vec<Named>, BenchError> {
    if let Some(unknown) = args.only.iter().find(|name| CATALOGUE.iter().all(|(known, _)| known != name)) {
        let known = CATALOGUE.map(|(name, _)| name).join(", ");
        return Err(BenchError::NoOperation { name: unknown.clone(), known });
    }
    let mut chosen = Vec::new();
    for (name, make) in CATALOGUE {
        if (args.only.is_empty() || args.only.iter().any(|only| only == name))
            && let Some(operation) = make()?
        {
            chosen.push((name, operation));
        }
    }
    Ok(chosen)
}

/// Times each in turn, round by round.
fn measure(args: &BenchOperationsArgs) -> Result<Vec<Row>, BenchError> {
    let progress = Progress::new();
    progress.show("making inputs");
    let mut operations = chosen(args)?;
    let mut figures: Vec<Rounds> = operations.iter().map(|_| Rounds::default()).collect();
    for (_, operation) in &mut operations {
        operation.prepare()?;
        operation.run()?;
    }
    rounds::repeat(&progress, "operations", args.rounds, |_| {
        for ((_, operation), figures) in operations.iter_mut().zip(&mut figures) {
            figures.push(nanos_each(operation.as_mut())?);
        }
        Ok::<_, BenchError>(())
    })?;
    Ok(operations.iter().zip(&figures).map(|((name, _), figures)| Row::of_times(name, figures)).collect())
}

/// The least processor time that an operation may be timed for, so that the clock's own cost does not show.
const TIMED_AT_LEAST: Duration = Duration::from_millis(2);

fn nanos_each(operation: &mut dyn Operation) -> Result<f64, BenchError> {
    let (mut spent, mut times) = (Duration::ZERO, 0);
    while spent < TIMED_AT_LEAST {
        operation.prepare()?;
        let began = thread_cpu_time();
        operation.run()?;
        spent += thread_cpu_time().saturating_sub(began);
        times += operation.times();
    }
    Ok(spent.as_secs_f64() * 1e9 / times as f64)
}

/// Carries out each operation once for callgrind, after once for nothing: what happens at the first use does not count.
fn run_counted(args: &BenchOperationsArgs) -> Result<(), BenchError> {
    for (name, mut operation) in chosen(args)? {
        operation.prepare()?;
        operation.run()?;
        operation.prepare()?;
        callgrind::counted_run(&mut || operation.run())?;
        let run = CountedRun { operation: name.to_owned(), times: operation.times() };
        console::print(&format!("{}\n", serde_json::to_string(&run).expect("a name and a number")))?;
    }
    Ok(())
}
