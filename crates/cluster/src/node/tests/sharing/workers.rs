//! Nodes of several workers that both forward.

use std::time::Duration;

use flow::WorkerId;

use super::super::cluster::{Options, syn, syn_ack};
use super::super::site::{FORWARDED, Site, ports_answered_elsewhere};
use super::pair::{A, B};

/// Each node holds its group of addresses.
fn started(workers: u8) -> Site {
    let mut site = Site::start([workers; 2], Options { has_groups: true, ..Options::default() }).ready();
    site.run_until("both nodes to forward", |site| [A, B].into_iter().all(|id| site.lead(id).holds_addresses()));
    site.run(Duration::from_millis(50));
    site
}

#[test]
fn an_answer_that_waits_at_one_worker_goes_to_the_one_that_receives_its_connection() {
    let mut site = started(2);
    let (port, worker) = ports_answered_elsewhere(2).next().unwrap();
    let other = WorkerId(1 - worker.0);
    site.is_replication_down = true;
    site.via = Some(A);
    site.server_sends(port, FORWARDED.0, syn());
    assert!(site.client_receives().is_some(), "the SYN passes");
    site.via = Some(B);
    site.client_sends(FORWARDED.1, port, syn_ack());
    assert!(site.server_receives().is_none(), "node B has received no such connection");
    assert_eq!(site.worker(B, other).pipeline().waiting(), 1);

    site.is_replication_down = false;
    site.run(Duration::from_millis(19));
    let answer = site.server_receives().expect("the SYN/ACK passes");
    assert_eq!((answer.tuple.source_port, answer.tuple.destination_port), (FORWARDED.0, port));
    assert_eq!(site.worker(B, other).pipeline().sharing_counters().helped, 1);
    assert_eq!(site.worker(B, worker).pipeline().counters().taken_over, 1);
}

#[test]
fn connections_of_all_workers_go_on_by_way_of_both_nodes() {
    let mut site = started(2);
    for port in 40_000..40_016 {
        site.via = Some(A);
        let seen = site.connect(port);
        for via in [B, A, B] {
            site.via = Some(via);
            site.exchange(port, seen);
        }
    }
    for id in [A, B] {
        assert!(site.connections(id).iter().all(|connections| *connections > 0), "node {id}");
        assert_eq!(site.connections(id).iter().sum::<u32>(), 16);
    }
}
