//! `mainstay bench worst-packet`: for each parser of first bytes, the cost of an ordinary packet and of the one that costs most.
//!
//! The packets are operations of `bench operations`, so that the snapshot of instructions has them, too. Without callgrind, nanoseconds are measured.

use serde::Serialize;

use super::BenchError;
use super::operations::{self, Cost};
use crate::args::BenchWorstPacketArgs;
use console::Table;

/// The instructions that one packet may cost. A segment of one-byte records that is parsed together with the six before it costs three times as many. Most of what
/// a datagram of QUIC costs is its decryption, for which callgrind finds fewer instructions of the processor than there are.
const LIMIT_INSTRUCTIONS: f64 = 200_000.0;
/// The same in nanoseconds, for a machine without callgrind.
const LIMIT_NS: f64 = 50_000.0;

/// Parsers, with the names of their operations.
const PARSERS: [(&str, &str, &str); 5] = [
    ("tls", "parser_tls", "parser_tls_worst"),
    ("http", "parser_http", "parser_http_worst"),
    ("quic", "parser_quic", "parser_quic_worst"),
    ("dns", "parser_dns", "parser_dns_worst"),
    ("ftp", "parser_ftp", "parser_ftp_worst"),
];

/// The result of one parser.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    parser: &'static str,
    /// `instructions`, or `ns`.
    unit: &'static str,
    ordinary: f64,
    worst: f64,
    limit: f64,
}

/// The result.
#[derive(Debug, Serialize)]
struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// No packet costs more than its limit.
    fn check(&self) -> Result<(), BenchError> {
        match self.rows.iter().find(|row| row.worst > row.limit) {
            Some(Row { parser, unit, worst, limit, .. }) => {
                Err(BenchError::TooCostly { parser, unit, worst: *worst as u64, limit: *limit as u64 })
            }
            None => Ok(()),
        }
    }

    fn describe(&self) -> String {
        let mut table = Table::of("PARSER|UNIT|>ORDINARY|>WORST|>LIMIT");
        for row in &self.rows {
            let figures = [row.ordinary, row.worst, row.limit].map(|figure| format!("{figure:.0}"));
            table.row([row.parser.to_owned(), row.unit.to_owned()].into_iter().chain(figures));
        }
        format!("A packet through a parser, with the cost of holding its bytes\n\n{}", table.render())
    }
}

/// Measures and prints.
///
/// # Errors
/// A packet costs more than the limit, or nothing can be measured or printed.
pub fn run(args: &BenchWorstPacketArgs) -> Result<(), BenchError> {
    let names: Vec<&str> = PARSERS.iter().flat_map(|(_, ordinary, worst)| [*ordinary, *worst]).collect();
    let report = report(&operations::costs(&names, args.no_instructions)?);
    console::print_as(args.json, &report, || report.describe())?;
    report.check()
}

fn report(costs: &Cost) -> Report {
    let (unit, limit) = if costs.is_counted { ("instructions", LIMIT_INSTRUCTIONS) } else { ("ns", LIMIT_NS) };
    let cost = |name: &str| costs.each.iter().find(|(known, _)| known == name).map_or(f64::INFINITY, |(_, cost)| *cost);
    let row = |(parser, ordinary, worst): (&'static str, &str, &str)| Row {
        parser,
        unit,
        ordinary: cost(ordinary),
        worst: cost(worst),
        limit,
    };
    Report { rows: PARSERS.map(row).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(is_counted: bool, worst: f64) -> Cost {
        let each = PARSERS.iter().flat_map(|(_, ordinary, costly)| [(*ordinary, 1000.0), (*costly, worst)]);
        Cost { is_counted, each: each.map(|(name, cost)| (name.to_owned(), cost)).collect() }
    }

    #[test]
    fn a_packet_beyond_the_limit_of_its_unit_is_refused_by_the_parsers_name() {
        for (is_counted, limit) in [(true, LIMIT_INSTRUCTIONS), (false, LIMIT_NS)] {
            let within = report(&costs(is_counted, limit));
            assert!(within.check().is_ok() && within.describe().contains("quic"), "{within:?}");
            let error = report(&costs(is_counted, limit + 1.0)).check().expect_err("it is too costly").to_string();
            assert!(error.contains("tls"), "{error}");
        }
        // An operation that is not there costs more than any limit.
        let missing = report(&Cost { is_counted: true, each: Vec::new() });
        assert!(missing.check().is_err(), "{missing:?}");
    }
}
