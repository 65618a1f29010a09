//! Connections that some of the peers back up: where they are, before and after failures.

mod changes;
mod leaving;
mod many;

use std::time::Duration;
use std::vec::Vec;

use flow::{Affinity, NodeId, NodeSet};
use proptest::prelude::*;

use super::cluster::{Compactly, Options, node_config};
use crate::node::{ConfigError, Node, NodeConfig, Obstacle};
use many::{Flow, Many, Setup, config};
use replication::compact::Representation;
use replication::deferral;

const CONNECTIONS: u16 = 160;
/// New backups are marked at once, and those that are too many leave within two sweeps a second apart.
const SETTLED: Duration = Duration::from_secs(4);

fn connected(setup: Setup, connections: u16) -> (Many, Vec<Flow>) {
    let mut many = Many::start(setup);
    let flows = (0..connections).map(|nth| many.connect(10_000 + nth)).collect();
    many.run(Duration::from_millis(50));
    (many, flows)
}

/// The node where packets of the client land when the nodes that have its connection fail, one after the other.
fn chain(many: &Many, flow: &Flow, count: usize) -> NodeSet {
    let mut side = many.inside.clone();
    let mut landings = NodeSet::EMPTY;
    for _ in 0..=count {
        let node = NodeId(side.select(&flow.original));
        landings.insert(node);
        if !side.ecmp.set_alive(node, false) || side.ecmp.alive().is_empty() {
            break;
        }
    }
    landings
}

#[test]
fn each_connection_is_on_its_owner_and_on_the_next_landings_of_its_packets() {
    for count in [1, 2] {
        let (many, flows) = connected(Setup::new(4, count), CONNECTIONS);
        for flow in &flows {
            assert_eq!(many.nodes_with(flow), chain(&many, flow, count), "{flow:?}");
            assert_eq!(many.owners(flow).len(), 1);
        }
        let share = u32::from(CONNECTIONS) * (count as u32 + 1) / 4;
        for id in 0..4 {
            let fill = many.fill(id);
            assert!((share / 2..share * 3 / 2).contains(&fill), "node {id} has {fill} of about {share}");
        }
    }
}

#[test]
fn replication_takes_messages_for_the_backups_alone() {
    let messages = |count| {
        let mut many = Many::start(Setup { count, ..Setup::new(4, 1) });
        let before = many.messages_sent(None);
        for nth in 0..CONNECTIONS {
            many.connect(10_000 + nth);
        }
        many.run(Duration::from_millis(50));
        many.messages_sent(None) - before
    };
    let (all, one, two) = (messages(None), messages(Some(1)), messages(Some(2)));
    assert_eq!((one * 3, two * 3), (all, all * 2), "of three peers one, and two");
}

#[test]
fn whichever_nodes_of_the_chain_fail_the_state_is_where_the_edges_send_packets() {
    for (count, is_translated) in [(1, false), (2, false), (1, true), (2, true)] {
        let (mut many, flows) = connected(Setup { is_translated, ..Setup::new(5, count) }, CONNECTIONS);
        // Nodes fail at once, of which each is the owner of some connections and a backup of others.
        (1..=count as u8).for_each(|id| many.kill(id));
        for flow in &flows {
            let landings = [many.inside.select(&flow.original), many.outside.select(&flow.reply)].map(NodeId);
            assert!(
                landings.iter().all(|node| many.nodes_with(flow).contains(*node)),
                "{flow:?} lands on {landings:?}"
            );
        }
        many.run(Duration::from_millis(300));
        for (flow, nth) in flows.iter().zip(0..) {
            assert!(many.exchange(flow, nth % 2 == 0), "{flow:?} goes on");
        }
    }
}

#[test]
fn deferred_connections_have_their_backups_once_they_are_old_enough() {
    const THRESHOLD: Duration = Duration::from_millis(500);
    let setup = Setup { lazy: Some(deferral::Config::Fixed(THRESHOLD)), ..Setup::new(4, 1) };
    let mut many = Many::start(setup);
    let before = many.messages_sent(None);
    let flows: Vec<Flow> = (0..CONNECTIONS).map(|nth| many.connect(10_000 + nth)).collect();
    many.run(THRESHOLD / 4);
    assert!(flows.iter().all(|flow| many.nodes_with(flow).len() == 1), "each is on its owner alone");
    assert_eq!(many.messages_sent(None), before);
    many.run(THRESHOLD * 2);
    assert_eq!(many.messages_sent(None) - before, u64::from(CONNECTIONS), "one for each connection");
    assert!(flows.iter().all(|flow| many.nodes_with(flow) == chain(&many, flow, 1)));
    many.kill(1);
    many.run(Duration::from_millis(300));
    for (flow, nth) in flows.iter().zip(0..) {
        assert!(many.exchange(flow, nth % 2 == 0), "{flow:?} goes on");
    }
}

#[test]
fn connections_are_lost_with_more_failures_than_backups_or_with_another_hash_key_than_the_edges() {
    let lost = |setup: Setup, failures: u8| {
        let (mut many, flows) = connected(setup, CONNECTIONS);
        (0..failures).for_each(|id| many.kill(id));
        many.run(Duration::from_millis(300));
        flows.iter().filter(|flow| !many.exchange(flow, true)).count()
    };
    let good = Setup::new(5, 1);
    assert_eq!(lost(good, 1), 0);
    let beyond = lost(good, 2);
    assert!((1..usize::from(CONNECTIONS) / 3).contains(&beyond), "those on both nodes: {beyond}");
    let elsewhere = lost(Setup { seed_of_nodes: 2, ..good }, 1);
    assert!((1..usize::from(CONNECTIONS) / 3).contains(&elsewhere), "most of one node's: {elsewhere}");
}

#[test]
fn after_a_failure_connections_have_as_many_backups_as_before_with_packets_and_without() {
    let (mut many, flows) = connected(Setup::new(5, 2), CONNECTIONS);
    many.kill(3);
    many.run(Duration::from_millis(300));
    let (busy, _) = flows.split_at(flows.len() / 2);
    busy.iter().for_each(|flow| assert!(many.exchange(flow, true)));
    many.run(SETTLED);
    for flow in &flows {
        assert_eq!(many.nodes_with(flow), chain(&many, flow, 2), "{flow:?}");
        assert_eq!(many.owners(flow).len(), 1, "{flow:?}");
    }
    // The second failure finds them all.
    many.kill(1);
    many.kill(4);
    many.run(Duration::from_millis(300));
    flows.iter().for_each(|flow| assert!(many.exchange(flow, false), "{flow:?} goes on"));
}

#[test]
fn a_node_that_returns_receives_its_share_and_no_more() {
    let (mut many, flows) = connected(Setup::new(4, 1), CONNECTIONS);
    many.kill(2);
    many.run(Duration::from_millis(300));
    flows.iter().for_each(|flow| assert!(many.exchange(flow, true)));
    many.run(SETTLED);
    let before = many.messages_sent(Some(2));
    many.restart(2);
    many.run_until("node 2 to hold its group again", |many| {
        many.holds_own(2) && many.node(2).status(many.now).synchronised
    });
    let (fill, messages) = (many.fill(2), many.messages_sent(Some(2)) - before);
    // The end of a synchronisation is a message to itself.
    assert!(messages <= u64::from(fill) + 2 * 3, "{messages} messages for {fill} connections");
    assert!(fill < u32::from(CONNECTIONS), "that is all of them");
    many.run_until_ready();
    for flow in &flows {
        // Edges keep a connection where it is, and would send it to the node that returned first.
        assert_eq!(many.nodes_with(flow), chain(&many, flow, 1), "{flow:?}");
    }
    many.kill(0);
    many.run(Duration::from_millis(300));
    flows.iter().for_each(|flow| assert!(many.exchange(flow, true), "{flow:?} goes on"));
}

#[test]
fn connections_move_back_to_a_node_that_returns_where_edges_hash_alone() {
    let setup = Setup { affinity: Affinity::Tuple, ..Setup::new(4, 1) };
    let (mut many, flows) = connected(setup, CONNECTIONS);
    many.kill(1);
    many.run(Duration::from_millis(300));
    flows.iter().for_each(|flow| assert!(many.exchange(flow, true), "{flow:?} goes on"));
    many.restart(1);
    many.run_until_ready();
    flows.iter().for_each(|flow| assert!(many.exchange(flow, true), "{flow:?} goes on"));
    many.run(SETTLED);
    assert!(many.fill(1) > 0);
    flows.iter().for_each(|flow| assert_eq!(many.owners(flow).len(), 1, "{flow:?}"));
}

#[test]
fn a_first_reply_waits_for_the_backup_and_for_no_other_node() {
    let setup = Setup { hold_first_reply: Duration::from_millis(500), ..Setup::new(4, 1) };
    let mut many = Many::start(setup);
    let probe = many.connect(9_000);
    let owner = many.owners(&probe).iter().next().expect("it has an owner");
    let backup = many.nodes_with(&probe).without([owner].into_iter().collect()).iter().next().expect("it has a backup");
    let others = (0..4).filter(|id| NodeId(*id) != owner && NodeId(*id) != backup);
    many.lossy = others.map(|id| (owner.0, id)).collect();
    // Connections of the same owner with the same backup.
    let mut alike = (10_000..20_000).filter(|port| {
        let original = flow::Tuple { source_port: *port, ..probe.original };
        let of_it = Flow { original, reply: original.inverse() };
        chain(&many, &of_it, 1) == chain(&many, &probe, 1) && many.inside.select(&original) == owner.0
    });
    let (first, second) = (alike.next().expect("there is one"), alike.next().expect("there is another"));
    // Acknowledgements are asked for once in a millisecond.
    many.run(Duration::from_millis(10));
    let flow = many.begin(first);
    assert!(many.answer(&flow).is_some(), "only the backup needs it");
    many.lossy = std::vec![(owner.0, backup.0)];
    many.run(Duration::from_millis(10));
    let flow = many.begin(second);
    assert!(many.answer(&flow).is_none(), "the backup does not have it");
}

#[test]
fn a_take_over_is_ready_only_once_all_backups_have_their_shares() {
    let mut many = Many::start(Setup::new(4, 1));
    let readiness = |many: &Many| many.node(0).status(many.now).readiness;
    assert!(readiness(&many).is_ready(), "{:?}", readiness(&many));
    many.lossy = std::vec![(0, 2), (2, 0)];
    many.run(Duration::from_secs(2));
    let obstacles = readiness(&many).obstacles;
    assert!(
        obstacles.iter().any(|found| found.node == NodeId(2) && found.obstacle == Obstacle::ReplicationSilent),
        "though nodes 1 and 3 could take the addresses: {obstacles:?}"
    );
    // Where all peers have all connections, one that can take over is enough.
    let mut all = Many::start(Setup { count: None, ..Setup::new(4, 1) });
    all.lossy = std::vec![(0, 2), (2, 0)];
    all.run(Duration::from_secs(2));
    let obstacles = readiness(&all).obstacles;
    assert!(obstacles.iter().all(|found| found.node != NodeId(2)), "{obstacles:?}");
}

#[test]
fn what_cannot_be_had_with_backups_is_refused() {
    let now = flow::Instant::from_millis(1);
    let good = || config(0, Setup::new(4, 1));
    let refused = |config: NodeConfig| Node::new(config, now).err().expect("it is refused");
    assert!(Node::new(good(), now).is_ok());
    let is_it = |error: ConfigError| matches!(error, ConfigError::NotWithBackups(_));
    assert!(is_it(refused(NodeConfig { sharing: None, ..good() })));
    let mut silent = good();
    silent.peers[1].session = None;
    assert!(is_it(refused(silent)));
    let compact = Some(Compactly::of(Representation::FlowDigest));
    let compact = node_config(0, Options { compact, ..Options::default() }).compact;
    let compact = NodeConfig { compact, sharing: None, backups: good().backups, ..node_config(0, Options::default()) };
    assert!(is_it(refused(compact)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Up to `count` nodes fail at once, several times; packets come from either side first. Some connections have none, if the nodes
    /// return before others fail.
    #[test]
    fn no_connection_is_lost_while_no_more_nodes_fail_than_it_has_backups(
        seed: u64, nodes in 3..=5_u8, count in 1..=2_usize, is_translated: bool, is_learned: bool,
        failures in proptest::collection::vec((proptest::collection::vec(any::<prop::sample::Index>(), 1..=2), any::<u8>()), 1..=3),
    ) {
        // Hashed affinities are for connections that are not translated.
        let affinity = if is_learned || is_translated { Affinity::Learned } else { Affinity::Tuple };
        let (mut many, flows) = connected(Setup { seed, seed_of_nodes: seed, is_translated, affinity, ..Setup::new(nodes, count) }, 30);
        for (failed, chance) in failures {
            let failed: Vec<u8> = failed.iter().take(count).map(|index| index.index(nodes.into()) as u8).collect();
            for id in &failed {
                if many.living().count() > 1 && many.nodes[usize::from(*id)].is_some() {
                    many.kill(*id);
                }
            }
            many.run(Duration::from_millis(300));
            for (flow, nth) in flows.iter().zip(0_u8..) {
                if (nth ^ chance) % 3 > 0 || chance % 2 > 0 {
                    prop_assert!(many.exchange(flow, nth % 2 == 0), "{flow:?} goes on after {failed:?} failed");
                }
            }
            many.run(SETTLED);
            let live = many.living().count();
            for flow in &flows {
                let nodes_with = many.nodes_with(flow).len() as usize;
                prop_assert!(nodes_with >= live.min(count + 1), "{flow:?} is on {nodes_with} of {live} nodes");
                prop_assert_eq!(many.owners(flow).len(), 1, "{:?}", flow);
            }
            if chance % 2 == 0 {
                let dead: Vec<u8> = (0..nodes).filter(|id| many.nodes[usize::from(*id)].is_none()).collect();
                dead.into_iter().for_each(|id| many.restart(id));
                many.run_until_ready();
            }
        }
        for flow in &flows {
            prop_assert!(many.exchange(flow, true), "{flow:?} goes on");
        }
    }
}

#[test]
fn nodes_that_have_never_been_there_keep_the_others_from_nothing_and_are_sent_all_when_they_come() {
    let absent: NodeSet = [NodeId(3), NodeId(4)].into_iter().collect();
    let mut many = Many::start_without(Setup::new(5, 1), absent);
    let flows: Vec<Flow> = (0..CONNECTIONS).map(|nth| many.connect(10_000 + nth)).collect();
    many.run(SETTLED);
    for flow in &flows {
        let nodes = many.nodes_with(flow);
        assert!(nodes.len() == 2 && nodes.without(absent) == nodes, "{flow:?} is on {nodes:?}");
    }
    many.restart(3);
    many.run_until("node 3 to be up", |many| many.node(0).status(many.now).peers[2].could_take_over());
    many.run_until_ready();
    many.run(SETTLED);
    many.kill(0);
    for flow in &flows {
        assert!(many.exchange(flow, true), "{flow:?}");
    }
}
