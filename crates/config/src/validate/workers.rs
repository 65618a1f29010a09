//! `[workers]`.

use flow::steering::WORKERS_MAX;

use super::super::diagnostic::{Diagnostics, Mistake};
use super::super::raw::{RawWorkers, WorkersText};
use super::super::validated::{Backend, Cluster, Port, Workers};
use super::common::flag;

/// What stands for the number of processors.
const AUTO: &str = "auto";

pub(super) fn workers(raw: &RawWorkers, has_peers: bool, diagnostics: &mut Diagnostics<'_>) -> Workers {
    let pin = flag("workers.pin", raw.pin, false, diagnostics);
    diagnostics.describe("workers.count", Some("1".to_owned()), format!("1 to {WORKERS_MAX}, or \"{AUTO}\""));
    let Some(written) = &raw.count else { return Workers { count: 1, pin } };
    let processors =
        std::thread::available_parallelism().map_or(1, |count| u8::try_from(count.get()).unwrap_or(u8::MAX));
    let count = match written.get_ref() {
        WorkersText::Number(number) => u8::try_from(*number).ok().filter(|count| (1..=WORKERS_MAX).contains(count)),
        WorkersText::Text(text) if text == AUTO => Some(processors.clamp(1, WORKERS_MAX)),
        WorkersText::Text(_) => None,
    };
    let mut report = |is_error: bool, mistake: Mistake| {
        let add = if is_error { Diagnostics::error } else { Diagnostics::warning };
        add(diagnostics, written.span(), "workers.count", mistake);
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
pub(super) fn check_ports(raw: &RawWorkers, workers: Workers, cluster: &Cluster, diagnostics: &mut Diagnostics<'_>) {
    let span = raw.count.as_ref().map_or(0..0, toml::Spanned::span);
    let addresses = cluster.replication.peers.iter().map(|peer| peer.address).chain([cluster.replication.local]);
    for worker in 1..workers.count {
        for address in addresses.clone() {
            if super::super::validated::replication_address(address, flow::WorkerId(worker)).is_none() {
                let problem = format!("the replication port of worker {worker} would be beyond 65535 at {address}");
                diagnostics.error(
                    span.clone(),
                    "workers.count",
                    Mistake::new(problem, "choose lower replication ports"),
                );
                return;
            }
        }
        let local = super::super::validated::replication_address(cluster.replication.local, flow::WorkerId(worker));
        if local == Some(cluster.failure_detection.local) {
            let problem = format!(
                "worker {worker} replicates from {}, which failure detection uses",
                cluster.failure_detection.local
            );
            diagnostics.error(span, "workers.count", Mistake::new(problem, "choose another replication.local"));
            return;
        }
    }
}

/// A tunnel device has one queue, which one worker reads.
pub(super) fn check_backends(raw: &RawWorkers, workers: Workers, ports: &[Port], diagnostics: &mut Diagnostics<'_>) {
    let span = raw.count.as_ref().map_or(0..0, toml::Spanned::span);
    if let Some(port) = ports.iter().find(|port| workers.count > 1 && port.backend == Backend::Tun) {
        let problem = format!("port {:?} is a tunnel device, which only one worker can serve", port.name);
        diagnostics.error(span, "workers.count", Mistake::new(problem, "write 1, or give the port another backend"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Checked, ConfigError, parse};

    fn check(workers: &str, local: &str) -> Result<Checked, ConfigError> {
        let text = format!(
            "[node]\nid = 0\n[workers]\n{workers}\n[[port]]\nname = \"inside\"\ninterface = \"eth0\"\n\
             addresses = [\"10.0.0.1/24\"]\n[[port]]\nname = \"outside\"\ninterface = \"eth1\"\n\
             addresses = [\"192.0.2.10/24\"]\n[replication]\nlocal = \"{local}\"\n\
             [[replication.peer]]\nid = 1\naddress = \"10.99.0.2:3781\"\n\
             [replication.security]\nmode = \"plain\"\n"
        );
        parse("mainstay.toml", &text)
    }

    fn refusal(workers: &str, local: &str) -> String {
        check(workers, local).expect_err("it must be refused").to_string()
    }

    const LOCAL: &str = "10.99.0.1:3781";

    #[test]
    fn a_gateway_has_one_worker_by_default() {
        let workers = check("", LOCAL).expect("it is right").config.workers;
        assert_eq!((workers.count, workers.pin), (1, false));
        let workers = check("count = 1\npin = true", LOCAL).expect("it is right").config.workers;
        assert_eq!((workers.count, workers.pin), (1, true));
    }

    #[test]
    fn as_many_workers_as_processors_can_be_had_but_nodes_must_agree() {
        let Checked { config, warnings } = check("count = \"auto\"", LOCAL).expect("it is right");
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(usize::from(config.workers.count), processors.min(32));
        assert!(warnings[0].to_string().contains("on all nodes"), "{warnings:?}");
    }

    #[test]
    fn what_is_no_number_of_workers_is_refused_with_what_is() {
        for count in ["0", "33", "\"two\"", "300"] {
            let said = refusal(&format!("count = {count}"), LOCAL);
            let expected = format!(
                "mainstay.toml:4:9: workers.count: {count} is no number of workers: write a number from 1 to 32, or \"auto\""
            );
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn a_tunnel_device_is_served_by_one_worker() {
        let text = |workers: u8| {
            format!(
                "[node]\nid = 0\n[workers]\ncount = {workers}\n[[port]]\nname = \"inside\"\ninterface = \"tun0\"\n\
                 backend = \"tun\"\naddresses = [\"10.0.0.1/24\"]\n"
            )
        };
        let said = parse("mainstay.toml", &text(2)).expect_err("it must be refused").to_string();
        assert!(said.contains("port \"inside\" is a tunnel device, which only one worker can serve"), "{said}");
        let said = parse("mainstay.toml", &text(1)).map_or_else(|error| error.to_string(), |_| String::new());
        assert!(!said.contains("worker"), "{said}");
    }

    #[test]
    fn every_worker_has_a_replication_port_that_exists_and_is_free() {
        let said = refusal("count = 2", "10.99.0.1:3774");
        assert!(said.contains("worker 1 replicates from 10.99.0.1:3784, which failure detection uses"), "{said}");
        let said = refusal("count = 3", "10.99.0.1:65520");
        assert!(said.contains("port of worker 2 would be beyond 65535"), "{said}");
        assert!(check("count = 32", LOCAL).is_ok());
    }
}
