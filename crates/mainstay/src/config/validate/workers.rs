//! `[workers]`.

use flow::steering::WORKERS_MAX;

use super::super::diagnostic::{Findings, Mistake};
use super::super::raw::{RawWorkers, WorkersText};
use super::super::validated::{Cluster, Workers};

/// What stands for the number of processors.
const AUTO: &str = "auto";

pub(super) fn workers(raw: &RawWorkers, has_peers: bool, findings: &mut Findings<'_>) -> Workers {
    let pin = raw.pin.unwrap_or_default();
    let Some(written) = &raw.count else { return Workers { count: 1, pin } };
    let processors = std::thread::available_parallelism().map_or(1, |count| u8::try_from(count.get()).unwrap_or(u8::MAX));
    let count = match written.get_ref() {
        WorkersText::Number(number) => u8::try_from(*number).ok().filter(|count| (1..=WORKERS_MAX).contains(count)),
        WorkersText::Text(text) if text == AUTO => Some(processors.clamp(1, WORKERS_MAX)),
        WorkersText::Text(_) => None,
    };
    let mut report = |is_error: bool, mistake: Mistake| {
        let tell = if is_error { Findings::error } else { Findings::warning };
        tell(findings, written.span(), "workers.count", mistake);
    };
    match count {
        None => {
            let written = written.get_ref();
            let problem = format!("{written} is no number of workers");
            report(true, Mistake::new(problem, format!("write a number from 1 to {WORKERS_MAX}, or \"{AUTO}\"")));
        }
        Some(_) if has_peers && matches!(written.get_ref(), WorkersText::Text(_)) => {
            let problem = "nodes replicate only with nodes that have as many workers, and their processors may differ";
            report(false, Mistake::new(problem, format!("write the number, {} here, on all nodes", processors.max(1))));
        }
        Some(count) if count > processors => {
            let problem = format!("{count} workers share {processors} processors, which costs more than it gives");
            report(false, Mistake::new(problem, format!("write {processors} or less")));
        }
        Some(_) => {}
    }
    Workers { count: count.unwrap_or(1), pin }
}

/// Every worker has a replication port of its own: it must exist, and not be the one of failure detection.
pub(super) fn check_ports(raw: &RawWorkers, workers: Workers, cluster: &Cluster, findings: &mut Findings<'_>) {
    let span = raw.count.as_ref().map_or(0..0, toml::Spanned::span);
    let addresses = cluster.replication.peers.iter().map(|peer| peer.address).chain([cluster.replication.local]);
    for worker in 1..workers.count {
        for address in addresses.clone() {
            if super::super::validated::replication_address(address, flow::WorkerId(worker)).is_none() {
                let problem = format!("the replication port of worker {worker} would be beyond 65535 at {address}");
                findings.error(span.clone(), "workers.count", Mistake::new(problem, "choose lower replication ports"));
                return;
            }
        }
        let local = super::super::validated::replication_address(cluster.replication.local, flow::WorkerId(worker));
        if local == Some(cluster.failure_detection.local) {
            let problem = format!(
                "worker {worker} replicates from {}, which failure detection uses",
                cluster.failure_detection.local
            );
            findings.error(span, "workers.count", Mistake::new(problem, "choose another replication.local"));
            return;
        }
    }
}
