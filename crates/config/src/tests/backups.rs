//! `[replication.backups]`.

use std::path::Path;

use flow::{AddressOf, Affinity, NodeId};

use super::super::backups::entries;
use super::super::validated::{BackupLookup, Backups};
use super::{GOOD, check, example, said};

const LEAST: &str = "edge_hash_key = \"/etc/mainstay/edge.key\"";

/// The small configuration with three nodes behind edges, a group each, and this section.
fn with(section: &str) -> String {
    let groups = "[[group]]\nname = \"a\"\n[[group]]\nname = \"b\"\n[[group]]\nname = \"c\"\n[[port]]";
    let of = |group: &str, address: &str| format!("[[port.group]]\nname = \"{group}\"\naddresses = [\"{address}\"]\n");
    let inside: String = ["a", "b", "c"].iter().zip(1..).map(|(name, n)| of(name, &format!("10.0.0.{n}/24"))).collect();
    let peers = "address = \"10.99.0.2:3781\"\n[[replication.peer]]\nid = 2\naddress = \"10.99.0.3:3781\"\n";
    GOOD.replacen("[[port]]", groups, 1)
        .replace("nodes = 2", "nodes = 3")
        .replace("addresses = [\"10.0.0.1/24\", \"fd00::1/64\"]\n", &inside)
        .replace("addresses = [\"192.0.2.10/24\"]\n", &of("a", "192.0.2.10/24"))
        .replace("address = \"10.99.0.2:3781\"\n", &format!("{peers}[replication.backups]\n{section}\n"))
        .replace("interval = \"10ms\"", "edges_max = 4")
}

fn backups(section: &str) -> Backups {
    let checked = check(&with(section)).unwrap_or_else(|error| panic!("{error}"));
    checked.config.cluster.expect("it has peers").replication.backups.expect("it is configured")
}

#[test]
fn every_peer_has_every_connection_unless_configured() {
    let good = check(GOOD).expect("it is right").config;
    assert_eq!(good.cluster.expect("it has a peer").replication.backups, None);
    let least = backups(LEAST);
    assert_eq!((least.count, least.edge_affinity), (1, Affinity::Learned));
    assert!(least.edge_nodes.iter().eq([0, 1, 2].map(NodeId)), "all nodes of the file");
    assert_eq!(least.lookup, BackupLookup { broadcast: true, queries_per_s: 200, pulls_per_s: 100_000 });
    assert_eq!(least.edge_hash_key, Path::new("/etc/mainstay/edge.key"));
}

#[test]
fn the_example_has_four_nodes() {
    let config = example("many-nodes.toml");
    let backups = config.cluster.expect("it has peers").replication.backups.expect("it is configured");
    assert_eq!((config.node.nodes, config.groups.len(), backups.count, backups.edge_nodes.len()), (4, 4, 1, 4));
}

#[test]
fn nodes_and_affinity_of_the_edges_can_be_chosen() {
    let written = backups(&format!("{LEAST}\ncount = 1\nedge_nodes = [2, 0]\nedge_affinity = \"far-host\""));
    assert!(written.edge_nodes.iter().eq([0, 2].map(NodeId)));
    assert_eq!(written.edge_affinity, Affinity::Address(AddressOf::FarHost));
    let changed: Vec<_> =
        entries(Some(&written)).into_iter().zip(entries(Some(&backups(LEAST)))).filter(|(a, b)| a != b).collect();
    assert!(changed.iter().map(|((key, _), _)| *key).eq(["edge_nodes", "edge_affinity"]), "{changed:?}");
}

#[test]
fn the_edges_may_have_a_node_that_is_no_peer_at_present() {
    let removed = |section: &str| {
        let text = with(section).replace("nodes = 3", "nodes = 4");
        let checked = check(&text).unwrap_or_else(|error| panic!("{error}"));
        checked.config.cluster.expect("there is one").replication.backups.expect("it is configured")
    };
    assert!(removed(LEAST).edge_nodes.iter().eq([0, 1, 2].map(NodeId)));
    assert!(removed(&format!("{LEAST}\nedge_nodes = [0, 1, 2, 3]")).edge_nodes.iter().eq((0..4).map(NodeId)));
}

#[test]
fn where_members_come_from_elsewhere_the_edges_have_all_nodes_that_may_come() {
    let without_peers = |section: &str| {
        let text = with(section);
        let (before, after) = text.split_once("[[replication.peer]]").expect("it has peers");
        let (_, after) = after.split_once("[replication.backups]").expect("and backups");
        let source = "[membership]\nsource = \"etcd\"\nendpoints = [\"http://127.0.0.1:2379\"]\n";
        let nodes = before.replace("nodes = 3", "nodes = 5");
        format!("{nodes}[replication.backups]{after}\n{source}")
    };
    let backups = |section: &str| {
        let checked = check(&without_peers(section)).unwrap_or_else(|error| panic!("{error}"));
        checked.config.cluster.expect("there is one").replication.backups.expect("it is configured")
    };
    assert!(backups(LEAST).edge_nodes.iter().eq((0..5).map(NodeId)), "below node.nodes");
    assert_eq!(backups(&format!("{LEAST}\ncount = 4")).count, 4);
    assert!(backups(&format!("{LEAST}\nedge_nodes = [0, 4]")).edge_nodes.iter().eq([0, 4].map(NodeId)));
    let found = said(&without_peers(&format!("{LEAST}\nedge_nodes = [0, 5]")));
    assert!(found.contains("raise node.nodes"), "{found}");
}

#[test]
fn the_lookup_of_connections_can_be_limited() {
    let written = backups(&format!("{LEAST}\nbroadcast = false\nqueries_per_s = 50\npulls_per_s = 2000"));
    assert_eq!(written.lookup, BackupLookup { broadcast: false, queries_per_s: 50, pulls_per_s: 2000 });
    let found = said(&with(&format!("{LEAST}\nqueries_per_s = 0")));
    assert!(found.contains("replication.backups.queries_per_s") && found.contains("1 to 100000"), "{found}");
}

#[test]
fn connections_that_peers_could_not_find_are_refused() {
    let many = with(LEAST).replace("[node]", "[limits]\nconnections_max = 9000000\n[node]");
    let found = said(&many);
    assert!(found.contains("a worker advertises at most") && found.contains("raise workers.count"), "{found}");
    let workers = with(LEAST).replace("[node]", "[workers]\ncount = 2\n[node]");
    let (before, after) = workers.split_once("[[nat.destination]]").expect("it translates destinations");
    let (_, after) = after.split_once("[replication]").expect("replication is next");
    assert_eq!(said(&format!("{before}[replication]{after}")), "");
    let found = said(&workers);
    assert!(found.contains("[replication.backups]") && found.contains("set workers.count to 1"), "{found}");
}

#[test]
fn each_mistake_is_named_with_its_remedy() {
    for (section, expected) in [
        ("count = 1".to_owned(), "edge_hash_key"),
        (format!("{LEAST}\ncount = 9"), "choose a number from 1 to 8"),
        (format!("{LEAST}\ncount = 3"), "choose a number below 3"),
        (format!("{LEAST}\nedge_nodes = [0, 3]"), "node 3 is neither this node nor a peer"),
        (format!("{LEAST}\nedge_nodes = [0, 1, 1]"), "name each node once"),
        (format!("{LEAST}\nedge_nodes = [0]"), "the edges distribute to less than two nodes"),
        (format!("{LEAST}\nedge_affinity = \"random\""), "write \"learned\""),
        ("edge_hash_key = \"edge.key\"".to_owned(), "begin it with /"),
    ] {
        let found = said(&with(&section));
        assert!(found.contains(expected), "{section}: {found}");
    }
}

#[test]
fn what_contradicts_it_is_refused_with_what_to_do_instead() {
    let good = with(LEAST);
    let peer = "[[replication.peer]]\nid = 2\naddress = \"10.99.0.3:3781\"\n";
    let local = "local = \"10.99.0.1:3781\"";
    let cases = [
        (peer, "", "the only peer has every connection anyway: remove it"),
        ("edges_max = 4", "edges_max = 0", "set failure_detection.edges_max"),
        (local, "local = \"10.99.0.1:3781\"\nrepresentation = \"none\"", "choose another replication.representation"),
        (
            local,
            "local = \"10.99.0.1:3781\"\nrepresentation = \"multi-level\"",
            "choose a precise replication.representation",
        ),
        (
            "chain = [\"firewall\", \"nat\"]",
            "chain = [\"firewall\", \"nat\", \"ftp\"]\n[ftp]",
            "leave \"ftp\" out of the chain",
        ),
    ];
    assert_eq!(said(&good), "");
    for (from, to, expected) in cases {
        assert!(good.contains(from), "{from:?}");
        let found = said(&good.replace(from, to));
        assert!(found.contains("[replication.backups]") && found.contains(expected), "{to}: {found}");
    }
    let one_group = GOOD
        .replace("nodes = 2", "nodes = 3")
        .replace("[failure_detection]", &format!("{peer}[replication.backups]\n{LEAST}\n[failure_detection]"));
    assert!(said(&one_group).contains("add a [[group]] for each node"), "{}", said(&one_group));
}
