//! What a run showed, for people and for programs.

use std::fmt;

use flow::Direction;
use flow::wire::tcp_flags::{FIN, RST, SYN};

use crate::comparison::Options;
use crate::explanation::Explanation;
use crate::observation::{Connection, Lifetime, Observation};
use crate::segment::Segment;

/// A difference that nothing explains.
#[derive(Debug)]
pub(crate) struct Unexplained {
    /// The exchange up to the segment.
    pub(crate) script: String,
}

/// The counts of a run.
#[derive(Debug)]
pub(crate) struct Report {
    options: Options,
    seed: u64,
    /// The version of the kernel that was compared with.
    kernel: String,
    pub(crate) exchanges: u32,
    /// Segments compared.
    pub(crate) packets: u64,
    /// Those of which both sides said the same.
    pub(crate) agreeing: u64,
    /// Segments of exchanges on which the sides had parted before: not compared.
    pub(crate) after_parting: u64,
    /// Differences by explanation.
    pub(crate) explained: [u64; Explanation::ALL.len()],
    pub(crate) unexplained_total: u64,
    /// The first of them.
    pub(crate) unexplained: Vec<Unexplained>,
    seen: Seen,
}

/// What the exchanges led to, to show that they led somewhere.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    invalid: u64,
    began: u64,
    replies: u64,
    established: u64,
    closing: u64,
    resets: u64,
    fins: u64,
    syns: u64,
}

impl Report {
    pub(crate) fn new(options: Options, seed: u64, exchanges: u32) -> Self {
        Self {
            options,
            seed,
            kernel: packet_io::sysctl::read("kernel/osrelease").unwrap_or_default(),
            exchanges,
            packets: 0,
            agreeing: 0,
            after_parting: 0,
            explained: [0; Explanation::ALL.len()],
            unexplained_total: 0,
            unexplained: Vec::new(),
            seen: Seen::default(),
        }
    }

    pub(crate) fn count(&mut self, segment: &Segment, kernel: Observation) {
        let seen = &mut self.seen;
        let count = |counter: &mut u64, is: bool| *counter += u64::from(is);
        let lifetime = match kernel {
            Observation::Passed(Connection::GoesOn { lifetime, .. }) => lifetime,
            _ => None,
        };
        let is_established =
            |lifetime| matches!(lifetime, Lifetime::Established | Lifetime::Unacknowledged | Lifetime::Retransmission);
        let is_closing = |lifetime| (Lifetime::FinWait..=Lifetime::Close).contains(&lifetime);
        count(&mut seen.invalid, kernel == Observation::Invalid);
        count(&mut seen.began, kernel == Observation::Passed(Connection::Began));
        count(&mut seen.replies, segment.direction == Direction::Reply);
        count(&mut seen.established, lifetime.is_some_and(is_established));
        count(&mut seen.closing, lifetime.is_some_and(is_closing));
        count(&mut seen.resets, segment.has(RST));
        count(&mut seen.fins, segment.has(FIN));
        count(&mut seen.syns, segment.has(SYN));
    }

    /// Which share of the segments did what.
    pub(crate) fn shares(&self) -> [(&'static str, f64); 8] {
        let share = |number: u64| number as f64 / self.packets.max(1) as f64;
        [
            ("were invalid", share(self.seen.invalid)),
            ("began a connection", share(self.seen.began)),
            ("were the server's", share(self.seen.replies)),
            ("left a connection established", share(self.seen.established)),
            ("left a connection closing", share(self.seen.closing)),
            ("were RSTs", share(self.seen.resets)),
            ("were FINs", share(self.seen.fins)),
            ("were SYNs", share(self.seen.syns)),
        ]
    }

    /// One JSON object on one line.
    pub(crate) fn to_json(&self) -> String {
        let explained: serde_json::Map<String, serde_json::Value> = Explanation::ALL
            .iter()
            .map(|explanation| (explanation.label().into(), self.explained[*explanation as usize].into()))
            .collect();
        serde_json::json!({
            "loose": self.options.loose,
            "liberal": self.options.liberal,
            "seed": self.seed,
            "kernel": self.kernel,
            "exchanges": self.exchanges,
            "packets": self.packets,
            "agreeing": self.agreeing,
            "explained": explained,
            "unexplained": self.unexplained_total,
            "not_compared": self.after_parting,
        })
        .to_string()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { loose, liberal } = self.options;
        writeln!(f, "against Linux {}: loose {loose}, liberal {liberal}, seed {}", self.kernel, self.seed)?;
        writeln!(f, "  {:>8} segments of {} exchanges", self.packets, self.exchanges)?;
        for (what, share) in self.shares() {
            writeln!(f, "  {:>7.1}% {what}", share * 100.0)?;
        }
        writeln!(f, "  {:>8} agree", self.agreeing)?;
        for explanation in Explanation::ALL {
            writeln!(f, "  {:>8} differ: {}", self.explained[explanation as usize], explanation.label())?;
        }
        writeln!(f, "  {:>8} differ and nothing explains it", self.unexplained_total)?;
        writeln!(f, "  {:>8} not compared, for their exchange had parted before", self.after_parting)?;
        for Unexplained { script } in &self.unexplained {
            write!(f, "{script}")?;
        }
        Ok(())
    }
}
