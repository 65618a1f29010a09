//! Another number of backups, and nodes that come and go, while connections pass.

use std::time::Duration;
use std::vec::Vec;

use flow::{NodeId, NodeSet};
use proptest::prelude::*;

use super::many::{Flow, Many, Setup, reconfiguration};
use super::{CONNECTIONS, SETTLED, chain, connected};
use crate::node::{BackupsShape, Reconfiguration, ReloadError};

fn nodes(numbers: &[u8]) -> NodeSet {
    numbers.iter().copied().map(NodeId).collect()
}

/// Each connection is on its owner and where its packets would land after failures, and on no other node.
fn assert_placed(many: &Many, flows: &[Flow], count: usize) {
    for flow in flows {
        assert_eq!(many.nodes_with(flow), chain(many, flow, count), "{flow:?}");
        assert_eq!(many.owners(flow).len(), 1, "{flow:?}");
    }
}

fn exchange_all(many: &mut Many, flows: &[Flow]) {
    flows.iter().for_each(|flow| assert!(many.exchange(flow, true), "{flow:?} goes on"));
}

#[test]
fn the_number_of_backups_rises_and_falls_and_every_connection_has_as_many_replicas() {
    let (mut many, flows) = connected(Setup::new(5, 1), CONNECTIONS);
    assert_placed(&many, &flows, 1);
    for count in [2, 3, 1] {
        many.change(Setup { count: Some(count), ..many.setup });
        many.run(SETTLED);
        assert_placed(&many, &flows, count);
        exchange_all(&mut many, &flows);
    }
    // Those that were added are as good as others.
    many.change(Setup { count: Some(2), ..many.setup });
    many.run(SETTLED);
    many.kill(0);
    many.kill(3);
    many.run(Duration::from_millis(300));
    exchange_all(&mut many, &flows);
}

#[test]
fn while_the_number_falls_no_connection_has_fewer_replicas_than_it_shall_have() {
    let (mut many, flows) = connected(Setup::new(5, 3), CONNECTIONS);
    many.change(Setup { count: Some(1), ..many.setup });
    for _ in 0..40 {
        many.run(SETTLED / 40);
        for flow in &flows {
            let landings = chain(&many, flow, 1);
            assert!(landings.without(many.nodes_with(flow)).is_empty(), "{flow:?} is to be on {landings:?}");
        }
    }
    assert_placed(&many, &flows, 1);
}

#[test]
fn a_node_that_leaves_is_replaced_and_one_that_joins_receives_its_share_and_no_more() {
    let (mut many, flows) = connected(Setup::new(5, 2), CONNECTIONS);
    // The node is dead, its packets land elsewhere, and then it is no member any more, and no node of the edges.
    many.kill(4);
    many.run(Duration::from_millis(300));
    exchange_all(&mut many, &flows);
    let stay = nodes(&[0, 1, 2, 3]);
    many.change(Setup { members: stay, edge_nodes: stay, ..many.setup });
    many.run(SETTLED);
    assert_placed(&many, &flows, 2);

    let all = nodes(&[0, 1, 2, 3, 4]);
    many.change(Setup { members: all, edge_nodes: all, ..many.setup });
    many.run(SETTLED);
    let before = many.messages_sent(Some(4));
    assert_eq!(before, 0, "the sessions with it are new");
    many.restart(4);
    many.run_until("node 4 to hold its group", |many| many.holds_own(4) && many.node(4).status(many.now).synchronised);
    let (fill, messages) = (many.fill(4), many.messages_sent(Some(4)));
    assert!((1..u32::from(CONNECTIONS) * 3 / 4).contains(&fill), "node 4 has {fill}");
    // The end of a synchronisation is a message to itself.
    assert!(messages <= u64::from(fill) + 2 * 4, "{messages} messages for {fill} connections");
    many.run_until_ready();
    assert_placed(&many, &flows, 2);
    exchange_all(&mut many, &flows);
    many.kill(1);
    many.kill(2);
    many.run(Duration::from_millis(300));
    exchange_all(&mut many, &flows);
}

#[test]
fn a_drained_node_is_replaced_as_a_backup_before_it_leaves() {
    let (mut many, flows) = connected(Setup::new(4, 1), CONNECTIONS);
    let now = many.now;
    many.nodes[3].as_mut().expect("it lives").drain(now, false).expect("the others can take its group");
    many.run_until("node 3 to have left", |many| !many.holds_own(3));
    for side in [&mut many.inside, &mut many.outside] {
        side.ecmp.set_alive(NodeId(3), false);
    }
    exchange_all(&mut many, &flows);
    many.run(SETTLED);
    for flow in &flows {
        let landings = chain(&many, flow, 1);
        assert!(landings.without(many.nodes_with(flow)).is_empty(), "{flow:?} is to be on {landings:?}");
    }
    // It ends, and another node with it.
    many.kill(3);
    many.change(Setup { members: nodes(&[0, 1, 2]), ..many.setup });
    many.kill(0);
    many.run(Duration::from_millis(300));
    exchange_all(&mut many, &flows);
}

#[test]
fn backups_do_not_begin_or_cease_while_a_node_works() {
    let mut with = Many::start(Setup::new(3, 1));
    let mut without = Many::start(Setup { count: None, ..Setup::new(3, 1) });
    let shape = BackupsShape { count: 1, edge_nodes: nodes(&[0, 1, 2]) };
    for (many, backups) in [(&mut with, None), (&mut without, Some(shape))] {
        let (now, setup) = (many.now, many.setup);
        let node = many.nodes[0].as_mut().expect("it lives");
        let new = Reconfiguration { backups, ..reconfiguration(0, setup, node, now) };
        let refused = node.reload(now, new);
        assert_eq!(refused, Err(ReloadError::BackupsDiffer));
    }
}

/// What happens to the cluster.
#[derive(Clone, Debug)]
enum Step {
    Count(usize),
    /// The node dies, and is no member from then on.
    Leave(prop::sample::Index),
    /// A node that is no member becomes one.
    Join,
    /// A node dies, and returns later.
    Fail(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..=2_usize).prop_map(Step::Count),
        any::<prop::sample::Index>().prop_map(Step::Leave),
        Just(Step::Join),
        any::<prop::sample::Index>().prop_map(Step::Fail),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    /// Whether the edges' list follows the members, or has every node that may ever come.
    #[test]
    fn however_the_cluster_changes_each_connection_is_where_its_packets_would_land(
        seed: u64, is_translated: bool, edges_follow: bool, steps in proptest::collection::vec((step(), any::<bool>()), 1..=4),
    ) {
        let setup = Setup { seed, seed_of_nodes: seed, is_translated, ..Setup::new(5, 1) };
        let (mut many, flows) = connected(setup, 30);
        for (step, has_packets) in steps {
            let members: Vec<NodeId> = many.setup.members.iter().collect();
            match step {
                Step::Count(count) => many.change(Setup { count: Some(count), ..many.setup }),
                Step::Leave(index) if members.len() > 3 => {
                    let id = *index.get(&members);
                    many.kill(id.0);
                    many.run(Duration::from_millis(300));
                    let stay = many.setup.members.without([id].into_iter().collect());
                    let edge_nodes = if edges_follow { stay } else { many.setup.edge_nodes };
                    // Until another table is in force, packets find their connections by the one before.
                    flows.iter().for_each(|flow| assert!(many.exchange(flow, has_packets), "{flow:?} goes on"));
                    many.change(Setup { members: stay, edge_nodes, ..many.setup });
                }
                Step::Join => {
                    let all = nodes(&[0, 1, 2, 3, 4]);
                    let Some(id) = all.without(many.setup.members).iter().next() else { continue };
                    let joined = many.setup.members.union([id].into_iter().collect());
                    let edge_nodes = if edges_follow { joined } else { many.setup.edge_nodes };
                    many.change(Setup { members: joined, edge_nodes, ..many.setup });
                    many.restart(id.0);
                    many.run_until_ready();
                }
                Step::Fail(index) => {
                    let id = *index.get(&members);
                    many.kill(id.0);
                    many.run(Duration::from_millis(300));
                    if has_packets {
                        flows.iter().for_each(|flow| assert!(many.exchange(flow, true), "{flow:?} goes on"));
                    }
                    many.run(SETTLED);
                    many.restart(id.0);
                    many.run_until_ready();
                }
                Step::Leave(_) => {}
            }
            many.run(SETTLED);
            let count = many.setup.count.expect("it is set");
            for flow in &flows {
                prop_assert!(many.exchange(flow, has_packets), "{flow:?} goes on");
            }
            many.run(SETTLED);
            for flow in &flows {
                let landings = chain(&many, flow, count);
                let missing = landings.without(many.nodes_with(flow));
                prop_assert!(missing.is_empty(), "{flow:?} is not on {missing:?} of {landings:?}");
                prop_assert_eq!(many.owners(flow).len(), 1, "{:?}", flow);
            }
        }
    }
}
