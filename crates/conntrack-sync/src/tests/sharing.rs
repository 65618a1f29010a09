//! Several nodes forward at a time: packets of one connection may reach any of them.

use core::time::Duration;

use flow::netfilter::TcpState;

use super::pair::{Options, Pair, tuple};
use crate::*;

fn both_primary() -> Pair {
    Pair::ready(Options {
        config: |config| {
            config.mode = Mode::MultiPrimary;
            config.filter = SyncFilter::new(&[], TcpStates::ALL, NonTcpStart::FirstPacket);
        },
        ..Options::default()
    })
}

#[test]
fn an_asymmetric_connection_is_equal_in_both_kernels() {
    let mut pair = both_primary();
    for number in 0..50 {
        pair.packet(0, number, TcpState::SynSent);
        pair.run(Duration::from_millis(5));
        pair.packet(1, number, TcpState::SynRecv);
        pair.run(Duration::from_millis(5));
        pair.packet(0, number, TcpState::Established);
    }
    pair.settle();
    pair.assert_kernels_agree();
    // Both see the end at the same time.
    for number in 0..50 {
        pair.packet(0, number, TcpState::FinWait);
        pair.packet(1, number, TcpState::LastAck);
    }
    pair.settle();
    pair.assert_kernels_agree();
    assert_eq!(pair.state(0, 7), Some(TcpState::LastAck), "no state is lost");
    let replicated = pair.status(0).counters.replicated + pair.status(1).counters.replicated;
    assert!(replicated <= 50 * 12, "updates cease: {replicated}");
}

#[test]
fn a_timeout_at_one_node_does_not_end_a_connection_alive_at_the_other() {
    let mut pair = both_primary();
    pair.connect(0, 1);
    pair.settle();
    for _ in 0..12 {
        pair.run(Duration::from_secs(20));
        pair.hosts[1].kernel.keep_alive(tuple(1));
    }
    pair.settle();
    assert_eq!((pair.state(0, 1), pair.state(1, 1)), (Some(TcpState::Established), Some(TcpState::Established)));
    let refused = pair.status(1).counters.ends_refused;
    assert!((1..=3).contains(&refused), "the other node owns it from then on: {refused}");
}

#[test]
fn an_end_is_replicated_to_both_kernels() {
    let mut pair = both_primary();
    (0..20).for_each(|number| pair.connect(number as usize % 2, number));
    pair.settle();
    pair.assert_kernels_agree();
    (0..20).for_each(|number| pair.hosts[number as usize % 2].kernel.delete(tuple(number)));
    pair.settle();
    assert_eq!(pair.hosts.each_ref().map(|host| host.kernel.len()), [0, 0]);
}

#[test]
fn the_surviving_node_takes_over_the_others_connections() {
    let mut pair = both_primary();
    (0..40).for_each(|number| pair.connect(number as usize % 2, number));
    pair.settle();
    pair.hosts[1].is_running = false;
    pair.until("they are claimed", |pair| pair.status(0).own == 40);
    assert_eq!(pair.hosts[0].kernel.len(), 40);
    pair.reboot(1, SyncRole::Primary);
    pair.settle();
    pair.assert_kernels_agree();
    assert_eq!(pair.hosts[1].kernel.len(), 40);
}
