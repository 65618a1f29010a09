//! What people read.

use super::{events, flows, reload, rules, status};
use api::metrics::{Metric, Samples};
use api::{
    AntiEntropy, BackendState, BackendStatus, BothWays, ChannelStatus, CheckStatus, ConnectionsStatus, DetectorState,
    DropCount, Ends, Event, EventKind, FastPathStatus, FilterStatus, Flow, GatewayReason, GroupStatus, LazyStatus,
    NextHopState, NextHopStatus, NodeRole, NodeStatus, PacketPath, PeerFilterStatus, PeerStatus, PortStatus,
    RateLimitStatus, Rates, RedundancyStatus, RefusedCount, ReloadReport, ServiceStatus, SessionState, SplitBrain,
    StateServiceStatus, Status, TakeoverStatus,
};

/// A text without its line breaks and indents: lines are broken to fit a terminal.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(super) fn node_status() -> Status {
    Status {
        program_version: "0.1.0".to_owned(),
        node: NodeStatus {
            id: 0,
            name: "left".to_owned(),
            role: NodeRole::Active,
            role_since_ns: 10_000_000_000,
            passive: None,
            groups: Vec::new(),
        },
        monotonic_now_ns: 202_000_000_000,
        uptime_s: 3725.0,
        configuration: "0123456789abcdef".to_owned(),
        takeover: TakeoverStatus { ready: true, obstacles: Vec::new() },
        connections: ConnectionsStatus { count: 12_345, max: 1_000_000, unanswered: 45, master: Some(12_000) },
        lazy: None,
        rates: Rates { packets_per_s: 120_000.0, bits_per_s: 1.25e9, connections_per_s: 300.0 },
        peers: vec![PeerStatus {
            id: 1,
            address: "10.99.0.2:3781".to_owned(),
            detector: DetectorState::Up,
            channel: ChannelStatus {
                secured_by: "pre-shared key 5e8c21b7".to_owned(),
                keys_since_ns: Some(10_000_000_000),
                handshakes: 2,
                refused: vec![RefusedCount { reason: "replayed".to_owned(), datagrams: 3 }],
            },
            session: SessionState::Open,
            role: NodeRole::Standby,
            synchronised: true,
            lag_ms: 0.31,
            rtt_ms: Some(0.12),
            in_flight: 12,
            filter: None,
            last_received_ns: Some(201_998_000_000),
            anti_entropy: AntiEntropy {
                agreed_ns: Some(200_800_000_000),
                rounds: 40,
                found: 3,
                repaired: 3,
                ..AntiEntropy::default()
            },
            ..PeerStatus::default()
        }],
        ports: vec![PortStatus {
            name: "inside".to_owned(),
            interface: "eth0".to_owned(),
            received_packets: 1_234_567,
            received_bytes: 1_500_000_000,
            sent_packets: 7,
            sent_bytes: 420,
            missed_packets: 0,
            up: Some(false),
            since_ns: Some(142_000_000_000),
            speed_mbps: None,
        }],
        fast_path: Some(Box::new(FastPathStatus {
            forwarding: true,
            hook: "tc".to_owned(),
            hook_reason: Some("the driver of eth0, e1000, has no XDP".to_owned()),
            connections: 12_000,
            packets: 3_456_789,
            full: 4,
            ..FastPathStatus::default()
        })),
        next_hops: vec![NextHopStatus {
            port: "outside".to_owned(),
            address: "192.0.2.254".to_owned(),
            state: NextHopState::Lost,
            since_ns: 199_000_000_000,
        }],
        drops: vec![
            DropCount { reason: "no_route".to_owned(), packets: 3 },
            DropCount { reason: "firewall_denied".to_owned(), packets: 1200 },
        ],
        workers: Vec::new(),
        classes: Vec::new(),
        services: Vec::new(),
        rate_limits: Vec::new(),
        syn_proxy: Vec::new(),
        url_filter: None,
        membership: None,
        redundancy: None,
        state_service: Some(Box::new(StateServiceStatus {
            peers: 3,
            indexes: 2,
            pulled: 1200,
            handed_over: 7,
            queries: 3,
            false_positives: 1,
            ..StateServiceStatus::default()
        })),
        filter: None,
        sync: None,
        edge: None,
    }
}

#[test]
fn a_status_reads_well() {
    let expected = "\
left (node 0)  active for 3 min 12 s · up 1 h 2 min · mainstay 0.1.0

Take-over    ready
Connections  12 345 of 1 000 000 (1 %), master of 12 000, 45 not replicated yet
Throughput   1.2 Gbit/s · 120 000 packets/s · 300 new connections/s
Fast path    on at tc · 12 000 connections · 3 456 789 packets · 4 found no
             place
             not at XDP: the driver of eth0, e1000, has no XDP
Lookup       2 of 3 indexes · 1 200 pulled, 7 handed over · 3 queries · 1 false
             positive · 0 dropped
Config       0123456789abcdef

PEER  ADDRESS         ROLE     DETECTOR  SESSION  SYNCED     LAG     RTT  QUEUED
1     10.99.0.2:3781  standby  up        open     yes     0.3 ms  0.1 ms       0

PEER  IN FLIGHT  RESENT  LOST    RECEIVED
1            12       0     0  2.0 ms ago

REPLICAS OF  AGREE AS OF  DIVERGENT  FOUND  REPAIRED  EXTRA REMOVED
          1  1 s ago              0      3         3              0

PEER  ENCRYPTED BY               KEYS FOR  HANDSHAKES  REFUSED
1     pre-shared key 5e8c21b7  3 min 12 s           2  3 replayed

PORT    INTERFACE  LINK         RECEIVED          SENT         MISSED
inside  eth0       DOWN 1 min  1 234 567  1.5 GB     7  420 B       0

NEXT HOP     PORT     STATE  FOR
192.0.2.254  outside  LOST   3 s

DROPPED          PACKETS
firewall_denied    1 200
no_route               3
";
    assert_eq!(status::describe(&node_status()), expected);
}

#[test]
fn a_status_fits_into_80_columns_however_long_names_are() {
    let mut node = node_status();
    let name = "a-name-of-a-node-that-somebody-has-chosen-with-the-greatest-care-and-without-any-thought-of-columns";
    node.node.name = name.to_owned();
    node.node.role = NodeRole::TakingOver;
    node.takeover = TakeoverStatus {
        ready: false,
        obstacles: vec!["node 1 has not replicated all its connections yet".to_owned(), format!("port {name} is down")],
    };
    node.lazy =
        Some(LazyStatus { threshold_ms: 60.0, level: 3, levels: 10, utilisation: Some(0.92), ..LazyStatus::default() });
    node.redundancy = Some(Box::default());
    node.ports[0].name = name.to_owned();
    node.peers[0].address = "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:3781".to_owned();
    node.peers[0].split_brain = SplitBrain::Suspected;
    node.peers[0].configuration = Some("fedcba9876543210".to_owned());
    let backend = BackendStatus {
        address: "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535".to_owned(),
        state: BackendState::Down,
        last_check: Some(CheckStatus {
            at_ns: 201_000_000_000,
            succeeded: false,
            reason: "the server answered with status 503".to_owned(),
        }),
        ..BackendStatus::default()
    };
    node.services = vec![ServiceStatus {
        name: name.to_owned(),
        checked: true,
        backends: vec![backend; 2],
        ..ServiceStatus::default()
    }];
    node.rate_limits =
        vec![RateLimitStatus { rule: name.to_owned(), per: "source".to_owned(), ..RateLimitStatus::default() }];
    node.drops.push(DropCount { reason: name.to_owned(), packets: 1 });
    let text = status::describe(&node);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} characters: {line}\n\n{text}", line.chars().count());
    }
    let flat = flat(&text);
    assert!(flat.contains("failed 1 s ago: the server") && flat.contains("503"), "{text}");
    assert!(
        flat.contains("Silent node 1 on all paths, without a hand-over: dead, or cut off and active too"),
        "{text}"
    );
}

#[test]
fn a_wrong_key_is_named_on_either_node() {
    let mut node = node_status();
    node.peers[0].channel.secured_by = "establishing".to_owned();
    node.peers[0].channel.refused = vec![RefusedCount { reason: "unknown_key".to_owned(), datagrams: 3 }];
    let text = status::describe(&node).split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "Keys node 1 uses a key that this node does not have: give both the same file in pre_shared_keys";
    assert!(text.contains(expected), "{text}");
    node.peers[0].channel.secured_by = "pre-shared key 5e8c21b7".to_owned();
    assert!(!status::describe(&node).contains("Keys "), "an old datagram of a peer that has the key now");
}

#[test]
fn a_tunnel_that_saved_nothing_is_shown_without_a_percentage() {
    let mut node = node_status();
    let mut tunnel = RedundancyStatus::default();
    (tunnel.sent.packet_bytes, tunnel.sent.datagram_bytes, tunnel.sent.saved_bytes) = (20, 11_511, -11_491);
    node.redundancy = Some(Box::new(tunnel));
    let text = status::describe(&node).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("(nothing saved, 11 kB more)") && !text.contains("-5"), "{text}");
    node.redundancy = Some(Box::default());
    assert!(flat(&status::describe(&node)).contains("(nothing to save yet)"));
}

#[test]
fn a_status_has_what_a_failover_now_would_lose() {
    let mut node = node_status();
    let degraded = LazyStatus {
        threshold_ms: 60.0,
        level: 3,
        levels: 10,
        utilisation: Some(0.92),
        deferred: 1480,
        never_replicated: 1_234_567,
        replicated_late: 31,
        replicated_at_once: 9,
    };
    let cases = [
        (degraded, "replicated from 60 ms on (level 3 of 10, 92 % busy)"),
        (LazyStatus { threshold_ms: 0.0, level: 0, ..degraded }, "nothing is deferred (level 0 of 10, 92 % busy)"),
        (LazyStatus { levels: 0, ..degraded }, "replicated from 60 ms on"),
    ];
    for (lazy, expected) in cases {
        node.lazy = Some(lazy);
        let lines = "1 480 deferred, which a failover now would lose · 1 234 567 never replicated · 31 replicated late\nLookup ";
        let expected = format!("Lazy {expected} · {lines}");
        assert!(flat(&status::describe(&node)).contains(&flat(&expected)), "{}", status::describe(&node));
    }
}

#[test]
fn a_status_has_the_filters_of_this_node_and_its_peers() {
    let mut node = node_status();
    let filter = FilterStatus {
        representation: "multi-level".to_owned(),
        entries: 12_000,
        entries_max: 1_000_000,
        refused: 5,
        bytes: 345_678,
        bytes_per_s: 1500.0,
        ..FilterStatus::default()
    };
    node.filter = Some(Box::new(filter));
    node.peers[0].filter =
        Some(PeerFilterStatus { entries: 7, filters: 2, drifts: 1, bad_datagrams: 0, is_complete: true });
    let line = "\nFilter       multi-level: 12 000 of 1 000 000 entries, 5 refused so far for want of room: raise \
                replication.filter.entries_max · ";
    let table = "\
FILTER OF  ENTRIES  WHOLE  DRIFTS REPAIRED  UNUSABLE
        1        7  yes                  1         0
";
    let text = status::describe(&node);
    assert!(flat(&text).contains(&flat(line)) && text.contains(table), "{text}");
    let digest = FilterStatus { entries: 12, entries_max: 10, beyond: 2, ..FilterStatus::default() };
    node.filter = Some(Box::new(digest));
    let text = status::describe(&node);
    assert!(flat(&text).contains("12 of 10 entries, 2 entered so far beyond its size"), "{text}");
}

#[test]
fn a_status_has_what_the_tunnel_saves_and_what_was_lost_in_it() {
    let mut node = node_status();
    let mut tunnel = RedundancyStatus::default();
    (tunnel.sent.packet_bytes, tunnel.sent.datagram_bytes, tunnel.sent.saved_bytes) = (4_000_000, 1_000_000, 3_000_000);
    (tunnel.sent.datagrams_retransmitted, tunnel.sent.datagrams_given_up) = (70, 2);
    (tunnel.received.datagrams_lost, tunnel.received.misses, tunnel.received.abandoned) = (9, 4, 1);
    node.redundancy = Some(Box::new(tunnel));
    let expected = "\
Tunnel       open · 4.0 MB of packets sent in 1.0 MB of datagrams (75.0 % saved) · 70 datagrams sent again, 2 given up
             from the other site 9 datagrams lost for good · 4 packets waited for bytes, 1 abandoned
";
    let text = status::describe(&node);
    assert!(flat(&text).contains(&flat(expected)), "{text}");
}

#[test]
fn a_passive_node_has_its_reason_in_the_status() {
    let mut node = node_status();
    assert!(!status::describe(&node).contains("Passive"));
    node.node.passive = Some("10.0.0.1 is in use".to_owned());
    assert!(status::describe(&node).contains("\nPassive      10.0.0.1 is in use\n"), "{}", status::describe(&node));
}

#[test]
fn a_status_has_the_active_node_of_each_group() {
    let mut node = node_status();
    let group = |name: &str, role: NodeRole, priority| GroupStatus {
        name: name.to_owned(),
        role,
        role_since_ns: 10_000_000_000,
        priority,
        term: 1,
    };
    node.node.groups = vec![
        group("left", NodeRole::Active, 200),
        group("right", NodeRole::Standby, 100),
        group("spare", NodeRole::Init, 7),
    ];
    node.peers[0].holds = vec!["right".to_owned()];
    let expected = "\
GROUP  ROLE            FOR  PRIORITY  HELD BY
left   active   3 min 12 s       200  this node
right  standby  3 min 12 s       100  node 1
spare  init     3 min 12 s         7  no known node
";
    assert!(status::describe(&node).contains(expected), "{}", status::describe(&node));
}

#[test]
fn the_status_of_a_node_without_peers_has_the_reason_for_no_take_over() {
    let mut alone = node_status();
    alone.peers.clear();
    alone.takeover = TakeoverStatus { ready: false, obstacles: vec!["no peer is configured".to_owned()] };
    let text = status::describe(&alone);
    assert!(text.contains("Take-over    not ready: no peer is configured\n"), "{text}");
    assert!(!text.contains("PEER"), "{text}");
}

#[test]
fn a_status_names_peers_with_another_configuration() {
    let mut node = node_status();
    for (other, expected) in [
        ("0123456789abcdef", "Config 0123456789abcdef, alike on all nodes that answer"),
        ("fedcba9876543210", "Config 0123456789abcdef: another on node 1; change the file there too and reload it"),
    ] {
        node.peers[0].configuration = Some(other.to_owned());
        let text = status::describe(&node);
        assert!(flat(&text).contains(expected), "{text}");
    }
}

#[test]
fn rules_read_well() {
    let mut samples = Samples::default();
    samples.add_count(Metric::FirewallRulePackets, &["web", "accept"], 12_345);
    samples.add_count(Metric::FirewallRulePackets, &["bad", "drop"], 7);
    samples.add_count(Metric::FunctionEvents, &["nat", "ports_exhausted"], 5);
    samples.add_count(Metric::FunctionEvents, &["firewall", "default_hits"], 3);
    let expected = "\
RULE            ACTION  MATCHED  DENIED
web             accept   12 345       0
bad             drop          7       7
(none matched)  drop          3       3
";
    assert_eq!(rules::describe(&rules::rules_of(samples.as_slice())), expected);
    assert_eq!(rules::describe(&[]), "there is no firewall in the chain\n");
}

#[test]
fn a_reload_reads_well() {
    let phrases = |phrases: &[&str]| phrases.iter().map(|phrase| (*phrase).to_owned()).collect::<Vec<_>>();
    let mut report = ReloadReport {
        applied: true,
        changes: phrases(&["firewall rule: added web"]),
        reevaluates: true,
        configuration: "0123456789abcdef".to_owned(),
        ..ReloadReport::default()
    };
    let expected = "\
changes:
  firewall rule: added web
reloaded: configuration 0123456789abcdef
connections are being held against the rules; those that they do not allow end
";
    assert_eq!(reload::describe(&report), expected);
    (report.applied, report.needs_restart) = (false, phrases(&["node.id: 0 before, 1 now"]));
    let expected = "needs a restart:\n  node.id: 0 before, 1 now\nchanges:\n  firewall rule: added web\n";
    assert_eq!(reload::describe(&report), expected);
}

#[test]
fn flows_read_well() {
    let ends =
        |source: &str, destination: &str| Ends { source: source.to_owned(), destination: destination.to_owned() };
    let flow = Flow {
        protocol: "tcp".to_owned(),
        state: "ESTABLISHED".to_owned(),
        role: "master".to_owned(),
        owner: 0,
        original: ends("10.0.0.2:40000", "198.51.100.1:443"),
        translated: Some(ends("192.0.2.10:1025", "198.51.100.1:443")),
        uncounted: false,
        packets: BothWays { original: 10, reply: 12_000 },
        bytes: BothWays { original: 600, reply: 18_000_000 },
        replied: true,
        assured: true,
        expires_s: 431_990.0,
        age_s: 12.0,
        egress: Some("outside".to_owned()),
        version: 3,
        related_to: None,
        class: None,
        path: None,
        hook: None,
        gateway_reason: None,
    };
    let mut kernels = flow.clone();
    kernels.uncounted = true;
    let row = flows::describe(&[kernels], false);
    assert_eq!(row.split_whitespace().filter(|cell| *cell == "–").count(), 3, "packets, bytes and age: {row}");
    let expected = "\
PROTO  STATE        ROLE    SOURCE          DESTINATION       TRANSLATED                PACKETS          BYTES   AGE   EXPIRES
tcp    ESTABLISHED  master  10.0.0.2:40000  198.51.100.1:443  from 192.0.2.10:1025  10 / 12 000  600 B / 18 MB  12 s  4 d 23 h

1 flow
";
    assert_eq!(flows::describe(std::slice::from_ref(&flow), false), expected);
    let kernel = Flow { path: Some(PacketPath::Kernel), hook: Some("xdp".to_owned()), ..flow.clone() };
    let gateway =
        Flow { path: Some(PacketPath::Gateway), gateway_reason: Some(GatewayReason::NotAcknowledged), ..flow.clone() };
    let text = flows::describe(&[kernel, gateway], false);
    let cells = |line: usize| text.lines().nth(line).and_then(|line| line.split("  ").last()).map(str::trim);
    assert_eq!([0, 1, 2].map(cells), [Some("PATH"), Some("kernel (xdp)"), Some("gateway: not acknowledged")], "{text}");
    let announced = Flow { related_to: Some(Box::new(ends("10.0.0.2:4000", "198.51.100.1:21"))), ..flow.clone() };
    let text = flows::describe(&[announced], false);
    assert!(text.contains("from 192.0.2.10:1025, for 10.0.0.2:4000 > 198.51.100.1:21 "), "{text}");
    assert!(
        flows::describe(std::slice::from_ref(&flow), true)
            .ends_with("\nthe first 1 shown; there are more: raise --limit or add conditions\n")
    );
    let syn = Flow { state: "SYN_SENT".to_owned(), ..flow.clone() };
    let expected = "\
PROTO  STATE        ROLE    FLOWS
tcp    ESTABLISHED  master      2
tcp    SYN_SENT     master      1

3 flows
";
    assert_eq!(flows::describe_counts(&flows::count_kinds([syn, flow.clone(), flow])), expected);
}

#[test]
fn events_read_well() {
    let event = Event {
        number: 7,
        monotonic_ns: 12_034_567_890,
        time: "2026-11-23T01:02:03.000004Z".to_owned(),
        kind: EventKind::BecameActive,
        detail: "node 1 is down".to_owned(),
    };
    let expected = "\
NUMBER  TIME                         MONOTONIC  EVENT          DETAIL
     7  2026-11-23T01:02:03.000004Z  12.034567  became active  node 1 is down
";
    assert_eq!(events::describe(&[event]), expected);
}
