//! Objects come whole over a network in which nothing dies.

use std::time::{Duration, Instant};

use super::flow::Request;
use super::*;
use crate::bench::bulk::KernelRules;
use crate::bench::replication::network::Links;
use crate::testbed::watch::{Waited, Watch};

#[test]
fn objects_of_all_sizes_are_fetched_and_the_phases_kept() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let network = Network::build(Links::default()).unwrap();
    KernelRules::install(&network.topology().nodes[0]).unwrap();
    let plan = Plan {
        servers: network.server_addresses(),
        object_kilobytes: vec![0, 1, 50],
        at_once: 9,
        flows_per_s_max: 500,
    };
    let traffic = Traffic::start(&network, plan).unwrap();
    let watch = Watch::new().unwrap();
    let until = |condition: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(20);
        let waited = watch.until(deadline, || Ok::<_, BenchError>(condition())).unwrap();
        assert_eq!(waited, Waited::Met, "{} finished, {} failed", traffic.finished(), traffic.failed());
    };
    until(&|| traffic.finished() >= 100);
    traffic.set_phase(Phase::Hurried);
    until(&|| traffic.in_progress() > 0);
    traffic.set_phase(Phase::Waiting);
    until(&|| traffic.in_progress() == 0);
    assert_eq!(traffic.failed(), 0);
    let flows = traffic.finish().unwrap();
    for size in [0, 1, 50] {
        let mut of_size = flows.iter().filter(|flow| flow.object_kilobytes == size);
        assert!(of_size.any(|flow| flow.ended_at.is_some() && flow.established_at.is_some()), "{size} KB");
    }
    assert!(flows.iter().any(|flow| !flow.progress.is_empty()), "those that ended last were written down");
}

#[test]
fn requests_come_back_as_they_were() {
    let request = Request { object_bytes: 102_400, seed: 77 };
    assert_eq!(Request::from_bytes(request.to_bytes()), request);
}
