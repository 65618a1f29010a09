//! Scenarios of the URL filter: real frames through a chain, and what leaves it.

mod offset;
mod questions;
mod reading;

use std::string::String;
use std::vec;
use std::vec::Vec;

use flow::conntrack::ProtocolState;
use flow::wire::{Parsed, build, parse};
use flow::{Connection, Frame, Instant, NodeId, PortId};

use super::lists::ListFormat;
use super::rules::{DnsAction, ListConfig, MALFORMED, RuleConfig, RulesError, UNCATEGORISED, UNDECIDED};
use super::views::{HostVerdict, RuleView};
use super::*;
use crate::chain::Processed;
use crate::function::FlowState;
use crate::inspect::{quic, tls};
use crate::port_range::PortRange;
use crate::testing::{Gateway, tcp, udp};

const CLIENT_START: u32 = 0xffff_fff0;
const SERVER_START: u32 = 77;
/// Room behind a frame, as packets have it in the buffers of ports.
const ROOM_BYTES: usize = 1500;

const ADS: &str = "ads.example\nbig.example/ads\n";
const GAMES: &str = "0.0.0.0 games.example";

fn rule() -> RuleConfig {
    RuleConfig {
        name: "web".into(),
        sources: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/64".parse().unwrap()],
        destinations: vec![],
        ports: vec![PortRange::single(80), PortRange::single(443)],
        block: vec!["ads".into()],
        allow: vec![],
        action: Action::BlockPage,
        undecided: Undecided::Allow,
        dns: DnsAction::NxDomain,
        quic: true,
        log: true,
    }
}

fn rules_after(configs: &[RuleConfig], previous: Option<&UrlFilterRules>) -> Result<UrlFilterRules, RulesError> {
    let list = |category: &str, format| ListConfig { category: category.into(), format };
    let lists = [(list("ads", ListFormat::Plain), ADS), (list("games", ListFormat::Hosts), GAMES)];
    UrlFilterRules::new(configs, lists.iter().map(|(config, text)| (config, text.as_bytes())), None, [1, 2], previous)
}

fn rules_of(config: RuleConfig) -> Arc<UrlFilterRules> {
    Arc::new(rules_after(&[config], None).expect("good rules"))
}

/// A client and a server, and a gateway between them.
struct Talk {
    rules: Arc<UrlFilterRules>,
    gateway: Gateway,
    connection: Connection,
    /// The next sequence numbers.
    next: [u32; 2],
    /// The last frame as it left.
    sent: Vec<u8>,
}

impl Talk {
    fn new(config: RuleConfig, tuple: Tuple) -> Self {
        let rules = rules_of(config);
        let gateway = Gateway::with(UrlFilter::new(Arc::clone(&rules)));
        let connection = Connection::new(tuple, NodeId(0), ProtocolState::default(), Instant::FAR_FUTURE);
        let mut talk = Self { rules, gateway, connection, next: [CLIENT_START, SERVER_START], sent: Vec::new() };
        if tuple.protocol == ip_protocol::TCP {
            talk.begin(tcp_flags::SYN, b"").expect("a SYN passes");
            assert_eq!(talk.send(Direction::Original, tcp_flags::SYN, 0, b"").verdict, Verdict::Forward);
            talk.next[0] = CLIENT_START.wrapping_add(1);
            assert_eq!(talk.send(Direction::Reply, tcp_flags::SYN | tcp_flags::ACK, 0, b"").verdict, Verdict::Forward);
            talk.next = [CLIENT_START.wrapping_add(1), SERVER_START + 1];
        } else {
            talk.begin(0, b"").expect("it begins");
        }
        talk
    }

    fn web(config: RuleConfig) -> Self {
        Self::new(config, tcp("10.0.0.2:4000", "198.51.100.1:443"))
    }

    fn begin(&mut self, flags: u8, payload: &[u8]) -> Result<(), DropReason> {
        let (mut bytes, length_bytes) = self.frame(Direction::Original, flags, 0, payload);
        let Self { gateway, connection, .. } = self;
        with_packet(&mut bytes, length_bytes, |packet| gateway.begin_with(connection, packet)).0
    }

    fn frame(&self, direction: Direction, flags: u8, offset: u32, payload: &[u8]) -> (Vec<u8>, usize) {
        let tuple = self.connection.tuple(direction);
        let bytes = if tuple.protocol == ip_protocol::TCP {
            build::tcp(tuple, self.segment(direction, flags, offset), payload)
        } else {
            build::udp(tuple, payload)
        };
        with_room(bytes)
    }

    /// The next segment, as its sender sends it.
    fn segment(&self, direction: Direction, flags: u8, offset: u32) -> build::Tcp<'static> {
        build::Tcp {
            flags,
            sequence: self.next[direction.index()].wrapping_add(offset),
            acknowledgement: self.next[direction.reverse().index()],
            timestamps: Some(if direction == Direction::Original { (10, 20) } else { (20, 10) }),
            ..build::Tcp::default()
        }
    }

    fn send(&mut self, direction: Direction, flags: u8, offset: u32, payload: &[u8]) -> Processed {
        let frame = self.frame(direction, flags, offset, payload);
        self.send_frame(direction, frame)
    }

    fn send_frame(&mut self, direction: Direction, (mut bytes, length_bytes): (Vec<u8>, usize)) -> Processed {
        let Self { gateway, connection, .. } = self;
        let (processed, sent) =
            with_packet(&mut bytes, length_bytes, |packet| gateway.process(connection, packet, direction));
        self.sent = sent;
        processed
    }

    /// A segment of the client that `change` has made unlike what its stack sends.
    fn client_sends(&mut self, payload: &[u8], change: impl FnOnce(&mut build::Tcp<'static>)) -> Verdict {
        let mut segment = self.segment(Direction::Original, tcp_flags::ACK, 0);
        change(&mut segment);
        let bytes = build::tcp(self.connection.tuple(Direction::Original), segment, payload);
        self.send_frame(Direction::Original, with_room(bytes)).verdict
    }

    /// The same, with the bytes of the packet changed.
    fn client_sends_bytes(&mut self, payload: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Verdict {
        let segment = self.segment(Direction::Original, tcp_flags::ACK, 0);
        let mut bytes = build::tcp(self.connection.tuple(Direction::Original), segment, payload);
        change(&mut bytes);
        set_ipv4_checksum(&mut bytes[14..]);
        self.send_frame(Direction::Original, with_room(bytes)).verdict
    }

    fn client(&mut self, payload: &[u8]) -> Verdict {
        let verdict = self.send(Direction::Original, tcp_flags::ACK, 0, payload).verdict;
        self.next[0] = self.next[0].wrapping_add(payload.len() as u32);
        verdict
    }

    fn server(&mut self, payload: &[u8]) -> Verdict {
        let verdict = self.send(Direction::Reply, tcp_flags::ACK, 0, payload).verdict;
        self.next[1] = self.next[1].wrapping_add(payload.len() as u32);
        verdict
    }

    /// The last frame that left: its tuple, segment and payload.
    fn left(&mut self) -> (Tuple, TcpSegment, String) {
        let length_bytes = self.sent.len();
        let mut sent = self.sent.clone();
        let frame = Frame::new(&mut sent, 0, length_bytes, PortId(0)).unwrap();
        let Ok(Parsed::Ip(headers)) = parse(&frame) else { panic!("a sound packet") };
        let Transport::Tcp(segment) = headers.transport else { panic!("a segment") };
        let payload = &frame.bytes()[usize::from(headers.payload_offset)..headers.l3_end()];
        (headers.tuple, segment, String::from_utf8_lossy(payload).into_owned())
    }

    fn phase(&self) -> Phase {
        self.gateway.chain.state_of::<UrlState>(&self.connection).expect("the function is there").phase()
    }

    fn view(&self) -> RuleView {
        self.rules.views().remove(0)
    }

    fn counted(&self, category: &str, decided: Decided) -> u64 {
        let found = self.view().decisions.into_iter().find(|(name, known, _)| name == category && *known == decided);
        found.map_or(0, |(.., count)| count)
    }

    fn answered(&self, answer: Answer) -> u64 {
        self.view().answers.iter().find(|(known, _)| *known == answer).map_or(0, |(_, count)| *count)
    }

    /// The same connection, as another node has it that knows what was replicated.
    fn fail_over(&mut self) {
        let mut attributes = Vec::new();
        self.gateway.chain.encode_states(&self.connection, &mut attributes);
        self.connection.functions = [0; 64];
        self.gateway.chain.decode_states(&mut self.connection, &attributes).expect("what was encoded");
        self.gateway.assemblies = crate::inspect::assembly::Assemblies::default();
    }
}

/// Sets the checksum of an IPv4 header (RFC 1071).
fn set_ipv4_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let header_bytes = usize::from(packet[0] & 0xf) * 4;
    let words = packet[..header_bytes].as_chunks::<2>().0;
    let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(folded + (folded >> 16)) as u16).to_be_bytes());
}

fn with_room(mut bytes: Vec<u8>) -> (Vec<u8>, usize) {
    let length_bytes = bytes.len();
    bytes.resize(length_bytes + ROOM_BYTES, 0);
    (bytes, length_bytes)
}

fn with_packet<R>(bytes: &mut [u8], length_bytes: usize, with: impl FnOnce(&mut Packet<'_, '_>) -> R) -> (R, Vec<u8>) {
    let mut frame = Frame::new(bytes, 0, length_bytes, PortId(0)).unwrap();
    // Tests change packets; that checksums are verified is not theirs.
    frame.checksum = flow::Checksum::Valid;
    let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { panic!("a sound packet: {:?}", parse(&frame)) };
    let result = with(&mut Packet { frame: &mut frame, headers: &mut headers });
    (result, frame.bytes().to_vec())
}

fn hello(server: &str) -> Vec<u8> {
    let message = tls::client_hello_bytes(&[(51, &[7; 1216]), (0, &tls::server_name_bytes(server))]);
    tls::in_records(&message, 1 << 14)
}

fn get(host: &str, path: &str) -> Vec<u8> {
    std::format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

#[test]
fn an_http_request_to_a_blocked_host_gets_a_page_and_its_server_a_reset() {
    let mut talk = Talk::web(rule());
    let (request, [client, server]) = (get("www.ads.example", "/"), talk.next);
    assert_eq!(talk.client(&request), Verdict::SendBack);
    let (tuple, segment, page) = talk.left();
    assert_eq!(tuple, talk.connection.original.inverse());
    assert!(page.starts_with("HTTP/1.1 403 Forbidden\r\n") && page.contains("<b>ads</b>"), "{page}");
    assert_eq!((segment.sequence, segment.acknowledgement), (server, client.wrapping_add(request.len() as u32)));
    assert!(segment.has(tcp_flags::FIN) && segment.has(tcp_flags::ACK));
    let refused = talk.gateway.refused.expect("the server is reset");
    assert_eq!(refused.reset_sequence, client);
    let sent = refused.last_sent.expect("connection tracking sees the end");
    assert_eq!((sent.sequence, sent.payload_bytes as usize), (server, page.len()));
    assert_eq!((talk.counted("ads", Decided::Blocked), talk.answered(Answer::Page)), (1, 1));

    // What follows: the page's acknowledgement, the server's reply, a repetition, the client's end.
    assert_eq!(talk.client(b""), Verdict::Drop(DropReason::UrlFiltered));
    assert_eq!(talk.server(b"HTTP/1.1 200 OK"), Verdict::Drop(DropReason::UrlFiltered));
    assert!(talk.gateway.refused.is_some_and(|refused| refused.reset_sequence == talk.next[0]));
    assert_eq!(talk.client(&request), Verdict::SendBack);
    assert!(talk.left().2.starts_with("HTTP/1.1 403"));
    assert_eq!(talk.send(Direction::Original, tcp_flags::FIN | tcp_flags::ACK, 0, b"").verdict, Verdict::SendBack);
    assert!(talk.left().1.has(tcp_flags::RST));
    assert_eq!(talk.counted("ads", Decided::Blocked), 1, "one connection");
}

#[test]
fn a_client_hello_with_a_blocked_name_is_reset_and_stays_so_on_another_node() {
    for tuple in [tcp("10.0.0.2:4000", "198.51.100.1:443"), tcp("[2001:db8::2]:4000", "[2001:db8:1::1]:443")] {
        let mut talk = Talk::new(rule(), tuple);
        let hello = hello("ads.example");
        assert_eq!(talk.send(Direction::Original, tcp_flags::ACK, 0, &hello[..700]).verdict, Verdict::Forward);
        let second = talk.send(Direction::Original, tcp_flags::ACK, 700, &hello[700..]);
        assert_eq!((second.verdict, second.states_changed), (Verdict::SendBack, true));
        let (_, segment, payload) = talk.left();
        assert!(segment.has(tcp_flags::RST) && payload.is_empty());
        assert_eq!(segment.sequence, SERVER_START + 1);
        assert_eq!(talk.gateway.refused.unwrap().reset_sequence, talk.next[0].wrapping_add(700));
        assert!(talk.gateway.assemblies.is_empty(), "what was held is dropped");
        talk.fail_over();
        assert_eq!(talk.phase(), Phase::BlockedByReset);
        assert_eq!(talk.client(&hello), Verdict::SendBack);
        assert_eq!(talk.server(b"data"), Verdict::Forward, "the server's segment becomes a reset of the client");
        assert!(talk.left().1.has(tcp_flags::RST));
        assert!(talk.gateway.refused.is_some(), "and the server is reset again");
        assert_eq!(talk.send(Direction::Reply, tcp_flags::RST, 0, b"").verdict, Verdict::Forward);
    }
}

#[test]
fn an_allowed_connection_needs_no_packets_once_the_server_has_its_request_and_its_verdict_is_kept() {
    let mut talk = Talk::web(rule());
    assert!(talk.gateway.chain.needs_packets(&talk.connection));
    let hello = hello("www.example.org");
    let processed = talk.send(Direction::Original, tcp_flags::ACK, 0, &hello);
    assert_eq!((processed.verdict, processed.states_changed), (Verdict::Forward, true));
    assert_eq!(talk.server(b""), Verdict::Forward);
    assert!(talk.gateway.chain.needs_packets(&talk.connection), "the server has not acknowledged it");
    talk.next[0] = talk.next[0].wrapping_add(hello.len() as u32);
    let confirmed = talk.send(Direction::Reply, tcp_flags::ACK, 0, b"");
    assert!(!confirmed.states_changed, "other nodes knew it as allowed before");
    assert!(!talk.gateway.chain.needs_packets(&talk.connection) && talk.gateway.assemblies.is_empty());
    talk.fail_over();
    assert_eq!(talk.phase(), Phase::Allowed);
    assert!(!talk.send(Direction::Original, tcp_flags::ACK, 0, &get("ads.example", "/")).states_changed);
    assert_eq!(talk.counted(UNCATEGORISED, Decided::Allowed), 1);
}

#[test]
fn segments_that_arrive_out_of_order_are_read_in_order() {
    let mut talk = Talk::web(rule());
    let request = get("ads.example", "/long/path");
    assert_eq!(talk.send(Direction::Original, tcp_flags::ACK, 20, &request[20..]).verdict, Verdict::Forward);
    let first = talk.send(Direction::Original, tcp_flags::ACK, 0, &request[..20]);
    assert_eq!(first.verdict, Verdict::SendBack);
    assert_eq!(talk.gateway.refused.unwrap().reset_sequence, talk.next[0], "what the server expects next");
}

#[test]
fn connections_of_no_rule_and_old_ones_are_left_alone() {
    for tuple in [tcp("10.0.0.2:4000", "198.51.100.1:22"), tcp("192.0.2.9:4000", "198.51.100.1:443")] {
        let mut talk = Talk::new(rule(), tuple);
        assert_eq!((talk.phase(), talk.client(&hello("ads.example"))), (Phase::Unfiltered, Verdict::Forward));
        assert!(!talk.gateway.chain.needs_packets(&talk.connection));
    }
}

#[test]
fn a_host_with_listed_paths_is_looked_at_with_every_request() {
    let mut talk = Talk::web(rule());
    assert_eq!(talk.client(&get("big.example", "/news")), Verdict::Forward);
    assert_eq!(talk.phase(), Phase::Watched);
    assert_eq!(talk.server(b"HTTP/1.1 200 OK\r\n\r\n"), Verdict::Forward);
    talk.fail_over();
    assert_eq!(talk.client(&get("big.example", "/x/../ads/top.gif")), Verdict::SendBack);
    assert!(talk.left().2.starts_with("HTTP/1.1 403"));
    let mut encrypted = Talk::web(rule());
    assert_eq!((encrypted.client(&hello("big.example")), encrypted.phase()), (Verdict::Forward, Phase::Confirming));
}

#[test]
fn undecided_connections_are_treated_by_choice() {
    let beginnings: [(&str, Vec<u8>); 4] = [
        ("another protocol", b"SSH-2.0-x\r\n".to_vec()),
        ("no name in TLS", tls::in_records(&tls::client_hello_bytes(&[(51, &[7; 100])]), 1 << 14)),
        ("no host in HTTP", b"GET / HTTP/1.0\r\n\r\n".to_vec()),
        ("an endless word", vec![b'x'; 9000]),
    ];
    for (what, bytes) in &beginnings {
        for (undecided, phase) in [(Undecided::Allow, Phase::Allowed), (Undecided::Block, Phase::BlockedByReset)] {
            let mut talk = Talk::web(RuleConfig { undecided, ..rule() });
            let verdicts: Vec<Verdict> = bytes.chunks(1400).map(|chunk| talk.client(chunk)).collect();
            assert_eq!(talk.phase(), phase, "{what}: {verdicts:?}");
            assert_eq!(talk.gateway.counter("url_filter.undecided"), 1, "{what}");
            let decided = if undecided == Undecided::Allow { Decided::Allowed } else { Decided::Blocked };
            assert_eq!(talk.counted(UNDECIDED, decided), 1);
        }
    }
}

#[test]
fn a_server_that_sends_first_ends_the_reading() {
    let mut talk = Talk::web(rule());
    assert_eq!((talk.server(b"220 ready"), talk.phase()), (Verdict::Forward, Phase::Allowed));
    let mut blocked = Talk::web(RuleConfig { undecided: Undecided::Block, ..rule() });
    assert_eq!(blocked.server(b"220 ready"), Verdict::Forward);
    let (tuple, segment, payload) = blocked.left();
    assert_eq!((tuple, payload.as_str()), (*blocked.connection.tuple(Direction::Reply), ""));
    assert!(segment.has(tcp_flags::RST) && segment.sequence == SERVER_START + 1, "the client is reset in order");
}

#[test]
fn allowed_categories_come_before_blocked_ones_and_hosts_in_none_can_be_blocked() {
    let only_games =
        RuleConfig { block: vec!["ads".into(), UNCATEGORISED.into()], allow: vec!["games".into()], ..rule() };
    for (host, verdict) in [
        ("games.example", Verdict::Forward),
        ("other.example", Verdict::SendBack),
        ("x.games.example", Verdict::SendBack),
    ] {
        assert_eq!(Talk::web(only_games.clone()).client(&get(host, "/")), verdict, "{host}");
    }
    let mut logged = Talk::web(RuleConfig { action: Action::Log, ..rule() });
    assert_eq!((logged.client(&get("ads.example", "/")), logged.phase()), (Verdict::Forward, Phase::Confirming));
    assert_eq!(logged.counted("ads", Decided::Logged), 1);
    let messages: Vec<String> = logged.gateway.log.drain().map(|entry| entry.message).collect();
    assert_eq!(messages, ["rule web: ads.example is in the category ads"]);
}

/// A client's datagram with a piece of a ClientHello.
fn datagram(message: &[u8], range: core::ops::Range<usize>) -> Vec<u8> {
    let piece = (range.start, &message[range]);
    quic::decryption::client_initial_bytes(quic::Version::V1, &[1, 2, 3, 4, 5, 6, 7, 8], 0, &[piece]).expect("it fits")
}

#[test]
fn a_quic_connection_to_a_blocked_host_is_dropped_and_stays_so() {
    let message = |name| tls::client_hello_bytes(&[(51, &[7; 1216]), (0, &tls::server_name_bytes(name))]);
    let dropped = Verdict::Drop(DropReason::UrlFiltered);
    let blocked = message("www.ads.example");
    for tuple in [udp("10.0.0.2:4000", "198.51.100.1:443"), udp("[2001:db8::2]:4000", "[2001:db8:1::1]:443")] {
        let mut talk = Talk::new(rule(), tuple);
        assert_eq!(talk.client(&datagram(&blocked, 0..700)), Verdict::Forward);
        assert_eq!(talk.phase(), Phase::Reading);
        assert_eq!(talk.client(&datagram(&blocked, 700..blocked.len())), dropped);
        assert_eq!((talk.phase(), talk.counted("ads", Decided::Blocked)), (Phase::BlockedByReset, 1));
        assert!(talk.gateway.assemblies.is_empty() && talk.gateway.refused.is_none());
        talk.fail_over();
        assert_eq!((talk.server(b"any"), talk.client(b"any")), (dropped, dropped));
        assert_eq!(talk.counted("ads", Decided::Blocked), 1, "it is decided once");
    }
    let allowed = message("www.example.org");
    let mut talk = Talk::new(rule(), udp("10.0.0.2:4000", "198.51.100.1:443"));
    talk.client(&datagram(&allowed, 0..700));
    assert_eq!(talk.server(b"an acknowledgement"), Verdict::Forward);
    assert_eq!(talk.client(&datagram(&allowed, 700..allowed.len())), Verdict::Forward);
    assert_eq!(talk.phase(), Phase::Initials, "each further connection with the tuple is decided");
    assert!(talk.gateway.chain.needs_packets(&talk.connection));
}

#[test]
fn datagrams_without_a_name_are_undecided_and_not_read_for_ever() {
    let web = udp("10.0.0.2:4000", "198.51.100.1:443");
    let mut other = Talk::new(rule(), web);
    assert_eq!((other.client(b"something else"), other.phase()), (Verdict::Forward, Phase::Initials));
    let mut blocked = Talk::new(RuleConfig { undecided: Undecided::Block, ..rule() }, web);
    assert_eq!(blocked.client(b"something else"), Verdict::Drop(DropReason::UrlFiltered));
    // The same beginning again and again.
    let message = hello("www.example.org");
    let mut endless = Talk::new(rule(), web);
    let sent = (0..20).take_while(|_| {
        endless.client(&datagram(&message[5..], 0..100));
        endless.phase() == Phase::Reading
    });
    assert_eq!(sent.count(), usize::from(datagrams::DATAGRAMS_READ_MAX));
    let mut unread = Talk::new(RuleConfig { quic: false, ..rule() }, web);
    assert_eq!((unread.client(b"something else"), unread.phase()), (Verdict::Forward, Phase::Unfiltered));
}

#[test]
fn an_operator_sees_the_categories_of_a_host_and_what_each_rule_decides() {
    let strict = RuleConfig { name: "strict".into(), block: vec!["games".into()], action: Action::Log, ..rule() };
    let rules = rules_after(&[rule(), strict], None).unwrap();
    let look_up = |target: &str| rules.look_up(Instant::ZERO, target);
    let verdict = |rule: &str, decided, category: &str| HostVerdict {
        rule: rule.into(),
        decided: Some((decided, category.into())),
    };
    let found = look_up("http://www.big.example:8080/ads/top?x").unwrap();
    assert_eq!(found.listed, ["ads"]);
    assert_eq!(found.verdicts, [verdict("web", Decided::Blocked, "ads"), verdict("strict", Decided::Allowed, "ads")]);
    let games = look_up("games.example").unwrap();
    assert_eq!(games.verdicts[1], verdict("strict", Decided::Logged, "games"));
    assert!(look_up("big.example").unwrap().listed.is_empty() && look_up("no host").is_none());
    assert!(rules.views().iter().all(|view| view.decisions.is_empty()), "nothing is counted");
}

#[test]
fn what_is_refused_without_a_host_is_logged_with_the_reason() {
    let mut talk = Talk::web(RuleConfig { undecided: Undecided::Block, ..rule() });
    talk.client(b"SSH-2.0-x\r\n");
    let mut malformed = Talk::web(rule());
    malformed.client(b"GET HTTP/1.1\r\n");
    let logged = |talk: &mut Talk| talk.gateway.log.drain().map(|entry| entry.message).collect::<Vec<_>>();
    assert_eq!(logged(&mut talk), ["rule web: the first bytes are undecided"]);
    assert_eq!(logged(&mut malformed), ["rule web: the first bytes are malformed"]);
}

#[test]
fn data_in_a_syn_is_refused_so_that_the_client_repeats_it_without() {
    let mut talk = Talk::web(rule());
    assert_eq!(talk.begin(tcp_flags::SYN, &get("ads.example", "/")), Err(DropReason::UrlFiltered));
}

#[test]
fn a_frame_without_room_for_the_page_becomes_a_reset() {
    let mut talk = Talk::web(rule());
    let request = get("ads.example", "/");
    let (mut bytes, length_bytes) = talk.frame(Direction::Original, tcp_flags::ACK, 0, &request);
    bytes.truncate(length_bytes);
    let Talk { gateway, connection, .. } = &mut talk;
    let (processed, sent) =
        with_packet(&mut bytes, length_bytes, |packet| gateway.process(connection, packet, Direction::Original));
    talk.sent = sent;
    assert_eq!(processed.verdict, Verdict::SendBack);
    let (tuple, segment, _) = talk.left();
    assert!(tuple == talk.connection.original.inverse() && segment.has(tcp_flags::RST));
}

#[test]
fn a_reload_continues_counters_and_reevaluates_by_category() {
    let mut talk = Talk::web(rule());
    assert_eq!(talk.client(&hello("games.example")), Verdict::Forward);
    let strict = RuleConfig { block: vec!["games".into()], ..rule() };
    let renewed = Arc::new(rules_after(&[strict], Some(&talk.rules)).unwrap());
    let filter = UrlFilter::new(Arc::clone(&renewed));
    let mut state = talk.gateway.chain.state_of::<UrlState>(&talk.connection).unwrap();
    let reevaluated =
        |filter: &UrlFilter, state: &mut UrlState| filter.reevaluate(state, &talk.connection.original, Class::Unknown);
    assert_eq!(reevaluated(&filter, &mut state), ReevaluationOutcome::Denied);
    assert_eq!(reevaluated(&UrlFilter::new(Arc::clone(&talk.rules)), &mut state), ReevaluationOutcome::Allowed);
    assert_eq!(renewed.views()[0].decisions, [("games".into(), Decided::Allowed, 1)]);
}

#[test]
fn a_rule_with_a_category_of_no_list_is_a_mistake() {
    let unknown = RuleConfig { block: vec!["weapons".into()], ..rule() };
    let mistake = rules_after(&[unknown], None).unwrap_err().to_string();
    assert!(mistake.contains("no list has the category \"weapons\""), "{mistake}");
}

#[test]
fn a_restored_connection_is_an_allowed_one() {
    let filter = UrlFilter::new(rules_of(rule()));
    let restored = |tuple| filter.restore(&mut Restoring::new(tuple, None)).map(|state| state.phase());
    assert_eq!(restored(tcp("10.0.0.2:4000", "198.51.100.1:443")), Some(Phase::Allowed));
    assert_eq!(restored(tcp("10.0.0.2:4000", "198.51.100.1:22")), Some(Phase::Unfiltered));
    assert!(!filter.is_restorable(&UrlState::reading(1, 64)));
    assert_eq!(restored(udp("10.0.0.2:4000", "198.51.100.1:443")), Some(Phase::Initials));
    assert!(!filter.is_restorable(&UrlState::decided(Phase::BlockedByReset, 1)));
    assert_eq!(UrlState::ATTRIBUTE, 8);
}
