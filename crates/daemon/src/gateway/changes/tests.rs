//! What a changed configuration changes at once, and what from the next start.

use super::*;

const BEFORE: &str = include_str!("../../../../../examples/active.toml");

/// What changes when the parts of the example are replaced.
fn changed(replacements: &[(&str, &str)]) -> Changes {
    let mut after = BEFORE.to_owned();
    for (part, by) in replacements {
        assert!(after.contains(part), "{part}");
        after = after.replacen(part, by, 1);
    }
    let parse = |text: &str| config::parse("mainstay.toml", text).expect("it is right").config;
    Changes::between(&parse(BEFORE), &parse(&after))
}

#[test]
fn nothing_changes_when_comments_do() {
    let nothing = Changes {
        applicable: Vec::new(),
        needs_restart: Vec::new(),
        reevaluation: Reevaluation::AsBefore,
        translates_otherwise: false,
    };
    assert_eq!(changed(&[("[node]", "# A comment.\n[node]")]), nothing);
}

#[test]
fn what_needs_a_restart_is_listed_and_the_rest_too() {
    let changes = changed(&[("nodes = 2", "nodes = 3"), ("1_000_000", "7"), ("priority = 200", "priority = 7")]);
    assert_eq!(changes.needs_restart, ["node.nodes: 2 before, 3 now", "limits.connections_max: 1000000 before, 7 now"]);
    assert_eq!(changes.applicable, ["node.priority: 200 before, 7 now"]);
}

#[test]
fn the_packet_from_which_on_connections_are_replicated_changes_at_once_unless_a_filter_has_entries() {
    let changes = changed(&[("[replication]\n", "[replication]\nstart = \"established\"\n")]);
    assert_eq!(changes.applicable, ["replication.start: \"handshake-reply\" before, \"established\" now"]);
    const COMPACT: &str = include_str!("../../../../../examples/compact.toml");
    let parse = |text: &str| config::parse("mainstay.toml", text).expect("it is right").config;
    let after = COMPACT.replace("[replication]\n", "[replication]\nstart = \"established\"\n");
    let changes = Changes::between(&parse(COMPACT), &parse(&after));
    assert_eq!(changes.needs_restart, ["replication.start: \"handshake-reply\" before, \"established\" now"]);
}

#[test]
fn a_groups_priority_changes_at_once_and_its_name_from_the_next_start() {
    const GROUPS: &str = include_str!("../../../../../examples/multi-primary-a.toml");
    let changed = |part: &str, by: &str| {
        assert!(GROUPS.contains(part), "{part}");
        let parse = |text: &str| config::parse("mainstay.toml", text).expect("it is right").config;
        Changes::between(&parse(GROUPS), &parse(&GROUPS.replace(part, by)))
    };
    assert_eq!(changed("priority = 200", "priority = 7").applicable, ["priority of group \"left\": 200 before, 7 now"]);
    assert_eq!(
        changed("\"right\"", "\"other\"").needs_restart,
        ["groups: [\"left\", \"right\"] before, [\"left\", \"other\"] now"]
    );
    let moved =
        changed("name = \"right\"\naddresses = [\"10.0.0.2/24\"", "name = \"right\"\naddresses = [\"10.0.0.3/24\"");
    assert_eq!(
        moved.applicable,
        ["port \"inside\": address: added 10.0.0.3/24 of group \"right\"; removed 10.0.0.2/24 of group \"right\""]
    );
}

#[test]
fn translations_do_not_change_under_the_entries_of_a_filter() {
    const COMPACT: &str = include_str!("../../../../../examples/compact.toml");
    let parse = |text: &str| config::parse("mainstay.toml", text).expect("it is right").config;
    let without_nat = |text: &str| {
        let (from, to) = (text.find("[nat]").expect("it translates"), text.find("[ftp]").expect("and helps FTP"));
        format!("{}{}", &text[..from], &text[to..]).replace("\"nat\", ", "")
    };
    let narrower = COMPACT.replace("source = [\"10.0.0.0/24\"]", "source = [\"10.0.0.0/25\"]");
    for (before, after, part) in [
        (COMPACT, narrower.as_str(), "nat.source: 1 rule before, 1 rule now"),
        (COMPACT, &without_nat(COMPACT), "chain: [\"firewall\", \"nat\", \"ftp\"] before, [\"firewall\", \"ftp\"] now"),
        (&without_nat(COMPACT), COMPACT, "chain: [\"firewall\", \"ftp\"] before"),
    ] {
        let changes = Changes::between(&parse(before), &parse(after));
        assert!(changes.needs_restart.join("\n").contains(part), "{changes:?}");
    }
    let precise = Changes::between(&parse(BEFORE), &parse(&without_nat(BEFORE)));
    assert_eq!(precise.needs_restart, [""; 0], "precise replication keeps translations");
}

#[test]
fn the_number_of_backups_and_the_nodes_of_the_edges_change_at_once_and_their_key_does_not() {
    const MANY: &str = include_str!("../../../../../examples/many-nodes.toml");
    let changed = |part: &str, by: &str| {
        assert!(MANY.contains(part), "{part}");
        let parse = |text: &str| config::parse("mainstay.toml", text).expect("it is right").config;
        Changes::between(&parse(MANY), &parse(&MANY.replace(part, by)))
    };
    let changes = changed("count = 1", "count = 2\nedge_nodes = [0, 1, 2]");
    assert_eq!(changes.needs_restart, [""; 0]);
    let applicable = [
        "replication.backups.count: \"1\" before, \"2\" now",
        "replication.backups.edge_nodes: \"0 1 2 3 \" before, \"0 1 2 \" now",
    ];
    assert_eq!(changes.applicable, applicable);
    let changes = changed("/etc/mainstay/edge.key", "/etc/mainstay/other.key");
    assert_eq!((changes.applicable.len(), changes.needs_restart.len()), (0, 1), "{changes:?}");
    let section = "[replication.backups]\ncount = 1\nedge_hash_key = \"/etc/mainstay/edge.key\"";
    let changes = changed(section, "");
    assert_eq!((changes.applicable.len(), changes.needs_restart.len()), (0, 7), "{changes:?}");
}

#[test]
fn segments_are_clamped_at_once_and_limits_from_the_next_start() {
    let changes = changed(&[
        ("interface = \"eth1\"", "interface = \"eth1\"\nmss_clamp = \"mtu\""),
        ("[limits]", "[limits]\nconnections_per_source_max = 9"),
    ]);
    assert_eq!(changes.applicable, ["mss_clamp of port \"outside\": None before, Some(Mtu) now"]);
    assert_eq!(changes.needs_restart, ["limits.connections_per_source_max: \"none\" before, \"9\" now"]);
}

#[test]
fn changed_rules_are_listed_by_their_names() {
    let rule = "[[firewall.rule]]\nname = \"new\"\nprotocol = \"udp\"\naction = \"drop\"\n\n";
    let first = BEFORE.find("[[firewall.rule]]").expect("there are rules");
    let changes = changed(&[(&BEFORE[first..first + 17], &format!("{rule}[[firewall.rule]]"))]);
    assert_eq!(changes.applicable, ["firewall rule: added new"]);
    assert_eq!(changes.reevaluation, Reevaluation::Keep, "unless it is configured");
    let changes = changed(&[(&BEFORE[first..first + 17], "[firewall]\non_reload = \"reevaluate\"\n[[firewall.rule]]")]);
    assert_eq!(changes.applicable, ["firewall.on_reload: Keep before, Reevaluate now"]);
    assert_eq!(changes.reevaluation, Reevaluation::Reevaluate, "they were let in by whatever rules there were");
}

#[test]
fn the_helper_and_its_expectations_change_without_a_restart() {
    let changes = changed(&[("ports = [21]", "ports = [2121]"), ("[node]", "[firewall]\nrelated = \"rules\"\n[node]")]);
    assert_eq!(changes.needs_restart, [""; 0]);
    let applicable = changes.applicable.join("\n");
    for part in ["firewall.related: Accept before, Rules now", "ftp.ports: [21] before, [2121] now"] {
        assert!(applicable.contains(part), "{applicable}");
    }
}

#[test]
fn long_lists_are_truncated() {
    let numbers = |count: u32| (0..count).collect::<Vec<_>>();
    let phrase = list_phrase("number", &numbers(0), &numbers(11), ToString::to_string);
    assert_eq!(phrase.as_deref(), Some("number: added 0, 1, 2, 3, 4, 5, 6, 7 and 3 more"));
    let reversed: Vec<_> = numbers(3).into_iter().rev().collect();
    let phrase = list_phrase("number", &numbers(3), &reversed, ToString::to_string);
    assert_eq!(phrase.as_deref(), Some("number: in another order"));
}
