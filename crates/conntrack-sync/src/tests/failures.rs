//! The guarantees to an operator under failures.

use core::time::Duration;
use std::string::ToString;

use flow::NodeId;
use flow::netfilter::TcpState;
use replication::conntrackd::FtfwConfig;

use super::pair::{Options, Pair, tuple};
use crate::*;

const CONNECTIONS: u32 = 200;

fn with_connections(options: Options) -> Pair {
    let mut pair = Pair::ready(options);
    (0..CONNECTIONS).for_each(|number| pair.connect(0, number));
    pair.settle();
    pair.assert_kernels_agree();
    pair
}

#[test]
fn lost_datagrams_cost_no_connection() {
    let mut pair = Pair::ready(Options { loss_percent: 20, ..Options::default() });
    for number in 0..CONNECTIONS {
        pair.connect(0, number);
        pair.tick();
        if number % 3 == 0 {
            pair.packet(0, number, TcpState::FinWait);
        }
        if number % 7 == 0 {
            pair.hosts[0].kernel.delete(tuple(number));
        }
    }
    pair.settle();
    pair.assert_kernels_agree();
}

#[test]
fn lost_events_are_recovered_exactly() {
    let mut pair = with_connections(Options::default());
    pair.hosts[0].kernel.buffer_max = 4;
    (0..20).for_each(|number| pair.packet(0, number, TcpState::FinWait));
    (20..40).for_each(|number| pair.hosts[0].kernel.delete(tuple(number)));
    (1000..1020).for_each(|number| pair.connect(0, number));
    assert!(pair.hosts[0].kernel.has_overrun);
    let before = pair.status(0).peers[0].session.unwrap().messages_sent;
    pair.tick();
    assert!(pair.hosts[0].node.readiness(pair.now).to_string().contains("events of the kernel were lost"));
    pair.hosts[0].kernel.buffer_max = usize::MAX;
    pair.settle();
    pair.assert_kernels_agree();
    let status = pair.status(0);
    assert_eq!((status.counters.overruns, status.counters.recoveries), (1, 1));
    // Four events of changed connections were received.
    assert_eq!(status.counters.repaired, 16 + 20 + 20);
    assert_eq!(status.peers[0].session.unwrap().messages_sent, before + 60, "only differences are replicated");
    assert!(pair.hosts[0].events.contains(&SyncEvent::Recovered { repaired: 56 }));
    assert_eq!(status.injected.asked, 20, "each end is verified before it is replicated");
}

#[test]
fn events_that_the_backup_loses_do_no_harm() {
    let mut pair = with_connections(Options::default());
    pair.hosts[1].kernel.buffer_max = 0;
    (0..20).for_each(|number| pair.hosts[1].kernel.delete(tuple(number)));
    pair.tick();
    pair.hosts[1].kernel.buffer_max = usize::MAX;
    pair.settle();
    pair.assert_kernels_agree();
    assert_eq!(pair.hosts[1].kernel.len() as u32, CONNECTIONS);
    assert_eq!(pair.status(1).own, 0);
}

#[test]
fn a_take_over_needs_no_kernel_requests() {
    let mut pair = with_connections(Options::default());
    pair.hosts[0].is_running = false;
    pair.until("the silence is noted", |pair| {
        pair.hosts[1].events.iter().any(|event| matches!(event, SyncEvent::PeerSilent(_)))
    });
    let before = pair.status(1).injected;
    pair.hosts[1].node.set_role(pair.now, SyncRole::Primary);
    let status = pair.status(1);
    assert_eq!((status.own, status.replicas, status.pending), (CONNECTIONS, 0, 0));
    assert!(status.readiness.is_usable);
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.status(1).injected, before);
    assert_eq!(pair.hosts[1].kernel.len() as u32, CONNECTIONS);
    // The first restarts with an empty kernel.
    pair.reboot(0, SyncRole::Backup);
    pair.settle();
    pair.assert_kernels_agree();
    assert_eq!(pair.status(0).replicas, CONNECTIONS);
}

#[test]
fn the_former_primarys_last_updates_are_applied_and_ownership_moves() {
    let mut pair = with_connections(Options::default());
    pair.packet(0, 3, TcpState::FinWait);
    pair.hosts[1].node.set_role(pair.now, SyncRole::Primary);
    pair.hosts[0].node.set_role(pair.now, SyncRole::Backup);
    pair.settle();
    pair.assert_kernels_agree();
    assert_eq!(pair.state(1, 3), Some(TcpState::FinWait));
    assert_eq!((pair.status(0).own, pair.status(1).own), (0, CONNECTIONS));
    // Its kernel's timers end no connection that is alive at the other.
    for _ in 0..10 {
        pair.run(Duration::from_secs(20));
        (0..CONNECTIONS)
            .filter(|number| *number != 3)
            .for_each(|number| pair.hosts[1].kernel.keep_alive(tuple(number)));
    }
    assert_eq!(pair.hosts[1].kernel.len() as u32, CONNECTIONS - 1);
    pair.assert_kernels_agree();
}

#[test]
fn a_restarted_daemon_ends_no_connection() {
    for (node, role) in [(1, SyncRole::Backup), (0, SyncRole::Primary), (0, SyncRole::Backup)] {
        let mut pair = with_connections(Options::default());
        pair.restart(node, role);
        pair.settle();
        pair.run(Duration::from_secs(10));
        assert_eq!(pair.hosts.each_ref().map(|host| host.kernel.len() as u32), [CONNECTIONS; 2], "{node} {role:?}");
        pair.assert_kernels_agree();
        // Packets still come to node 0, and its updates prevail.
        (0..10).for_each(|number| pair.packet(0, number, TcpState::FinWait));
        (10..20).for_each(|number| pair.hosts[0].kernel.delete(tuple(number)));
        pair.settle();
        pair.assert_kernels_agree();
        assert_eq!(pair.state(1, 5), Some(TcpState::FinWait), "{node} {role:?}");
        assert_eq!(pair.hosts[1].kernel.len() as u32, CONNECTIONS - 10, "{node} {role:?}");
    }
}

#[test]
fn connections_that_ended_during_a_backups_restart_are_deleted_from_its_kernel() {
    let mut pair = with_connections(Options::default());
    pair.hosts[1].is_running = false;
    pair.run(Duration::from_millis(100));
    (0..20).for_each(|number| pair.hosts[0].kernel.delete(tuple(number)));
    pair.run(Duration::from_millis(100));
    pair.restart(1, SyncRole::Backup);
    pair.settle();
    pair.run(Duration::from_secs(2));
    pair.assert_kernels_agree();
}

#[test]
fn a_full_kernel_table_is_reported_and_filled_when_there_is_room() {
    let mut pair = Pair::ready(Options::default());
    pair.hosts[1].kernel.connections_max = 150;
    (0..CONNECTIONS).for_each(|number| pair.connect(0, number));
    pair.run(Duration::from_millis(500));
    let status = pair.status(1);
    assert_eq!((status.not_in_kernel, status.failing), (50, Some(KernelRefusal::Full)));
    assert!(status.readiness.to_string().contains("refused 50 connections: its table is full"), "{}", status.readiness);
    assert!(status.injected.refused[KernelRefusal::Full.kind()] < 500, "it is retried at intervals");
    pair.hosts[1].kernel.connections_max = 1000;
    pair.until("all are in", |pair| pair.hosts[1].kernel.len() as u32 == CONNECTIONS);
    pair.until("that is noted", |pair| pair.status(1).failing.is_none());
    assert!(pair.hosts[1].node.readiness(pair.now).is_safe());
}

#[test]
fn a_kernel_that_refuses_temporarily_gets_every_connection_later() {
    for refusal in
        [KernelRefusal::Unsupported, KernelRefusal::NotPermitted, KernelRefusal::Invalid, KernelRefusal::Other(12)]
    {
        let mut pair = Pair::ready(Options::default());
        pair.hosts[1].kernel.refuse = Some((30, refusal));
        (0..20).for_each(|number| pair.connect(0, number));
        pair.until("all are in", |pair| pair.hosts[1].kernel.len() == 20);
        assert!(pair.hosts[1].events.contains(&SyncEvent::InjectionFails(refusal)));
        assert_eq!(pair.status(1).injected.refused[refusal.kind()], 30);
    }
}

#[test]
fn a_split_brain_is_reported_and_loses_no_connection() {
    let mut pair = with_connections(Options::default());
    pair.is_partitioned = true;
    pair.run(Duration::from_secs(2));
    pair.hosts[1].node.set_role(pair.now, SyncRole::Primary);
    pair.connect(1, 5000);
    pair.connect(0, 6000);
    pair.packet(0, 1, TcpState::FinWait);
    pair.run(Duration::from_secs(1));
    pair.is_partitioned = false;
    pair.until("it is noticed", |pair| pair.status(0).split_brains == 1 && pair.status(1).split_brains == 1);
    assert!(pair.hosts[0].node.readiness(pair.now).to_string().contains("node 1 is primary as well"));
    pair.settle();
    pair.assert_kernels_agree();
    assert_eq!(pair.hosts[0].kernel.len() as u32, CONNECTIONS + 2);
    assert_eq!(pair.state(1, 1), Some(TcpState::FinWait));
    pair.hosts[1].node.set_role(pair.now, SyncRole::Backup);
    pair.settle();
    assert!(pair.hosts[0].events.contains(&SyncEvent::SplitBrainOver(flow::NodeId(1))));
    assert!(pair.hosts[0].node.readiness(pair.now).is_safe());
    pair.assert_kernels_agree();
}

#[test]
fn a_silent_peer_is_an_obstacle_to_a_failover() {
    let mut pair = Pair::ready(Options::default());
    assert_eq!(pair.hosts[0].node.readiness(pair.now).to_string(), "a failover now would be safe");
    pair.is_partitioned = true;
    pair.run(Duration::from_secs(2));
    let readiness = pair.hosts[0].node.readiness(pair.now);
    assert_eq!(readiness.to_string(), "a failover now would not be safe: node 1 is unreachable");
}

#[test]
fn a_full_table_is_reported_and_rejected_connections_follow_when_there_is_room() {
    let mut pair = Pair::ready(Options { config: |config| config.connections_max = 100, ..Options::default() });
    (0..150).for_each(|number| pair.connect(0, number));
    pair.run(Duration::from_millis(500));
    assert_eq!(pair.status(0).connections, 100);
    assert!(pair.hosts[0].events.contains(&SyncEvent::TableFull));
    (0..100).for_each(|number| pair.hosts[0].kernel.delete(tuple(number)));
    pair.until("both have the rest", |pair| pair.hosts.iter().all(|host| host.kernel.len() == 50));
    pair.settle();
    pair.assert_kernels_agree();
}

/// Fewer connections than the peer has fit; the others come, and a failover is safe again, when there is room.
fn assert_a_small_table_is_filled_later(config: fn(&mut SyncConfig)) {
    let mut pair = Pair::ready(Options { config, ..Options::default() });
    (0..110).for_each(|number| pair.connect(0, number));
    pair.until("the backup lacks room", |pair| {
        pair.status(1).readiness.obstacles.contains(&Obstacle::NoRoom(NodeId(0)))
    });
    (0..60).for_each(|number| pair.hosts[0].kernel.delete(tuple(number)));
    pair.until("the backup has all", |pair| {
        pair.status(1).readiness.is_safe() && pair.hosts.iter().all(|host| host.kernel.len() == 50)
    });
}

#[test]
fn a_backup_with_too_small_a_table_is_safe_when_there_is_room() {
    assert_a_small_table_is_filled_later(|config| {
        config.connections_max = if config.node == NodeId(1) { 100 } else { 200 };
    });
}

#[test]
fn a_backup_with_too_small_a_table_is_safe_when_there_is_room_in_conntrackds_protocol() {
    assert_a_small_table_is_filled_later(|config| {
        let profile = PeerProfile::Conntrackd { config: FtfwConfig::default(), time_of_day_s: 1_800_000_000 };
        config.peers[0].profile = profile;
        config.connections_max = if config.node == NodeId(1) { 100 } else { 200 };
    });
}

#[test]
fn a_filter_that_excludes_nearly_everything_is_reported_as_an_obstacle() {
    let mut pair = Pair::ready(Options::default());
    let now = pair.now;
    let node = &mut pair.hosts[0].node;
    let asks = |node: &mut SyncNode, connections| {
        node.note_kernel_connections(now, connections);
        let is_asked = node.poll_dump(now);
        if is_asked {
            node.handle_dump_ended(now, DumpResult::Complete);
        }
        is_asked
    };
    assert!(!asks(node, CONNECTIONS_MANY - 1), "too few to decide");
    assert!(asks(node, CONNECTIONS), "none of them is in the mirror");
    assert!(!asks(node, CONNECTIONS), "no repetition within the interval");
    node.note_coverage(now, FilterCoverage { established: CONNECTIONS, replicated: CONNECTIONS / 20 });
    assert!(node.readiness(now).is_safe(), "one in twenty is no cause for a report");
    let few = FilterCoverage { established: CONNECTIONS, replicated: 9 };
    node.note_coverage(now, few);
    assert_eq!(node.readiness(now).obstacles, [Obstacle::FewReplicated(few)]);
    assert!(node.readiness(now).to_string().contains("of 200 established connections of this kernel 9 are replicated"));
    let reported =
        core::iter::from_fn(|| node.poll_event()).filter(|(_, event)| *event == SyncEvent::FewReplicated(few));
    assert_eq!(reported.count(), 1);
    node.note_coverage(now, FilterCoverage { established: CONNECTIONS, replicated: CONNECTIONS });
    assert!(node.readiness(now).is_safe());
}
