//! What is measured of a program: operations, or what the benchmarks of revisions without them print.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::program;

/// Nanoseconds by what was measured.
pub(super) type Figures = BTreeMap<String, f64>;

/// A benchmark, and the figures of its JSON that are compared.
struct Benchmark {
    arguments: &'static [&'static str],
    /// What a figure is called, and its JSON pointer. GB/s are turned into nanoseconds a kilobyte.
    figures: &'static [(&'static str, &'static str)],
    is_rate: bool,
}

/// Benchmarks that every revision has for long. All of them are made short.
const BENCHMARKS: [Benchmark; 4] = [
    Benchmark {
        arguments: &["filters", "--items", "200000", "--large", "1000000", "--rounds", "1", "--trials", "1"],
        figures: &[
            ("filter hit", "/fa_4_8/hit_ns"),
            ("filter miss", "/fa_4_8/miss_ns"),
            ("filter insert", "/fa_4_8/insert_ns"),
            ("filter batch hit, a million", "/large/batched_hit_ns"),
            ("filter hit, a million", "/large/one_by_one_hit_ns"),
            ("BinaryFuse8 hit (unchanged code)", "/binary_fuse8/hit_ns"),
        ],
        is_rate: false,
    },
    Benchmark {
        arguments: &[
            "pipeline",
            "--connections",
            "65536",
            "--packets",
            "200000",
            "--rounds",
            "1",
            "--largest",
            "65536",
        ],
        figures: &[
            ("packet", "/ns_per_packet"),
            ("packet replicated", "/ns_per_packet_replicated"),
            ("packet IPv6", "/ns_per_packet_ipv6"),
            ("packet fragment", "/ns_per_packet_fragments"),
            ("connection opened and closed", "/ns_per_connection"),
            ("packet first, 1000 rules", "/ns_per_open_1000_rules"),
        ],
        is_rate: false,
    },
    Benchmark {
        arguments: &["edge", "--connections", "65536", "--packets", "200000", "--rounds", "1", "--memory", "1000"],
        figures: &[("packet at an edge", "/ns_per_packet")],
        is_rate: false,
    },
    Benchmark {
        arguments: &["redundancy", "--megabytes", "16", "--cache-megabytes", "8", "--rounds", "1"],
        figures: &[
            ("redundancy encode, a kilobyte", "/gb_per_s/encode/samplebyte/1460"),
            ("redundancy decode, a kilobyte", "/gb_per_s/decode/samplebyte/1460"),
        ],
        is_rate: true,
    },
];

/// How both programs are measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Source {
    /// By `bench operations`, whose instructions can be counted, too.
    Operations,
    /// By older benchmarks, as one of the programs lacks that one.
    Benchmarks,
}

impl Source {
    /// The best that both programs have.
    pub(super) fn of(programs: [&Path; 2]) -> Self {
        match programs.iter().all(|program| program::has_bench(program, "operations")) {
            true => Self::Operations,
            false => Self::Benchmarks,
        }
    }

    /// One figure of each kind.
    ///
    /// # Errors
    /// A benchmark fails.
    pub(super) fn measure(self, program: &Path) -> Result<Figures, String> {
        match self {
            Self::Operations => {
                let report = program::bench(program, &["operations", "--no-instructions", "--rounds", "1"])?;
                Ok(rows(&report, "ns"))
            }
            Self::Benchmarks => {
                let mut figures = Figures::new();
                for benchmark in &BENCHMARKS {
                    let report = program::bench_alone(program, benchmark.arguments)?;
                    figures.extend(benchmark.read(&report));
                }
                Ok(figures)
            }
        }
    }

    /// Rounds that are enough for the test: the operations take a second, the benchmarks half a minute.
    pub(super) const fn rounds_default(self) -> u32 {
        match self {
            Self::Operations => 21,
            Self::Benchmarks => 9,
        }
    }
}

impl Benchmark {
    fn read(&self, report: &Value) -> Figures {
        let figure = |(name, pointer): &(&str, &str)| {
            let figure = report.pointer(pointer)?.as_f64().filter(|figure| *figure > 0.0)?;
            Some(((*name).to_owned(), if self.is_rate { 1000.0 / figure } else { figure }))
        };
        self.figures.iter().filter_map(figure).collect()
    }
}

/// A figure of each operation.
fn rows(report: &Value, figure: &str) -> Figures {
    let rows = report["operations"].as_array().into_iter().flatten();
    rows.filter_map(|row| Some((row["operation"].as_str()?.to_owned(), row[figure].as_f64()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_rates_become_times() {
        let report = serde_json::json!({
            "gb_per_s": { "encode": { "samplebyte": { "1460": 2.0 } } },
            "ns_per_packet": 120.5,
            "operations": [{ "operation": "packet_first", "ns": 400.0 }, { "operation": "packet_edge" }],
        });
        let encoded = Figures::from([("redundancy encode, a kilobyte".to_owned(), 500.0)]);
        assert_eq!(BENCHMARKS[3].read(&report), encoded);
        assert_eq!(BENCHMARKS[1].read(&report), Figures::from([("packet".to_owned(), 120.5)]));
        assert_eq!(rows(&report, "ns"), Figures::from([("packet_first".to_owned(), 400.0)]));
    }
}
