//! What `mainstay bench encryption` prints.

use serde::Serialize;

use super::cipher::Cipher;
use super::{Figures, Sides};
use crate::args::BenchEncryptionArgs;
use crate::bench::rounds::{median_table, rounded};

/// The goal: encryption costs a message at most so much more.
const RATIO_GOAL: f64 = 1.15;

/// Microseconds of processor time, both nodes' together.
#[derive(Debug, Serialize)]
pub(super) struct PerMessage {
    pub(super) plain: f64,
    pub(super) encrypted: f64,
}

/// One way in which packets come.
#[derive(Debug, Serialize)]
pub(super) struct SideFigures {
    pub(super) cpu_us_per_message: PerMessage,
    /// The second over the first: the median of the rounds' ratios.
    pub(super) ratio: f64,
    pub(super) messages_per_datagram: f64,
    /// Least and greatest of the rounds, plain and encrypted.
    pub(super) spans_us: [[f64; 2]; 2],
}

/// The cipher alone, in nanoseconds.
#[derive(Debug, Serialize)]
pub(super) struct InMemory {
    pub(super) seal_ns_per_datagram: f64,
    pub(super) seal_ns_per_byte: f64,
    pub(super) open_ns_per_datagram: f64,
    pub(super) open_ns_per_byte: f64,
    /// Of 1439 bytes, the most that an Ethernet frame holds.
    pub(super) seal_ns_full_datagram: f64,
    pub(super) open_ns_full_datagram: f64,
    pub(super) handshake_us: f64,
}

/// The result: medians over the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) connections_per_round: u32,
    pub(super) rounds: u32,
    /// Packets come a batch at a time.
    #[serde(flatten)]
    pub(super) together: SideFigures,
    /// Packets come one at a time.
    pub(super) alone: SideFigures,
    pub(super) ratio_goal: f64,
    pub(super) in_memory: InMemory,
}

impl SideFigures {
    fn new(sides: &Sides, messages_per_datagram: f64) -> Self {
        let Sides { plain, encrypted } = sides;
        let cpu_us_per_message =
            PerMessage { plain: rounded(plain.median(), 3), encrypted: rounded(encrypted.median(), 3) };
        Self {
            cpu_us_per_message,
            ratio: rounded(encrypted.median_ratio(plain), 3),
            messages_per_datagram: rounded(messages_per_datagram, 2),
            spans_us: [plain, encrypted].map(|side| side.span().map(|figure| rounded(figure, 3))),
        }
    }
}

impl Report {
    pub(super) fn new(args: &BenchEncryptionArgs, figures: &Figures) -> Self {
        let Cipher { seal, open, handshake } = &figures.cipher;
        let [together, alone] = figures.messages_per_datagram;
        let [seal_byte, open_byte] = [Cipher::per_byte(seal), Cipher::per_byte(open)];
        // What is left when each of the small one's bytes is taken off.
        let fixed = |of: f64, byte: f64| rounded((of - 64.0 * byte).max(0.0), 1);
        Self {
            connections_per_round: args.connections,
            rounds: args.rounds,
            together: SideFigures::new(&figures.together, together),
            alone: SideFigures::new(&figures.alone, alone),
            ratio_goal: RATIO_GOAL,
            in_memory: InMemory {
                seal_ns_per_datagram: fixed(seal[0].median(), seal_byte),
                seal_ns_per_byte: rounded(seal_byte, 3),
                open_ns_per_datagram: fixed(open[0].median(), open_byte),
                open_ns_per_byte: rounded(open_byte, 3),
                seal_ns_full_datagram: rounded(seal[1].median(), 1),
                open_ns_full_datagram: rounded(open[1].median(), 1),
                handshake_us: rounded(handshake.median() / 1e3, 1),
            },
        }
    }

    pub(super) fn describe(&self) -> String {
        let ways = [("a batch at a time", &self.together), ("one at a time", &self.alone)];
        let rows = ways.iter().flat_map(|(name, way)| {
            let PerMessage { plain, encrypted } = way.cpu_us_per_message;
            [
                (format!("plain text, packets {name}"), plain, way.spans_us[0]),
                (format!("encrypted, packets {name}"), encrypted, way.spans_us[1]),
            ]
        });
        let rows: Vec<_> = rows.collect();
        let table = median_table(
            "PROCESSOR TIME FOR A MESSAGE, BOTH NODES (µs)",
            3,
            rows.iter().map(|(name, median, span)| (name.as_str(), *median, *span)),
        );
        let InMemory {
            seal_ns_per_datagram,
            seal_ns_per_byte,
            open_ns_per_datagram,
            open_ns_per_byte,
            seal_ns_full_datagram,
            open_ns_full_datagram,
            handshake_us,
        } = &self.in_memory;
        format!(
            "{table}\n\
             Encrypted over plain: {} with {} messages in a datagram, {} with {} (goal: at most {})\n\
             Without sockets, AES-256-GCM:\n  \
             sealing {seal_ns_per_datagram} ns a datagram and {seal_ns_per_byte} ns a byte; a full one {seal_ns_full_datagram} ns\n  \
             opening {open_ns_per_datagram} ns a datagram and {open_ns_per_byte} ns a byte; a full one {open_ns_full_datagram} ns\n  \
             a handshake {handshake_us} µs, both nodes together\n",
            self.together.ratio,
            self.together.messages_per_datagram,
            self.alone.ratio,
            self.alone.messages_per_datagram,
            self.ratio_goal,
        )
    }
}
