//! Files that are right, and files that are wrong in one place each.

mod compact;
mod ftp;
mod groups;
mod lazy;
mod security;
mod transport;

use std::path::Path;
use std::time::Duration;

use cluster::forwarding::MssClamp;
use flow::{NodeId, PortId};
use proptest::prelude::*;

use super::validated::{Action, Function, Limits, LogFormat, Workers};
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
    assert_eq!(config.firewall[0].from, Some(PortId(0)));
    assert_eq!(config.firewall[0].destination_ports, [80..=90, 443..=443]);
    assert_eq!(config.firewall[0].action, Action::Accept);
    assert_eq!(config.nat_ports, 1024..=65535);
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
fn logs_are_limited_unless_the_file_says_otherwise() {
    let node = check(GOOD).expect("it is good").config;
    assert_eq!((node.node.log_format, node.node.log_per_s), (LogFormat::Text, Some(10)));
    assert_eq!(node.firewall_log_per_s, Some(100));
    let told = broken("id = 0\n", "id = 0\nlog_format = \"json\"\nlog_per_s = 0\n");
    let told = told.replace("[[firewall.rule]]", "[firewall]\nlog_per_s = 7\n[[firewall.rule]]");
    let node = check(&told).expect("it is good").config;
    assert_eq!((node.node.log_format, node.node.log_per_s), (LogFormat::Json, None));
    assert_eq!(node.firewall_log_per_s, Some(7));
}

#[test]
fn examples_are_right_and_fit_together() {
    let example = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
        let checked = load(&path).expect("the example is right");
        assert_eq!(checked.warnings, []);
        checked.config
    };
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

/// What is written instead of what, and all that is said about it.
const BROKEN: &[(&str, &str, &str)] = &[
    (
        "id = 0\n",
        "id = 0\nlog_format = \"xml\"\n",
        "mainstay.toml:4:14: node.log_format: \"xml\" is not known: write \"text\" or \"json\"\n",
    ),
    (
        "id = 0\n",
        "id = 0\nlog_per_s = 1000000\n",
        "mainstay.toml:4:13: node.log_per_s: 1000000 entries a second are out of range: write a number from 1 to 100000, or 0 for no limit\n",
    ),
    (
        "\"eth0\"",
        "\"a-very-long-interface\"",
        "mainstay.toml:7:13: port \"inside\": interface name is longer than 15 bytes: shorten it\n",
    ),
    (
        "\"eth1\"",
        "\"eth0\"",
        "mainstay.toml:11:13: port \"outside\": interface \"eth0\" is already that of port \"inside\": give each port its own interface\n",
    ),
    (
        "\"outside\"",
        "\"inside\"",
        "mainstay.toml:10:8: port \"inside\": another port has this name: give each port its own name\n",
    ),
    (
        "10.0.0.1/24",
        "10.0.0.1",
        "mainstay.toml:8:14: port \"inside\": \"10.0.0.1\" has no prefix length: write it like 10.0.0.1/24\n",
    ),
    (
        "10.0.0.1/24",
        "10.0.0.0/24",
        "mainstay.toml:8:14: port \"inside\": 10.0.0.0 is the network address of 10.0.0.0/24: write an address of a host in it\n",
    ),
    (
        "10.0.0.1/24",
        "10.0.0.1/33",
        "mainstay.toml:8:14: port \"inside\": \"10.0.0.1/33\" has no valid prefix length: write a length from 0 to 32 after the slash\n",
    ),
    (
        "10.0.0.1/24",
        "224.0.0.1/24",
        "mainstay.toml:8:14: port \"inside\": no host on a network can have the address 224.0.0.1: write a unicast address\n",
    ),
    (
        "\"192.0.2.10/24\"",
        "\"192.0.2.10/24\", \"10.0.0.9/8\"",
        "mainstay.toml:12:31: port \"outside\": 10.0.0.9/8 overlaps 10.0.0.1/24 of port \"inside\": give each port its own network\n",
    ),
    (
        "via = \"192.0.2.254\"",
        "via = \"198.51.100.1\"",
        "mainstay.toml:15:7: route to \"0.0.0.0/0\": the next hop 198.51.100.1 is on no port's network: add an address of its network to a port, or correct the next hop\n",
    ),
    (
        "via = \"192.0.2.254\"",
        "via = \"fd00::2\"",
        "mainstay.toml:15:7: route to \"0.0.0.0/0\": the next hop fd00::2 is IPv6, the destination is not: write an IPv4 next hop\n",
    ),
    (
        "via = \"192.0.2.254\"",
        "via = \"192.0.2.10\"",
        "mainstay.toml:15:7: route to \"0.0.0.0/0\": the next hop 192.0.2.10 is the gateway's own address on port \"outside\": write the address of the next router\n",
    ),
    (
        "from = \"inside\"",
        "from = \"insdie\"",
        "mainstay.toml:18:8: firewall rule \"out\": there is no port \"insdie\": write one of \"inside\", \"outside\" or add a [[port]]\n",
    ),
    (
        "[\"10.0.0.0/24\"]\nprotocol",
        "[\"10.0.0.7/24\"]\nprotocol",
        "mainstay.toml:19:11: firewall rule \"out\": \"10.0.0.7/24\" has address bits set beyond its prefix length: write 10.0.0.0/24 for the network or 10.0.0.7/32 for the one address\n",
    ),
    (
        "80-90",
        "90-80",
        "mainstay.toml:21:22: firewall rule \"out\": the range \"90-80\" ends before it begins: write \"80-90\"\n",
    ),
    (
        "protocol = \"tcp\"\ndestination_ports",
        "protocol = \"icmp\"\ndestination_ports",
        "mainstay.toml:21:22: firewall rule \"out\": ports are given, but the protocol is not TCP or UDP: add protocol = \"tcp\" or \"udp\"\n",
    ),
    (
        "protocol = \"tcp\"\ndestination_ports = [\"80-90\", 443]",
        "protocol = \"icmpv6\"",
        "mainstay.toml:17:8: firewall rule \"out\": source, destination and protocol have no address family in common, so nothing matches: use IPv4 prefixes with \"icmp\" and IPv6 prefixes with \"icmpv6\", and one family for both ends\n",
    ),
    (
        "protocol = \"tcp\"\ndestination_ports",
        "protocol = \"tpc\"\ndestination_ports",
        "mainstay.toml:20:12: firewall rule \"out\": there is no protocol \"tpc\": write one of icmp, tcp, udp, gre, esp, ah, icmpv6, sctp\n",
    ),
    (
        "action = \"accept\"",
        "action = \"allow\"",
        "mainstay.toml:16:1: warning: [firewall]: no rule accepts anything, so every connection is dropped: add a [[firewall.rule]] with action = \"accept\"\nmainstay.toml:22:10: firewall rule \"out\": \"allow\" is not known: write \"accept\" or \"drop\"\n",
    ),
    (
        "to = [\"192.0.2.10\"]",
        "to = [\"2001:db8::1\"]",
        "mainstay.toml:23:1: nat.source: IPv4 and IPv6 addresses are mixed: write a rule for each family\nmainstay.toml:25:7: warning: nat.source: no port holds 2001:db8::1: add it to a port's addresses, or have the next router route it to the gateway\n",
    ),
    (
        "[[nat.source]]",
        "[nat]\nports = 1024\n[[nat.source]]",
        "mainstay.toml:24:9: nat.ports: the range of 1 cannot be divided among 2 nodes: widen it\n",
    ),
    (
        "port = 80\n",
        "",
        "mainstay.toml:29:6: nat.destination: `to` names a port, but the rule matches all ports: add port = … or drop it from `to`\n",
    ),
    (
        "\n[replication]",
        "\n[[nat.destination]]\ndestination = \"192.0.2.10\"\nto = \"10.0.0.6\"\n[replication]",
        "mainstay.toml:31:1: nat.destination: an earlier rule matches packets to 192.0.2.10 too: make addresses, protocols or ports of the two differ\n",
    ),
    (
        "\nid = 0",
        "\nid = 2",
        "mainstay.toml:3:6: node.id: node 2 is not one of 2 nodes, which are numbered from 0: choose an id below 2 or raise nodes\n",
    ),
    (
        "\nid = 1",
        "\nid = 0",
        "mainstay.toml:34:6: replication peer 0: the peer has this node's own id: give each node its own id\n",
    ),
    (
        "\nid = 1",
        "\nid = 5",
        "mainstay.toml:34:6: replication peer 5: node 5 is not one of 2 nodes, which are numbered from 0: choose an id below 2 or raise nodes\n",
    ),
    (
        "local = \"10.99.0.1:3781\"",
        "local = \"10.0.0.1:3781\"",
        "mainstay.toml:32:9: replication.local: 10.0.0.1 is a shared address and moves to whichever node is active: write an address that stays with this node\n",
    ),
    (
        "local = \"10.99.0.1:3781\"",
        "local = \"10.99.0.1:3784\"",
        "mainstay.toml:32:9: failure_detection.local: replication and failure detection both use 10.99.0.1:3784: give one of them another port\n",
    ),
    (
        "local = \"10.99.0.1:3781\"",
        "local = \"10.99.0.1\"",
        "mainstay.toml:32:9: replication.local: \"10.99.0.1\" is not an IP address with a port: write one like 192.0.2.1:3781 or [2001:db8::1]:3781\n",
    ),
    (
        "local = \"10.99.0.1:3781\"",
        "local = \"10.99.0.1:3781\"\ntest_loss = 2.0",
        "mainstay.toml:33:13: replication.test_loss: 2 is not a share: write a number from 0.0 to 1.0\n",
    ),
    (
        "local = \"10.99.0.1:3781\"",
        "local = \"10.99.0.1:3781\"\npeer_timeout = \"150ms\"",
        "mainstay.toml:33:16: [replication]: peer_timeout is shorter than two alive_intervals, so an idle peer would count as away: raise peer_timeout or lower alive_interval\n",
    ),
    (
        "interval = \"10ms\"",
        "interval = \"10 ms\"",
        "mainstay.toml:37:12: failure_detection.interval: \"10 ms\" is not a duration: write a whole number and a unit: \"10ms\", \"30s\", \"5m\", \"2h\" or \"5d\"\n",
    ),
    (
        "interval = \"10ms\"",
        "interval = \"1m\"",
        "mainstay.toml:37:12: failure_detection.interval: \"1m\" is out of range: choose a duration from 1ms to 10s\n",
    ),
    (
        "[failure_detection]",
        "[failure_detecton]",
        "mainstay.toml:36:2: syntax: unknown field `failure_detecton`, expected one of `chain`, `node`, `port`, `group`, `route`, `limits`, `timeouts`, `tracking`, `workers`, `firewall`, `nat`, `ftp`, `replication`, `failure_detection`, `redundancy`, `control`: correct its spelling or remove it\n",
    ),
    (
        "[[nat.source]]\nsource = [\"10.0.0.0/24\"]\n",
        "[[nat.source]]\n",
        "mainstay.toml:23:1: syntax: missing field `source`: add it to this section\n",
    ),
    (
        "\nid = 0",
        "\nid = \"0\"",
        "mainstay.toml:3:6: syntax: invalid type: string \"0\", expected u8: write the value as docs/configuration.md shows it\n",
    ),
    (
        "[\"firewall\", \"nat\"]",
        "[\"firewall\", \"firewall\"]",
        "mainstay.toml:1:22: chain: \"firewall\" is listed twice: list it once\nmainstay.toml:23:3: [nat]: the section has no effect because the chain does not list it: add \"nat\" to chain or remove the section\n",
    ),
    (
        "[node]",
        "[timeouts]\nudp = \"0s\"\n[node]",
        "mainstay.toml:3:7: timeouts.udp: \"0s\" is shorter than a second: connections would end between two packets: write at least \"1s\"\n",
    ),
    (
        "[node]",
        "[limits]\nconnections_max = 0\n[node]",
        "mainstay.toml:3:19: limits.connections_max: 0 connections are out of range: choose a number from 1 to 2147483648\n",
    ),
    (
        "[node]",
        "[limits]\nconnections_per_source_max = 0\nsource_prefix_ipv6_bits = 129\nfragment_timeout = \"2m\"\n[node]",
        "mainstay.toml:3:30: limits.connections_per_source_max: 0 is out of range: choose a number from 1 to 2147483648\nmainstay.toml:4:27: limits.source_prefix_ipv6_bits: 129 is out of range: choose a number from 0 to 128\nmainstay.toml:5:20: limits.fragment_timeout: \"2m\" is out of range: write a duration from \"100ms\" to \"60s\"\n",
    ),
    (
        "interface = \"eth1\"",
        "interface = \"eth1\"\nmss_clamp = 100",
        "mainstay.toml:12:13: port \"outside\": a maximum segment size of 100 bytes is out of range: write \"mtu\" or a number from 536 to 65495\n",
    ),
    (
        "interface = \"eth1\"",
        "interface = \"eth1\"\nmss_clamp = \"1400\"",
        "mainstay.toml:12:13: port \"outside\": \"1400\" is not something that segments can be clamped to: write \"mtu\", or a number of bytes without quotes\n",
    ),
    (
        "nodes = 2",
        "control_socket = \"run/x\"",
        "mainstay.toml:4:18: node.control_socket: \"run/x\" is not an absolute path: begin it with /\n",
    ),
];

#[test]
fn each_mistake_is_told_with_its_place_and_its_remedy() {
    for (from, to, expected) in BROKEN {
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
            "local = \"10.99.0.1:3781\"",
            "local = \"10.99.0.1:3781\"\ntest_loss = 0.2",
            "mainstay.toml:33:13: warning: replication.test_loss: the node throws away 20 % of what its peers send: this is for tests: remove it in production\n",
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
            "mainstay.toml:3:9: warning: tracking.loose: TCP connections are picked up in the middle without a check of sequence numbers: set it to false unless other gateways hand connections over without their state\n",
        ),
    ];
    for (from, to, expected) in cases {
        let text = broken(from, to);
        assert!(check(&text).is_ok(), "{to} was refused: {}", said(&text));
        assert_eq!(said(&text), expected, "for {to}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_in_the_order_of_the_file() {
    let text = broken("\"eth0\"", "\"\"").replace("via = \"192.0.2.254\"", "via = \"x\"").replace("\"10ms\"", "\"1\"");
    let lines: Vec<_> = said(&text).lines().map(|line| line.split(':').nth(1).unwrap_or_default().to_owned()).collect();
    assert_eq!(lines, ["7", "15", "37"]);
}

#[test]
fn an_empty_file_says_what_is_missing() {
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

#[test]
fn the_documentation_lists_every_timeout() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let documentation = std::fs::read_to_string(path).expect("the documentation is there");
    for (key, _) in super::timeouts::Timeouts::default().entries() {
        assert!(documentation.contains(&format!("`{key}`")), "docs/configuration.md does not list {key}");
    }
}

proptest! {
    /// Whatever is done to a configuration, it is judged and nothing panics; positions lie within the text.
    #[test]
    fn damaged_files_are_judged(at in 0..GOOD.len(), len in 0..40_usize, with in "[\\PC\n\"=\\[\\]0-9]{0,12}") {
        let end = (at + len).min(GOOD.len());
        let text = format!("{}{with}{}", &GOOD[..at], &GOOD[end..]);
        if let Err(ConfigError::Invalid(found)) = check(&text) {
            for finding in found {
                prop_assert!(finding.line >= 1 && finding.line <= text.split('\n').count());
                prop_assert!(!finding.problem.is_empty() && !finding.remedy.is_empty());
            }
        }
    }

    #[test]
    fn overlap_is_what_shared_addresses_are(a in any::<u32>(), b in any::<u32>(), m in 0..=32_u8, n in 0..=32_u8) {
        let prefix = |bits: u32, length_bits| super::value::Prefix {
            address: std::net::Ipv4Addr::from_bits(bits).into(),
            length_bits,
        };
        let (p, q) = (prefix(a, m), prefix(b, n));
        let expected = p.contains(q.network().address) || q.contains(p.network().address);
        prop_assert_eq!(p.overlaps(q), expected);
        prop_assert_eq!(p.overlaps(q), q.overlaps(p));
        prop_assert!(p.contains(p.network().address));
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
