//! Instructions of a packet, counted by callgrind.
//!
//! Processors' own counters are often withheld from virtual machines; callgrind counts exactly, and alike on every machine. It runs
//! this program again on a small table: the number of instructions does not depend on the table's size.

use std::process::{Command, Stdio};

use flow::IpFamily;

use super::gateway::Gateway;
use super::setting::FIREWALL_RULES;
use super::traffic::{Ring, Traffic};
use crate::bench::BenchError;

/// Connections and packets of the counted run.
const CONNECTIONS: u32 = 2048;
const PACKETS: u64 = 20_000;

/// Instructions of a packet of an established connection, in user space; `None` without valgrind.
pub(super) fn count() -> Option<f64> {
    count_of("*Gateway*handle_counted*", "pipeline", PACKETS)
}

/// Instructions of each of `packets` packets within a function, by the pattern of its demangled name, while
/// `mainstay lab bench BENCHMARK --counted` runs; `None` without valgrind.
pub(in crate::bench) fn count_of(function: &str, benchmark: &str, packets: u64) -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={function}"))
        .arg(program)
        .args(["lab", "bench", benchmark, "--counted"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .ok()?;
    let collected = collected(&String::from_utf8_lossy(&output.stderr)).filter(|_| output.status.success())?;
    (collected > 0).then(|| collected as f64 / packets as f64)
}

/// The total that callgrind prints at its end: `==1== Collected : 1234`.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok()
}

/// The counted run: passes packets of established connections.
///
/// # Errors
/// Packets got lost, which is a defect.
pub(super) fn run_counted() -> Result<(), BenchError> {
    let mut ring = Ring::new();
    let mut traffic = Traffic::new(IpFamily::V4, CONNECTIONS);
    let mut gateway = Gateway::new(CONNECTIONS, FIREWALL_RULES);
    gateway.establish(&mut traffic, &mut ring)?;
    let mut left = PACKETS;
    while left > 0 {
        left -= traffic.fill(&mut ring, left).len() as u64;
        gateway.handle_counted(&mut ring)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_from_what_callgrind_prints() {
        let text = "==7== Events    : Ir\n==7== Collected : 28680000\n==7== \n==7== I   refs:      28,680,000\n";
        assert_eq!(collected(text), Some(28_680_000));
        assert_eq!(collected("valgrind: no such program"), None);
    }

    #[test]
    fn the_counted_run_loses_no_packet() {
        run_counted().expect("no packet is lost");
    }
}
