//! The configurations that the nodes are given.

use std::path::Path;

use super::configuration::security_configuration;
use super::*;
use config::validated::Backend;
use config::validated::Representation;

fn checked(number: usize, plan: ClusterPlan) -> config::validated::Config {
    checked_as(Shape::default(), number, plan)
}

fn checked_as(shape: Shape, number: usize, plan: ClusterPlan) -> config::validated::Config {
    let directory = Directory::create().unwrap();
    let path = directory.path.join("node.toml");
    let text = configuration(number, (plan, shape), Path::new("/tmp/node.sock"));
    fs::write(&path, text + &security_configuration(plan, Path::new("/tmp/node.key"))).unwrap();
    let checked = config::load(&path).unwrap_or_else(|error| panic!("{error}"));
    checked.config
}

#[test]
fn both_nodes_are_given_right_configurations() {
    for is_replicated in [true, false] {
        let plan = ClusterPlan {
            nodes: 2,
            is_replicated,
            connections_max: 5000,
            workers: 1,
            backend: Backend::default(),
            tuning: Tuning::default(),
        };
        for number in [0, 1] {
            let config = checked(number, plan);
            let replication = config.cluster.unwrap().replication;
            assert_eq!(replication.representation == Representation::None, !is_replicated);
            assert_eq!(replication.hold_first_reply, Duration::from_millis(250));
            assert_eq!(config.source_nat.len(), 2);
        }
    }
}

#[test]
fn where_both_are_active_each_prefers_its_own_group() {
    let plan = ClusterPlan {
        nodes: 2,
        is_replicated: true,
        connections_max: 5000,
        workers: 1,
        backend: Backend::default(),
        tuning: Tuning::default(),
    };
    for number in [0, 1] {
        let config = checked_as(Shape::AllActive, number, plan);
        let priorities: Vec<u8> = config.groups.iter().map(|group| group.priority).collect();
        assert_eq!(priorities, if number == 0 { [200, 100] } else { [100, 200] });
        assert!(config.groups.iter().all(|group| group.preempt));
        let of_group = |index| config.ports[1].addresses.iter().filter(move |own| own.group.index() == index).count();
        assert_eq!((of_group(0), of_group(1)), (2, 2));
    }
}

#[test]
fn each_of_many_nodes_prefers_a_group_and_knows_all_others() {
    let plan = ClusterPlan {
        nodes: 5,
        is_replicated: true,
        connections_max: 5000,
        workers: 1,
        backend: Backend::default(),
        tuning: Tuning {
            has_edges: true,
            backups: Some(BackupsPlan { count: 2, broadcast: true }),
            fast_path_connections_max: 0,
            ..Tuning::default()
        },
    };
    for number in 0..5 {
        let config = checked_as(Shape::AllActive, number, plan);
        let replication = config.cluster.unwrap().replication;
        let backups = replication.backups.expect("it is configured");
        assert_eq!((replication.peers.len(), backups.count, backups.edge_nodes.len()), (4, 2, 5));
        let preferred: Vec<usize> = (0..5).filter(|group| config.groups[*group].priority == 200).collect();
        assert_eq!(preferred, [number]);
    }
}

#[test]
fn a_node_alone_has_no_cluster() {
    let plan = ClusterPlan {
        nodes: 1,
        is_replicated: false,
        connections_max: 5000,
        workers: 1,
        backend: Backend::default(),
        tuning: Tuning::default(),
    };
    let config = checked(0, plan);
    assert!(config.cluster.is_none());
    assert_eq!(config.node.nodes, 1);
}

#[test]
fn files_are_removed_unless_they_are_to_be_kept() {
    let mut directory = Directory::create().unwrap();
    let path = directory.path.clone();
    fs::write(path.join("file"), "").unwrap();
    directory.is_kept = true;
    drop(directory);
    assert!(path.join("file").exists());
    drop(Directory { path: path.clone(), is_kept: false });
    assert!(!path.exists());
}
