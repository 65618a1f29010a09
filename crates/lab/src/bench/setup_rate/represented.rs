//! What a representation of replicated connections costs and lets through, beside the default and none: `--representation`.
//!
//! A pair of nodes for each, measured in turns as those of [`super`] are. The bytes are those that both nodes receive on the link between
//! them, whole frames: updates, acknowledgements, heartbeats and failure detection.

use std::collections::BTreeMap;

use config::validated::Representation;
use packet_io::IoError;
use packet_io::interface;
use serde::Serialize;

use super::Pair;
use super::figures::{Cpu, Figures};
use crate::args::BenchSetupRateArgs;
use crate::bench::BenchError;
use crate::bench::rounds::{self, rounded};
use crate::testbed::cluster::Shape;
use crate::testbed::topology::{INTERFACES, Topology};
use crate::testbed::watch::Watch;
use console::{Progress, Table, count};

/// What each is measured beside.
const BESIDE: [Representation; 2] = [Representation::PreciseSelective, Representation::None];

/// One representation: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    /// Connections a second.
    per_s: f64,
    /// Least and greatest of the rounds.
    per_s_span: [f64; 2],
    /// Connections over those without replication: the median of the rounds' ratios.
    share_of_none: f64,
    /// What a connection costs a node.
    cpu_us_per_connection: Cpu,
    /// Bytes between the nodes.
    bytes_per_connection: f64,
}

impl Row {
    fn new(figures: &Figures, none: &Figures) -> Self {
        let rate = &figures.connections_per_s;
        Self {
            per_s: rate.median().round(),
            per_s_span: rate.span().map(f64::round),
            share_of_none: rounded(rate.median_ratio(&none.connections_per_s), 3),
            cpu_us_per_connection: Cpu::new(figures),
            bytes_per_connection: rounded(figures.bytes.median(), 1),
        }
    }
}

/// The result.
#[derive(Debug, Serialize)]
pub(super) struct RepresentationReport {
    representation: &'static str,
    in_flight: u16,
    rounds: u32,
    seconds_per_round: f64,
    /// Of the representation that was asked for.
    #[serde(flatten)]
    asked_for: Row,
    /// Of all, by name.
    #[serde(flatten)]
    all: BTreeMap<&'static str, Row>,
}

impl RepresentationReport {
    /// Figures in the order of [`sides`].
    pub(super) fn new(args: &BenchSetupRateArgs, sides: &[(Representation, Figures)]) -> Self {
        let [(asked_for, figures), .., (_, none)] = sides else {
            unreachable!("there is one that was asked for, and none at all")
        };
        Self {
            representation: asked_for.name(),
            in_flight: args.in_flight,
            rounds: args.rounds,
            seconds_per_round: args.seconds,
            asked_for: Row::new(figures, none),
            all: sides.iter().map(|(side, figures)| (side.name(), Row::new(figures, none))).collect(),
        }
    }

    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        let mut table = Table::of("REPRESENTATION|>A SECOND|>LEAST|>MOST|>OF NONE|>CPU ACTIVE|>CPU STANDBY|>BYTES");
        for (name, row) in &self.all {
            let [least, most] = row.per_s_span;
            let Cpu { active, standby } = row.cpu_us_per_connection;
            let rates = [row.per_s, least, most].map(|rate| count(rate as u64));
            let rest = [
                format!("{:.3}", row.share_of_none),
                format!("{active:.1} µs"),
                format!("{standby:.1} µs"),
                format!("{:.0}", row.bytes_per_connection),
            ];
            table.row([(*name).to_owned()].into_iter().chain(rates).chain(rest));
        }
        format!(
            "TCP connections with one request and one answer through a pair of nodes, {} open at a time, {} rounds of {} s each\n\n{}\n\
             Processor time is a node's for each connection, with what the kernel does on its behalf. Bytes are those between the nodes\n\
             for each connection, in both directions, with heartbeats and failure detection.\n",
            self.in_flight,
            self.rounds,
            self.seconds_per_round,
            table.render(),
        )
    }
}

/// What is measured: the representation that was asked for first, none last.
fn sides(asked_for: Representation) -> Vec<Representation> {
    [asked_for].into_iter().chain(BESIDE.into_iter().filter(|side| *side != asked_for)).collect()
}

/// Measures. The process must be allowed to make networks.
///
/// # Errors
/// The networks cannot be built, or connections fail.
pub(super) fn measure(
    args: &BenchSetupRateArgs,
    asked_for: Representation,
    watch: &Watch,
    progress: &Progress,
) -> Result<RepresentationReport, BenchError> {
    progress.show("building the networks");
    let mut pairs = Vec::new();
    for side in sides(asked_for) {
        pairs.push((Pair::start(watch, Shape::OneActive, side)?, (side, Figures::default())));
    }
    rounds::repeat(progress, "connections", args.rounds, |round| {
        // Each side is the first, the second and so on in turn.
        let sides = pairs.len();
        for place in 0..sides {
            let (pair, (_, figures)) = &mut pairs[(place + round as usize) % sides];
            pair.measure(watch, args, figures)?;
        }
        Ok::<_, BenchError>(())
    })?;
    let figures: Vec<_> = pairs.into_iter().map(|(_, figures)| figures).collect();
    Ok(RepresentationReport::new(args, &figures))
}

/// Bytes that both nodes have received on the link between them.
pub(super) fn link_bytes(topology: &Topology) -> Result<u64, IoError> {
    let received = |node: &packet_io::namespace::Namespace| -> Result<u64, IoError> {
        Ok(node.run(|| interface::received_bytes(INTERFACES[2]))?.unwrap_or_default())
    };
    topology.nodes.iter().map(received).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rates: [f64; 3], standby_us: f64, bytes: f64) -> Figures {
        let mut figures = Figures::default();
        rates.into_iter().for_each(|rate| figures.connections_per_s.push(rate));
        figures.standby_cpu_us.push(standby_us);
        figures.bytes.push(bytes);
        figures
    }

    #[test]
    fn what_is_asked_for_stands_beside_the_default_and_none() {
        let compact = Representation::ALL.into_iter().find(|(name, _)| *name == "multi-level").map(|(_, it)| it);
        let compact = compact.expect("it is one");
        assert_eq!(sides(compact), [compact, Representation::PreciseSelective, Representation::None]);
        assert_eq!(sides(Representation::PreciseSelective), [Representation::PreciseSelective, Representation::None]);
        let args = BenchSetupRateArgs {
            seconds: 1.0,
            rounds: 3,
            in_flight: 16,
            multi_primary: false,
            representation: Some(compact),
            json: true,
        };
        let measured = [
            (compact, figures([9700.0, 9600.0, 9800.0], 5.04, 21.3)),
            (Representation::PreciseSelective, figures([6500.0, 6400.0, 6600.0], 24.0, 680.0)),
            (Representation::None, figures([10_000.0, 10_000.0, 10_000.0], 0.4, 2.0)),
        ];
        let report = RepresentationReport::new(&args, &measured);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["per_s"], &json["share_of_none"]), (&9700.0.into(), &0.97.into()), "{json}");
        assert_eq!(json["cpu_us_per_connection"]["standby"], 5.0);
        assert_eq!(json["bytes_per_connection"], 21.3);
        assert_eq!(json["precise-selective"]["cpu_us_per_connection"]["standby"], 24.0);
        assert_eq!((&json["none"]["per_s"], &json["none"]["share_of_none"]), (&10_000.0.into(), &1.0.into()));
        for text in ["multi-level", "precise-selective", "0.650", "680", "24.0 µs"] {
            assert!(report.describe().contains(text), "{}", report.describe());
        }
    }
}
