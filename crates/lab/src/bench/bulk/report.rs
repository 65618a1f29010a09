//! What `mainstay bench bulk` prints.

use serde::Serialize;

use super::kernel_router::KernelRules;
use super::{Case, Figures};
use crate::args::BenchBulkArgs;
use crate::bench::rounds::{median_table, rounded};

/// A figure of either side.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Sides<T> {
    /// A node.
    pub(super) mainstay: T,
    /// The kernel in its place.
    pub(super) kernel: T,
}

/// A figure of each case.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cases<T> {
    /// One stream.
    pub(super) offload_1: T,
    /// Four streams.
    pub(super) offload_4: T,
    /// One stream of hosts without segmentation offload.
    pub(super) no_offload_1: T,
}

impl<T: Copy> Cases<T> {
    fn of(figures: &[Figures; Case::ALL.len()], figure: impl Fn(&Figures) -> T) -> Self {
        let [offload_1, offload_4, no_offload_1] = figures.each_ref().map(figure);
        Self { offload_1, offload_4, no_offload_1 }
    }

    const fn to_array(self) -> [T; Case::ALL.len()] {
        [self.offload_1, self.offload_4, self.no_offload_1]
    }
}

/// The result: medians over the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) ip_version: u8,
    pub(super) rounds: u32,
    pub(super) seconds_per_round: f64,
    /// What the kernel did beside forwarding.
    pub(super) kernel_rules: KernelRules,
    pub(super) gbit_per_s: Cases<Sides<f64>>,
    /// The node's over the kernel's: the median of the rounds' ratios.
    pub(super) ratio: Cases<f64>,
    /// Least and greatest figure of the rounds.
    pub(super) spans_gbit_per_s: Cases<Sides<[f64; 2]>>,
    /// Processor time of the node's process for each gigabyte of payload.
    pub(super) mainstay_cpu_s_per_gigabyte: Cases<f64>,
}

impl Report {
    pub(super) fn new(args: &BenchBulkArgs, figures: &[Figures; Case::ALL.len()], kernel_rules: KernelRules) -> Self {
        let sides = |figures: &Figures| Sides {
            mainstay: rounded(figures.mainstay_gbit_per_s.median(), 2),
            kernel: rounded(figures.kernel_gbit_per_s.median(), 2),
        };
        let spans = |figures: &Figures| Sides {
            mainstay: figures.mainstay_gbit_per_s.span().map(|figure| rounded(figure, 2)),
            kernel: figures.kernel_gbit_per_s.span().map(|figure| rounded(figure, 2)),
        };
        let ratio =
            |figures: &Figures| rounded(figures.mainstay_gbit_per_s.median_ratio(&figures.kernel_gbit_per_s), 3);
        Self {
            ip_version: if args.ipv6 { 6 } else { 4 },
            rounds: args.rounds,
            seconds_per_round: args.seconds,
            kernel_rules,
            gbit_per_s: Cases::of(figures, sides),
            ratio: Cases::of(figures, ratio),
            spans_gbit_per_s: Cases::of(figures, spans),
            mainstay_cpu_s_per_gigabyte: Cases::of(figures, |figures| {
                rounded(figures.mainstay_cpu_s_per_gigabyte.median(), 3)
            }),
        }
    }

    /// The result as people read it.
    pub(super) fn describe(&self) -> String {
        let kernel = match &self.kernel_rules {
            KernelRules::Nftables => "kernel, nftables (stateful, masquerade)".to_owned(),
            KernelRules::None { reason } => format!("kernel, plain forwarding ({reason})"),
        };
        let mut text = format!(
            "TCP streams over IPv{} through one gateway, {} rounds of {} s each\n",
            self.ip_version, self.rounds, self.seconds_per_round
        );
        let names = ["one stream", "four streams", "one stream, no segmentation offload at the hosts"];
        let (medians, spans) = (self.gbit_per_s.to_array(), self.spans_gbit_per_s.to_array());
        for (index, (name, ratio)) in names.into_iter().zip(self.ratio.to_array()).enumerate() {
            let (median, span) = (medians[index], spans[index]);
            let rows = [
                ("mainstay, firewall and source NAT", median.mainstay, span.mainstay),
                (&kernel, median.kernel, span.kernel),
            ];
            let table = median_table("GBIT/S", 2, rows);
            let cpu = self.mainstay_cpu_s_per_gigabyte.to_array()[index];
            text.push_str(&format!(
                "\n{name}\n{table}Mainstay passes {ratio:.3} of what the kernel does, with {cpu:.3} s of its process a gigabyte.\n"
            ));
        }
        text
    }
}
