//! Files that are right, and files that are wrong in one place each.

mod addresses;
mod backups;
mod broken;
mod classifier;
mod compact;
mod fast_path;
mod ftp;
mod groups;
mod lazy;
mod membership;
mod rate_limit;
mod reachability;
mod security;
mod service;
mod shape;
mod start;
mod syn_proxy;
mod url_filter;

use std::path::Path;
use std::time::Duration;

use cluster::forwarding::MssClamp;
use flow::{NodeId, PortId};
use network_functions::firewall::Action;
use network_functions::port_range::PortRange;
use proptest::prelude::*;

use super::validated::{Config, Function, Limits, LogFormat, Workers};
use super::{Checked, ConfigError, load, parse};

/// A small configuration that is right; the cases below break it in one place each.
const GOOD: &str = r#"chain = ["firewall", "nat"]
[node]
id = 0
nodes = 2
[[port]]
name = "inside"
interface = "eth0"
addresses = ["10.0.0.1/24", "fd00::1/64"]
[[port]]
name = "outside"
interface = "eth1"
addresses = ["192.0.2.10/24"]
[[route]]
to = "0.0.0.0/0"
via = "192.0.2.254"
[[firewall.rule]]
name = "out"
from = "inside"
source = ["10.0.0.0/24"]
protocol = "tcp"
destination_ports = ["80-90", 443]
action = "accept"
[[nat.source]]
source = ["10.0.0.0/24"]
to = ["192.0.2.10"]
[[nat.destination]]
destination = "192.0.2.10"
protocol = "tcp"
port = 80
to = "10.0.0.5:8080"
[replication]
local = "10.99.0.1:3781"
[[replication.peer]]
id = 1
address = "10.99.0.2:3781"
[failure_detection]
interval = "10ms"
[replication.security]
mode = "plain"
"#;

fn check(text: &str) -> Result<Checked, ConfigError> {
    parse("mainstay.toml", text)
}

/// Everything said about `text`, a finding a line: errors, or the warnings of a usable configuration.
fn said(text: &str) -> String {
    match check(text) {
        Ok(checked) => checked.warnings.iter().map(|warning| format!("{warning}\n")).collect(),
        Err(error) => format!("{error}\n"),
    }
}

fn broken(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?} is not in the good configuration");
    GOOD.replacen(from, to, 1)
}

#[test]
fn limits_and_clamps_are_taken_and_have_defaults() {
    let Checked { config, .. } = check(GOOD).expect("it is good");
    assert_eq!((config.limits, config.ports[1].mss_clamp), (Limits::default(), None));
    let text = broken(
        "[node]",
        "[limits]\nconnections_per_source_max = 200\nconnections_per_source_per_second_max = 50\nsource_prefix_ipv6_bits = 56\nfragmented_packets_max = 1000\n\
         fragmented_packets_per_source_max = 100\nfragment_bytes_max = 1000000\nfragment_bytes_per_source_max = 100000\n\
         fragment_timeout = \"500ms\"\n[node]",
    );
    let Checked { config, warnings } = check(&text).expect("it is good");
    assert_eq!(warnings, []);
    let expected = Limits {
        connections_per_source_max: Some(200),
        connections_per_source_per_second_max: Some(50),
        source_prefix_ipv4_bits: 32,
        source_prefix_ipv6_bits: 56,
        fragmented_packets_max: 1000,
        fragmented_packets_per_source_max: 100,
        fragment_bytes_max: 1_000_000,
        fragment_bytes_per_source_max: 100_000,
        fragment_timeout: Duration::from_millis(500),
    };
    assert_eq!(config.limits, expected);
    let part = config.limits.of_pipeline(Workers { count: 3, pin: false });
    let of_source = part.sources.expect("sources are limited");
    assert_eq!((of_source.connections_max, of_source.begun_per_second_max), (Some(67), Some(17)));
    assert_eq!((part.fragments.datagrams_max, part.fragments.held_bytes_max), (334, 333_334));
    for (written, expected) in [("\"mtu\"", MssClamp::Mtu), ("1360", MssClamp::Bytes(1360))] {
        let text = broken("interface = \"eth1\"", &format!("interface = \"eth1\"\nmss_clamp = {written}"));
        assert_eq!(check(&text).expect("it is good").config.ports[1].mss_clamp, Some(expected));
    }
}

#[test]
fn a_good_configuration_is_resolved_and_completed() {
    let Checked { config, warnings } = check(GOOD).expect("it is good");
    assert_eq!(warnings, []);
    assert_eq!(config.node.id, NodeId(0));
    assert_eq!(config.node.name, "node-0");
    assert_eq!(config.node.control_socket, Path::new("/run/mainstay/control.sock"));
    assert_eq!(config.chain, [Function::Firewall, Function::Nat]);
    assert_eq!(config.routes[0].port, PortId(1));
    assert_eq!(config.firewall[0].conditions.ingress, [PortId(0)]);
    assert_eq!(format!("{:?}", config.firewall[0].conditions.destination_ports), "[80-90, 443]");
    assert_eq!(config.firewall[0].action, Action::Accept);
    assert_eq!(config.nat_ports, PortRange::to_the_last(1024));
    assert_eq!(config.destination_nat[0].to_port, Some(8080));
    assert_eq!(config.timeouts.tcp_established, Duration::from_secs(5 * 86_400));
    let cluster = config.cluster.expect("it names a peer");
    assert_eq!(cluster.failure_detection.detection_time(), Duration::from_millis(100));
    assert_eq!(cluster.failure_detection.startup_hold, Duration::from_millis(300));
    assert_eq!(cluster.failure_detection.local.to_string(), "10.99.0.1:3784");
    assert_eq!(cluster.replication.peers[0].failure_detection_address.to_string(), "10.99.0.2:3784");
}

#[test]
fn a_gateway_may_stand_alone() {
    let alone = &GOOD[..GOOD.find("[replication]").expect("it is there")];
    let Checked { config, warnings } = check(&alone.replace("nodes = 2\n", "")).expect("it is good");
    assert_eq!((config.cluster, config.node.nodes, warnings.len()), (None, 1, 0));
}

#[test]
fn announcements_are_repeated_unless_configured_otherwise() {
    assert_eq!(check(GOOD).expect("it is good").config.node.announce_refresh, Duration::from_secs(60));
    for (written, expected) in
        [("0s", Duration::ZERO), ("1s", Duration::from_secs(1)), ("1h", Duration::from_secs(3600))]
    {
        let text = broken("id = 0\n", &format!("id = 0\nannounce_refresh = \"{written}\"\n"));
        assert_eq!(check(&text).expect("it is good").config.node.announce_refresh, expected);
    }
    for written in ["500ms", "2h"] {
        let text = broken("id = 0\n", &format!("id = 0\nannounce_refresh = \"{written}\"\n"));
        assert!(said(&text).contains("node.announce_refresh"), "{written}");
    }
}

#[test]
fn logs_are_limited_unless_configured_otherwise() {
    let node = check(GOOD).expect("it is good").config;
    assert_eq!((node.node.log_format, node.node.log_per_s), (LogFormat::Text, Some(10)));
    assert_eq!(node.firewall_log_per_s, Some(100));
    let changed = broken("id = 0\n", "id = 0\nlog_format = \"json\"\nlog_per_s = 0\n");
    let changed = changed.replace("[[firewall.rule]]", "[firewall]\nlog_per_s = 7\n[[firewall.rule]]");
    let node = check(&changed).expect("it is good").config;
    assert_eq!((node.node.log_format, node.node.log_per_s), (LogFormat::Json, None));
    assert_eq!(node.firewall_log_per_s, Some(7));
}

fn example(name: &str) -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let checked = load(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(checked.warnings, [], "of {name}");
    checked.config
}

#[test]
fn examples_are_right_and_fit_together() {
    let (active, standby) = (example("active.toml"), example("standby.toml"));
    assert_eq!((active.node.id, standby.node.id), (NodeId(0), NodeId(1)));
    assert!(active.node.priority > standby.node.priority);
    let (a, s) = (active.cluster.expect("it has a peer"), standby.cluster.expect("it has a peer"));
    assert_eq!(a.replication.local, s.replication.peers[0].address);
    assert_eq!(s.replication.local, a.replication.peers[0].address);
    assert_eq!((active.ports, active.routes), (standby.ports, standby.routes));
    assert_eq!((active.firewall, active.source_nat), (standby.firewall, standby.source_nat));
    assert_eq!(active.destination_nat, standby.destination_nat);
    let compact = example("compact.toml").cluster.expect("it has a peer").replication;
    assert!(compact.representation.is_compact() && compact.compact.is_some_and(|compact| compact.recovery.block));
}

#[test]
fn examples_of_lazy_insertion_and_of_two_sites_are_right() {
    let lazy = example("lazy.toml").cluster.expect("it has a peer").replication.lazy;
    assert!(matches!(lazy, Some(replication::deferral::Config::Dynamic(_))), "{lazy:?}");
    let [left, right] = ["tunnel-left.toml", "tunnel-right.toml"].map(example);
    assert_eq!(left.firewall, right.firewall);
    let [left, right] = [left, right].map(|site| site.redundancy.expect("it has a tunnel"));
    assert_eq!((left.local, left.peer), (right.peer, right.local), "each is the other's end");
    assert_eq!((left.cache_bytes, left.rate_bits_per_second), (right.cache_bytes, right.rate_bits_per_second));
    assert_ne!(left.rules, right.rules, "each sends to the other's network");
}

#[test]
fn no_example_is_left_untried() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let names =
        std::fs::read_dir(&folder).expect("it is there").map(|entry| entry.expect("it can be read").file_name());
    let names = names.filter_map(|name| name.into_string().ok()).filter(|name| name.ends_with(".toml"));
    // Those of `mainstay sync` have another form, and tests of their own.
    let (edges, gateways): (Vec<String>, Vec<String>) =
        names.filter(|name| !name.starts_with("sync-")).partition(|name| name.starts_with("edge-"));
    assert!(gateways.len() >= 9 && !edges.is_empty(), "{gateways:?} {edges:?}");
    gateways.iter().for_each(|name| drop(example(name)));
    for name in edges {
        let checked = crate::edge::load(&folder.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(checked.warnings, [], "of {name}");
    }
}

#[test]
fn each_mistake_is_reported_with_its_place_and_its_remedy() {
    for (from, to, expected) in broken::BROKEN {
        let text = broken(from, to);
        assert!(check(&text).is_err(), "{to} was accepted");
        assert_eq!(said(&text), *expected, "for {to}");
    }
}

#[test]
fn what_is_doubtful_is_warned_of_but_runs() {
    let cases = [
        (
            "nodes = 2",
            "metrics = \"0.0.0.0:9464\"",
            "mainstay.toml:4:11: warning: node.metrics: 0.0.0.0:9464 is not a loopback address and the page asks for no password: anyone who can reach it reads the metrics: use 127.0.0.1, or filter the port\n",
        ),
        (
            "interval = \"10ms\"",
            "interval = \"1ms\"",
            "mainstay.toml:37:12: warning: [failure_detection]: a peer counts as down after 10ms: a busy machine pauses that long: raise interval or multiplier\n",
        ),
        (
            "[\"80-90\", 443]",
            "[\"80-90\", 88]",
            "mainstay.toml:21:31: warning: firewall rule \"out\": ports 88 overlap 80-90 of the same list: join the two ranges\n",
        ),
        (
            "[[nat.source]]",
            "[[firewall.rule]]\nname = \"all\"\naction = \"drop\"\n[[firewall.rule]]\nname = \"late\"\naction = \"accept\"\n[[nat.source]]",
            "mainstay.toml:27:8: warning: firewall rule \"late\": rule \"all\" above it matches every packet, so this one never does: move it up or remove it\n",
        ),
        (
            "[node]",
            "[tracking]\nloose = true\n[node]",
            "mainstay.toml:3:9: warning: tracking.loose: TCP connections are picked up in the middle without a check of sequence numbers, and without what only their record held (ports of source NAT beyond the first choice, announced connections, shifted sequence numbers, classes): set it to false unless other gateways hand connections over without their state, or connections are to outlast the failure of all nodes\nmainstay.toml:3:9: warning: nat.key: no secret outlasts the nodes, so the ports of source NAT follow from the rules alone, and can be guessed: write key = \"/etc/mainstay/nat.key\" in [nat]; `mainstay key` makes one, which all nodes need\n",
        ),
    ];
    for (from, to, expected) in cases {
        let text = broken(from, to);
        assert!(check(&text).is_ok(), "{to} was refused: {}", said(&text));
        assert_eq!(said(&text), expected, "for {to}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once_in_the_order_of_the_file() {
    let text = broken("\"eth0\"", "\"\"").replace("via = \"192.0.2.254\"", "via = \"x\"").replace("\"10ms\"", "\"1\"");
    let lines: Vec<_> = said(&text).lines().map(|line| line.split(':').nth(1).unwrap_or_default().to_owned()).collect();
    assert_eq!(lines, ["7", "15", "37"]);
}

#[test]
fn an_empty_file_is_refused_with_what_is_missing() {
    assert_eq!(
        said(""),
        "mainstay.toml:1:1: [node]: the section is missing: add [node] with at least id = 0\n\
         mainstay.toml:1:1: [[port]]: a gateway forwards between ports, and there is none: \
         add a [[port]] for every interface, at least two\n"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = load(Path::new("/nonexistent/mainstay.toml")).expect_err("there is no such file");
    assert!(error.to_string().starts_with("cannot read /nonexistent/mainstay.toml: No such file"), "{error}");
}

proptest! {
    /// A damaged configuration gets diagnostics and nothing panics; positions lie within the text.
    #[test]
    fn damaged_files_get_diagnostics(at in 0..GOOD.len(), len in 0..40_usize, with in "[\\PC\n\"=\\[\\]0-9]{0,12}") {
        let end = (at + len).min(GOOD.len());
        let text = format!("{}{with}{}", &GOOD[..at], &GOOD[end..]);
        if let Err(ConfigError::Invalid(found)) = check(&text) {
            for diagnostic in found {
                prop_assert!(diagnostic.line >= 1 && diagnostic.line <= text.split('\n').count());
                prop_assert!(!diagnostic.problem.is_empty() && !diagnostic.remedy.is_empty());
            }
        }
    }
}

#[test]
fn backends_are_mixed_but_for_the_two_that_cannot_be() {
    let with = |inside: &str, outside: &str| {
        let text = GOOD.replace("interface = \"eth0\"", &format!("interface = \"eth0\"\nbackend = \"{inside}\""));
        said(&text.replace("interface = \"eth1\"", &format!("interface = \"eth1\"\nbackend = \"{outside}\"")))
    };
    for (inside, outside) in [("af_xdp", "af_xdp"), ("tun", "tun"), ("tun", "af_xdp"), ("af_packet", "tun")] {
        assert!(!with(inside, outside).contains("backend"), "{}", with(inside, outside));
    }
    for (inside, outside) in [("af_xdp", "af_packet"), ("af_packet", "af_xdp")] {
        let said = with(inside, outside);
        assert!(said.contains("frames of many segments") && said.contains("port \"outside\""), "{said}");
        assert!(said.contains(&format!("give both backend = {inside:?}, or both {outside:?}")), "{said}");
    }
    assert!(with("dpdk", "tun").contains("\"af_xdp\" or \"tun\""), "{}", with("dpdk", "tun"));
}
