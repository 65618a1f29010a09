//! What `mainstay bench bulk` prints.

use serde::Serialize;

use super::Figures;
use super::kernel_router::KernelRules;
use crate::args::BenchBulkArgs;
use crate::bench::rounds::{median_table, rounded};

/// A figure of either side.
#[derive(Debug, Serialize)]
pub(super) struct Sides<T> {
    /// A node.
    pub(super) mainstay: T,
    /// The kernel in its place.
    pub(super) kernel: T,
}

/// The result: medians over the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) ip_version: u8,
    pub(super) streams: u16,
    pub(super) rounds: u32,
    pub(super) seconds_per_round: f64,
    /// What the kernel did beside forwarding.
    pub(super) kernel_rules: KernelRules,
    pub(super) gbit_per_s: Sides<f64>,
    /// The node's over the kernel's: the median of the rounds' ratios.
    pub(super) ratio: f64,
    /// Least and greatest figure of the rounds.
    pub(super) spans_gbit_per_s: Sides<[f64; 2]>,
    /// Processor time of the node for each gigabyte of payload, with what the kernel did on its behalf.
    pub(super) mainstay_cpu_s_per_gigabyte: f64,
}

impl Report {
    pub(super) fn new(args: &BenchBulkArgs, figures: &Figures, kernel_rules: KernelRules) -> Self {
        let Figures { mainstay_gbit_per_s: mainstay, kernel_gbit_per_s: kernel, mainstay_cpu_s_per_gigabyte } = figures;
        Self {
            ip_version: if args.ipv6 { 6 } else { 4 },
            streams: args.streams,
            rounds: args.rounds,
            seconds_per_round: args.seconds,
            kernel_rules,
            gbit_per_s: Sides { mainstay: rounded(mainstay.median(), 2), kernel: rounded(kernel.median(), 2) },
            ratio: rounded(mainstay.median_ratio(kernel), 3),
            spans_gbit_per_s: Sides {
                mainstay: mainstay.span().map(|figure| rounded(figure, 2)),
                kernel: kernel.span().map(|figure| rounded(figure, 2)),
            },
            mainstay_cpu_s_per_gigabyte: rounded(mainstay_cpu_s_per_gigabyte.median(), 3),
        }
    }

    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        let kernel = match &self.kernel_rules {
            KernelRules::Nftables => "kernel, nftables (stateful, masquerade)".to_owned(),
            KernelRules::None { reason } => format!("kernel, plain forwarding ({reason})"),
        };
        let rows = [
            ("mainstay, firewall and source NAT", self.gbit_per_s.mainstay, self.spans_gbit_per_s.mainstay),
            (&kernel, self.gbit_per_s.kernel, self.spans_gbit_per_s.kernel),
        ];
        format!(
            "{} TCP streams over IPv{} through one gateway, {} rounds of {} s each\n\n{}\n\
             Mainstay passes {:.3} of what the kernel does, with {:.3} s of processor time a gigabyte.\n",
            self.streams,
            self.ip_version,
            self.rounds,
            self.seconds_per_round,
            median_table("GBIT/S", 2, rows),
            self.ratio,
            self.mainstay_cpu_s_per_gigabyte,
        )
    }
}
