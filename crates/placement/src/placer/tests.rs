//! Placements have the right number of replicas, little churn, and balance it.

use super::*;
use crate::ExpectedChurn;
use flow::Ecmp;
use proptest::prelude::*;
use state_service::prediction::{FailureModel, Landings, Prediction, Sampled, Stages};

fn nodes(count: u8) -> NodeSet {
    (0..count).map(NodeId).collect()
}

/// Connections of a switch that selects by the hash's remainder, in two stages.
fn items(count: u8, failures: usize, hashes: impl Iterator<Item = u64>) -> Vec<Item> {
    let model = FailureModel::uniform(0.01, failures).expect("in range");
    let mut sampled = Sampled::new(nodes(count), Stages::Two, 1);
    let mut item = |hash: u64| {
        for group in 0..=failures as u8 {
            let rank = mix(hash ^ u64::from(group > 0)) % u64::from(count - group);
            sampled.handle_answer(hash, group, rank as u8).expect("a rank of the group");
        }
        let owner = sampled.node(hash, NodeSet::EMPTY).expect("it was asked");
        Item { hash, owner, size_bytes: 200 + (hash % 100) as u32, landings: sampled.landings(hash, &model) }
    };
    hashes.map(|hash| item(mix(hash))).collect()
}

fn random(item: &Item, count: u8, backups: usize) -> Backups {
    let mut chosen = Backups::new();
    let unpredicted = Item { landings: Landings::new(), ..item.clone() };
    fill(&unpredicted, nodes(count), backups, &mut chosen);
    chosen
}

#[test]
fn the_edges_ecmp_is_placed_without_churn() {
    let ecmp = Ecmp::new(nodes(64));
    let model = FailureModel::uniform(0.01, 3).expect("in range");
    let items: Vec<Item> = (0..500)
        .map(|number| {
            let hash = mix(number);
            let owner = ecmp.select(hash).expect("all are alive");
            Item { hash, owner, size_bytes: 256, landings: ecmp.landings(hash, &model) }
        })
        .collect();
    let placed = Placer::new(NodeId(0), 3).place(&items, nodes(64));
    assert_eq!(ExpectedChurn::of(&items, &placed), ExpectedChurn::default());
    assert!(items.iter().zip(&placed).all(|(item, backups)| *backups == ecmp.backups(item.hash, 3)));
}

#[test]
fn a_switch_is_placed_with_less_churn_than_at_random() {
    let items = items(16, 3, 0..640);
    let mut placer = Placer::new(NodeId(0), 3);
    let placed = placer.place(&items, nodes(16));
    let churn = ExpectedChurn::of(&items, &placed);
    let at_random: Vec<Backups> = items.iter().map(|item| random(item, 16, 3)).collect();
    let at_random = ExpectedChurn::of(&items, &at_random);
    assert!(churn.total_bytes < at_random.total_bytes / 10.0, "{churn:?} {at_random:?}");
    assert!(churn.max_bytes < at_random.max_bytes / 5.0, "{churn:?} {at_random:?}");
    assert_eq!(placer.unsolved(), 0);
}

/// Four connections with three landings each and one backup: the program covers the greatest, and levels what is left.
#[test]
fn the_greatest_load_is_minimised() {
    let landing = |nodes: [(u8, f64); 3]| nodes.into_iter().map(|(node, b)| (NodeId(node), b)).collect::<Landings>();
    let item = |landings| Item { hash: 1, owner: NodeId(0), size_bytes: 100, landings };
    let items = vec![
        item(landing([(1, 0.3), (2, 0.1), (3, 0.1)])),
        item(landing([(1, 0.3), (2, 0.1), (3, 0.1)])),
        item(landing([(1, 0.2), (2, 0.3), (3, 0.1)])),
        item(landing([(1, 0.2), (2, 0.1), (3, 0.3)])),
    ];
    let placed = Placer::new(NodeId(0), 1).place(&items, nodes(4));
    let greatest = ExpectedChurn::of(&items, &placed).max_bytes;
    // All 81 placements.
    let best = (0..81)
        .map(|number: usize| {
            let choice = |index: usize| number / 3_usize.pow(index as u32) % 3;
            let placed: Vec<Backups> =
                (0..4).map(|index| [items[index].landings[choice(index)].0].into_iter().collect()).collect();
            ExpectedChurn::of(&items, &placed).max_bytes
        })
        .fold(f64::INFINITY, f64::min);
    assert!(greatest <= best + 10.0 + 1e-9, "{greatest} instead of {best}");
}

#[test]
fn loads_of_peers_steer_the_placement() {
    let landings: Landings = [(NodeId(1), 0.1), (NodeId(2), 0.1)].into_iter().collect();
    let item = Item { hash: 1, owner: NodeId(0), size_bytes: 100, landings };
    for (loaded, other) in [(1, 2), (2, 1)] {
        let mut peer = Placer::new(NodeId(3), 1);
        peer.own.add(NodeId(loaded), 1000.0);
        let mut placer = Placer::new(NodeId(0), 1);
        placer.handle_loads(NodeId(3), &peer.loads());
        assert_eq!(placer.place(std::slice::from_ref(&item), nodes(4))[0][..], [NodeId(loaded)]);
        placer.remove_peer(NodeId(3));
        placer.handle_loads(NodeId(0), &peer.loads());
        // The first one has left its churn on one of both nodes, so the second covers this node.
        let second = placer.place(std::slice::from_ref(&item), nodes(4));
        assert_eq!(second[0][..], [NodeId(other)], "its own load is on {other}");
    }
}

#[test]
fn released_connections_leave_no_load() {
    let items = items(9, 2, 0..100);
    let mut placer = Placer::new(NodeId(0), 2);
    let placed = placer.place(&items, nodes(9));
    assert!(!placer.loads().is_empty());
    items.iter().zip(&placed).for_each(|(item, backups)| placer.release(item, backups));
    assert!(placer.own.total() < 1e-9, "{}", placer.own.total());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_connection_has_its_backups_on_live_nodes_and_never_on_its_owner(
        count in 4_u8..20, failures in 1_usize..=3, backups in 1_usize..=4, dead in 0_u8..4, first: u64,
    ) {
        let items = items(count, failures, (0..80).map(|number| first.wrapping_add(number)));
        let alive = nodes(count).without([NodeId(dead)].into_iter().collect());
        let placed = Placer::new(NodeId(0), backups).place(&items, alive);
        for (item, placed) in items.iter().zip(&placed) {
            let others = alive.iter().filter(|node| *node != item.owner).count();
            prop_assert_eq!(placed.len(), backups.min(others));
            let distinct: NodeSet = placed.iter().copied().collect();
            prop_assert!(distinct.len() as usize == placed.len() && distinct.without(alive).is_empty());
            prop_assert!(!placed.contains(&item.owner));
        }
    }
}
