//! The helper's view of both sides, under any segmentation, retransmission and loss.

use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;

use flow::conntrack::ProtocolState;
use flow::serial::is_before;
use flow::wire::{Parsed, build, parse};
use flow::{Connection, Frame, Instant, PortId, Tuple};
use proptest::prelude::*;

use super::*;
use crate::chain::{Chain, ChainBuilder, Runtime};
use crate::expectation::{ANY_PORT, Expectation, Expectations};
use crate::function::{FlowState, HandshakeExchange, TupleUse};
use crate::inspect::assembly::Assemblies;
use crate::log::Log;
use crate::testing::tcp;

const CLIENT_ISN: u32 = u32::MAX - 20;
const SERVER_ISN: u32 = 5000;
const ACK: u8 = tcp_flags::ACK;
const CLIENT: &str = "10.0.0.2:4000";
const SERVER: &str = "198.51.100.9:21";

fn config() -> FtpConfig {
    FtpConfig {
        control_ports: Vec::from([PortRange::single(CONTROL_PORT)]),
        loose: false,
        privileged_ports: false,
        timeout: Duration::from_secs(300),
        ports: PortRange::new(1024, u16::MAX).unwrap(),
        node: NodeId(0),
        nodes: NonZeroU8::new(2).unwrap(),
        key: HashKey([1, 2]),
    }
}

struct NothingUsed;

impl TupleUse for NothingUsed {
    fn is_used(&self, _: &Tuple) -> bool {
        false
    }
}

/// A control connection through the helper alone, translated or not.
struct Control {
    chain: Chain,
    connection: Connection,
    expectations: Expectations,
    assemblies: Assemblies,
    log: Log,
    counters: crate::chain::ChainCounters,
}

/// A segment after processing.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Out {
    sequence: u32,
    acknowledgement: u32,
    blocks: Vec<(u32, u32)>,
    maximum_segment_bytes: Option<u16>,
    text: Vec<u8>,
}

impl Control {
    /// A control connection after its handshake. `seen_as` is the client as the server sees it, `server` the server as
    /// it sees itself.
    fn open(config: FtpConfig, seen_as: &str, server: &str) -> Self {
        let chain = ChainBuilder::new().push(Ftp::new(config).unwrap()).build().unwrap();
        let original = tcp(CLIENT, SERVER);
        let mut connection = Connection::new(original, NodeId(0), ProtocolState::default(), Instant::FAR_FUTURE);
        connection.reply = tcp(server, seen_as);
        let (counters, log, expectations) = (chain.new_counters(), Log::default(), Expectations::default());
        let mut control = Self { chain, connection, expectations, assemblies: Assemblies::default(), log, counters };
        control.begin();
        let syn = build::Tcp { flags: tcp_flags::SYN, sequence: CLIENT_ISN, ..build::Tcp::default() };
        control.pass(Direction::Original, syn, b"").unwrap();
        let flags = tcp_flags::SYN | ACK;
        let syn_ack = build::Tcp { flags, sequence: SERVER_ISN, acknowledgement: CLIENT_ISN.wrapping_add(1), ..syn };
        control.pass(Direction::Reply, syn_ack, b"").unwrap();
        control
    }

    /// Behind source NAT: a longer address, and so longer lines.
    fn translated() -> Self {
        Self::open(config(), "203.0.113.100:4000", SERVER)
    }

    fn begin(&mut self) {
        let reply = self.connection.reply;
        let mut bytes = build::tcp(&self.connection.original, build::Tcp::default(), b"");
        let length_bytes = bytes.len();
        let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
        let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { panic!("a sound packet") };
        let mut runtime = Runtime {
            now: Instant::ZERO,
            node: NodeId(0),
            counters: &mut self.counters,
            log: &mut self.log,
            assemblies: &mut self.assemblies,
            expectations: &mut self.expectations,
            handshake: HandshakeExchange::NONE,
        };
        let packet = Packet { frame: &mut frame, headers: &mut headers };
        self.chain.init(&mut runtime, &NothingUsed, &mut self.connection, &packet).unwrap();
        self.connection.reply = reply;
    }

    fn pass(&mut self, direction: Direction, segment: build::Tcp<'_>, text: &[u8]) -> Result<Out, DropReason> {
        let mut bytes = build::tcp(self.connection.tuple(direction), segment, text);
        let length_bytes = bytes.len();
        bytes.resize(length_bytes + usize::from(GROWTH_BYTES_MAX), 0);
        let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
        let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { panic!("a sound packet") };
        let mut runtime = Runtime {
            now: Instant::ZERO,
            node: NodeId(0),
            counters: &mut self.counters,
            log: &mut self.log,
            assemblies: &mut self.assemblies,
            expectations: &mut self.expectations,
            handshake: HandshakeExchange::NONE,
        };
        let mut packet = Packet { frame: &mut frame, headers: &mut headers };
        match self.chain.process(&mut runtime, &mut self.connection, &mut packet, direction).verdict {
            Verdict::Forward => {}
            Verdict::Drop(reason) => return Err(reason),
            other => panic!("{other:?}"),
        }
        let Ok(Parsed::Ip(headers)) = parse(&frame) else { panic!("a sound packet comes out: {:?}", parse(&frame)) };
        let view = flow::wire::tcp::TcpView::new_checked(&frame.bytes()[usize::from(headers.l4_offset)..]).unwrap();
        let sack = view.options().filter_map(Result::ok).find(|option| option.kind == 5);
        let edges = sack.map_or(&[][..], |option| option.value);
        let edges: Vec<u32> = edges.as_chunks().0.iter().map(|edge| u32::from_be_bytes(*edge)).collect();
        Ok(Out {
            sequence: view.sequence(),
            acknowledgement: view.acknowledgement(),
            maximum_segment_bytes: view.segment().unwrap().maximum_segment_bytes,
            blocks: edges.as_chunks().0.iter().map(|[left, right]| (*left, *right)).collect(),
            text: view.payload().to_vec(),
        })
    }

    /// The client sends text at `offset` from its first byte.
    fn client(&mut self, offset: u32, text: &str) -> Result<Out, DropReason> {
        let sequence = CLIENT_ISN.wrapping_add(1).wrapping_add(offset);
        let segment = build::Tcp { flags: ACK, sequence, acknowledgement: SERVER_ISN + 1, ..build::Tcp::default() };
        self.pass(Direction::Original, segment, text.as_bytes())
    }

    /// The server sends text at `offset` from its first byte, having received `acknowledged` bytes.
    fn server(&mut self, offset: u32, acknowledged: u32, text: &str) -> Result<Out, DropReason> {
        let acknowledgement = CLIENT_ISN.wrapping_add(1).wrapping_add(acknowledged);
        let sequence = SERVER_ISN + 1 + offset;
        let segment = build::Tcp { flags: ACK, sequence, acknowledgement, ..build::Tcp::default() };
        self.pass(Direction::Reply, segment, text.as_bytes())
    }

    fn expected(&self) -> Vec<Expectation> {
        self.expectations.of(&self.connection.original).copied().collect()
    }

    fn counter(&self, name: &str) -> u64 {
        let names = self.chain.counter_names();
        self.counters.values()[names.iter().position(|known| known == name).expect(name)]
    }
}

fn offset_of(sequence: u32) -> u32 {
    sequence.wrapping_sub(CLIENT_ISN).wrapping_sub(1)
}

fn any_port(tuple: Tuple) -> Tuple {
    Tuple { source_port: ANY_PORT, ..tuple }
}

const PORT: &str = "PORT 10,0,0,2,19,136\r\n";
/// [`PORT`] as the server receives it.
const PORT_SEEN: &str = "PORT 203,0,113,100,19,136\r\n";

#[test]
fn a_client_behind_source_nat_is_announced_with_its_outside_address() {
    let mut control = Control::translated();
    let out = control.client(0, PORT).unwrap();
    assert_eq!(String::from_utf8_lossy(&out.text), PORT_SEEN);
    let expected = control.expected();
    assert_eq!(expected.len(), 1);
    assert_eq!(expected[0].tuple, any_port(tcp("198.51.100.9:1", "203.0.113.100:5000")));
    assert_eq!(expected[0].outgoing, any_port(tcp("198.51.100.9:1", "10.0.0.2:5000")));

    // Everything behind the line is shifted, and acknowledged in the client's numbering.
    let shift = (PORT_SEEN.len() - PORT.len()) as u32;
    let after = control.client(PORT.len() as u32, "LIST\r\n").unwrap();
    assert_eq!(offset_of(after.sequence), PORT_SEEN.len() as u32);
    let answer = control.server(0, PORT_SEEN.len() as u32 + 6, "200 ok\r\n").unwrap();
    assert_eq!(offset_of(answer.acknowledgement), PORT.len() as u32 + 6);
    assert_eq!(shift, 5);
}

#[test]
fn announcements_without_translation_are_unchanged_but_expected() {
    let mut control = Control::open(config(), CLIENT, SERVER);
    let out = control.client(0, PORT).unwrap();
    assert_eq!(out.text, PORT.as_bytes());
    assert_eq!(control.expected()[0].tuple, any_port(tcp("198.51.100.9:1", "10.0.0.2:5000")));
    assert_eq!(control.expected()[0].outgoing, control.expected()[0].tuple);
}

#[test]
fn a_server_behind_destination_nat_is_announced_with_its_outside_address() {
    let mut control = Control::open(config(), CLIENT, "10.9.0.9:2121");
    control.client(0, "PASV\r\n").unwrap();
    let out = control.server(0, 6, "227 Entering Passive Mode (10,9,0,9,200,1).\r\n").unwrap();
    assert_eq!(String::from_utf8_lossy(&out.text), "227 Entering Passive Mode (198,51,100,9,200,1).\r\n");
    assert_eq!(control.expected()[0].tuple, any_port(tcp("10.0.0.2:1", "198.51.100.9:51201")));
    assert_eq!(control.expected()[0].outgoing, any_port(tcp("10.0.0.2:1", "10.9.0.9:51201")));
}

#[test]
fn extended_passive_mode_is_unchanged_while_the_port_is_free() {
    let mut control = Control::open(config(), CLIENT, "10.9.0.9:2121");
    control.client(0, "EPSV\r\n").unwrap();
    let line = "229 Entering Extended Passive Mode (|||51201|)\r\n";
    assert_eq!(control.server(0, 6, line).unwrap().text, line.as_bytes());
    assert_eq!(control.expected()[0].outgoing, any_port(tcp("10.0.0.2:1", "10.9.0.9:51201")));
}

#[test]
fn another_port_is_announced_when_the_first_is_in_use() {
    let mut control = Control::translated();
    let taken = Expectation {
        tuple: any_port(tcp("198.51.100.9:1", "203.0.113.100:5000")),
        outgoing: any_port(tcp("198.51.100.9:1", "10.0.0.3:5000")),
        function: FtpState::ATTRIBUTE,
        expires_at: Instant::FAR_FUTURE,
        is_permanent: false,
    };
    control.expectations.expect(Instant::ZERO, &tcp("10.0.0.3:1", SERVER), taken).unwrap();
    let first = control.client(0, PORT).unwrap();
    let port = control.expected()[0].tuple.destination_port;
    assert!(port != 5000 && (1024..=33_279).contains(&port), "{port} is of this node's part");
    let [high, low] = port.to_be_bytes();
    assert_eq!(String::from_utf8_lossy(&first.text), std::format!("PORT 203,0,113,100,{high},{low}\r\n"));
    assert_eq!(control.client(0, PORT).unwrap(), first, "a retransmission is changed alike");
}

#[test]
fn a_port_of_another_nodes_part_is_not_announced() {
    let mut control = Control::translated();
    control.client(0, "EPRT |1|10.0.0.2|60000|\r\n").unwrap();
    let expected = control.expected()[0];
    assert!(expected.tuple.destination_port < 33_280);
    assert_eq!(expected.outgoing.destination_port, 60_000);
}

#[test]
fn third_party_addresses_and_low_ports_are_expected_only_if_configured() {
    let third_party = "PORT 10,0,0,3,19,136\r\n";
    let low_port = "PORT 10,0,0,2,0,25\r\n";
    let mut control = Control::translated();
    assert_eq!(control.client(0, third_party).unwrap().text, third_party.as_bytes());
    assert_eq!(control.client(third_party.len() as u32, low_port).unwrap().text, low_port.as_bytes());
    assert!(control.expected().is_empty());
    let counted = ["ftp.addresses_refused", "ftp.ports_refused"].map(|name| control.counter(name));
    assert_eq!((counted, control.log.drain().len()), ([1, 1], 2));

    let wanted = FtpConfig { loose: true, privileged_ports: true, ..config() };
    let mut control = Control::open(wanted, "203.0.113.100:4000", SERVER);
    control.client(0, third_party).unwrap();
    assert_eq!(control.expected()[0].outgoing, any_port(tcp("198.51.100.9:1", "10.0.0.3:5000")));
    let out = control.client(third_party.len() as u32, low_port).unwrap();
    assert!(String::from_utf8_lossy(&out.text).starts_with("PORT 203,0,113,100,"));
    assert_eq!(control.expected()[0].outgoing.destination_port, 25);
}

#[test]
fn only_a_reply_to_a_request_is_accepted() {
    let passive = "227 Entering Passive Mode (198,51,100,9,200,1).\r\n";
    let mut control = Control::open(config(), CLIENT, SERVER);
    control.server(0, 0, passive).unwrap();
    assert!(control.expected().is_empty(), "there was no request");

    let mut control = Control::open(config(), CLIENT, SERVER);
    control.client(0, "STAT\r\nPASV\r\n").unwrap();
    let listing = std::format!("211-Status\r\n{passive}211 End\r\n");
    control.server(0, 12, &listing).unwrap();
    assert!(control.expected().is_empty(), "a line within a reply of several");
    control.server(listing.len() as u32, 12, passive).unwrap();
    assert_eq!(control.expected().len(), 1);

    let mut control = Control::open(config(), CLIENT, SERVER);
    control.server(0, 0, PORT).unwrap();
    control.client(0, passive).unwrap();
    assert!(control.expected().is_empty(), "commands of a server, replies of a client");
}

#[test]
fn encrypted_data_is_not_read() {
    let mut control = Control::translated();
    control.client(0, "AUTH TLS\r\n").unwrap();
    control.server(0, 10, "234 go on\r\n").unwrap();
    assert_eq!(control.client(10, PORT).unwrap().text, PORT.as_bytes());
    control.client(10 + PORT.len() as u32, "PO").expect("nothing is expected");
    assert!(control.expected().is_empty());
}

#[test]
fn a_line_that_never_arrives_whole_finally_passes_unread() {
    let mut control = Control::translated();
    for _ in 0..state::REFUSALS_MAX {
        assert_eq!(control.client(0, "PORT 10,0,").unwrap_err(), DropReason::PartialLine);
        assert_eq!(control.client(10, "0,2,19,136\r\n").unwrap_err(), DropReason::PartialLine);
    }
    control.client(0, "PORT 10,0,").unwrap();
    control.client(10, "0,2,19,136\r\n").unwrap();
    assert!(control.expected().is_empty());
    control.client(22, PORT).unwrap();
    assert_eq!(control.expected().len(), 1, "the next line is read again");
}

#[test]
fn selective_acknowledgements_follow_the_numbers() {
    let mut control = Control::translated();
    control.client(0, PORT).unwrap();
    control.client(PORT.len() as u32, "NOOP\r\n").unwrap();
    let at = |offset: usize| CLIENT_ISN.wrapping_add(1).wrapping_add(offset as u32);
    let block = (at(PORT_SEEN.len()), at(PORT_SEEN.len() + 6));
    let segment = build::Tcp {
        flags: ACK,
        sequence: SERVER_ISN + 1,
        acknowledgement: at(0),
        sack_blocks: &[block],
        ..build::Tcp::default()
    };
    let out = control.pass(Direction::Reply, segment, b"").unwrap();
    assert_eq!((out.acknowledgement, out.blocks), (at(0), Vec::from([(at(PORT.len()), at(PORT.len() + 6))])));
    let mut bytes = build::tcp(&control.connection.reply, segment, b"");
    let length_bytes = bytes.len();
    let frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
    let Ok(Parsed::Ip(headers)) = parse(&frame) else { panic!("a sound packet") };
    let tracked = control.chain.as_sent(&control.connection, &headers, Direction::Reply).expect("other numbers");
    let Transport::Tcp(tracked) = tracked.transport else { panic!("still TCP") };
    assert_eq!((tracked.acknowledgement, tracked.sack_end), (at(0), at(PORT.len() + 6)));
}

#[test]
fn another_node_continues_with_the_numbers() {
    let mut control = Control::translated();
    control.client(0, PORT).unwrap();
    let mut attributes = Vec::new();
    control.chain.encode_states(&control.connection, &mut attributes);
    let mut copy =
        Connection::new(control.connection.original, NodeId(1), ProtocolState::default(), Instant::FAR_FUTURE);
    copy.reply = control.connection.reply;
    control.chain.decode_states(&mut copy, &attributes).unwrap();
    assert_eq!(copy.functions, control.connection.functions);
    control.connection = copy;
    assert_eq!(control.client(0, PORT).unwrap().text, PORT_SEEN.as_bytes(), "the line was lost with the node");
    assert_eq!(offset_of(control.client(PORT.len() as u32, "LIST\r\n").unwrap().sequence), PORT_SEEN.len() as u32);
}

#[test]
fn syns_of_translated_connections_get_a_lower_mss() {
    for (mut control, expected) in [(Control::translated(), 1396), (Control::open(config(), CLIENT, SERVER), 1460)] {
        let segment = build::Tcp {
            flags: tcp_flags::SYN,
            sequence: CLIENT_ISN,
            maximum_segment_bytes: Some(1460),
            ..build::Tcp::default()
        };
        assert_eq!(control.pass(Direction::Original, segment, b"").unwrap().maximum_segment_bytes, Some(expected));
    }
}

/// A sender with valid sequence numbers, a receiver that discards duplicates, and a network that loses, duplicates and
/// splits segments.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A segment from this share of the unacknowledged or unsent data on, of at most so many bytes.
    Send { from: u8, bytes: u8, is_lost: bool },
    /// The receiver sends an acknowledgement.
    Acknowledge { is_lost: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any::<u8>(), 1u8..60, prop::bool::weighted(0.2)).prop_map(|(from, bytes, is_lost)| Step::Send { from, bytes, is_lost }),
        1 => prop::bool::weighted(0.3).prop_map(|is_lost| Step::Acknowledge { is_lost }),
    ]
}

struct Exchange {
    control: Control,
    /// The client's data, and the ends of its announcements: no segment reaches beyond one, as clients wait for the
    /// reply.
    text: Vec<u8>,
    stops: Vec<usize>,
    acknowledged: usize,
    sent: usize,
    /// The data that reached the server, by its numbers.
    received: BTreeMap<u32, u8>,
}

impl Exchange {
    fn send(&mut self, from: usize, bytes: usize, is_lost: bool) {
        let stop = self.stops.iter().copied().find(|stop| *stop > from).unwrap_or(self.text.len());
        let to = (from + bytes).min(stop);
        let text = String::from_utf8(self.text[from..to].to_vec()).unwrap();
        self.sent = self.sent.max(to);
        let Ok(out) = self.control.client(from as u32, &text) else { return };
        if is_lost {
            return;
        }
        for (byte, behind) in out.text.iter().zip(0..) {
            let at = offset_of(out.sequence.wrapping_add(behind));
            // Acknowledged data is discarded unread; the rest must not change.
            if !is_before(at, self.contiguous()) {
                let known = *self.received.entry(at).or_insert(*byte);
                assert_eq!(known, *byte, "byte {at} has two values");
            }
        }
    }

    fn contiguous(&self) -> u32 {
        (0..).find(|at| !self.received.contains_key(at)).unwrap_or(0)
    }

    fn acknowledge(&mut self, is_lost: bool) {
        let received = self.contiguous();
        let out = self.control.server(0, received, "").unwrap();
        if !is_lost {
            self.acknowledged = self.acknowledged.max(offset_of(out.acknowledgement) as usize);
            assert!(self.acknowledged <= self.sent, "unsent data is acknowledged");
        }
    }
}

proptest! {
    #[test]
    fn the_server_receives_the_translation_under_any_segmentation_loss_and_retransmission(
        steps in prop::collection::vec(step(), 0..60), shorter: bool,
    ) {
        let (seen_as, with) = if shorter { ("8.8.4.4:4000", "8,8,4,4") } else { ("203.0.113.100:4000", "203,0,113,100") };
        let line = |address: &str, port: u8| std::format!("PORT {address},19,{port}\r\n");
        let mut sent_text = String::from("USER anonymous\r\nPASS me@\r\n");
        let mut received_text = sent_text.clone();
        let mut stops = Vec::new();
        for port in [1, 99, 200] {
            sent_text.push_str(&line("10,0,0,2", port));
            stops.push(sent_text.len());
            received_text.push_str(&line(with, port));
            for text in [&mut sent_text, &mut received_text] {
                text.push_str("RETR a file named PORT\r\n");
            }
        }
        let mut exchange = Exchange {
            control: Control::open(config(), seen_as, SERVER),
            text: sent_text.into_bytes(), stops, acknowledged: 0, sent: 0, received: BTreeMap::new(),
        };
        for step in steps {
            match step {
                Step::Send { from, bytes, is_lost } => {
                    // In order, or a retransmission of unacknowledged data.
                    let unacknowledged = exchange.sent - exchange.acknowledged;
                    let from = if from < 128 { exchange.sent } else {
                        exchange.acknowledged + usize::from(from - 128) * unacknowledged / 128
                    };
                    if from < exchange.text.len() {
                        exchange.send(from, usize::from(bytes), is_lost);
                    }
                }
                Step::Acknowledge { is_lost } => exchange.acknowledge(is_lost),
            }
        }
        // The network is reliable again: unacknowledged data is retransmitted, as much as fits at once.
        for _ in 0..40 {
            if exchange.acknowledged < exchange.text.len() {
                exchange.send(exchange.acknowledged, 1000, false);
                exchange.acknowledge(false);
            }
        }
        prop_assert_eq!(exchange.acknowledged, exchange.text.len());
        let received: Vec<u8> = exchange.received.values().copied().collect();
        let received = String::from_utf8_lossy(&received).into_owned();
        // A line that was repeatedly segmented may have passed unread, as the client sent it.
        let refused = exchange.control.counter("ftp.parts_refused");
        if refused < u64::from(state::REFUSALS_MAX) {
            prop_assert_eq!(received, received_text);
            prop_assert_eq!(exchange.control.counter("ftp.rewritten"), 3);
        }
    }
}
