//! What measurements share.

use std::time::Duration;

use super::traffic::Ring;
use crate::args::BenchPipelineArgs;
use console::Progress;

/// The main measurement's packets for each packet of these.
const PACKETS_DIVISOR: u64 = 4;

/// What all variants share.
pub(super) struct Stage<'a> {
    pub(super) args: &'a BenchPipelineArgs,
    pub(super) progress: &'a Progress,
    pub(super) ring: &'a mut Ring,
}

impl Stage<'_> {
    /// Packets that a variant handles in a round.
    pub(super) fn packets(&self) -> u64 {
        (self.args.packets / PACKETS_DIVISOR).max(1)
    }
}

/// Nanoseconds of each of `number`.
pub(in crate::bench) fn nanos_each(spent: Duration, number: u64) -> f64 {
    spent.as_secs_f64() * 1e9 / number as f64
}
