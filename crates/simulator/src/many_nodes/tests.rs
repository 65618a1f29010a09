//! Clusters of many nodes lose no connection that has backups, and pull few.

use super::*;

const SMALL: ManyNodesConfig = ManyNodesConfig {
    nodes: 12,
    failures: 2,
    backups: 2,
    connections: 3000,
    distribution: DistributionKind::Edge,
    failure_probability: 0.01,
    loss_per_mille: 10,
    seed: 1,
};

fn played(config: &ManyNodesConfig) -> ManyNodesReport {
    run_many_nodes(config, &mut || Duration::ZERO).expect("in range")
}

#[test]
fn behind_edges_no_connection_breaks_and_none_is_pulled_after_failures() {
    for seed in 1..6 {
        let report = played(&ManyNodesConfig { seed, ..SMALL });
        assert_eq!((report.broken, report.phases[0].pulled), (0, 0), "{report:?}");
        assert!(report.phases.iter().all(|phase| phase.moved > 0), "{report:?}");
        assert_eq!((report.churn.min_churn, report.churn.perfect), (0.0, 0.0));
        assert!(report.churn.random > 0.6, "{report:?}");
        assert_eq!(report.replicas.min_churn, 2.0);
        assert!(report.phases[1].pulled > 0, "a node that returns is empty");
    }
}

#[test]
fn behind_a_switch_min_churn_pulls_far_fewer_than_random_with_as_many_replicas() {
    let report = played(&ManyNodesConfig { distribution: DistributionKind::Switch, ..SMALL });
    assert_eq!(report.broken, 0, "{report:?}");
    assert_eq!(report.churn.perfect, 0.0);
    assert!(report.churn.min_churn < report.churn.random / 2.0, "{report:?}");
    assert!((report.pulls_share - report.churn.min_churn).abs() < 0.02, "what is pulled is what has no replica");
    assert!(report.replicas.perfect > report.replicas.min_churn, "{report:?}");
}

#[test]
fn with_a_replica_for_each_landing_a_switch_is_placed_perfectly() {
    // One landing after one failure, two after two: three in all.
    let switch = ManyNodesConfig { distribution: DistributionKind::Switch, ..SMALL };
    let report = played(&ManyNodesConfig { backups: 3, ..switch });
    assert_eq!((report.broken, report.churn.min_churn, report.phases[0].pulled), (0, 0.0, 0), "{report:?}");
}

#[test]
fn more_failures_than_backups_break_only_connections_whose_nodes_have_all_failed() {
    let report = played(&ManyNodesConfig { backups: 1, failures: 6, ..SMALL });
    // Six of eleven nodes: both nodes of a connection are among them with 3/11.
    let share = report.phases[0].broken as f64 / 3000.0;
    assert!((0.22..0.33).contains(&share), "{report:?}");
}

#[test]
fn a_flood_costs_no_more_queries_than_the_rate_permits() {
    let report = played(&SMALL);
    assert_eq!(report.flood.dropped, report.flood.packets, "{report:?}");
    // 200 a second and a burst of 20. What waits when the flood ends takes more, and a lost answer 20 ms.
    assert!(report.flood.queries <= 20 + 200 * report.flood.millis / 1000 + 1, "{report:?}");
    assert!(report.flood.pulls < report.flood.packets / 50, "{report:?}");
}

#[test]
fn equal_seeds_give_equal_reports_and_other_seeds_others() {
    assert_eq!(played(&SMALL), played(&SMALL));
    assert_ne!(played(&SMALL), played(&ManyNodesConfig { seed: 2, ..SMALL }));
}

#[test]
fn without_loss_nothing_but_moved_connections_causes_pulls() {
    let report = played(&ManyNodesConfig { loss_per_mille: 0, ..SMALL });
    assert_eq!(report.messages_lost, 0);
    assert!(report.phases.iter().all(|phase| phase.pulled <= phase.moved), "{report:?}");
}

#[test]
fn numbers_out_of_range_are_refused_with_a_remedy() {
    let refused = [
        (ManyNodesConfig { nodes: 2, ..SMALL }, "choose 3 to 64"),
        (ManyNodesConfig { nodes: 65, ..SMALL }, "choose 3 to 64"),
        (ManyNodesConfig { failures: 11, ..SMALL }, "choose 1 to 10"),
        (ManyNodesConfig { backups: 9, ..SMALL }, "choose 1 to 8"),
        (ManyNodesConfig { connections: 0, ..SMALL }, "choose 1 to 1048576"),
        (ManyNodesConfig { failure_probability: 1.0, ..SMALL }, "above 0 and below 1"),
    ];
    for (config, remedy) in refused {
        let error = run_many_nodes(&config, &mut || Duration::ZERO).expect_err(remedy).to_string();
        assert!(error.contains(remedy), "{error}");
    }
}
