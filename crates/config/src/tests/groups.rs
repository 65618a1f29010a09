//! `[[group]]` and `[[port.group]]`.

use std::path::Path;

use cluster::GroupId;

use super::super::load;
use super::super::validated::{Config, Group};
use super::{GOOD, check, said};

/// The small configuration with two groups; their sections hold these further keys.
fn with_groups(first: &str, second: &str) -> String {
    let groups = format!("[[group]]\nname = \"left\"\n{first}\n[[group]]\nname = \"right\"\n{second}\n[[port]]");
    let of = |group: &str, address: &str| format!("[[port.group]]\nname = \"{group}\"\naddresses = [\"{address}\"]\n");
    GOOD.replacen("[[port]]", &groups, 1)
        .replace(
            "addresses = [\"10.0.0.1/24\", \"fd00::1/64\"]\n",
            &(of("left", "10.0.0.1/24") + &of("right", "10.0.0.2/24")),
        )
        .replace("addresses = [\"192.0.2.10/24\"]\n", &(of("right", "192.0.2.11/24") + &of("left", "192.0.2.10/24")))
}

fn right(text: &str) -> Config {
    let checked = check(text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(checked.warnings, []);
    checked.config
}

#[test]
fn a_file_without_groups_has_one_that_needs_no_name() {
    let config = right(GOOD);
    assert_eq!(config.groups, []);
    assert!(config.ports.iter().flat_map(|port| &port.addresses).all(|address| address.group == GroupId::FIRST));
}

#[test]
fn addresses_are_of_the_group_that_they_are_listed_under() {
    let config = right(&with_groups("priority = 200", "preempt = false"));
    let group = |name: &str, priority, preempt| Group { name: name.to_owned(), priority, preempt };
    assert_eq!(config.groups, [group("left", 200, true), group("right", 100, false)]);
    let of_outside: Vec<_> =
        config.ports[1].addresses.iter().map(|address| (address.prefix.to_string(), address.group.0)).collect();
    assert_eq!(of_outside, [("192.0.2.11/24".to_owned(), 1), ("192.0.2.10/24".to_owned(), 0)]);
}

#[test]
fn several_groups_preempt_by_default_and_one_does_not() {
    let preempts = |text: &str| right(text).groups.iter().map(|group| group.preempt).collect::<Vec<_>>();
    assert_eq!(preempts(&with_groups("", "")), [true, true]);
    let without = with_groups("", "preempt = true").replace("interval = \"10ms\"", "preempt = false");
    assert_eq!(preempts(&without), [false, true]);
    let one = GOOD.replacen("[[port]]", "[[group]]\nname = \"only\"\n[[port]]", 1);
    assert_eq!(preempts(&one), [false]);
    let priority = one.replace("nodes = 2", "nodes = 2\npriority = 7");
    assert_eq!(right(&priority).groups[0].priority, 7, "the node's, where the group has none");
}

#[test]
fn each_mistake_is_reported_with_its_remedy() {
    let good = with_groups("", "");
    let cases = [
        (
            "name = \"right\"\n\n",
            "name = \"left\"\n\n",
            "group \"left\": another group has this name: give each group its own name",
        ),
        (
            "[[port.group]]\nname = \"left\"\naddresses = [\"10.0.0.1/24\"]",
            "addresses = [\"10.0.0.1/24\"]",
            "port \"inside\": there are several groups, and these addresses are of none: list each under a [[port.group]]",
        ),
        (
            "[[port.group]]\nname = \"left\"",
            "[[port.group]]\nname = \"middle\"",
            "port \"inside\": there is no group \"middle\": add a [[group]] with that name",
        ),
        (
            "[[port.group]]\nname = \"left\"",
            "[[port.group]]\nname = \"right\"",
            "port \"inside\": the port has this group twice: list all its addresses in one place",
        ),
        ("10.0.0.2/24", "10.0.0.1/24", "port \"inside\": 10.0.0.1 is listed twice: list it once"),
    ];
    for (from, to, expected) in cases {
        assert!(good.contains(from), "{from}");
        let report = said(&good.replacen(from, to, 1));
        assert!(report.contains(expected), "{report}");
    }
    let many: String = (0..9).map(|number| format!("[[group]]\nname = \"group-{number}\"\n")).collect();
    let report = said(&GOOD.replacen("[[port]]", &(many + "[[port]]"), 1));
    assert!(report.contains("there are more than 8 groups: put addresses together in fewer"), "{report}");
}

#[test]
fn groups_without_use_are_warned_of() {
    let unused = with_groups("", "").replacen("[[port]]", "[[group]]\nname = \"spare\"\n[[port]]", 1);
    assert!(said(&unused).contains("group \"spare\": no port has an address of the group"), "{}", said(&unused));
    let text = with_groups("", "");
    let alone = &text[..text.find("[replication]").unwrap()];
    assert!(
        said(alone).contains("[[group]]: there are several groups, but [replication] names no peer"),
        "{}",
        said(alone)
    );
}

#[test]
fn the_examples_differ_in_who_is_preferred_for_what() {
    let example = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
        let checked = load(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(checked.warnings, []);
        checked.config
    };
    let (a, b) = (example("multi-primary-a.toml"), example("multi-primary-b.toml"));
    let identities = |config: &Config| config.groups.iter().map(Group::identity).collect::<Vec<_>>();
    let priorities = |config: &Config| config.groups.iter().map(|group| group.priority).collect::<Vec<_>>();
    assert_eq!(identities(&a), identities(&b));
    assert_eq!((priorities(&a), priorities(&b)), (vec![200, 100], vec![100, 200]));
    let Config { ports, routes, firewall, source_nat, cluster, .. } = a;
    assert_eq!((ports, routes, firewall, source_nat), (b.ports, b.routes, b.firewall, b.source_nat));
    let (a, b) = (cluster.expect("it has a peer").replication, b.cluster.expect("it has a peer").replication);
    assert_eq!((a.local, b.local), (b.peers[0].address, a.peers[0].address));
}
