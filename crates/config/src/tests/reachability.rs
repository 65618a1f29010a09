//! `[reachability]` and the `track` of groups.

use std::time::Duration;

use cluster::node::{Target, Tracked};
use flow::PortId;

use super::super::validated::Reachability;
use super::{GOOD, check, said};

fn reachability(text: &str) -> Reachability {
    let checked = check(text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(checked.warnings, []);
    checked.config.reachability
}

fn with(section: &str) -> String {
    format!("{GOOD}\n[reachability]\n{section}\n")
}

fn port(number: u8, weight: u16) -> Tracked {
    Tracked { target: Target::Port(PortId(number)), weight }
}

fn gateway(weight: u16) -> Tracked {
    let address = "192.0.2.254".parse().expect("an address");
    Tracked { target: Target::NextHop(PortId(1), address), weight }
}

#[test]
fn ports_and_gateways_are_tracked_by_default() {
    let reach = reachability(GOOD);
    assert_eq!(reach.tracking.groups, [vec![port(0, 100), port(1, 100), gateway(50)]]);
    let times = (reach.tracking.probe_interval, reach.tracking.up_delay, reach.move_after);
    let expected = [300, 2000, 100].map(Duration::from_millis);
    assert_eq!((times, reach.tracking.probe_misses), ((expected[0], expected[1], expected[2]), 3));
}

#[test]
fn a_list_replaces_the_default_and_an_empty_one_switches_it_off() {
    let list = "track = [{ port = \"outside\", weight = 7 }, { next_hop = \"192.0.2.254\" }]\nup_delay = \"0ms\"";
    let reach = reachability(&with(list));
    assert_eq!(reach.tracking.groups, [vec![port(1, 7), gateway(50)]]);
    assert_eq!(reach.tracking.up_delay, Duration::ZERO);
    assert_eq!(reachability(&with("track = []")).tracking.groups, [vec![]]);
}

#[test]
fn a_group_has_a_list_of_its_own_or_that_of_all() {
    let group = "[[group]]\nname = \"only\"\ntrack = [{ port = \"inside\" }]\n[[port]]";
    let text = with("track = []").replacen("[[port]]", group, 1);
    assert_eq!(reachability(&text).tracking.groups, [vec![port(0, 100)]]);
    let text = with("track = []").replacen("[[port]]", "[[group]]\nname = \"only\"\n[[port]]", 1);
    assert_eq!(reachability(&text).tracking.groups, [vec![]]);
}

#[test]
fn each_mistake_is_named_with_its_remedy() {
    for (section, expected) in [
        ("track = [{ port = \"wan\" }]", "there is no port \"wan\": write the name of a [[port]]"),
        ("track = [{ port = \"inside\", weight = 0 }]", "weight 0 is out of range: choose a weight from 1 to 255"),
        ("track = [{ port = \"inside\" }, { port = \"inside\" }]", "this is listed twice: list it once"),
        ("track = [{ weight = 5 }]", "an entry names one port or one next hop"),
        ("track = [{ next_hop = \"203.0.113.1\" }]", "the next hop 203.0.113.1 is on no port's network"),
        ("track = [{ next_hop = \"10.0.0.1\" }]", "10.0.0.1 is the gateway's own address on port \"inside\""),
        ("probe_misses = 0", "reachability.probe_misses: 0 is out of range"),
        (
            "probe_interval = \"1ms\"",
            "reachability.probe_interval: the duration is out of range: write one from \"20ms\" to \"1m\"",
        ),
    ] {
        let report = said(&with(section));
        assert!(report.contains(expected), "{section}: {report}");
    }
}
