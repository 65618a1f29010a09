//! Memory of an edge, by policy and number of connections.

use std::process::{Command, Stdio};

use config::edge::RecoveryPolicy;
use flow::IpFamily;
use packet_io::usage;
use serde::Serialize;

use super::subject::{FULL_FRAME_BYTES, MeasuredEdge, SHORT_FRAME_BYTES};
use crate::bench::BenchError;
use crate::bench::pipeline::traffic::{Ring, Traffic};

/// The memory of an edge each of whose connections has sent a full-sized segment that is not acknowledged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct MemoryRow {
    /// `recovery.policy`. With `from-second-lost-heartbeat` the connections' node has lost two heartbeats.
    pub(super) policy: &'static str,
    pub(super) connections: u32,
    /// By what the resident set grew: the table of connections and what is held.
    pub(super) bytes: u64,
    /// Segments that are held.
    pub(super) held: u32,
}

/// The rows of all policies. A process for each row measures it, because freed memory of another row would be used again.
pub(super) fn measure(connections: &[u32], show: impl Fn(&str, u32)) -> Result<Vec<MemoryRow>, BenchError> {
    let mut rows = Vec::new();
    for (policy, _) in RecoveryPolicy::ALL {
        for connections in connections {
            show(policy, *connections);
            rows.push(in_own_process(policy, *connections)?);
        }
    }
    Ok(rows)
}

fn in_own_process(policy: &'static str, connections: u32) -> Result<MemoryRow, BenchError> {
    let failed = || BenchError::NoMemoryFigure { policy, connections };
    let output = Command::new(std::env::current_exe().map_err(|_| failed())?)
        .args(["lab", "bench", "edge", "--filled", policy, "--memory", &connections.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|_| failed())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    match (output.status.success(), numbers.next(), numbers.next()) {
        (true, Some(Ok(bytes)), Some(Ok(held))) => Ok(MemoryRow { policy, connections, bytes, held: held as u32 }),
        _ => Err(failed()),
    }
}

/// Fills an edge. Returns by how many bytes the resident set grew, and the segments that are held.
pub(super) fn fill(policy: RecoveryPolicy, connections: u32) -> Result<(u64, u32), BenchError> {
    let mut traffic = Traffic::new(IpFamily::V4, connections);
    let [mut short, mut full] = [Ring::of_frames(SHORT_FRAME_BYTES), Ring::of_frames(FULL_FRAME_BYTES)];
    let before = usage::resident_bytes();
    let mut edge = MeasuredEdge::new(connections, policy);
    edge.establish(&mut traffic, &mut short)?;
    edge.send_of_each(&mut traffic, &mut full)?;
    Ok((usage::resident_bytes().saturating_sub(before), edge.edge.status().segments_held.0))
}
