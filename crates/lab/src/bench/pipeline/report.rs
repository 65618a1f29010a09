//! What `mainstay bench pipeline` prints.

use serde::Serialize;

use super::variants::{RULES, TABLE_SIZES, Variants};
use crate::args::BenchPipelineArgs;
use crate::bench::rounds::{Rounds, median_table, rounded};
use console::count;

/// A packet's nanoseconds by the number of connections in the table; nothing where that was not measured.
#[derive(Debug, Serialize)]
pub(super) struct ByConnections {
    #[serde(rename = "64k")]
    pub(super) of_64k: Option<f64>,
    #[serde(rename = "1m")]
    pub(super) of_1m: Option<f64>,
    #[serde(rename = "8m")]
    pub(super) of_8m: Option<f64>,
}

/// What is measured, each with a figure a round.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) batched: Rounds,
    pub(super) one_at_a_time: Rounds,
    pub(super) replicated: Rounds,
    pub(super) connection: Rounds,
    pub(super) bytes_per_connection: f64,
    pub(super) replication_bytes_per_packet: f64,
}

/// The result: medians over the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) connections: u32,
    pub(super) rounds: u32,
    pub(super) packets_per_round: u64,
    /// The node's pipeline.
    pub(super) ns_per_packet: f64,
    /// The connections in a `hashbrown` map.
    pub(super) ns_per_packet_one_at_a_time: f64,
    /// The first over the second.
    pub(super) ratio: f64,
    /// Instructions of a packet of an established connection in user space; `None` where valgrind is not installed.
    pub(super) instructions_per_packet: Option<f64>,
    /// The node's pipeline, every packet's connection sent to a peer.
    pub(super) ns_per_packet_replicated: f64,
    pub(super) replication_bytes_per_packet: f64,
    /// Opening (SYN) and closing (RST) a connection, two packets.
    pub(super) ns_per_connection: f64,
    /// The same as a rate of one core: source NAT chooses a port for each.
    pub(super) open_close_nat_per_s: f64,
    /// By what the resident set grew when table and session were made and filled.
    pub(super) bytes_per_connection: f64,
    /// Least and greatest figure of the rounds, in the order of the figures above.
    pub(super) spans_ns: [[f64; 2]; 4],
    pub(super) by_connections: ByConnections,
    pub(super) ns_per_packet_ipv6: f64,
    /// A fragment of a UDP datagram, in a smaller table.
    pub(super) ns_per_packet_fragments: f64,
    /// The share of the fragments that were sent on.
    pub(super) fragments_passed: f64,
    /// A connection's SYN, in a smaller table, under 50 and under 1000 firewall rules.
    pub(super) ns_per_open_50_rules: f64,
    pub(super) ns_per_open_1000_rules: f64,
    /// The second over the first: the median of the rounds' ratios.
    pub(super) open_ratio_1000_rules: f64,
    /// A packet of a known connection under either, in that table.
    pub(super) ns_per_packet_50_rules: f64,
    pub(super) ns_per_packet_1000_rules: f64,
    /// The second over the first, likewise.
    pub(super) packet_ratio_1000_rules: f64,
}

const _: () = assert!(RULES[0] == 50 && RULES[1] == 1000, "the names of the figures have these numbers");
const _: () = assert!(TABLE_SIZES[0] == 65_536 && TABLE_SIZES[1] == 1_000_000 && TABLE_SIZES[2] == 8_000_000);

fn median(rounds: &Rounds) -> f64 {
    rounded(rounds.median(), 1)
}

impl Report {
    pub(super) fn new(args: &BenchPipelineArgs, figures: &Figures, variants: &Variants) -> Self {
        let measured = [&figures.batched, &figures.one_at_a_time, &figures.replicated, &figures.connection];
        let of_size = |index: usize| {
            let is_main = TABLE_SIZES[index] == args.connections;
            let rounds = if is_main { &figures.batched } else { &variants.by_size[index] };
            (!rounds.is_empty()).then(|| median(rounds))
        };
        let [few, many] = &variants.under_rules;
        Self {
            connections: args.connections,
            rounds: args.rounds,
            packets_per_round: args.packets,
            ns_per_packet: median(&figures.batched),
            ns_per_packet_one_at_a_time: median(&figures.one_at_a_time),
            ratio: rounded(figures.batched.median() / figures.one_at_a_time.median(), 3),
            instructions_per_packet: None,
            ns_per_packet_replicated: median(&figures.replicated),
            replication_bytes_per_packet: rounded(figures.replication_bytes_per_packet, 1),
            ns_per_connection: median(&figures.connection),
            open_close_nat_per_s: (1e9 / figures.connection.median()).round(),
            bytes_per_connection: rounded(figures.bytes_per_connection, 1),
            spans_ns: measured.map(|rounds| rounds.span().map(|figure| rounded(figure, 1))),
            by_connections: ByConnections { of_64k: of_size(0), of_1m: of_size(1), of_8m: of_size(2) },
            ns_per_packet_ipv6: median(&variants.ipv6),
            ns_per_packet_fragments: median(&variants.fragment),
            fragments_passed: rounded(variants.fragments_passed, 3),
            ns_per_open_50_rules: median(&few.open),
            ns_per_open_1000_rules: median(&many.open),
            open_ratio_1000_rules: rounded(many.open.median_ratio(&few.open), 3),
            ns_per_packet_50_rules: median(&few.packet),
            ns_per_packet_1000_rules: median(&many.packet),
            packet_ratio_1000_rules: rounded(many.packet.median_ratio(&few.packet), 3),
        }
    }

    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        let [packet, one_at_a_time, replicated, connection] = self.spans_ns;
        let rows = [
            ("a packet", self.ns_per_packet, packet),
            ("a packet, connections in a hashbrown map", self.ns_per_packet_one_at_a_time, one_at_a_time),
            ("a packet, each sent to a peer", self.ns_per_packet_replicated, replicated),
            ("a connection opened and closed", self.ns_per_connection, connection),
        ];
        format!(
            "One core, {} TCP connections behind firewall and source NAT, {} rounds of {} packets of 64 bytes\n\n\
             {}\n\
             Looked up in batches a packet takes {:.3} of what it takes with the map.\n\
             {}\
             A core opens and closes {} connections a second.\n\
             A connection takes {:.0} bytes in table and session (growth of the resident set).\n\
             Replicating every packet takes {:.0} bytes of datagrams each.\n{}",
            count(self.connections.into()),
            self.rounds,
            count(self.packets_per_round),
            median_table("NANOSECONDS", 1, rows),
            self.ratio,
            self.instructions_per_packet
                .map(|number| format!("It takes {number:.0} instructions (callgrind).\n"))
                .unwrap_or_default(),
            count(self.open_close_nat_per_s as u64),
            self.bytes_per_connection,
            self.replication_bytes_per_packet,
            self.describe_variants(),
        )
    }

    fn describe_variants(&self) -> String {
        let ByConnections { of_64k, of_1m, of_8m } = &self.by_connections;
        let sizes = TABLE_SIZES.into_iter().zip([of_64k, of_1m, of_8m]);
        let by_size: String = sizes
            .filter_map(|(size, nanos)| Some((size, (*nanos)?)))
            .map(|(size, nanos)| {
                format!("A packet of one of {} connections takes {nanos:.1} ns.\n", count(size.into()))
            })
            .collect();
        format!(
            "\n{by_size}\
             A packet of IPv6 takes {:.1} ns, a fragment {:.1} ns ({:.0} % of them pass).\n\
             With 1000 firewall rules a connection's first packet takes {:.1} ns, with 50 it takes {:.1} ns (ratio {:.3});\n\
             the packets behind it {:.1} and {:.1} ns (ratio {:.3}).\n",
            self.ns_per_packet_ipv6,
            self.ns_per_packet_fragments,
            self.fragments_passed * 100.0,
            self.ns_per_open_1000_rules,
            self.ns_per_open_50_rules,
            self.open_ratio_1000_rules,
            self.ns_per_packet_1000_rules,
            self.ns_per_packet_50_rules,
            self.packet_ratio_1000_rules,
        )
    }
}
