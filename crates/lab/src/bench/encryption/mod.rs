//! `mainstay bench encryption`: what it costs that nodes encrypt the messages between them.
//!
//! Two nodes replicate over UDP sockets of this machine, as gateways do: one is handed packets that begin connections
//! and replicates these to the other, which applies and acknowledges them. What is measured is the thread's processor
//! time for all of it, on both nodes: encoding, sealing, sending, receiving, opening, applying, acknowledging; not the
//! packets themselves. Plain text and encryption take turns. Twice: with the packets coming a batch at a time, so that
//! connections share datagrams, and one at a time, so that each has its own.
//!
//! Then the cipher alone is measured, without sockets: what a datagram costs, and each of its bytes.

pub(super) mod cipher;
mod pair;
mod report;
#[cfg(test)]
mod tests;

use flow::BATCH_FRAMES_MAX;

use self::cipher::Cipher;
use self::pair::Pair;
use self::report::Report;
use super::BenchError;
use super::rounds::{self, Rounds};
use crate::args::BenchEncryptionArgs;
use console::Progress;

/// Measures and prints.
///
/// # Errors
/// The nodes do not connect, or the result cannot be printed.
pub fn run(args: &BenchEncryptionArgs) -> Result<(), BenchError> {
    let report = measure(args)?;
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

/// Microseconds for each message, a figure a round.
#[derive(Default)]
struct Sides {
    plain: Rounds,
    encrypted: Rounds,
}

/// All that is measured.
#[derive(Default)]
struct Figures {
    /// Packets come a batch at a time.
    together: Sides,
    /// Packets come one at a time.
    alone: Sides,
    messages_per_datagram: [f64; 2],
    cipher: Cipher,
}

fn measure(args: &BenchEncryptionArgs) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let connections_max = args.connections * args.rounds * 2 + 1;
    let mut plain = Pair::start(connections_max, false)?;
    let mut encrypted = Pair::start(connections_max, true)?;
    let mut figures = Figures::default();
    rounds::repeat(&progress, "plain text and encryption", args.rounds, |round| {
        let ways = [(BATCH_FRAMES_MAX, &mut figures.together), (1, &mut figures.alone)];
        for (at, (together, sides)) in ways.into_iter().enumerate() {
            let turns = rounds::turns(round, [(&mut plain, &mut sides.plain), (&mut encrypted, &mut sides.encrypted)]);
            for (pair, figures_of_side) in turns {
                let cost = pair.replicate(args.connections, together)?;
                figures_of_side.push(cost.spent.as_secs_f64() * 1e6 / cost.messages as f64);
                figures.messages_per_datagram[at] = cost.messages as f64 / cost.datagrams as f64;
            }
        }
        figures.cipher.measure();
        Ok::<_, BenchError>(())
    })?;
    Ok(Report::new(args, &figures))
}
