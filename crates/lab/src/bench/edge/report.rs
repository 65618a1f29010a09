//! What `mainstay bench edge` prints.

use serde::Serialize;

use super::memory::MemoryRow;
use crate::args::BenchEdgeArgs;
use crate::bench::rounds::{Rounds, median_table, rounded};
use console::{Table, count};

/// The most of the gateway's time that a packet may take at an edge.
const RATIO_GOAL: f64 = 0.5;

/// Nanoseconds of a packet, one figure a round: by length of the frame, of the edge and of the gateway.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) nanos: [[Rounds; 2]; 2],
}

/// The result: medians over the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) connections: u32,
    pub(super) rounds: u32,
    pub(super) packets_per_round: u64,
    /// A packet of 60 bytes at the edge.
    pub(super) ns_per_packet: f64,
    /// The same in the gateway's pipeline.
    pub(super) gateway_ns_per_packet: f64,
    /// The first over the second: the median of the rounds' ratios.
    pub(super) ratio: f64,
    /// A full-sized packet at the edge.
    pub(super) full_ns_per_packet: f64,
    /// The same in the gateway's pipeline.
    pub(super) full_gateway_ns_per_packet: f64,
    /// The first over the second: the median of the rounds' ratios.
    pub(super) full_ratio: f64,
    /// The least and the greatest figure of the rounds, in the order of the figures above.
    pub(super) spans_ns: [[f64; 2]; 4],
    /// Instructions of a packet of 60 bytes at the edge; `None` where valgrind is not installed.
    pub(super) instructions_per_packet: Option<f64>,
    /// Memory of a connection with a full-sized segment held, in the row with the most connections.
    pub(super) bytes_per_connection: f64,
    pub(super) memory: Vec<MemoryRow>,
}

impl Report {
    pub(super) fn new(
        args: &BenchEdgeArgs,
        figures: &Figures,
        instructions_per_packet: Option<f64>,
        memory: Vec<MemoryRow>,
    ) -> Self {
        let [[short, gateway_short], [full, gateway_full]] = &figures.nanos;
        let median = |rounds: &Rounds| rounded(rounds.median(), 1);
        let most = memory.iter().filter(|row| row.policy == "always").max_by_key(|row| row.connections);
        Self {
            connections: args.connections,
            rounds: args.rounds,
            packets_per_round: args.packets,
            ns_per_packet: median(short),
            gateway_ns_per_packet: median(gateway_short),
            ratio: rounded(short.median_ratio(gateway_short), 3),
            full_ns_per_packet: median(full),
            full_gateway_ns_per_packet: median(gateway_full),
            full_ratio: rounded(full.median_ratio(gateway_full), 3),
            spans_ns: [short, gateway_short, full, gateway_full].map(|rounds| rounds.span().map(|ns| rounded(ns, 1))),
            instructions_per_packet,
            bytes_per_connection: most.map_or(0.0, |row| rounded(row.bytes as f64 / f64::from(row.connections), 1)),
            memory,
        }
    }

    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        let [short, gateway_short, full, gateway_full] = self.spans_ns;
        let rows = [
            ("60 bytes, edge", self.ns_per_packet, short),
            ("60 bytes, gateway", self.gateway_ns_per_packet, gateway_short),
            ("full-sized, edge", self.full_ns_per_packet, full),
            ("full-sized, gateway", self.full_gateway_ns_per_packet, gateway_full),
        ];
        format!(
            "One core, {} TCP connections, {} rounds of {} packets; the edge holds unacknowledged segments\n\n{}\n\
             At the edge a packet of 60 bytes takes {:.3} of what it takes the gateway (goal {RATIO_GOAL}), a full-sized one {:.3}.\n\
             {}\
             A connection with a full-sized segment held takes {:.0} bytes.\n\n{}",
            count(self.connections.into()),
            self.rounds,
            count(self.packets_per_round),
            median_table("NANOSECONDS", 1, rows),
            self.ratio,
            self.full_ratio,
            self.instructions_per_packet
                .map(|number| format!("It takes {number:.0} instructions (callgrind).\n"))
                .unwrap_or_default(),
            self.bytes_per_connection,
            self.memory_table(),
        )
    }

    fn memory_table(&self) -> String {
        let mut table = Table::of("POLICY|>CONNECTIONS|>BYTES|>HELD SEGMENTS");
        for row in &self.memory {
            let figures = [u64::from(row.connections), row.bytes, row.held.into()].map(count);
            table.row([row.policy.to_owned()].into_iter().chain(figures));
        }
        table.render()
    }
}
