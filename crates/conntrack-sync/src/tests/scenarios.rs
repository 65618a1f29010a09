//! The guarantees to an operator without failures.

use core::time::Duration;

use flow::netfilter::{Expectation, TcpState, Tuple};

use super::pair::{Options, Pair, tuple};
use crate::*;

#[test]
fn a_connection_of_one_kernel_is_in_the_other_until_it_ends() {
    let mut pair = Pair::ready(Options::default());
    pair.connect(0, 1);
    pair.settle();
    assert_eq!(pair.state(1, 1), Some(TcpState::Established));
    pair.packet(0, 1, TcpState::FinWait);
    pair.settle();
    pair.assert_kernels_agree();
    pair.hosts[0].kernel.delete(tuple(1));
    pair.settle();
    assert_eq!(pair.hosts[1].kernel.len(), 0);
    assert_eq!((pair.status(0).connections, pair.status(1).connections), (0, 0));
}

#[test]
fn segments_of_an_injected_connection_pass_without_window_check() {
    let mut pair = Pair::ready(Options::default());
    pair.connect(0, 1);
    pair.settle();
    let injected = pair.hosts[1].kernel.get(tuple(1)).unwrap();
    let sides = injected.tcp().unwrap().sides.unwrap();
    assert!(sides.iter().all(|side| side.flags.contains(flow::netfilter::TcpFlags::BE_LIBERAL)));
    assert!(sides.iter().all(|side| side.window_scale == 7), "the scales are replicated");
}

#[test]
fn segments_that_return_after_two_take_overs_pass_without_window_check() {
    let mut pair = Pair::ready(Options::default());
    pair.connect(0, 1);
    pair.settle();
    let is_liberal = |pair: &Pair, host: usize| {
        let sides = pair.hosts[host].kernel.get(tuple(1)).and_then(|entry| entry.tcp()?.sides).unwrap_or_default();
        sides.iter().all(|side| side.flags.contains(flow::netfilter::TcpFlags::BE_LIBERAL))
    };
    assert!(!is_liberal(&pair, 0), "its kernel has seen every segment");
    pair.hosts[0].node.set_role(pair.now, SyncRole::Backup);
    pair.hosts[1].node.set_role(pair.now, SyncRole::Primary);
    pair.settle();
    assert!(is_liberal(&pair, 0), "from now on it sees none");
}

#[test]
fn a_connection_that_ends_before_replication_costs_nothing_on_the_wire() {
    let mut pair = Pair::ready(Options::default());
    pair.settle();
    let before = pair.status(0).peers[0].session.unwrap().messages_sent;
    for number in 0..50 {
        pair.packet(0, number, TcpState::SynSent);
        pair.run(Duration::from_millis(2));
        pair.hosts[0].kernel.delete(tuple(number));
    }
    pair.settle();
    let status = pair.status(0);
    assert_eq!(status.peers[0].session.unwrap().messages_sent, before);
    assert_eq!((status.counters.never_replicated, status.connections), (50, 0));
}

#[test]
fn changes_within_the_batch_delay_are_one_message() {
    let mut pair = Pair::ready(Options::default());
    pair.settle();
    let before = pair.status(0).peers[0].session.unwrap().messages_sent;
    pair.connect(0, 1);
    for state in [TcpState::FinWait, TcpState::LastAck, TcpState::TimeWait] {
        pair.packet(0, 1, state);
    }
    pair.settle();
    assert_eq!(pair.status(0).peers[0].session.unwrap().messages_sent, before + 1);
    assert_eq!(pair.state(1, 1), Some(TcpState::TimeWait));
}

#[test]
fn a_backup_sends_one_request_for_all_changes_within_the_request_delay() {
    let mut pair = Pair::ready(Options::default());
    pair.settle();
    let requests = |pair: &Pair| (pair.status(1).injected.created, pair.status(1).injected.updated);
    pair.connect(0, 1);
    pair.run(Duration::from_millis(10));
    assert!(pair.hosts[1].node.readiness(pair.now).obstacles.is_empty(), "a delayed request is no obstacle");
    pair.packet(0, 1, TcpState::FinWait);
    pair.run(Duration::from_millis(5));
    assert_eq!((requests(&pair), pair.state(1, 1)), ((0, 0), None));
    pair.settle();
    assert_eq!((requests(&pair), pair.state(1, 1)), ((1, 0), Some(TcpState::FinWait)));
    pair.assert_kernels_agree();
}

#[test]
fn delayed_requests_are_sent_at_once_when_the_backup_becomes_primary() {
    let mut pair = Pair::ready(Options::default());
    pair.settle();
    pair.connect(0, 1);
    pair.run(Duration::from_millis(10));
    assert_eq!(pair.state(1, 1), None);
    pair.hosts[1].node.set_role(pair.now, SyncRole::Primary);
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.state(1, 1), Some(TcpState::Established));
}

#[test]
fn a_replica_does_not_expire_while_its_owner_is_alive() {
    let mut pair =
        Pair::ready(Options { config: |config| config.timeout_floor = TIMEOUT_FLOOR_MIN, ..Options::default() });
    pair.connect(0, 1);
    for _ in 0..8 {
        pair.run(Duration::from_secs(25));
        pair.hosts[0].kernel.keep_alive(tuple(1));
    }
    assert_eq!(pair.state(1, 1), Some(TcpState::Established));
    let status = pair.status(1);
    assert_eq!(status.counters.replicas_ended_early, 0, "it was refreshed before");
    assert!(status.injected.refreshed >= 2);
    let [primary, backup] = [0, 1].map(|node| pair.status(node).counters.taken_over);
    assert_eq!((primary, backup), (0, 0));
}

#[test]
fn a_replica_that_the_kernel_loses_is_reinjected() {
    let mut pair = Pair::ready(Options::default());
    pair.connect(0, 1);
    pair.settle();
    pair.hosts[1].kernel.delete(tuple(1));
    pair.settle();
    pair.assert_kernels_agree();
    assert_eq!(pair.status(1).counters.replicas_ended_early, 1);
}

#[test]
fn a_new_connection_replaces_an_old_one_with_the_same_tuple() {
    let mut pair = Pair::ready(Options::default());
    pair.connect(0, 1);
    pair.packet(0, 1, TcpState::TimeWait);
    pair.settle();
    // The former ends and the next begins before either is replicated.
    pair.hosts[0].kernel.delete(tuple(1));
    let translated = Tuple { source: [192, 0, 2, 81].into(), ..tuple(1).inverse() };
    for state in [TcpState::SynSent, TcpState::SynRecv, TcpState::Established] {
        pair.hosts[0].kernel.packet(tuple(1), translated, state);
    }
    pair.settle();
    pair.assert_kernels_agree();
    assert_eq!(pair.hosts[1].kernel.get(tuple(1)).unwrap().reply, translated);
}

#[test]
fn an_external_cache_is_injected_when_the_node_becomes_primary() {
    let mut pair =
        Pair::ready(Options { config: |config| config.injection = Injection::ExternalCache, ..Options::default() });
    (0..300).for_each(|number| pair.connect(0, number));
    pair.settle();
    assert_eq!((pair.hosts[1].kernel.len(), pair.status(1).replicas), (0, 300));
    pair.hosts[1].node.set_role(pair.now, SyncRole::Primary);
    assert!(!pair.hosts[1].node.readiness(pair.now).is_usable);
    pair.until("all is in the kernel", |pair| pair.hosts[1].node.readiness(pair.now).is_usable);
    assert_eq!(pair.hosts[1].kernel.len(), 300);
    pair.assert_kernels_agree();
}

#[test]
fn excluded_connections_are_not_replicated() {
    let mut pair = Pair::ready(Options {
        config: |config| {
            let network = IgnoreRule { addresses: std::vec![([10, 0, 0, 0].into(), 30)], ..IgnoreRule::default() };
            let marked = IgnoreRule { mark: Some((0x10, 0xf0)), ..IgnoreRule::default() };
            config.filter = SyncFilter::new(&[network, marked], TcpStates::ESTABLISHED_ON, NonTcpStart::default());
        },
        ..Options::default()
    });
    [1, 2, 8, 9].into_iter().for_each(|number| {
        pair.packet(0, number, TcpState::SynSent);
        if number == 9 {
            pair.hosts[0].kernel.set_mark(tuple(9), 0x1f);
        }
        pair.connect(0, number);
    });
    pair.settle();
    let replicated: std::vec::Vec<_> = pair.hosts[1].kernel.summary().into_keys().collect();
    assert_eq!(replicated, [tuple(8)]);
    assert_eq!(pair.status(0).connections, 2, "permanently excluded connections are not held either");
}

#[test]
fn an_expectation_is_injected_into_the_other_kernel() {
    let mut pair = Pair::ready(Options::default());
    pair.connect(0, 1);
    let expectation = Expectation {
        master: tuple(1),
        expected: tuple(2),
        mask: tuple(0x00ff_ffff),
        zone: 0,
        timeout_s: Some(300),
        flags: 0,
        class: 0,
        helper: None,
        function: None,
        nat: None,
    };
    pair.hosts[0].kernel.expect(expectation.clone());
    pair.settle();
    assert_eq!(pair.hosts[1].kernel.expectations, [expectation]);
    pair.hosts[0].kernel.packet(tuple(1), tuple(1).inverse(), TcpState::FinWait);
    pair.settle();
    assert_eq!(pair.hosts[1].kernel.expectations.len(), 1, "it is not injected twice");
    assert_eq!(pair.status(1).injected.refused, [0; KernelRefusal::KINDS]);
}

#[test]
fn connections_are_listed_a_page_at_a_time() {
    let mut pair = Pair::ready(Options::default());
    (0..25).for_each(|number| pair.connect(0, number));
    pair.settle();
    let (mut listed, mut from) = (std::vec::Vec::new(), Some(0));
    while let Some(at) = from {
        let page = pair.hosts[1].node.flows(at, 10);
        assert!(page.flows.len() <= 10);
        listed.extend(page.flows.iter().map(|flow| flow.entry.original));
        assert!(page.flows.iter().all(|flow| flow.owner == flow::NodeId(0) && flow.is_in_kernel));
        from = page.next;
    }
    listed.sort_unstable();
    assert_eq!(listed, (0..25).map(tuple).collect::<std::vec::Vec<_>>());
}
