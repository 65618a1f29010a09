//! What is measured of a pair of nodes.

use serde::Serialize;

use crate::bench::rounds::{Rounds, rounded};

/// What is measured of one pair, each with a figure a round.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) connections_per_s: Rounds,
    /// Processor time for each connection.
    pub(super) active_cpu_us: Rounds,
    pub(super) standby_cpu_us: Rounds,
    /// Bytes between the nodes for each connection.
    pub(super) bytes: Rounds,
}

/// What a connection costs a node, in microseconds of processor time, with what the kernel does on its behalf.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cpu {
    /// The node that the connection passes through; node a where both carry connections.
    pub(super) active: f64,
    /// The node that stands by; node b where both carry connections.
    pub(super) standby: f64,
}

impl Cpu {
    pub(super) fn new(figures: &Figures) -> Self {
        Self {
            active: rounded(figures.active_cpu_us.median(), 1),
            standby: rounded(figures.standby_cpu_us.median(), 1),
        }
    }
}
