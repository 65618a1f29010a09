//! What `mainstay bench pipeline` prints.

use serde::Serialize;

use super::Figures;
use crate::bench::rounds::Rounds;
use crate::cli::BenchPipelineArgs;
use crate::output::{Align, Table, count};

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
    /// The node's pipeline, every packet's connection told to a peer.
    pub(super) ns_per_packet_replicated: f64,
    pub(super) replication_bytes_per_packet: f64,
    /// Opening (SYN) and closing (RST) a connection, two packets.
    pub(super) ns_per_connection: f64,
    /// By what the resident set grew when table and session were made and filled.
    pub(super) bytes_per_connection: f64,
    /// Least and greatest figure of the rounds, in the order of the figures above.
    pub(super) spans_ns: [[f64; 2]; 4],
}

fn rounded(figure: f64) -> f64 {
    (figure * 10.0).round() / 10.0
}

impl Report {
    pub(super) fn new(
        args: &BenchPipelineArgs,
        figures: &Figures,
        bytes_per_connection: f64,
        replication_bytes_per_packet: f64,
    ) -> Self {
        let median = |rounds: &Rounds| rounded(rounds.median());
        let measured = [&figures.batched, &figures.one_at_a_time, &figures.replicated, &figures.connection];
        Self {
            connections: args.connections,
            rounds: args.rounds,
            packets_per_round: args.packets,
            ns_per_packet: median(&figures.batched),
            ns_per_packet_one_at_a_time: median(&figures.one_at_a_time),
            ratio: (figures.batched.median() / figures.one_at_a_time.median() * 1000.0).round() / 1000.0,
            ns_per_packet_replicated: median(&figures.replicated),
            replication_bytes_per_packet: rounded(replication_bytes_per_packet),
            ns_per_connection: median(&figures.connection),
            bytes_per_connection: rounded(bytes_per_connection),
            spans_ns: measured.map(|rounds| rounds.span().map(rounded)),
        }
    }

    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        let mut table = Table::new(&[
            ("NANOSECONDS", Align::Left),
            ("MEDIAN", Align::Right),
            ("LEAST", Align::Right),
            ("MOST", Align::Right),
        ]);
        let rows = [
            ("a packet", self.ns_per_packet),
            ("a packet, connections in a hashbrown map", self.ns_per_packet_one_at_a_time),
            ("a packet, each told to a peer", self.ns_per_packet_replicated),
            ("a connection opened and closed", self.ns_per_connection),
        ];
        for ((name, median), span) in rows.into_iter().zip(self.spans_ns) {
            let [least, most] = span;
            table.row([name.to_owned(), format!("{median:.1}"), format!("{least:.1}"), format!("{most:.1}")]);
        }
        format!(
            "One core, {} TCP connections behind firewall and source NAT, {} rounds of {} packets of 64 bytes\n\n\
             {}\n\
             Looked up in batches a packet takes {:.3} of what it takes with the map.\n\
             A connection takes {:.0} bytes in table and session (growth of the resident set).\n\
             Telling every packet takes {:.0} bytes of datagrams each.\n",
            count(self.connections.into()),
            self.rounds,
            count(self.packets_per_round),
            table.render(),
            self.ratio,
            self.bytes_per_connection,
            self.replication_bytes_per_packet,
        )
    }
}
