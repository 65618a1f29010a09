//! What `mainstay bench setup-rate` prints.

use serde::Serialize;

use super::figures::{Cpu, Figures};
use crate::args::BenchSetupRateArgs;
use crate::bench::rounds::rounded;
use console::{Align, Table, count};

/// A figure of either side.
#[derive(Debug, Serialize)]
pub(super) struct Sides<T> {
    pub(super) replication_on: T,
    pub(super) replication_off: T,
}

/// Connections a second.
#[derive(Debug, Serialize)]
pub(super) struct PerSecond {
    #[serde(flatten)]
    pub(super) nodes: Sides<f64>,
    /// Through the kernel with nftables in the active node's place; 0 if it was not measured.
    pub(super) kernel_nft: f64,
}

/// The result: medians over the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) in_flight: u16,
    /// Both nodes carried connections.
    pub(super) multi_primary: bool,
    pub(super) rounds: u32,
    pub(super) seconds_per_round: f64,
    pub(super) per_s: PerSecond,
    /// With replication over without: the median of the rounds' ratios.
    pub(super) ratio: f64,
    /// Without replication over the kernel: the median of the rounds' ratios.
    pub(super) ratio_kernel: f64,
    /// Least and greatest figure of the rounds.
    pub(super) spans_per_s: Sides<[f64; 2]>,
    pub(super) cpu_us_per_connection: Sides<Cpu>,
}

impl Report {
    pub(super) fn new(args: &BenchSetupRateArgs, [on, off, kernel]: [&Figures; 3]) -> Self {
        let (rate_on, rate_off) = (&on.connections_per_s, &off.connections_per_s);
        Self {
            in_flight: args.in_flight,
            multi_primary: args.multi_primary,
            rounds: args.rounds,
            seconds_per_round: args.seconds,
            per_s: PerSecond {
                nodes: Sides { replication_on: rate_on.median().round(), replication_off: rate_off.median().round() },
                kernel_nft: kernel.connections_per_s.median().round(),
            },
            ratio: rounded(rate_on.median_ratio(rate_off), 3),
            ratio_kernel: rounded(rate_off.median_ratio(&kernel.connections_per_s), 3),
            spans_per_s: Sides {
                replication_on: rate_on.span().map(f64::round),
                replication_off: rate_off.span().map(f64::round),
            },
            cpu_us_per_connection: Sides { replication_on: Cpu::new(on), replication_off: Cpu::new(off) },
        }
    }

    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        let nodes = if self.multi_primary { ["CPU NODE A", "CPU NODE B"] } else { ["CPU ACTIVE", "CPU STANDBY"] };
        let mut table = Table::new(&[
            ("CONNECTIONS A SECOND", Align::Left),
            ("MEDIAN", Align::Right),
            ("LEAST", Align::Right),
            ("MOST", Align::Right),
            (nodes[0], Align::Right),
            (nodes[1], Align::Right),
        ]);
        let Self { per_s, spans_per_s: spans, cpu_us_per_connection: cpu, .. } = self;
        let rows = [
            ("replication on", per_s.nodes.replication_on, spans.replication_on, &cpu.replication_on),
            ("replication off", per_s.nodes.replication_off, spans.replication_off, &cpu.replication_off),
        ];
        for (name, median, [least, most], cpu) in rows {
            let rates = [median, least, most].map(|rate| count(rate as u64));
            let cpu = [cpu.active, cpu.standby].map(|us| format!("{us:.1} µs"));
            table.row([name.to_owned()].into_iter().chain(rates).chain(cpu));
        }
        format!(
            "TCP connections with one request and one answer through a pair of nodes{}, {} open at a time, {} rounds of \
             {} s each\n\n{}\n\
             With replication {:.3} of the connections are made that are made without. Processor time is a node's for \
             each\nconnection, with what the kernel does on its behalf.\nThrough the kernel with nftables in a node's \
             place it is {} a second; without replication {:.3} of that are made.\n",
            if self.multi_primary { ", both of which carry them" } else { "" },
            self.in_flight,
            self.rounds,
            self.seconds_per_round,
            table.render(),
            self.ratio,
            count(per_s.kernel_nft as u64),
            self.ratio_kernel,
        )
    }
}
