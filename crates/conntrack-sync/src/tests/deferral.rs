//! Connections that are replicated only once they have lived for a while.

use std::string::ToString;
use std::time::Duration;

use flow::netfilter::{Status, TcpState};

use super::pair::{Options, Pair};
use super::unreplicated::{event, udp};
use crate::*;

const THRESHOLD: Duration = Duration::from_millis(500);

fn deferring() -> Pair {
    Pair::ready(Options { config: |config| config.deferral = Some(THRESHOLD), ..Options::default() })
}

fn messages(pair: &Pair) -> u64 {
    pair.status(0).peers[0].session.expect("it is a native peer").messages_sent
}

fn deferred(pair: &Pair) -> u32 {
    let unreplicated = pair.status(0).unreplicated;
    let of = |reason| unreplicated.counts().filter(|(known, _)| *known == reason).map(|(_, count)| count).sum();
    of(UnreplicatedReason::Deferred)
}

#[test]
fn a_short_connection_costs_no_message_and_a_longer_one_is_replicated_at_the_threshold() {
    let mut pair = deferring();
    let before = messages(&pair);
    for number in 0..50 {
        pair.connect(0, number);
    }
    pair.connect(0, 90);
    pair.run(THRESHOLD / 2);
    assert_eq!((deferred(&pair), pair.hosts[1].kernel.len()), (51, 0));
    assert!(pair.hosts[0].node.readiness(pair.now).is_safe(), "what is deferred is left out on purpose");
    for number in 0..50 {
        for state in [TcpState::FinWait, TcpState::LastAck, TcpState::TimeWait] {
            pair.packet(0, number, state);
        }
    }
    pair.run(THRESHOLD);
    assert_eq!(pair.state(1, 90), Some(TcpState::Established));
    assert_eq!((messages(&pair) - before, deferred(&pair), pair.hosts[1].kernel.len()), (1, 0, 1));
}

#[test]
fn a_node_that_ceases_to_be_primary_replicates_what_it_has_deferred() {
    let mut pair = deferring();
    (0..20).for_each(|number| pair.connect(0, number));
    pair.run(Duration::from_millis(20));
    assert_eq!((deferred(&pair), pair.hosts[1].kernel.len()), (20, 0));
    let now = pair.now;
    pair.hosts[0].node.set_role(now, SyncRole::Backup);
    pair.until("all have arrived", |pair| pair.hosts[1].kernel.len() == 20);
    let now = pair.now;
    pair.hosts[1].node.set_role(now, SyncRole::Primary);
    pair.settle();
    pair.connect(1, 50);
    pair.run(THRESHOLD / 2);
    assert!(pair.state(0, 50).is_none(), "the new primary defers its own");
    pair.until("it is old enough", |pair| pair.state(0, 50) == Some(TcpState::Established));
}

#[test]
fn a_query_is_not_replicated_and_a_lasting_flow_of_datagrams_is() {
    let mut pair = deferring();
    for number in [1, 2] {
        event(&mut pair, KernelEvent::Began(&udp(number, Status::default())));
        event(&mut pair, KernelEvent::Changed(&udp(number, Status::SEEN_REPLY)));
    }
    pair.run(Duration::from_secs(2));
    assert_eq!(pair.hosts[1].kernel.len(), 0);
    event(&mut pair, KernelEvent::Changed(&udp(2, Status::SEEN_REPLY.union(Status::ASSURED))));
    pair.until("it is replicated", |pair| pair.hosts[1].kernel.len() == 1);
    assert!(pair.hosts[1].kernel.get(udp(2, Status::default()).original).is_some());
}

#[test]
fn connections_found_at_the_start_are_replicated_at_once() {
    let mut pair = deferring();
    pair.connect(0, 1);
    pair.restart(0, SyncRole::Primary);
    let began = pair.now;
    pair.until("the other kernel has it", |pair| pair.state(1, 1).is_some());
    assert!(pair.now.saturating_since(began) < THRESHOLD, "{}", pair.hosts[0].node.readiness(pair.now).to_string());
}
