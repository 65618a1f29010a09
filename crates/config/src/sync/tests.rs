//! What a file means, and the diagnostics of a wrong one.

use std::time::Duration;

use flow::NodeId;
use flow::netfilter::TcpState;
use replication::deferral::Config;

use super::super::{ConfigError, Severity};
use super::validated::{ConntrackdPeer, Filter, Injection, Mark, Mode, Others, StartRole};
use super::{CONTROL_SOCKET_DEFAULT, SyncConfig, parse};

const LEFT: &str = include_str!("../../../../examples/sync-left.toml");
const RIGHT: &str = include_str!("../../../../examples/sync-right.toml");

/// The least that a file must have.
const LEAST: &str = "[node]\nid = 0\n[replication]\nlocal = \"127.0.0.1:3781\"\n[[replication.peer]]\nid = 1\n\
                     address = \"127.0.0.2:3781\"\n";

fn config(text: &str) -> SyncConfig {
    parse("sync.toml", text).expect("it is right").config
}

/// The diagnostics of a wrong file, a line each.
fn mistakes(text: &str) -> Vec<String> {
    let Err(ConfigError::Invalid(found)) = parse("sync.toml", text) else { panic!("it is not refused: {text}") };
    found.iter().filter(|one| one.severity == Severity::Error).map(ToString::to_string).collect()
}

fn assert_refused(text: &str, with: &str) {
    let found = mistakes(text);
    assert!(found.iter().any(|line| line.contains(with)), "{with:?} is not in {found:#?}");
}

#[test]
fn unreplied_connections_are_replicated_beside_a_conntrackd_unless_configured_otherwise() {
    let native = "[node]\nid = 0\n[replication]\nlocal = \"127.0.0.1:3781\"\n[[replication.peer]]\nid = 1\n\
                  address = \"127.0.0.2:3781\"\n";
    let beside = "[node]\nid = 0\n[conntrackd]\nlocal = \"10.0.0.1:3780\"\npeer = \"10.0.0.2:3780\"\npeer_id = 9\n";
    let replied = format!("{beside}[filter]\nothers = \"replied\"\n");
    let found = [native, beside, &replied].map(|text| config(text).filter.others);
    assert_eq!(found, [Others::Replied, Others::Begun, Others::Replied]);
}

#[test]
fn the_examples_are_right_and_fit_each_other() {
    let [left, right] = [("examples/sync-left.toml", LEFT), ("examples/sync-right.toml", RIGHT)].map(|(file, text)| {
        let checked = parse(file, text).unwrap_or_else(|error| panic!("{error}"));
        assert!(checked.warnings.is_empty(), "{:?}", checked.warnings);
        checked.config
    });
    let [to_right, to_left] = [&left, &right].map(|config| config.replication.as_ref().expect("they replicate"));
    assert_eq!(to_right.replication.peers[0].id, right.node.id);
    assert_eq!(to_right.replication.peers[0].address, to_left.replication.local);
    assert_eq!(to_left.replication.peers[0].address, to_right.replication.local);
    assert_eq!(left.filter, right.filter, "nodes leave the same connections out");
}

#[test]
fn what_is_not_written_has_a_default() {
    let config = config(LEAST);
    assert_eq!(config.node.control_socket.to_str(), Some(CONTROL_SOCKET_DEFAULT));
    assert_eq!((config.mode, config.role), (Mode::PrimaryBackup, StartRole::Backup));
    assert_eq!(config.kernel.injection, Injection::Direct);
    assert_eq!(config.kernel.event_interval, Duration::from_millis(2));
    assert_eq!((config.kernel.receive_buffer_bytes, config.kernel.receive_buffer_bytes_max), (2 << 20, 64 << 20));
    assert!(config.kernel.expectations && config.conntrackd.is_none());
    assert_eq!(config.filter, Filter::default());
    let native = config.replication.expect("a peer is named");
    assert_eq!(native.batch_delay, Duration::ZERO);
}

#[test]
fn every_key_is_understood() {
    let text = r#"
[node]
id = 7
name = "left"
control_socket = "/run/left.sock"
[kernel]
injection = "external-cache"
connections_max = 5000
receive_buffer = 8192
receive_buffer_max = "1MiB"
event_interval = "500us"
expectations = false
[cluster]
mode = "multi-primary"
[filter]
tcp_states = ["established", "SYN_RECV"]
others = "begun"
protocols = ["tcp", 132]
addresses = ["10.0.0.0/8", "fd00::/8"]
[[filter.ignore]]
addresses = ["127.0.0.1", "::1"]
protocol = "tcp"
states = ["time_wait"]
mark = "0x1/0xff"
zone = 3
[[filter.ignore]]
mark = "17"
[conntrackd]
local = "10.99.0.1:3780"
multicast = "225.0.0.50:3780"
interface = "sync0"
peer_id = 9
window_tracking = true
"#;
    let config = config(text);
    assert_eq!((config.node.id, config.mode, config.role), (NodeId(7), Mode::MultiPrimary, StartRole::Primary));
    assert_eq!(config.kernel.injection, Injection::ExternalCache);
    assert_eq!((config.kernel.receive_buffer_bytes, config.kernel.receive_buffer_bytes_max), (8192, 1 << 20));
    assert_eq!((config.kernel.connections_max, config.kernel.expectations), (5000, false));
    assert_eq!(config.filter.tcp_states, [TcpState::Established, TcpState::SynRecv]);
    assert_eq!((config.filter.others, config.filter.protocols), (Others::Begun, Some(vec![6, 132])));
    assert_eq!(config.filter.addresses.expect("they are named").len(), 2);
    let [first, second] = &config.filter.ignore[..] else { panic!("{:?}", config.filter.ignore) };
    assert_eq!((first.addresses.len(), first.protocol, first.zone), (2, Some(6), Some(3)));
    assert_eq!(first.states, [TcpState::TimeWait]);
    assert_eq!(first.mark, Some(Mark { value: 1, mask: 0xff }));
    assert_eq!(second.mark, Some(Mark { value: 17, mask: u32::MAX }));
    let conntrackd = config.conntrackd.expect("it is there");
    assert_eq!(conntrackd.peer_id, NodeId(9));
    assert!(conntrackd.window_tracking);
    assert_eq!(conntrackd.peer, ConntrackdPeer::Multicast("225.0.0.50:3780".parse().unwrap()));
}

#[test]
fn all_mistakes_of_a_file_are_reported_at_once_each_with_its_place() {
    let text = r#"
[node]
id = 0
priority = 100
[kernel]
injection = "sometimes"
receive_buffer = "2MB"
receive_buffer_max = "1KiB"
event_interval = "1h"
[cluster]
role = "master"
[filter]
tcp_states = ["closed"]
protocols = []
[[filter.ignore]]
[[filter.ignore]]
protocol = "udp"
states = ["established"]
mark = "0x100/0xff"
addresses = ["10.0.0.1/8"]
[conntrackd]
local = "10.99.0.1:3780"
peer = "225.0.0.50:3780"
peer_id = 0
"#;
    let found = mistakes(text);
    let expected = [
        ("3:", "priority"),
        ("6:", "\"direct\" or \"external-cache\""),
        ("7:", "64KiB"),
        ("8:", "4KiB"),
        ("9:", "out of range"),
        ("11:", "\"primary\" or \"backup\""),
        ("13:", "is not a state of TCP"),
        ("14:", "the list is empty"),
        ("15:", "it has no condition"),
        ("18:", "only TCP has these states"),
        ("19:", "\"0x0/0xff\""),
        ("20:", "beyond its prefix length"),
        ("23:", "multicast"),
        ("24:", "this node's own id"),
    ];
    for (place, what) in expected {
        let is_reported = |line: &String| line.starts_with(&format!("sync.toml:{place}")) && line.contains(what);
        assert!(found.iter().any(is_reported), "{place} {what}: {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn what_belongs_to_gateways_alone_is_refused_with_a_reason() {
    let with = |more: &str| LEAST.replace("local = ", &format!("{more}\nlocal = "));
    assert_refused(&with("representation = \"none\""), "[filter] selects the connections");
    assert_refused(&with("experimental = true"), "replicated precisely");
    assert_refused(&with("hold_first_reply = \"1ms\""), "the kernel forwards");
    assert_refused(&with("start = \"established\""), "replication.start");
    assert_refused(&with("symmetric = true"), "replication.symmetric");
    assert_refused(&LEAST.replace("id = 0", "id = 0\nnodes = 2"), "no meaning here");
    assert_refused("chain = []", "unknown field");
}

#[test]
fn connections_are_deferred_for_a_fixed_time_where_one_node_forwards() {
    let deferred = |threshold: &str| format!("{LEAST}[replication.lazy]\nthreshold = \"{threshold}\"\n");
    let native = config(&deferred("300ms")).replication.expect("there is a peer");
    assert_eq!(native.replication.lazy, Some(Config::Fixed(Duration::from_millis(300))));
    assert_refused(&deferred("dynamic"), "does not follow its load: write a duration as threshold");
    let all_forward = format!("{}[cluster]\nmode = \"multi-primary\"\n", deferred("300ms"));
    assert_refused(&all_forward, "whose kernels must have it at once");
}

#[test]
fn there_must_be_a_peer_and_each_only_once() {
    assert_refused("[node]\nid = 0", "add [replication] with a [[replication.peer]], or [conntrackd]");
    assert_refused("", "add [node] with at least id = 0");
    let both = format!("{LEAST}[conntrackd]\nlocal = \"127.0.0.1:3780\"\npeer = \"127.0.0.2:3780\"\npeer_id = 1\n");
    assert_refused(&both, "is a peer of [replication] already");
    let beside = both.replace("peer_id = 1", "peer_id = 2");
    assert!(config(&beside).conntrackd.is_some() && config(&beside).replication.is_some());
}

#[test]
fn a_conntrackd_is_at_an_address_or_in_a_group_on_an_interface() {
    let with = |more: &str| format!("[node]\nid = 0\n[conntrackd]\nlocal = \"10.0.0.1:3780\"\npeer_id = 1\n{more}");
    assert_refused(&with(""), "it is not said where the other daemon is");
    assert_refused(&with("peer = \"10.0.0.2:1\"\nmulticast = \"225.0.0.50:1\""), "either peer");
    assert_refused(&with("multicast = \"225.0.0.50:3780\""), "the interface on which the group is joined");
    assert_refused(&with("multicast = \"10.0.0.50:3780\"\ninterface = \"eth0\""), "is not a multicast group");
    assert_refused(&with("peer = \"[fd00::2]:3780\""), "write both in one family");
    assert_refused(
        &with("peer = \"10.0.0.2:3780\"\ninterface = \"a name that is too long\""),
        "cannot be an interface",
    );
}

#[test]
fn handshakes_are_replicated_only_where_the_kernel_reports_them() {
    let warnings = |text: &str| parse("sync.toml", text).expect("it is right").warnings.len();
    let with_handshakes = format!("{LEAST}[filter]\ntcp_states = [\"syn_sent\", \"established\"]\n");
    assert_eq!(warnings(&with_handshakes), 1);
    assert_eq!(warnings(&format!("{with_handshakes}[kernel]\nevents = \"all\"\n")), 0);
    assert_eq!(warnings(LEAST), 0);
}

#[test]
fn no_node_stands_by_where_all_carry_connections() {
    assert_refused(&format!("{LEAST}[cluster]\nmode = \"multi-primary\"\nrole = \"backup\"\n"), "none stands by");
}
