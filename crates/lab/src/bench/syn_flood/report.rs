//! What `mainstay bench syn-flood` prints.

use serde::Serialize;

use crate::args::BenchSynFloodArgs;
use crate::bench::rounds::rounded;
use console::{Table, count};

/// The figures of one network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    /// Processor time of what answers, as a share of one processor: of the process, or of the kernel's soft interrupts.
    pub(super) cpu_share: Option<f64>,
    /// Processor time of the machine's soft interrupts beyond that of a flood to nobody.
    pub(super) softirq_share: Option<f64>,
    /// SYNs that were sent a second.
    pub(super) syns_per_s: f64,
    /// Real connections that were opened, of those that were tried.
    pub(super) accepted_share: f64,
    /// The median of the time that one took with its first exchange.
    pub(super) connect_ms: Option<f64>,
}

/// Both networks.
pub(super) struct Sides {
    pub(super) mainstay: Side,
    /// Or why the kernel was not measured.
    pub(super) kernel: Result<Side, String>,
}

/// A figure of each; `None`: the kernel was not measured.
#[derive(Debug, Serialize)]
pub(super) struct Both<T> {
    pub(super) mainstay: T,
    pub(super) kernel: Option<T>,
}

/// The result.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Processors of the machine, which hosts, flood and gateway share.
    pub(super) processors: usize,
    pub(super) syns_per_s_wanted: u32,
    pub(super) syns_per_s: Both<f64>,
    pub(super) connections: u32,
    /// Real connections through the node that were opened beside the flood, of those that were tried.
    pub(super) accepted_share: f64,
    /// The same through the kernel.
    pub(super) kernel_accepted_share: Option<f64>,
    /// Processor time of what answers, as a share of one processor: of the gateway's process, or of the kernel's soft interrupts.
    pub(super) cpu_share: Both<Option<f64>>,
    /// Processor time of the machine's soft interrupts beyond that of the same flood to nobody, as a share of one processor.
    pub(super) softirq_share: Both<Option<f64>>,
    /// Median of the time of a real connection with its first exchange.
    pub(super) connect_ms: Both<Option<f64>>,
    /// By how much the node grew from before the flood to its end.
    pub(super) memory_bytes: u64,
    /// Connections in the node's table at the end.
    pub(super) table_connections: u64,
    /// An answer without a network, in nanoseconds.
    pub(super) answer_ns: f64,
    /// Why the kernel was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kernel_reason: Option<String>,
}

impl Report {
    pub(super) fn new(args: &BenchSynFloodArgs, sides: Sides, [memory_bytes, table]: [u64; 2], answer_ns: f64) -> Self {
        let Sides { mainstay, kernel } = sides;
        let kernel_reason = kernel.as_ref().err().cloned();
        let kernel = kernel.ok();
        let both = |figure: fn(&Side) -> f64, places| Both {
            mainstay: rounded(figure(&mainstay), places),
            kernel: kernel.as_ref().map(|side| rounded(figure(side), places)),
        };
        let shares = |figure: fn(&Side) -> Option<f64>| Both {
            mainstay: figure(&mainstay),
            kernel: kernel.as_ref().map(figure),
        };
        let connect_ms = |side: &Side| side.connect_ms.map(|time| rounded(time, 2));
        Self {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            syns_per_s_wanted: args.syns_per_s,
            syns_per_s: both(|side| side.syns_per_s, 0),
            connections: args.connections,
            accepted_share: mainstay.accepted_share,
            kernel_accepted_share: kernel.as_ref().map(|side| side.accepted_share),
            cpu_share: shares(|side| side.cpu_share),
            softirq_share: shares(|side| side.softirq_share),
            connect_ms: Both { mainstay: connect_ms(&mainstay), kernel: kernel.as_ref().map(connect_ms) },
            memory_bytes,
            table_connections: table,
            answer_ns: rounded(answer_ns, 1),
            kernel_reason,
        }
    }

    pub(super) fn describe(&self) -> String {
        let mut table = Table::of("|>MAINSTAY|>KERNEL");
        let number = |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure}"));
        let mut row = |name: &str, mainstay: Option<f64>, kernel: Option<f64>| {
            table.row([name.to_owned(), number(mainstay), number(kernel)]);
        };
        row("SYNs a second", Some(self.syns_per_s.mainstay), self.syns_per_s.kernel);
        row("share of a processor", self.cpu_share.mainstay, self.cpu_share.kernel.flatten());
        row("soft interrupts, share of a processor", self.softirq_share.mainstay, self.softirq_share.kernel.flatten());
        row("accepted share of real connections", Some(self.accepted_share), self.kernel_accepted_share);
        row("a real connection, ms", self.connect_ms.mainstay, self.connect_ms.kernel.flatten());
        let unmeasured = self.kernel_reason.as_ref().map_or_else(String::new, |reason| format!("kernel: {reason}\n"));
        format!(
            "{}\nthe node grew by {} bytes, with {} connections in its table; an answer takes {} ns in memory\n{unmeasured}",
            table.render(),
            count(self.memory_bytes),
            count(self.table_connections),
            self.answer_ns,
        )
    }
}
