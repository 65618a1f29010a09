//! Scenarios of the classifier: each with real frames through a chain.

use std::vec;
use std::vec::Vec;

use flow::conntrack::ProtocolState;
use flow::wire::{Headers, TcpSegment, ip_protocol};
use flow::{Connection, Frame, Instant, NodeId, PortId};
use proptest::prelude::*;

use super::*;
use crate::chain::{Chain, ChainBuilder, Processed};
use crate::firewall::{Action, Firewall, FirewallConfig, Rule};
use crate::function::{FlowState, ReevaluationOutcome, state_attribute};
use crate::inspect::{quic, tls};
use crate::port_range::PortRange;
use crate::rule_set::Conditions;
use crate::testing::{Gateway, INSIDE, portless, tcp, udp};

const CLIENT_START: u32 = 0xffff_fff0;
const DSCP_OF_CALLS: u8 = 46;

fn classifier() -> Classifier {
    let mut config = ClassifierConfig {
        rules: vec![
            ClassRule {
                class: Class::Video,
                names: vec!["films.example".into()],
                protocol: Some(ip_protocol::TCP),
                ports: vec![PortRange::single(7000)],
            },
            ClassRule { class: Class::Mail, names: vec!["mail.films.example".into()], protocol: None, ports: vec![] },
        ],
        ..ClassifierConfig::default()
    };
    config.dscp[Class::Voice.index()] = Some(DSCP_OF_CALLS);
    Classifier::new(&config).expect("the configuration makes sense")
}

fn rule(name: &str, action: Action, classes: &[Class]) -> Rule {
    let conditions = Conditions { classes: classes.to_vec(), ..Conditions::default() };
    Rule { name: name.into(), conditions, action, log: false }
}

fn firewall(rules: Vec<Rule>) -> Firewall {
    Firewall::new(FirewallConfig { rules, generation: 1, ..FirewallConfig::default() }).expect("the rules make sense")
}

/// A client and a server, and a gateway between them.
struct Talk {
    gateway: Gateway,
    connection: Connection,
    sent: [u32; 2],
    /// The first byte of the last packet's IP header, and the second.
    ip: [u8; 2],
}

impl Talk {
    fn with(chain: Chain, tuple: Tuple) -> Self {
        let mut gateway = Gateway::of(chain);
        let mut connection = Connection::new(tuple, NodeId(0), ProtocolState::default(), Instant::FAR_FUTURE);
        let sent = [CLIENT_START, 7];
        let flags = tcp_flags::SYN;
        let began = with_payload(&tuple, flags, sent[0], &[], |packet| gateway.begin_with(&mut connection, packet));
        began.expect("no rule denies it yet");
        let mut talk = Self { gateway, connection, sent, ip: [0; 2] };
        if tuple.protocol == ip_protocol::TCP {
            talk.send(Direction::Original, flags, 0, &[]);
            talk.send(Direction::Reply, flags | tcp_flags::ACK, 0, &[]);
            talk.sent = [CLIENT_START.wrapping_add(1), 8];
        }
        talk
    }

    fn new(tuple: Tuple) -> Self {
        Self::with(ChainBuilder::new().push(classifier()).build().expect("one function"), tuple)
    }

    fn send(&mut self, direction: Direction, flags: u8, offset: u32, payload: &[u8]) -> Processed {
        let tuple = *self.connection.tuple(direction);
        let sequence = self.sent[direction.index()].wrapping_add(offset);
        let Self { gateway, connection, ip, .. } = self;
        with_payload(&tuple, flags, sequence, payload, |packet| {
            let processed = gateway.process(connection, packet, direction);
            let at = usize::from(packet.headers.l3_offset);
            *ip = [packet.frame.bytes()[at], packet.frame.bytes()[at + 1]];
            processed
        })
    }

    /// The client sends, or (second) the server.
    fn client(&mut self, payload: &[u8]) -> Processed {
        let processed = self.send(Direction::Original, tcp_flags::ACK, 0, payload);
        self.sent[0] = self.sent[0].wrapping_add(payload.len() as u32);
        processed
    }

    fn server(&mut self, payload: &[u8]) -> Processed {
        let processed = self.send(Direction::Reply, tcp_flags::ACK, 0, payload);
        self.sent[1] = self.sent[1].wrapping_add(payload.len() as u32);
        processed
    }

    fn class(&self) -> Class {
        self.gateway.chain.class(&self.connection)
    }

    fn is_settled(&self) -> bool {
        !self.gateway.chain.needs_packets(&self.connection)
    }

    fn settled(&self) -> (Class, bool) {
        (self.class(), self.is_settled())
    }

    /// The same connection, as another node has it that knows what was replicated.
    fn fail_over(&mut self) {
        let mut attributes = Vec::new();
        self.gateway.chain.encode_states(&self.connection, &mut attributes);
        let mut replica = self.connection;
        replica.functions = [0; 64];
        self.gateway.chain.decode_states(&mut replica, &attributes).expect("what was encoded");
        self.connection = replica;
        self.gateway.assemblies = crate::inspect::assembly::Assemblies::default();
    }
}

/// Calls `with` with a packet that has this payload.
fn with_payload<R>(
    tuple: &Tuple,
    flags: u8,
    sequence: u32,
    payload: &[u8],
    with: impl FnOnce(&mut Packet<'_, '_>) -> R,
) -> R {
    let (l3, l4) = (14usize, if tuple.version == 4 { 34 } else { 54 });
    let header_bytes = if tuple.protocol == ip_protocol::TCP { 20 } else { 8 };
    let payload_offset = l4 + header_bytes;
    let mut bytes = vec![0; payload_offset + payload.len()];
    bytes[l3] = if tuple.version == 4 { 0x45 } else { 0x60 };
    bytes[l3 + 1] = 0x01;
    bytes[payload_offset..].copy_from_slice(payload);
    let transport = match tuple.protocol {
        ip_protocol::TCP => {
            Transport::Tcp(TcpSegment { sequence, flags, payload_bytes: payload.len() as u32, ..TcpSegment::default() })
        }
        ip_protocol::UDP => Transport::Udp,
        _ => Transport::Other,
    };
    let mut headers = Headers {
        tuple: *tuple,
        transport,
        l3_offset: l3 as u16,
        l4_offset: l4 as u16,
        payload_offset: payload_offset as u16,
        l3_bytes: (bytes.len() - l3) as u32,
        ttl: 64,
        is_fragment: false,
    };
    let length_bytes = bytes.len();
    let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(INSIDE.0)).expect("the frame is its buffer");
    with(&mut Packet { frame: &mut frame, headers: &mut headers })
}

fn web() -> Tuple {
    tcp("10.0.0.2:4000", "198.51.100.1:443")
}

fn hello(server: &str) -> Vec<u8> {
    let message = tls::client_hello_bytes(&[(51, &[7; 1216]), (0, &tls::server_name_bytes(server))]);
    tls::in_records(&message, 1 << 14)
}

#[test]
fn the_name_in_a_client_hello_settles_the_class() {
    let mut talk = Talk::new(web());
    assert_eq!(talk.settled(), (Class::Web, false), "by the port");
    let processed = talk.client(&hello("cdn.films.example"));
    assert!(processed.states_changed, "other nodes must know");
    assert_eq!(talk.settled(), (Class::Video, true));
    assert_eq!(talk.gateway.counter("classifier.settled_by_name"), 1);
    let processed = talk.client(b"GET / HTTP/1.1\r\nHost: mail.films.example\r\n\r\n");
    assert!(!processed.states_changed && talk.class() == Class::Video, "settled is settled");
}

#[test]
fn the_longest_domain_decides_and_built_in_names_count() {
    for (server, class) in [
        ("mail.films.example", Class::Mail),
        ("notfilms.example", Class::Web),
        ("rr3---sn-a.googlevideo.com", Class::Video),
        ("a.example", Class::Web),
    ] {
        let mut talk = Talk::new(web());
        talk.client(&hello(server));
        assert_eq!(talk.settled(), (class, true), "{server}");
    }
}

#[test]
fn a_client_hello_in_segments_of_any_order_is_read() {
    let hello = hello("cdn.films.example");
    let half = 900;
    let mut talk = Talk::new(web());
    let processed = talk.send(Direction::Original, tcp_flags::ACK, half as u32, &hello[half..]);
    assert!(!processed.states_changed, "what is held is not replicated");
    assert_eq!(talk.settled(), (Class::Web, false));
    assert_eq!(talk.gateway.assemblies.len(), 1);
    talk.send(Direction::Original, tcp_flags::ACK, 0, &hello[..half]);
    assert_eq!(talk.settled(), (Class::Video, true));
    assert!(talk.gateway.assemblies.is_empty());
}

#[test]
fn a_response_shows_more_than_its_request() {
    let tuple = tcp("10.0.0.2:4000", "198.51.100.1:80");
    for (kind, class) in [("video/mp4", Class::Video), ("text/html", Class::Web), ("audio/ogg; x", Class::Video)] {
        let mut talk = Talk::new(tuple);
        talk.client(b"GET /a HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(talk.settled(), (Class::Web, false));
        talk.server(std::format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n").as_bytes());
        assert_eq!(talk.settled(), (class, true), "{kind}");
    }
    let mut talk = Talk::new(tuple);
    talk.client(b"GET /a HTTP/1.1\r\nHost: www.films.example\r\n\r\n");
    assert_eq!(talk.settled(), (Class::Video, true), "a known name needs no response");
}

#[test]
fn another_protocol_on_a_port_of_the_web_is_what_it_is() {
    let mut talk = Talk::new(web());
    talk.client(b"\x13BitTorrent protocol\0\0\0\0\0\0\0\0");
    assert_eq!(talk.settled(), (Class::PeerToPeer, true));

    let mut talk = Talk::new(web());
    talk.client(&[0xff; 40]);
    assert_eq!(talk.settled(), (Class::Web, false), "the server has not answered");
    talk.server(&[0xff; 40]);
    assert_eq!(talk.settled(), (Class::Unknown, true));
    assert_eq!(talk.gateway.counter("classifier.port_contradicted"), 1);
}

#[test]
fn a_server_that_sends_first_shows_the_class_of_an_unknown_port() {
    let mut talk = Talk::new(tcp("10.0.0.2:4000", "198.51.100.1:2200"));
    assert_eq!(talk.class(), Class::Unknown);
    talk.server(b"SSH-2.0-OpenSSH\r\n");
    assert_eq!(talk.settled(), (Class::Remote, true));
}

#[test]
fn tls_on_a_port_of_another_class_keeps_the_class_of_the_port() {
    for (port, class) in [(993, Class::Mail), (7000, Class::Video), (9999, Class::Web)] {
        let mut talk = Talk::new(tcp("10.0.0.2:4000", &std::format!("198.51.100.1:{port}")));
        talk.client(&hello("a.example"));
        assert_eq!(talk.settled(), (class, true), "{port}");
    }
}

#[test]
fn inspection_ends_after_its_limit_of_packets() {
    let mut talk = Talk::new(tcp("10.0.0.2:4000", "198.51.100.1:25"));
    for packet in 1..=PACKETS_MAX_DEFAULT {
        assert!(!talk.is_settled(), "{packet}");
        talk.client(b"");
        talk.client(b"E");
    }
    assert_eq!(talk.settled(), (Class::Mail, true));
    assert_eq!(talk.gateway.counter("classifier.settled_by_port"), 1);
    assert!(talk.gateway.assemblies.is_empty(), "what was held is dropped");
}

#[test]
fn datagrams_show_their_class() {
    let stun = [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[9; 12]].concat();
    let mut query = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1];
    query.truncate(19);
    let mut quic = vec![0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x80];
    quic.resize(1200, 0);
    for (port, payload, class) in
        [(40_000, &stun[..], Class::Voice), (40_000, &query, Class::Network), (40_000, &quic, Class::Web)]
    {
        let mut talk = Talk::new(udp("10.0.0.2:4000", &std::format!("198.51.100.1:{port}")));
        talk.client(payload);
        assert_eq!(talk.class(), class);
    }
}

#[test]
fn the_name_in_a_quic_connections_first_datagrams_decides() {
    let message = tls::client_hello_bytes(&[(51, &[7; 1216]), (0, &tls::server_name_bytes("www.youtube.com"))]);
    let id = [1, 2, 3, 4, 5, 6, 7, 8];
    // The end first, and the middle in pieces, as clients scatter it.
    let pieces: [&[(usize, &[u8])]; 2] =
        [&[(1100, &message[1100..]), (500, &message[500..700])], &[(700, &message[700..1100]), (0, &message[..500])]];
    for version in [quic::Version::V1, quic::Version::V2] {
        let datagrams = pieces.map(|pieces| quic::decryption::client_initial_bytes(version, &id, 0, pieces).unwrap());
        let mut talk = Talk::new(udp("10.0.0.2:4000", "198.51.100.1:443"));
        talk.client(&datagrams[0]);
        assert_eq!((talk.settled(), talk.gateway.assemblies.len()), ((Class::Web, false), 1));
        talk.client(&datagrams[1]);
        assert_eq!((talk.settled(), talk.gateway.assemblies.len()), ((Class::Video, true), 0));
        assert_eq!(talk.gateway.counter("classifier.settled_by_name"), 1);
    }
    let other = tls::client_hello_bytes(&[(0, &tls::server_name_bytes("www.example.org"))]);
    let datagram = quic::decryption::client_initial_bytes(quic::Version::V1, &id, 0, &[(0, &other)]).unwrap();
    let mut talk = Talk::new(udp("10.0.0.2:4000", "198.51.100.1:443"));
    talk.client(&datagram);
    assert_eq!(talk.settled(), (Class::Web, true));
}

#[test]
fn protocols_without_payload_are_settled_at_once() {
    for (tuple, class) in [
        (portless(89, "10.0.0.2", "10.0.0.3"), Class::Network),
        (portless(47, "10.0.0.2", "10.0.0.3"), Class::Unknown),
        (portless(58, "2001:db8::1", "2001:db8::2"), Class::Network),
    ] {
        assert_eq!(Talk::new(tuple).settled(), (class, true));
    }
}

#[test]
fn packets_of_a_marked_class_leave_with_its_code_point() {
    for (client, server) in [("10.0.0.2:4000", "198.51.100.1:5060"), ("[2001:db8::2]:4000", "[2001:db8::1]:5060")] {
        let mut talk = Talk::new(udp(client, server));
        talk.client(b"OPTIONS sip:a SIP/2.0\r\n");
        assert_eq!(talk.class(), Class::Voice);
        assert!(!talk.is_settled(), "each packet is marked");
        talk.server(b"SIP/2.0 200 OK\r\n");
        let expected = if client.starts_with('[') { [0x60 | 0xb, 0x81] } else { [0x45, DSCP_OF_CALLS << 2 | 1] };
        assert_eq!(talk.ip, expected, "the bits of ECN and the flow label stay");
    }
}

#[test]
fn the_class_survives_a_failover_at_every_step() {
    let hello = hello("cdn.films.example");
    for step in 0..4 {
        let mut talk = Talk::new(web());
        let steps: [&[u8]; 2] = [&hello[..900], &hello[900..]];
        let mut settled_before = (Class::Web, false);
        for (number, part) in steps.into_iter().enumerate() {
            if step == number {
                talk.fail_over();
            }
            talk.client(part);
        }
        if step >= 2 {
            settled_before = talk.settled();
            talk.fail_over();
        }
        let expected = match step {
            0 => (Class::Video, true), // The whole hello came to the new node.
            1 => (Class::Web, false),  // Half of it went down with the old one.
            _ => settled_before,
        };
        assert_eq!(talk.settled(), expected, "step {step}");
    }
    let mut talk = Talk::new(web());
    talk.client(&hello);
    talk.fail_over();
    assert_eq!(talk.settled(), (Class::Video, true));
}

#[test]
fn another_node_does_not_take_later_bytes_for_the_beginning() {
    let mut talk = Talk::new(tcp("10.0.0.2:4000", "198.51.100.1:80"));
    talk.send(Direction::Original, tcp_flags::ACK, 0, b"GET /a HTTP/1.1\r\n");
    talk.fail_over();
    talk.send(Direction::Original, tcp_flags::ACK, 5000, b"\x13BitTorrent protocol\0\0\0");
    talk.server(b"SSH-2.0-x\r\n");
    assert_eq!(talk.settled(), (Class::Web, false));
}

#[test]
fn a_connection_picked_up_in_the_middle_has_the_class_of_its_port() {
    let chain = ChainBuilder::new().push(classifier()).build().unwrap();
    let mut gateway = Gateway::of(chain);
    let mut connection = Connection::new(web(), NodeId(0), ProtocolState::default(), Instant::FAR_FUTURE);
    with_payload(&web(), tcp_flags::ACK, 9, b"", |packet| gateway.begin_with(&mut connection, packet)).unwrap();
    assert_eq!(gateway.chain.class(&connection), Class::Web);
    assert!(!gateway.chain.needs_packets(&connection));
}

#[test]
fn a_connection_older_than_the_classifier_gets_the_class_of_its_port() {
    let mut talk = Talk::new(web());
    talk.connection.functions = [0; 64];
    assert_eq!(talk.class(), Class::Unknown);
    talk.client(&hello("cdn.films.example"));
    assert_eq!(talk.settled(), (Class::Web, true));
}

/// A chain in which films are denied.
fn without_films() -> Chain {
    let rules = vec![rule("no-films", Action::Drop, &[Class::Video]), rule("rest", Action::Accept, &[])];
    ChainBuilder::new().push(classifier()).push(firewall(rules)).build().expect("two functions")
}

#[test]
fn a_rule_denies_a_connection_when_its_class_shows() {
    let mut talk = Talk::with(without_films(), web());
    assert_eq!(talk.client(b"").verdict, Verdict::Forward);
    let processed = talk.client(&hello("cdn.films.example"));
    let denied = Verdict::Drop(DropReason::FirewallDenied);
    assert_eq!(processed, Processed { verdict: denied, states_changed: true });
    assert_eq!((talk.client(b"x").verdict, talk.server(b"x").verdict), (denied, denied));
    assert!(!talk.is_settled(), "the kernel must not forward its packets");
    talk.fail_over();
    assert_eq!(talk.client(b"x").verdict, denied, "on another node, too");
}

#[test]
fn a_reload_with_reevaluation_lifts_and_imposes_a_denial() {
    let mut talk = Talk::with(without_films(), web());
    talk.client(&hello("cdn.films.example"));
    assert_eq!(talk.gateway.chain.reevaluate(&mut talk.connection), ReevaluationOutcome::Denied);
    let open = ChainBuilder::new().push(classifier()).push(firewall(vec![rule("all", Action::Accept, &[])]));
    talk.gateway.chain = open.build_within(talk.gateway.chain.layout()).unwrap();
    assert_eq!(talk.gateway.chain.reevaluate(&mut talk.connection), ReevaluationOutcome::Allowed);
    assert_eq!(talk.client(b"x").verdict, Verdict::Forward);
}

#[test]
fn a_rule_permits_classes_by_port_until_more_is_known() {
    let rules = vec![rule("web-only", Action::Accept, &[Class::Web])];
    let chain = || ChainBuilder::new().push(classifier()).push(firewall(rules.clone())).build().unwrap();
    let mut connection =
        Connection::new(tcp("10.0.0.2:1", "198.51.100.1:25"), NodeId(0), ProtocolState::default(), Instant::ZERO);
    let mut gateway = Gateway::of(chain());
    let tuple = connection.original;
    let begun = with_payload(&tuple, tcp_flags::SYN, 0, b"", |packet| gateway.begin_with(&mut connection, packet));
    assert_eq!(begun, Err(DropReason::FirewallDenied), "mail");
    let mut talk = Talk::with(chain(), web());
    talk.client(&hello("a.example"));
    assert_eq!(talk.settled(), (Class::Web, true), "confirmed");
}

#[test]
fn the_class_by_port_is_restored_and_others_are_replicated() {
    let chain = without_films();
    assert_eq!(chain.restorable(), Ok(()));
    let mut talk = Talk::with(without_films(), web());
    assert!(talk.gateway.chain.is_restorable(&talk.connection));
    talk.client(&hello("a.example"));
    assert!(talk.gateway.chain.is_restorable(&talk.connection), "that of its port");
    let restored = talk.gateway.chain.restore(&web(), None).expect("no rule denies it");
    let mut connection = talk.connection;
    connection.functions = restored.functions;
    let restored = connection;
    assert_eq!(talk.gateway.chain.class(&restored), Class::Web);
    let mut talk = Talk::with(without_films(), web());
    talk.client(b"SSH-2.0-x\r\n");
    assert!(!talk.gateway.chain.is_restorable(&talk.connection));
}

#[test]
fn impossible_configurations_are_refused() {
    let with = |change: fn(&mut ClassifierConfig)| {
        let mut config = ClassifierConfig::default();
        change(&mut config);
        Classifier::new(&config).map(|_| ()).unwrap_err()
    };
    assert_eq!(with(|config| config.packets_max = 0), ClassifierError::Packets(0));
    assert_eq!(with(|config| config.dscp[1] = Some(64)), ClassifierError::Dscp(64));
    let name = |config: &mut ClassifierConfig| {
        let names = vec!["*.example".into()];
        config.rules.push(ClassRule { class: Class::Web, names, protocol: None, ports: vec![] });
    };
    assert_eq!(with(name), ClassifierError::Name("*.example".into()));
}

#[test]
fn without_the_built_in_tables_only_the_rules_count() {
    let config = ClassifierConfig { has_built_in: false, ..ClassifierConfig::default() };
    let chain = ChainBuilder::new().push(Classifier::new(&config).unwrap()).build().unwrap();
    let mut talk = Talk::with(chain, web());
    assert_eq!(talk.class(), Class::Unknown);
    talk.client(&hello("www.netflix.com"));
    assert_eq!(talk.settled(), (Class::Web, true), "TLS is recognised, the name is not");
}

proptest! {
    /// Whatever end points send, a settled class stays, inspection ends, and another node reads what was replicated.
    #[test]
    fn any_payload_settles_within_the_limit(
        payloads in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 1..60)), 1..20),
        port in prop::sample::select(vec![22u16, 53, 80, 443, 9999]),
        protocol in prop::sample::select(vec![ip_protocol::TCP, ip_protocol::UDP]),
    ) {
        let mut tuple = web();
        (tuple.destination_port, tuple.protocol) = (port, protocol);
        let mut talk = Talk::new(tuple);
        let mut settled = None;
        for (count, (is_client, payload)) in payloads.iter().enumerate() {
            if *is_client { talk.client(payload) } else { talk.server(payload) };
            let bytes: [u8; 7] = talk.connection.functions[..7].try_into().unwrap();
            let state: ClassState = zerocopy::FromBytes::read_from_bytes(&bytes[..]).unwrap();
            let mut attributes = Vec::new();
            state.encode(&mut attributes);
            prop_assert_eq!(ClassState::decode(&attributes).unwrap().replicated(), state.replicated());
            prop_assert!(state.is_settled() || count + 1 < usize::from(PACKETS_MAX_DEFAULT));
            if let Some(settled) = settled {
                prop_assert_eq!(talk.class(), settled);
            } else if state.is_settled() {
                settled = Some(talk.class());
            }
        }
    }

    #[test]
    fn decoding_never_panics_and_reads_what_it_wrote(attributes in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(state) = ClassState::decode(&attributes) {
            let mut written = Vec::new();
            state.encode(&mut written);
            prop_assert_eq!(ClassState::decode(&written).map(|read| read.replicated()), Ok(state.replicated()));
        }
    }
}

#[test]
fn the_attribute_is_the_sixth() {
    assert_eq!((ClassState::ATTRIBUTE, state_attribute::CLASSIFIER), (6, 6));
}

#[test]
fn a_connection_is_restored_with_its_class_where_that_is_known() {
    let mut talk = Talk::new(tcp("10.0.0.2:4000", "198.51.100.1:443"));
    let chain = |talk: &Talk| talk.gateway.chain.class_to_restore(&talk.connection);
    assert_eq!(chain(&talk), None, "the class of the port follows from the tuple");
    talk.client(&tls::in_records(
        &tls::client_hello_bytes(&[(0, &tls::server_name_bytes("www.youtube.com"))]),
        1 << 14,
    ));
    assert_eq!((talk.settled(), chain(&talk)), ((Class::Video, true), Some(Class::Video)));
    assert!(!talk.gateway.chain.is_restorable(&talk.connection));
    let restored =
        talk.gateway.chain.restore_as(&talk.connection.original, None, Some(Class::Video)).expect("it is allowed");
    talk.connection.functions = restored.functions;
    assert_eq!(talk.settled(), (Class::Video, true));
    let by_port = talk.gateway.chain.restore(&talk.connection.original, None).expect("it is allowed");
    talk.connection.functions = by_port.functions;
    assert_eq!(talk.settled(), (Class::Web, true));
}
